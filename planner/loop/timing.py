"""How long a step takes: the GPU's terms and the host's, added up inside the loop.

`steptime.roofline` derives the terms and states their formulas and sources. The GPU's time is split in two: a part for
the step's composition, which stays the same while a batch only decodes, and a part for reading the decodes' context,
which grows with every step. With asynchronous scheduling the host works beside the GPU, so a step takes the
longer of the two; without, one after the other.

Under speculative decoding a decode has `tokens_per_decode` tokens checked in a step, and the step has a draft model's
passes in it (`planner.model.drafting`).

Ranks of data-parallel attention take a step together (`engine.lockstep`). Operators of all tokens then see `run`
tokens; the experts and the collectives around them see `shared` of each rank; attention, the LM head and the
host see the rank's own. Elsewhere both are the step's own tokens.
"""

import math
from typing import Any, NamedTuple

from planner.loop.compiled.jit import jit
from planner.loop.longest import longest_context
from planner.loop.state.count_table import between, shared_s, table_index, tokens_bytes, tokens_s
from planner.loop.state.engine_state import State


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
def window_pairs(window: int, computed: int, n: int) -> int:
    """Return Σ min(position, window) over the `n` positions after `computed`: attended pairs under a sliding window."""
    full = min(max(window - computed, 0), n)  # positions that still see everything before them
    return int(full * computed + full * (full + 1) // 2 + (n - full) * window)


@jit
def head_s(curve: Any, sampled: int) -> float:
    """Return the time of the LM head and of sampling [s]."""
    k, fraction = table_index(sampled)
    return between(curve[k].head_s, curve[k + 1].head_s, fraction)


@jit
def prompt_attention_s(t: Any, prompts: int, tokens: int, context: int, pairs: int, windowed: int) -> float:
    """Return the time of the prompts' attention [s]: floors, arithmetic against reading cached KV, and expanding it."""
    if prompts == 0:
        return 0.0
    compute = pairs * t.prompt_s_per_pair + windowed * t.prompt_s_per_window_pair
    read = (context + tokens) * t.prompt_s_per_context_token
    expanded = context * t.prompt_s_per_expanded_token
    return float(t.prompt_s + tokens * t.prompt_s_per_token + smooth_max(compute, read) + expanded)


@jit
def decode_floor_s(curve: Any, decodes: int) -> float:
    """Return the part of the decodes' attention that does not depend on their context [s]."""
    k, fraction = table_index(decodes)
    return between(curve[k].decode_s, curve[k + 1].decode_s, fraction)


@jit
def draft_decode_s(curve: Any, decodes: int) -> float:
    """Return a draft model's time for the decodes, without the pass that all tokens of the step run through [s]."""
    k, fraction = table_index(decodes)
    return between(curve[k].draft_decode_s, curve[k + 1].draft_decode_s, fraction)


@jit
def context_slopes(t: Any, curve: Any, decodes: int) -> tuple[float, float]:
    """Return the time of a context token in attention over everything, and in attention under a window [s]."""
    if t.is_linear:
        return float(t.per_context_token_s), 0.0
    k, fraction = table_index(decodes)
    low, high = curve[k], curve[k + 1]
    return (between(low.decode_s_per_context_token, high.decode_s_per_context_token, fraction),
            between(low.decode_s_per_window_token, high.decode_s_per_window_token, fraction))


@jit
def context_s(t: Any, slopes: tuple[float, float], decodes: int, context: int) -> float:
    """Return the time in which the decodes' attention reads their context [s]; under a window `window` tokens of each.

    The windowed sum is bounded from above by min(Σ context, decodes × window): exact when all contexts are on one
    side of the window, too long in between.
    """
    windowed = min(context, decodes * t.window_tokens)
    return float(slopes[0] * context + slopes[1] * windowed)


@jit
def tile_part(t: Any, curve: Any, decodes: int) -> float:
    """Return the share of a decode's context in one tile of FlashAttention-2, if all queries are one token."""
    k, fraction = table_index(decodes)
    return between(curve[k].decode_part, curve[k + 1].decode_part, fraction)


@jit
def uneven_s(t: Any, part: float, decodes: int, context: int, longest: int) -> float:
    """Return how much longer FlashAttention-2 and MLA's kernels take for decodes with uneven contexts [s].

    While memory is the limit each of the GPU's places for a tile gets the same share of the work. A tile that has more
    goes on alone: own · (max(longest · part, share) − max(mean · part, share)), so that even contexts take the time of
    the benchmarks, which have even contexts. `longest` is 0 if it is not known. MLA's are tiles of a sequence each.
    """
    share, mean = context * t.decode_share, context / decodes
    return float(t.own_s_per_token * (max(max(longest, mean) * part, share) - max(mean * part, share)))


@jit
def uneven_growth_s(t: Any, part: float, decodes: int, context: int, longest: int) -> float:
    """Return by how much `uneven_s` grows with each step, until one of its two maxima changes sides [s]."""
    share, mean, grows = context * t.decode_share, context / decodes, decodes * t.decode_share
    first = part if max(longest, mean) * part > share else grows
    return float(t.own_s_per_token * (first - (part if mean * part > share else grows)))


@jit
def mixed_context_s(t: Any, prompts: int, decodes: int, context: int, longest: int) -> float:
    """Return how much longer the decodes' attention takes for their context in a step with prompts [s].

    There FlashAttention-2 splits no context: one that is longer than each place's share of all is waited for.
    """
    if prompts == 0 or t.is_linear:
        return 0.0
    slopes = (float(t.mixed_s_per_context_token), float(t.mixed_s_per_window_token))
    more_s = context_s(t, slopes, decodes, context)
    return float(more_s + t.own_s_per_token * max(longest - context * t.mixed_share, 0.0))


@jit
def waited_s(t: Any, curve: Any, prompts: int, decodes: int, context: int, longest: int) -> float:
    """Return how much longer the decodes' attention takes than reading their context [s]."""
    beside_s = mixed_context_s(t, prompts, decodes, context, longest)
    if t.own_s_per_token == 0.0 or decodes == 0:
        return beside_s
    return max(beside_s, uneven_s(t, tile_part(t, curve, decodes), decodes, context, longest))


@jit
def all_tokens_s(curve: Any, run: int, shared: int) -> float:
    """Return the time of the operators that all tokens of a step run through [s]."""
    if shared == run:
        return tokens_s(curve, run)
    return tokens_s(curve, run) + shared_s(curve, shared) - shared_s(curve, run)


@jit
def composition_s(
    t: Any, curve: Any, run: int, shared: int, prompts: int, tokens: int, context: int, pairs: int, windowed: int,
    decodes: int, sampled: int
) -> float:
    """Return the GPU's time without `context_s`: `tokens`, `context` and `pairs` are the prompts'.

    The LM head runs on the `sampled` tokens and on the drafts that are checked.
    """
    if t.is_linear:
        line = t.base_s + t.per_token_s * float(run)
        if context == 0:  # keep the sum's rounding if the schedule's recordings have it
            return float(line)
        return float(line + t.per_context_token_s * context)
    return float(
        all_tokens_s(curve, run, shared)
        + prompt_attention_s(t, prompts, tokens, context, pairs, windowed)
        + decode_floor_s(curve, decodes)
        + head_s(curve, sampled)
    )


@jit
def decodes_s(t: Any, curve: Any, run: int, shared: int, decodes: int, sampled: int) -> float:
    """Return the GPU's time for decodes without prompts, without `context_s`."""
    return composition_s(t, curve, run, shared, prompts=0, tokens=0, context=0, pairs=0, windowed=0, decodes=decodes,
                         sampled=sampled)


@jit
def adapters_s(t: Any, adapters: int, tokens: int) -> float:
    """Return the time of the LoRA adapters' kernels in a step of `tokens` tokens [s]."""
    if adapters == 0:
        return 0.0
    return float(t.adapters_s + tokens * t.adapters_s_per_token + adapters * t.adapters_s_per_adapter)


@jit
def host_s(t: Any, tokens: int) -> float:
    """Return the host's work on a step without launching kernels [s]: scheduling, inputs, outputs.

    It looks at one token of each prompt and decode, and at each draft: SGLang's `EagleVerifyInput.verify` and vLLM's
    `update_from_output` go through them one by one.
    """
    return float(t.host_s + tokens * t.host_s_per_seq)


@jit
def is_graph(t: Any, prompts: int, total: int, decodes: int) -> bool:
    """Tell whether a step of `total` tokens runs as a CUDA graph."""
    return bool(total <= t.graph_tokens if prompts > 0 else decodes <= t.graph_seqs)


@jit
def hidden_s(t: Any, prompts: int, looked_at: int, as_graph: bool) -> float:
    """Return the host's work that the GPU's may hide, so that a step takes no less [s].

    If the step is no CUDA graph, launching kernels one by one, always; the rest with asynchronous scheduling.

    Parameters
    ----------
    looked_at : tokens of the step that the host looks at (`host_s`) [1].
    """
    launch_s = 0.0 if as_graph else t.prompt_launch_s if prompts > 0 else t.decode_launch_s
    return float(launch_s + (host_s(t, looked_at) if t.is_overlapped else 0.0))


@jit
def overhead_s(t: Any, looked_at: int, prompt_tokens: int = 0) -> float:
    """Return the time on top of the GPU's work: with the host's if it does not work beside the GPU [s]."""
    host = 0.0 if t.is_overlapped else host_s(t, looked_at)
    return float(t.overhead_s + looked_at * t.overhead_s_per_seq + prompt_tokens * t.overhead_s_per_token + host)


@jit
def composition_bytes(t: Any, curve: Any, shared: int, tokens: int, context: int, decodes: int, sampled: int,
                      drafted: int) -> float:
    """Return the HBM traffic of a step without the decodes' context; the `sampled` include the `drafted` [bytes]."""
    if t.is_linear:
        return 0.0
    total = tokens + decodes + drafted
    k, fraction = table_index(sampled)
    head = between(curve[k].head_bytes, curve[k + 1].head_bytes, fraction)
    k, fraction = table_index(decodes)
    states = between(curve[k].decode_bytes, curve[k + 1].decode_bytes, fraction)
    return float(tokens_bytes(curve, shared) + head + states + (context + total) * t.kv_bytes_per_token)


@jit
def decode_attention_bytes(t: Any, decodes: int, context: int) -> float:
    """Return the KV cache traffic of the decodes' attention [bytes]."""
    windowed = min(context, decodes * t.window_tokens)
    return float(t.kv_bytes_per_token * context + t.window_kv_bytes_per_token * windowed)


@jit
def decodes_alone_s(s: State) -> float:
    """Return the time that the decodes of the step just composed would have taken by themselves [s]."""
    e, t = s.engine, s.step_time
    n = e.step_decodes
    if n == 0:
        return 0.0
    tokens = n + step_drafts(s)
    gpu_s = decodes_s(t, s.curve, tokens, tokens, n, tokens)
    gpu_s += context_s(t, context_slopes(t, s.curve, n), n, e.step_decode_context)
    gpu_s += waited_s(t, s.curve, 0, n, e.step_decode_context, longest_context(s))
    gpu_s += adapters_s(t, e.num_adapters, tokens)
    return float(max(gpu_s, hidden_s(t, 0, tokens, is_graph(t, 0, tokens, n))) + overhead_s(t, tokens))


class Rows(NamedTuple):
    """A step as its kernels see it: a prompt whose KV came from another engine has one token, and runs as a decode."""

    prompts: int
    prompt_tokens: int
    prompt_context: int
    prompt_pairs: int
    window_pairs: int
    decodes: int
    decode_context: int


@jit
def rows_of_step(s: State) -> Rows:
    """Return the step just composed as its kernels see it."""
    e = s.engine
    return Rows(e.step_prompts - e.step_pulled, e.step_prompt_tokens - e.step_pulled,
                e.step_prompt_context - e.step_pulled_context,
                e.step_prompt_pairs - e.step_pulled_context - e.step_pulled,
                e.step_window_pairs - e.step_pulled_window, e.step_decodes + e.step_pulled,
                e.step_decode_context + e.step_pulled_context)


@jit
def step_drafts(s: State) -> int:
    """Return how many drafted tokens the step just composed checks [1]."""
    return int(s.engine.step_decodes * (s.step_time.tokens_per_decode - 1) - s.engine.step_cut)


@jit
def step_tokens(s: State) -> int:
    """Return the tokens of the step just composed, with the tokens checked for its decodes."""
    rows = rows_of_step(s)
    return int(rows.prompt_tokens + rows.decodes + step_drafts(s))


@jit
def step_is_graph(s: State) -> bool:
    """Tell whether the step just composed runs as a CUDA graph by itself."""
    rows = rows_of_step(s)
    return is_graph(s.step_time, int(rows.prompts), step_tokens(s), int(rows.decodes))


@jit
def own_step_s(s: State) -> float:
    """Return the time of the step just composed by itself, as if no other rank had more [s]."""
    tokens = step_tokens(s)
    return step_s(s, tokens, int(tokens - s.engine.step_spared), step_is_graph(s))


@jit
def step_s(s: State, run: int, shared: int, as_graph: bool) -> float:
    """Return the time of the step just composed, including the host link [s]."""
    e, t, rows = s.engine, s.step_time, rows_of_step(s)
    prompts, decodes, context, drafted = rows.prompts, rows.decodes, rows.decode_context, step_drafts(s)
    gpu_s = composition_s(
        t,
        s.curve,
        run,
        shared,
        prompts,
        rows.prompt_tokens,
        rows.prompt_context,
        rows.prompt_pairs,
        rows.window_pairs,
        decodes,
        e.step_sampled + e.step_decodes + drafted,
    )
    gpu_s += e.step_adapter_s + e.step_image_s
    gpu_s += adapters_s(t, e.num_adapters, rows.prompt_tokens + decodes + drafted)
    if e.step_swapped > 0:
        gpu_s += e.step_swapped * s.settings.swap_s_per_token
    if decodes > 0:
        gpu_s += context_s(t, context_slopes(t, s.curve, decodes), decodes, context)
    if e.step_decodes > 0:
        gpu_s += waited_s(t, s.curve, prompts, decodes, context, longest_context(s))
    looked_at = prompts + decodes + drafted
    busy_s = max(gpu_s, hidden_s(t, prompts, looked_at, as_graph))
    return float(busy_s + overhead_s(t, looked_at, rows.prompt_tokens))
