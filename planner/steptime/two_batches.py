"""Two-batch overlap: a step as two halves of its tokens, one exchanged while the other computes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.loop.state.count_table import node_counts
from planner.loop.state.terms import StepTime
from planner.model.batch_overlap import BatchOverlap
from planner.steptime.contribution import Contribution, summed, tokens_s
from planner.steptime.exchange_time import BESIDE_HIGH_THROUGHPUT, HIGH_THROUGHPUT, LOW_LATENCY_TOKENS
from planner.steptime.operators.gemm import Floats

COMPUTED = ("linear_s", "experts_s", "activations_s")
OF_DECODES = ("decode_s_per_context_token", "decode_s_per_window_token", "decode_part")


def half_counts() -> NDArray[np.int64]:
    """Return the tokens of the larger half at each count of the curve, shape of `node_counts` [1]."""
    return -(-node_counts() // 2)


def in_two_batches(whole: StepTime, halves: Sequence[Contribution], overlap: BatchOverlap, exchange: str) -> StepTime:
    """Return the time of steps, of which some run as two halves.

    t = max(2 · compute(n/2), 2 · exchange(n/2)): in each layer one half is exchanged while the other computes, so both
    take turns at the GPU and at its links. Each half reads all weights, so that small steps get slower. Attention of
    prompts and the decodes' context is added outside, and hides no exchange here. Kernels that hold multiprocessors
    slow the compute beside them.

    Parameters
    ----------
    whole : of steps that are not split.
    halves : each operator's contribution at `half_counts`.
    overlap : which steps are split.
    exchange : how tokens reach their experts, a value of `Layout.exchange`.

    Notes
    -----
    Source: vLLM's docs/design/dbo.md; SGLang's two_batch_overlap.py; both after DeepSeek's profile-data.
    """
    half, exchanged_s = summed(halves).curve, _exchanged_s(halves)
    counts = node_counts()
    is_split = (counts >= overlap.first) & (counts <= overlap.last)
    beside = np.where(_holds_multiprocessors(exchange), BESIDE_HIGH_THROUGHPUT, 1.0)
    computed = {name: 2.0 * beside * half[name] for name in COMPUTED}
    others_s = 2.0 * beside * (half.collectives_s - exchanged_s)
    seen_s = np.maximum(2.0 * exchanged_s - sum(computed.values()) - others_s, 0.0)
    doubled = computed | {
        "collectives_s": others_s + seen_s,
        "shared_s": 2.0 * beside * (half.shared_s - exchanged_s) + seen_s,
        "tokens_bytes": 2.0 * half.tokens_bytes,
    }
    curve = whole.curve.copy()
    for name, value in doubled.items():
        curve[name] = np.where(is_split, value, curve[name])
    curve.tokens_s = tokens_s(curve)
    terms = whole.terms.copy()
    terms["prompt_launch_s"] *= 2.0 if overlap.last == np.inf else 1.0
    if overlap.splits_decodes:
        decode_s = 2.0 * (half.decode_s - half.draft_decode_s) + curve.draft_decode_s
        curve.decode_s = np.where(is_split, decode_s, curve.decode_s)
        for name in OF_DECODES:
            curve[name] = np.where(is_split, half[name], curve[name])
        terms["decode_launch_s"] *= 2.0
    return StepTime(terms=terms, curve=curve)


def _exchanged_s(contributions: Sequence[Contribution]) -> Floats:
    """Return the exchange's part of contributions, without tokens none [s]."""
    total = np.zeros(len(node_counts()))
    for part in contributions:
        if part.name == "exchange":
            total = total + part.curve["collectives_s"]
    total[0] = 0.0
    return total


def _holds_multiprocessors(exchange: str) -> NDArray[np.bool_]:
    """Tell at which counts the exchange of a half takes multiprocessors from compute, shape of `node_counts`."""
    return (exchange == HIGH_THROUGHPUT) | ((exchange == "deepep") & (half_counts() > LOW_LATENCY_TOKENS))
