"""How many drafted tokens are accepted: one chance, a rate for each position, or a mean acceptance length."""

import itertools
import math
from collections.abc import Sequence

from planner.errors import UsageError

OPTION = "--speculative-acceptance"
MEASURED = ("thinking", "no-thinking")  # measured acceptance lengths, with and without a chain of thought
LENGTH = "length:"  # precedes vLLM's "Mean acceptance length"
HALVINGS = 60  # of an interval in [0, 1]: beyond the precision of a float


def cumulative_acceptance(text: str, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return the chance that a draft's first j tokens are all accepted, for j from 1 to k.

    Several numbers are vLLM's "Per-position acceptance rate": the share of all drafts whose j-th token was accepted.
    Since a token is accepted only after all before it, that is the chance itself, and never rises. One number is the
    chance p of each token whose predecessors were accepted, so p^j; at one drafted token both are the same. Of more
    numbers than k the first k count. A mean acceptance length L stands for the p with 1 + p + ... + p^k = L.

    Source: vllm/v1/spec_decode/metrics.py; Leviathan et al., Fast Inference from Transformers via Speculative Decoding,
    2023, equation 1.

    >>> cumulative_acceptance("0.5", 3)
    (0.5, 0.25, 0.125)
    >>> cumulative_acceptance("0.8,0.6,0.4", 2)
    (0.8, 0.6)
    >>> [round(chance, 6) for chance in cumulative_acceptance("length:1.75", 2)]
    [0.5, 0.25]

    Raises
    ------
    UsageError : a part is no number in [0, 1], rates rise, there are fewer than k, or a length is not in [1, 1 + k].
    """
    if str(text).startswith(LENGTH):
        return _of_length(text, num_speculative_tokens)
    parts = str(text).split(",")
    if len(parts) == 1 and (length := _number(text, text)) > 1.0:
        raise UsageError(f"{OPTION} {text}: {length:g} is outside [0, 1]; give a share of the drafts (0.7 for 70 %), "
                         f"or a mean acceptance length, SGLang's accept len, as {LENGTH}{length:g}")
    rates = [_chance(part, text) for part in parts]
    if len(rates) == 1:
        return tuple(rates[0] ** j for j in range(1, num_speculative_tokens + 1))
    for place, (before, after) in enumerate(itertools.pairwise(rates), start=2):
        if after > before:
            raise UsageError(f"{OPTION} {text}: {after:g} at position {place} is above {before:g} before it; they are "
                             f"shares of all drafts, as vLLM's per-position rates, and cannot rise")
    if len(rates) < num_speculative_tokens:
        raise UsageError(f"{OPTION} {text}: has {len(rates)} positions, and --num-speculative-tokens is "
                         f"{num_speculative_tokens}; give one for each, or one number for all")
    return tuple(rates[:num_speculative_tokens])


def acceptance_of_lengths(lengths: Sequence[float], num_speculative_tokens: int) -> tuple[float, ...]:
    """Return the chance that a draft's first j tokens are all accepted, from mean acceptance lengths by draft length.

    The chance at position j is the gain in measured length from the j-th drafted token. Chances cannot rise: where
    noise makes them, the nearest falling sequence in least squares stands in, whose sum is the same. Then they are
    scaled to the measured length at k. Beyond the measured lengths each position has the last one's ratio to the one
    before.

    Parameters
    ----------
    lengths : tokens that a decode emits a step with 1, 2, ... drafted tokens, its own included, at least 2 of them.

    >>> [round(chance, 2) for chance in acceptance_of_lengths([1.8, 2.4, 2.8], 3)]
    [0.8, 0.6, 0.4]
    >>> [round(chance, 3) for chance in acceptance_of_lengths([1.8, 2.4], 3)]
    [0.8, 0.6, 0.45]
    """
    known = [1.0, *lengths[:num_speculative_tokens]]
    falling = [max(gain, 0.0) for gain in _falling([after - before for before, after in itertools.pairwise(known)])]
    scaled = [gain * (known[-1] - 1.0) / math.fsum(falling) for gain in falling]
    while len(scaled) < num_speculative_tokens:
        scaled.append(scaled[-1] * scaled[-1] / scaled[-2] if scaled[-1] > 0.0 else 0.0)
    return tuple(scaled)


def _falling(values: Sequence[float]) -> list[float]:
    """Return the nearest sequence that never rises, in least squares: pools of neighbours that rise have their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] < mean:
            before, size = pools.pop()
            mean, count = (mean * count + before * size) / (count + size), count + size
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _of_length(text: str, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return the chances p, p^2, ... whose sum is a mean acceptance length less one."""
    length, most = _number(text.removeprefix(LENGTH), text), 1 + num_speculative_tokens
    if most == 1:  # no drafts
        return ()
    if not 1.0 <= length <= most:
        raise UsageError(f"{OPTION} {text}: with --num-speculative-tokens {num_speculative_tokens} a decode emits 1 "
                         f"to {most} tokens a step; give its mean acceptance length")
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        chance = (low + high) / 2
        is_below = math.fsum(chance**j for j in range(most)) < length
        low, high = (chance, high) if is_below else (low, chance)
    return tuple(high**j for j in range(1, most))


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise UsageError(f"{OPTION} {text}: {part!r} is no number; give one, one for each position (0.8,0.6,0.4), a "
                         f"mean acceptance length (length:2.9), or {' or '.join(MEASURED)}") from None


def _chance(part: str, text: str) -> float:
    chance = _number(part, text)
    if not 0 <= chance <= 1:
        raise UsageError(f"{OPTION} {text}: {part.strip()} is outside [0, 1]; give shares, not percentages")
    return chance
