"""Step times by term: a line that the user has measured, or the roofline, and how each step's time divides."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.loop import timing
from planner.loop.compiled.jit import compile_with_signature, jit, numba
from planner.loop.rows import STEP_ROW, all_sampled
from planner.loop.state import engine_state as st
from planner.loop.state.count_table import between, shared_s, table_index
from planner.loop.state.terms import CURVE, STEP_TIME, StepTime

TERMS = ("linear_s", "experts_s", "activations_s", "attention_prompt_s", "attention_decode_s", "lm_head_s",
         "collectives_s", "overhead_s", "swap_s", "draft_s", "adapters_s", "rank_wait_s", "images_s")


def linear(text: str, tokens_per_decode: int = 1) -> StepTime:
    """Parse `linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S]` into the loop's coefficients.

    A step lasts base + per_token · (tokens in the step) + per_context_token · (tokens computed before, of its
    requests).

    >>> float(linear("linear:0.02,5e-05").terms.per_token_s)
    5e-05

    Raises
    ------
    UsageError : the text has another form, or a coefficient is negative or not finite.
    """
    parts = text.removeprefix("linear:").split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if not 2 <= len(values) <= 3 or not all(np.isfinite(v) and v >= 0 for v in values) or sum(values[:2]) == 0:
        raise UsageError(f"--step-time {text!r}: expected linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S] with seconds "
                         f">= 0 that are not all zero, for example linear:0.02,5e-05")
    t = st.records(1, STEP_TIME)[0]
    t.is_linear = 1
    t.tokens_per_decode = tokens_per_decode
    t.base_s, t.per_token_s = values[:2]
    t.per_context_token_s = values[2] if len(values) == 3 else 0.0
    return StepTime(terms=t, curve=st.records(1, CURVE))


def _terms(t: Any, curve: Any, steps: Any, swap_s_per_token: float, out: Any) -> None:
    for i in range(len(steps)):
        step = steps[i]
        total = step.num_prompt_tokens + step.num_decodes + step.num_drafted_tokens
        slopes = timing.context_slopes(t, curve, step.num_decodes)
        context_s = timing.context_s(t, slopes, step.num_decodes, step.decode_context_tokens)
        swap_s = step.num_swapped_tokens * swap_s_per_token
        out[12, i] = step.image_s
        out[10, i] = timing.adapters_s(t, step.num_adapters, total) + step.adapter_load_s
        if t.is_linear:
            out[0, i] = t.per_token_s * total
            out[3, i] = t.per_context_token_s * step.prompt_context_tokens
            out[4, i] = context_s
            out[7, i] = t.base_s
        else:
            k, fraction = table_index(total)
            out[0, i] = between(curve[k].linear_s, curve[k + 1].linear_s, fraction)
            out[1, i] = between(curve[k].experts_s, curve[k + 1].experts_s, fraction)
            out[2, i] = between(curve[k].activations_s, curve[k + 1].activations_s, fraction)
            out[3, i] = timing.prompt_attention_s(t, step.num_prompts, step.num_prompt_tokens,
                                                  step.prompt_context_tokens, step.prompt_pairs, step.window_pairs)
            draft_s = timing.draft_decode_s(curve, step.num_decodes)
            out[4, i] = timing.decode_floor_s(curve, step.num_decodes) - draft_s + context_s
            out[4, i] += timing.waited_s(t, curve, step.num_prompts, step.num_decodes, step.decode_context_tokens,
                                         step.longest_context_tokens)
            sampled = all_sampled(step) - step.num_accepted_tokens
            out[5, i] = timing.head_s(curve, sampled + step.num_drafted_tokens)
            out[6, i] = between(curve[k].collectives_s, curve[k + 1].collectives_s, fraction)
            if step.num_spared_tokens > 0:
                _share(curve, total, total - step.num_spared_tokens, out[:, i])
            out[9, i] = between(curve[k].draft_s, curve[k + 1].draft_s, fraction) + draft_s
            gpu_s = out[:8, i].sum() + swap_s + out[9, i] + out[10, i] + out[12, i]
            looked_at = step.num_prompts + step.num_decodes + step.num_drafted_tokens
            hidden_s = timing.hidden_s(t, step.num_prompts, looked_at,
                                       timing.is_graph(t, step.num_prompts, total, step.num_decodes))
            extra_s = timing.overhead_s(t, looked_at, step.num_prompt_tokens)
            out[7, i] = extra_s + max(hidden_s - gpu_s, 0.0)
        out[8, i] = swap_s
        out[11, i] = step.rank_wait_s


@jit
def _share(curve: Any, total: int, shared: int, out: Any) -> None:
    """Set the shared work of data-parallel attention ranks to that of fewer tokens."""
    k, fraction = table_index(shared)
    experts_s = between(curve[k].experts_s, curve[k + 1].experts_s, fraction)
    spared_s = shared_s(curve, total) - shared_s(curve, shared)
    out[6] -= spared_s - (out[1] - experts_s)
    out[1] = experts_s


@functools.cache
def _compiled_terms() -> Callable[..., None]:
    signature = numba.void(st.numba_record(STEP_TIME), st.numba_records(CURVE), st.numba_records(STEP_ROW),
                           numba.float64, numba.float64[:, ::1])
    return compile_with_signature(_terms, signature)


def step_terms(step_time: StepTime, steps: Any, swap_s_per_token: float) -> dict[str, NDArray[np.float64]]:
    """Return how the time of each step divides into `TERMS` [s], shape [num_steps] each; their sum is its duration.

    `overhead_s` is the GPU's waiting time: time that nothing hides, and the host's if it exceeds the GPU's.

    Parameters
    ----------
    step_time : terms and curve.
    steps : records of `loop.rows.STEP_ROW`, shape [num_steps].
    swap_s_per_token : time that one token's KV takes over the host link [s].
    """
    out = np.zeros((len(TERMS), len(steps)))
    _compiled_terms()(step_time.terms, step_time.curve, steps, swap_s_per_token, out)
    return dict(zip(TERMS, out, strict=True))
