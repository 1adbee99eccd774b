"""How long a step takes: the roofline's terms, added up inside the loop.

`planner.roofline` derives the coefficients and states their formulas and sources. The time of a step is split in two:
what depends on the step's composition, which stays the same while a batch only decodes, and the decodes' attention,
which grows with their context.
"""

import math
from typing import Any

from planner.engine.jit import jit
from planner.engine.state import State


@jit
def smooth_max(a: float, b: float) -> float:
    """Return (a⁴ + b⁴)^¼ [s]: near the ridge neither roof holds, and the result is never below either."""
    if a < b:
        a, b = b, a
    if b <= 0.0:
        return a
    r = b / a
    r *= r
    return float(a * math.sqrt(math.sqrt(1.0 + r * r)))


@jit
def active_experts(num_experts: float, experts_per_token: float, tokens: float) -> float:
    """Return how many of a layer's experts `tokens` tokens reach, when each picks its experts at random.

    E·(1 − (1 − k/E)^n). Real routers favour some experts, so fewer are reached: the estimate errs upward.
    """
    return float(num_experts * (1.0 - (1.0 - experts_per_token / num_experts) ** tokens))


@jit
def window_pairs(window: int, computed: int, n: int) -> int:
    """Return Σ min(position, window) over the `n` positions after `computed`: attended pairs under a sliding window."""
    full = min(max(window - computed, 0), n)  # positions that still see everything before them
    return int(full * computed + full * (full + 1) // 2 + (n - full) * window)


@jit
def dense_s(t: Any, tokens: float) -> float:
    return smooth_max(t.weights_s, tokens * t.linear_s_per_token)


@jit
def experts_s(t: Any, tokens: float) -> float:
    if t.num_experts == 0.0:
        return 0.0
    active = active_experts(t.num_experts, t.experts_per_token, tokens)
    return smooth_max(active * t.expert_weights_s, tokens * t.expert_s_per_token)


@jit
def head_s(t: Any, sampled: float) -> float:
    if sampled == 0.0:
        return 0.0
    return smooth_max(t.head_weights_s, sampled * t.head_s_per_sample)


@jit
def prompt_attention_s(t: Any, tokens: float, context: float, pairs: float, windowed: float) -> float:
    compute = pairs * t.prompt_s_per_pair + windowed * t.prompt_s_per_window_pair
    return smooth_max(compute, (context + tokens) * t.prompt_s_per_context_token)


@jit
def decode_attention_s(t: Any, decodes: float, context: float) -> float:
    """Return the time of the decodes' attention; under a window at most `window` tokens of each are read.

    The windowed sum is bounded from above by min(Σ context, decodes × window): exact when all contexts are on one
    side of the window, too long in between.
    """
    if t.is_linear:
        return float(t.per_context_token_s * context)
    windowed = min(context, decodes * t.window_tokens)
    return float(t.decode_s_per_context_token * context + t.decode_s_per_window_token * windowed)


@jit
def collectives_s(t: Any, tokens: float) -> float:
    return float(t.collective_s + tokens * t.collective_s_per_token)


@jit
def overheads_s(t: Any, seqs: float) -> float:
    return float(t.overhead_s + seqs * t.overhead_s_per_seq)


@jit
def composition_s(
    t: Any, prompts: int, tokens: int, context: int, pairs: int, windowed: int, decodes: int, sampled: int
) -> float:
    """Return a step's time without the decodes' attention: `tokens`, `context` and `pairs` are the prompts'."""
    total = float(tokens + decodes)
    if t.is_linear:
        line = t.base_s + t.per_token_s * total
        if context == 0:  # keep the sum's rounding where the schedule's recordings have it
            return float(line)
        return float(line + t.per_context_token_s * context)
    return float(
        dense_s(t, total)
        + experts_s(t, total)
        + total * t.activation_s_per_token
        + prompt_attention_s(t, float(tokens), float(context), float(pairs), float(windowed))
        + head_s(t, float(sampled))
        + collectives_s(t, total)
        + overheads_s(t, float(prompts + decodes))
    )


@jit
def composition_bytes(t: Any, tokens: int, context: int, decodes: int, sampled: int) -> float:
    """Return the HBM traffic of a step without the decodes' attention [bytes]."""
    if t.is_linear:
        return 0.0
    total = float(tokens + decodes)
    traffic = t.weights_bytes + total * t.activation_bytes_per_token
    if t.num_experts > 0.0:
        traffic += t.expert_weights_bytes * active_experts(t.num_experts, t.experts_per_token, total)
    if sampled > 0:
        traffic += t.head_weights_bytes
    return float(traffic + (context + total) * t.kv_bytes_per_token)


@jit
def decode_attention_bytes(t: Any, decodes: float, context: float) -> float:
    """Return the KV cache traffic of the decodes' attention [bytes]."""
    windowed = min(context, decodes * t.window_tokens)
    return float(t.kv_bytes_per_token * context + t.window_kv_bytes_per_token * windowed)


@jit
def step_composition_s(s: State) -> float:
    """Return the time of the step just composed, without the decodes' attention and including the host link."""
    e = s.engine
    sampled = e.step_sampled + e.step_decodes
    t = composition_s(
        s.step_time,
        e.step_prompts,
        e.step_prompt_tokens,
        e.step_prompt_context,
        e.step_prompt_pairs,
        e.step_window_pairs,
        e.step_decodes,
        sampled,
    )
    if e.step_swapped > 0:
        t += e.step_swapped * s.settings.swap_s_per_token
    return float(t)
