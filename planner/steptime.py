"""Step times by term: a line that the user has measured, or the roofline, and how each step's time divides."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.engine import state as st
from planner.engine import timing
from planner.engine.jit import compile_with_signature, numba
from planner.errors import UsageError

TERMS = ("linear_s", "experts_s", "activations_s", "attention_prompt_s", "attention_decode_s", "lm_head_s",
         "collectives_s", "overhead_s", "swap_s")


def linear(text: str) -> Any:
    """Parse `linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S]` into the loop's coefficients.

    A step lasts base + per_token · (tokens in the step) + per_context_token · (tokens computed before, of its
    requests).

    >>> float(linear("linear:0.02,5e-05").per_token_s)
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
    t = st.records(1, st.STEP_TIME)[0]
    t.is_linear = 1
    t.base_s, t.per_token_s = values[:2]
    t.per_context_token_s = values[2] if len(values) == 3 else 0.0
    return t


def _terms(t: Any, steps: Any, swap_s_per_token: float, out: Any) -> None:
    for k in range(len(steps)):
        step = steps[k]
        total = float(step.num_prompt_tokens + step.num_decodes)
        decode_s = timing.decode_attention_s(t, step.num_decodes, step.decode_context_tokens)
        if t.is_linear:
            out[0, k] = t.per_token_s * total
            out[3, k] = t.per_context_token_s * step.prompt_context_tokens
            out[4, k] = decode_s
            out[7, k] = t.base_s
        else:
            out[0, k] = timing.dense_s(t, total)
            out[1, k] = timing.experts_s(t, total)
            out[2, k] = total * t.activation_s_per_token
            out[3, k] = timing.prompt_attention_s(t, float(step.num_prompt_tokens), float(step.prompt_context_tokens),
                                                  float(step.prompt_pairs), float(step.window_pairs))
            out[4, k] = decode_s
            out[5, k] = timing.head_s(t, float(step.num_sampled))
            out[6, k] = timing.collectives_s(t, total)
            out[7, k] = timing.overheads_s(t, float(step.num_prompts + step.num_decodes))
        out[8, k] = step.num_swapped_tokens * swap_s_per_token


@functools.cache
def _compiled_terms() -> Callable[..., None]:
    signature = numba.void(st.numba_record(st.STEP_TIME), st.numba_records(st.STEP_ROW), numba.float64,
                           numba.float64[:, ::1])
    return compile_with_signature(_terms, signature)


def step_terms(step_time: Any, steps: Any, swap_s_per_token: float) -> dict[str, NDArray[np.float64]]:
    """Return how the time of each step divides into `TERMS` [s], shape [num_steps] each; their sum is its duration.

    Parameters
    ----------
    step_time : record of `engine.state.STEP_TIME`.
    steps : records of `engine.state.STEP_ROW`, shape [num_steps].
    swap_s_per_token : time that one token's KV takes over the host link [s].
    """
    out = np.zeros((len(TERMS), len(steps)))
    _compiled_terms()(step_time, steps, swap_s_per_token, out)
    return dict(zip(TERMS, out, strict=True))
