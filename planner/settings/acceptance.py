"""How many drafted tokens are accepted: one chance, or vLLM's acceptance rate of each position."""

import itertools

from planner.errors import UsageError

OPTION = "--speculative-acceptance"


def cumulative_acceptance(given: str, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return the chance that a draft's first j tokens are all accepted, for j from 1 to k.

    Several numbers are vLLM's "Per-position acceptance rate": the share of all drafts whose j-th token was accepted.
    Since a token is accepted only after those before it, that is the chance itself, and never rises. One number is the
    chance p of each token whose predecessors were accepted, so p^j; at one drafted token both are the same. Of more
    numbers than k the first k count.

    Source: vllm/v1/spec_decode/metrics.py; Leviathan et al., Fast Inference from Transformers via Speculative Decoding,
    2023, equation 1.

    >>> cumulative_acceptance("0.5", 3)
    (0.5, 0.25, 0.125)
    >>> cumulative_acceptance("0.8,0.6,0.4", 2)
    (0.8, 0.6)

    Raises
    ------
    UsageError : a part is no number in [0, 1], rates rise, or there are fewer than k.
    """
    rates = [_chance(part, given) for part in str(given).split(",")]
    if len(rates) == 1:
        return tuple(rates[0] ** j for j in range(1, num_speculative_tokens + 1))
    for place, (before, after) in enumerate(itertools.pairwise(rates), start=2):
        if after > before:
            raise UsageError(f"{OPTION} {given}: {after:g} at position {place} is above {before:g} before it; they are "
                             f"shares of all drafts, as vLLM's per-position rates, and cannot rise")
    if len(rates) < num_speculative_tokens:
        raise UsageError(f"{OPTION} {given}: has {len(rates)} positions, and --num-speculative-tokens is "
                         f"{num_speculative_tokens}; give one for each, or one number for all")
    return tuple(rates[:num_speculative_tokens])


def _chance(part: str, given: str) -> float:
    try:
        chance = float(part)
    except ValueError:
        raise UsageError(f"{OPTION} {given}: {part!r} is no number; give one, or one for each position: "
                         f"0.8,0.6,0.4") from None
    if not 0 <= chance <= 1:
        raise UsageError(f"{OPTION} {given}: {part.strip()} is outside [0, 1]; give shares, not percentages")
    return chance
