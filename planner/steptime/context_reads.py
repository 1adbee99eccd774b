"""Attention that reads a KV cache, of any kind: its kernels' coefficients within the hardware's peaks, over layers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.catalog.attention_reads import reading_of
from planner.catalog.layers.layer_group import Attention, LayerGroup
from planner.loop.state.count_table import node_counts
from planner.steptime.contribution import Contribution
from planner.steptime.kernel_constants import Fit
from planner.steptime.step_context import StepContext


class PromptCoefficients(NamedTuple):
    """One layer's time of prompts [s]."""

    base: float
    per_token: float
    per_context_token: float
    per_pair: float


class DecodeCoefficients(NamedTuple):
    """One layer's time of decodes [s]: by their number, and for each context token."""

    base: Any
    per_context_token: Any


def kernel_row(stack: StepContext) -> dict[str, Any]:
    """Return the keys that a row of kernel measurements must have: number formats in the order of preference."""
    kv_dtypes = ("fp8", "bfloat16") if stack.kv_bytes_per_element < 2 else ("bfloat16",)
    return {"gpu": stack.gpu.kernels_of, "engine": stack.engine, "kv_cache_dtype": kv_dtypes,
            "dtype": ("bfloat16", "fp8")}


def hardware_of(stack: StepContext, fit: Fit[Any]) -> dict[str, float]:
    """Return the GPU's peaks as a measured kernel multiplied."""
    peaks, dtype = stack.gpu.flops_per_s, str(fit.row["dtype"])
    return {"bandwidth_bytes_per_s": stack.gpu.hbm_bandwidth_bytes_per_s,
            "flops_per_s": peaks.get("fp8", peaks["bf16"]) if dtype == "fp8" else peaks["bf16"]}


def sustained(stack: StepContext, hardware: dict[str, float]) -> dict[str, float]:
    """Return peaks as large steps keep them."""
    return hardware | {"flops_per_s": hardware["flops_per_s"] / stack.compute_ratio("bf16")}


def least_read_s(stack: StepContext, attention: Attention) -> float:
    """Return the time of one layer's KV of an entry at the peak of the memory's bandwidth [s]."""
    kv_bytes = attention.kv_bytes(stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
    return kv_bytes / stack.gpu.hbm_bandwidth_bytes_per_s


def prompts_within_peaks(stack: StepContext, attention: Attention, hardware: dict[str, float],
                         kernel: tuple[float, float, float, float]) -> PromptCoefficients:
    """Return a kernel's coefficients for prompts under the engine's ratio, none faster than the hardware's peaks."""
    base, per_token, per_context, per_pair = (stack.constants.prompt_attention_ratio * value for value in kernel)
    flops = attention.flops_per_pair(is_decode=False)
    least_per_pair = flops / stack.layout.tensor_parallel_size / hardware["flops_per_s"]
    return PromptCoefficients(base, per_token, max(per_context, least_read_s(stack, attention)),
                              max(per_pair, least_per_pair))


def decodes_within_peaks(stack: StepContext, attention: Attention, hardware: dict[str, float],
                         kernel: tuple[Any, Any]) -> DecodeCoefficients:
    """Return a kernel's coefficients for decodes under the engine's ratio, none faster than the hardware's peaks."""
    ratio, (base, per_context) = stack.constants.decode_attention_ratio, kernel
    ranks = stack.layout.cache_parts  # a GPU reads its part of each context, for the heads of its group
    flops = stack.tokens_per_decode * attention.flops_per_pair(is_decode=True)
    multiply_s = flops / stack.layout.tensor_parallel_size / stack.layout.cache_groups / hardware["flops_per_s"]
    return DecodeCoefficients(ratio * base, np.maximum(ratio * per_context / ranks, max(
        least_read_s(stack, attention) / ranks, multiply_s)))


def sparse_prompts(stack: StepContext, attention: Attention, floor_s: float, run_heads: int, num_heads: int,
                   flops_frac: float) -> PromptCoefficients:
    """Return the coefficients of prompts that multiply queries with the cached values themselves, as decodes do.

    A query and its output have as many elements, of 2 B, as a pair has multiplications, of 2 FLOP.

    Parameters
    ----------
    run_heads, num_heads : that the kernel multiplies on this GPU, padding included; of the model [1].
    flops_frac : share of the 16-bit peak that it reaches [1].
    """
    gpu = stack.gpu
    products = attention.flops_per_pair(is_decode=True) / 2 * run_heads / num_heads
    return PromptCoefficients(floor_s, 2 * products / gpu.hbm_bandwidth_bytes_per_s, 0.0,
                              2 * products / (gpu.flops_per_s["bf16"] * flops_frac))


def context_reads(stack: StepContext, attention: Attention, groups: Sequence[LayerGroup], prompt: PromptCoefficients,
                  decode: DecodeCoefficients, window_pair_s: float | None = None) -> Contribution:
    """Return the time of all layers of one attention for the context that they read, or for a window of it.

    Parameters
    ----------
    window_pair_s : of a query and a chosen key, if another kernel multiplies these [s].
    """
    layers, full, windowed, recent, _, _ = reading_of(attention, groups)
    if stack.arch.is_bidirectional:
        prompt = _both_sides(prompt)
    kv_bytes = (attention.kv_bytes(stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
                / stack.layout.cache_parts)
    return Contribution("attention", {
        "prompt_s": layers * prompt.base,
        "prompt_s_per_token": layers * prompt.per_token + recent * prompt.per_pair,
        "prompt_s_per_context_token": full * prompt.per_context_token,
        "prompt_s_per_pair": full * prompt.per_pair,
        "prompt_s_per_window_pair": windowed * (prompt.per_pair if window_pair_s is None else window_pair_s),
        "kv_bytes_per_token": full * kv_bytes,
        "window_kv_bytes_per_token": windowed * kv_bytes,
    }, {
        "decode_s": layers * decode.base + node_counts() * recent * decode.per_context_token,
        "decode_s_per_context_token": full * decode.per_context_token,
        "decode_s_per_window_token": windowed * decode.per_context_token,
        "decode_bytes": node_counts() * recent * kv_bytes,
    })


def _both_sides(prompt: PromptCoefficients) -> PromptCoefficients:
    """Return the coefficients of attention to the tokens before and after: the loop's pairs are those before.

    A whole prompt of n tokens has n (n + 1) / 2 pairs of a token and itself or an earlier one. All n² pairs are twice
    these without n. The same holds with a window of as many tokens on each side.
    """
    return prompt._replace(per_token=prompt.per_token - prompt.per_pair, per_pair=2 * prompt.per_pair)


def full_layers(groups: Sequence[LayerGroup]) -> float:
    """Return the entries that layers without a window or an indexer have of a token, together [1]."""
    return sum(group.entries_per_token for group in groups if not group.seen_tokens)
