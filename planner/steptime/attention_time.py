"""Attention time of a step, for the prompts and decodes of all layers."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from planner.catalog.attention_reads import attention_flops_per_pair, readings, window_tokens
from planner.catalog.kv_cache import index_bytes_per_token, layer_kv_bytes
from planner.engines import ENGINES
from planner.loop.state.count_table import node_counts
from planner.loop.state.terms import StepTime
from planner.steptime.block_sparse import index_pair_s, sparse_pair_s
from planner.steptime.compressed_attention import (
    csa_decode_coefficients,
    csa_flops_frac,
    csa_heads,
    entry_pair_s,
    padded_heads,
)
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.attention import (
    DecodeAttention,
    PromptAttention,
    decode_attention_coefficients,
    mixed_decode_s,
    prompt_attention_coefficients,
)
from planner.steptime.operators.flash2 import num_splits, own_s, tiles_at_once
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.linear_attention import (
    LinearDecode,
    LinearPrompt,
    linear_decode_s,
    linear_prompt_s,
    state_traffic_bytes,
)
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients, mla_prompt_coefficients
from planner.steptime.step_context import StepContext

# FlashMLA's sparse kernel for prompts, of the 16-bit peak: 640 TFLOP/s on H800, 1,450 on B200 (its README).
SPARSE_FLOPS_FRAC = 0.645
FASTEST_GDDR_BYTES_PER_S = 1.8e12
MLA_HEADS = (8, 16, 32, 64, 128)  # of a GPU, that decode kernels were fitted with


def add_attention(step_time: StepTime, stack: StepContext, counts: Floats) -> None:
    """Add the attention of all layers to a step's terms and curves.

    Layers with a KV cache read all of their context, or a window of it: sliding layers `sliding_window` tokens, and
    those of sparse attention the `index_topk` that an indexer picks, by kernels of their own in GQA; CSA's read entries
    of several tokens, and the last tokens besides. Linear layers read a state of fixed size. Whatever the engine's
    ratios, no context is read and no pair multiplied faster than at the hardware's peaks.
    """
    arch, terms, curve = stack.arch, step_time.terms, step_time.curve
    terms.window_tokens = window_tokens(arch)
    for layers, full, windowed, recent, _, kind in readings(arch):
        own = replace(stack, arch=kind)
        base, per_token, per_context, per_pair = _prompt_coefficients(own)
        terms.prompt_s += layers * base
        terms.prompt_s_per_token += layers * per_token + recent * per_pair
        terms.prompt_s_per_context_token += full * per_context
        terms.prompt_s_per_pair += full * per_pair
        terms.prompt_s_per_window_pair += windowed * (sparse_pair_s(stack) if arch.is_block_sparse else per_pair)
        decode_base, decode_per_context = _decode_coefficients(own, counts)
        curve.decode_s += layers * decode_base + node_counts() * recent * decode_per_context
        curve.decode_s_per_context_token += full * decode_per_context
        curve.decode_s_per_window_token += windowed * decode_per_context
        more_s = _mixed_s(stack, per_pair, decode_per_context)
        terms.mixed_s_per_context_token += full * more_s
        terms.mixed_s_per_window_token += windowed * more_s
        kv_bytes = layer_kv_bytes(kind, stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
        terms.kv_bytes_per_token += full * kv_bytes
        terms.window_kv_bytes_per_token += windowed * kv_bytes
        curve.decode_bytes += node_counts() * recent * kv_bytes
        if uses_flash2(stack) and stack.gpu.multiprocessors and full:
            _fold_tiles(step_time, own, counts, per_pair, float(np.min(decode_per_context)), full)
        if kind.attention == "mla" and full:
            _fold_longest(step_time, own, float(np.min(decode_per_context)), full)
    if arch.num_index_layers:
        _fold_indexer(step_time, stack)
    if arch.num_linear_layers:
        _fold_linear(step_time, stack, counts)


def prompt_fit(stack: StepContext) -> Fit[PromptAttention]:
    """Return the constants of the prompts' attention kernel."""
    family, wanted = _kernel(stack)
    return find_fit(PromptAttention, family, phase="context", **wanted)


def decode_fit(stack: StepContext) -> Fit[Any]:
    """Return the constants of the decodes' attention kernel."""
    family, wanted = _kernel(stack)
    if family != "mla":
        return find_fit(DecodeAttention, family, phase="generation", **wanted)
    heads = stack.arch.num_attention_heads / stack.layout.tensor_parallel_size
    if stack.arch.attention == "csa":
        heads, wanted = csa_heads(stack), wanted | {"engine": ENGINES[stack.engine].compressed_kernels}
    nearest = tuple(sorted(MLA_HEADS, key=lambda count: abs(math.log(count / heads))))
    return find_fit(MlaDecode, family, phase="generation", **wanted, num_heads=nearest)


def linear_fits(stack: StepContext) -> tuple[Fit[LinearDecode], Fit[LinearPrompt]]:
    """Return the constants of linear attention's kernels."""
    where = {"gpu": stack.gpu.kernels_of, "engine": stack.engine}
    family = "kda" if stack.arch.linear_attention == "kda" else "linear_attention"
    return (find_fit(LinearDecode, family, phase="generation", **where),
            find_fit(LinearPrompt, family, phase="context", **where))


def _kernel(stack: StepContext) -> tuple[str, dict[str, Any]]:
    """Return the family of attention, and what a row must have: number formats in the order of preference."""
    kv_dtypes = ("fp8", "bfloat16") if stack.kv_bytes_per_element < 2 else ("bfloat16",)
    return "attention" if stack.arch.attention == "gqa" else "mla", {
        "gpu": stack.gpu.kernels_of, "engine": stack.engine, "kv_cache_dtype": kv_dtypes, "dtype": ("bfloat16", "fp8")}


def _hardware(stack: StepContext, dtype: str) -> dict[str, float]:
    peaks = stack.gpu.flops_per_s
    return {"bandwidth_bytes_per_s": stack.gpu.hbm_bandwidth_bytes_per_s,
            "flops_per_s": peaks.get("fp8", peaks["bf16"]) if dtype == "fp8" else peaks["bf16"]}


def _prompt_coefficients(stack: StepContext) -> tuple[float, float, float, float]:
    """Return one layer's time of prompt attention: base, per token, per context token, per pair [s]."""
    arch, ranks, ratio = stack.arch, stack.layout.tensor_parallel_size, stack.constants.prompt_attention_ratio
    fit = prompt_fit(stack)
    hardware = _hardware(stack, str(fit.row["dtype"]))
    sustained = hardware | {"flops_per_s": hardware["flops_per_s"] / stack.compute_ratio("bf16")}
    heads = -(-arch.num_attention_heads // ranks)
    if arch.index_topk and not arch.is_block_sparse:
        return _sparse_prompt_coefficients(stack, padded_heads(stack.gpu, heads), fit.constants.floor_s)
    if arch.attention == "mla":
        found = mla_prompt_coefficients(
            num_heads=heads, qk_nope_head_dim=arch.qk_nope_head_dim, qk_rope_head_dim=arch.qk_rope_head_dim,
            v_head_dim=arch.v_head_dim, constants=fit.constants, **sustained)
    else:
        found = prompt_attention_coefficients(
            num_heads=heads, num_kv_heads=-(-arch.num_kv_heads // ranks), head_dim=arch.head_dim,
            kv_bytes_per_element=stack.kv_bytes_per_element, constants=fit.constants, **sustained)
    base, per_token, per_context, per_pair = (ratio * value for value in found)
    least_per_pair = attention_flops_per_pair(arch, is_decode=False) / ranks / hardware["flops_per_s"]
    return base, per_token, max(per_context, _least_read_s(stack)), max(per_pair, least_per_pair)


def _sparse_prompt_coefficients(
    stack: StepContext, num_heads: int, floor_s: float
) -> tuple[float, float, float, float]:
    """Return the same of sparse MLA and of CSA, which multiply queries with what the cache holds, as decodes do.

    A query and its output have as many elements, of 2 B, as a pair has multiplications, of 2 FLOP.
    """
    arch, gpu = stack.arch, stack.gpu
    products = attention_flops_per_pair(arch, is_decode=True) / 2 * num_heads / arch.num_attention_heads
    frac = csa_flops_frac(gpu) if arch.attention == "csa" else SPARSE_FLOPS_FRAC
    return floor_s, 2 * products / gpu.hbm_bandwidth_bytes_per_s, 0.0, 2 * products / (gpu.flops_per_s["bf16"] * frac)


def _decode_coefficients(stack: StepContext, counts: Floats) -> tuple[Any, Any]:
    """Return one layer's time of decode attention: by the number of decodes, and per context token [s]."""
    arch, ranks, ratio = stack.arch, stack.layout.tensor_parallel_size, stack.constants.decode_attention_ratio
    fit = decode_fit(stack)
    hardware = _hardware(stack, str(fit.row["dtype"]))
    heads = -(-arch.num_attention_heads // ranks)
    if arch.attention == "csa":
        base, per_context = csa_decode_coefficients(stack, counts, fit.constants, **hardware)
    elif arch.attention == "mla":
        running = node_counts()
        base, per_context = mla_decode_coefficients(
            running, num_padded=counts - running, num_heads=heads, kv_lora_rank=arch.kv_lora_rank,
            qk_rope_head_dim=arch.qk_rope_head_dim, kv_bytes_per_element=stack.kv_bytes_per_element,
            constants=fit.constants, **hardware)
    else:
        base, per_context = decode_attention_coefficients(
            counts, num_heads=heads, num_kv_heads=-(-arch.num_kv_heads // ranks), head_dim=arch.head_dim,
            kv_bytes_per_element=stack.kv_bytes_per_element, constants=fit.constants, **hardware)
    flops = stack.tokens_per_decode * attention_flops_per_pair(arch, is_decode=True)
    multiply_s = flops / ranks / hardware["flops_per_s"]
    return ratio * base, np.maximum(ratio * per_context, max(_least_read_s(stack), multiply_s))


def _mixed_s(stack: StepContext, pair_s: float, per_context: Any) -> float:
    """Return what one layer takes longer for a decode's context token in a step with prompts [s]."""
    read_s = float(np.max(per_context))
    return mixed_decode_s(read_s, pair_s) - read_s if uses_flash2(stack) else 0.0


def _fold_tiles(step_time: StepTime, stack: StepContext, counts: Floats, pair_s: float, read_s: float,
                num_layers: float) -> None:
    """Set what decodes of uneven contexts wait for, in layers that attend to everything (`timing.uneven_s`).

    Parameters
    ----------
    pair_s : one query and one key in one layer, as prompts' tiles multiply them [s].
    read_s : reading one context token in one layer [s]; the share of a place takes no longer, so that steps of the
        same decodes never get shorter.
    num_layers : that attend to everything [1].
    """
    arch, gpu, ranks, terms = stack.arch, stack.gpu, stack.layout.tensor_parallel_size, step_time.terms
    heads, kv_heads = -(-arch.num_attention_heads // ranks), -(-arch.num_kv_heads // ranks)
    at_once = tiles_at_once(int(gpu.multiprocessors), gpu.shared_memory_bytes, arch.head_dim)
    own = own_s(pair_s, heads, at_once)
    terms.own_s_per_token = num_layers * own
    terms.decode_share, terms.mixed_share = min(kv_heads / at_once, read_s / own), heads / at_once
    splits = [num_splits(max(int(count), 1) * kv_heads, int(gpu.multiprocessors)) for count in counts]
    step_time.curve.decode_part = 1.0 / np.array(splits)


def _fold_longest(step_time: StepTime, stack: StepContext, read_s: float, num_layers: float) -> None:
    """Set what MLA's decodes wait for where one context is longer than the mean (`timing.uneven_s`): no part is split.

    Parameters
    ----------
    read_s : one context token in one layer where no decode is waited for [s].
    num_layers : that attend to everything [1].
    """
    own_s = stack.constants.decode_attention_ratio * decode_fit(stack).constants.s_per_own_token
    if own_s > 0.0:
        terms = step_time.terms
        terms.own_s_per_token, terms.decode_share, terms.mixed_share = num_layers * own_s, read_s / own_s, 1.0
        step_time.curve.decode_part = 1.0


def uses_flash2(stack: StepContext) -> bool:
    """Tell whether attention runs FlashAttention-2: under vLLM with a 16-bit KV cache, on GPUs without a later kernel.

    FlashAttention-3, which packs the heads of every batch, is Hopper's; FlashInfer with TensorRT-LLM's kernels, which
    takes prompts and decodes apart, that of Blackwell with HBM. Both have FP8, and memory faster than any GDDR.
    """
    gpu = stack.gpu
    is_later = "fp8" in gpu.flops_per_s and gpu.hbm_bandwidth_bytes_per_s > FASTEST_GDDR_BYTES_PER_S
    return (ENGINES[stack.engine].runs_flash_attention and gpu.vendor == "NVIDIA" and stack.kv_bytes_per_element == 2.0
            and stack.arch.attention == "gqa" and not is_later)


def _least_read_s(stack: StepContext) -> float:
    """Return what one layer's KV of a token takes at the peak of the memory's bandwidth [s]."""
    kv_bytes = layer_kv_bytes(stack.arch, stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
    return kv_bytes / stack.gpu.hbm_bandwidth_bytes_per_s


def _fold_indexer(step_time: StepTime, stack: StepContext) -> None:
    """Sparse attention's indexer reads one small key for each entry, and multiplies its heads with it."""
    arch, terms = stack.arch, step_time.terms
    read_s = index_bytes_per_token(arch) / arch.num_index_layers / stack.gpu.hbm_bandwidth_bytes_per_s
    multiply_s = index_pair_s(stack) if arch.is_block_sparse else entry_pair_s(stack)
    layers, c = arch.num_index_layers, stack.constants
    step_time.curve.decode_s_per_context_token += layers * max(c.decode_attention_ratio, 1.0) * max(read_s, multiply_s)
    terms.prompt_s_per_pair += layers * max(c.prompt_attention_ratio, 1.0) * multiply_s
    terms.kv_bytes_per_token += index_bytes_per_token(arch)


def _fold_linear(step_time: StepTime, stack: StepContext, counts: Floats) -> None:
    """Linear layers: decodes read and write their states, prompts run through the chunked delta rule.

    Where drafts are checked the state after each token is written, to go on from the last one accepted (vLLM's
    `fused_recurrent_gated_delta_rule`, SGLang's intermediate states).
    """
    arch, ranks, c = stack.arch, stack.layout.tensor_parallel_size, stack.constants
    shape = {"num_k_heads": -(-arch.linear_num_key_heads // ranks),
             "num_v_heads": -(-arch.linear_num_value_heads // ranks), "head_k_dim": arch.linear_key_head_dim,
             "head_v_dim": arch.linear_value_head_dim, "conv_kernel_dim": arch.linear_conv_kernel_dim}
    bandwidth = stack.gpu.hbm_bandwidth_bytes_per_s
    decode, prompt = linear_fits(stack)
    element = float(decode.row["state_bytes_per_element"])
    layers = arch.num_linear_layers
    states = counts * (1 + stack.tokens_per_decode) / 2  # one read, and one written for each token
    decode_s = linear_decode_s(states, state_bytes_per_element=element, bandwidth_bytes_per_s=bandwidth,
                               constants=decode.constants, **shape)
    traffic = state_traffic_bytes(state_bytes_per_element=element, **shape)
    step_time.curve.decode_s += layers * np.maximum(c.decode_attention_ratio * decode_s, states * traffic / bandwidth)
    step_time.curve.decode_bytes += layers * states * traffic
    without_floor = replace(prompt.constants, floor_s=0.0)
    step_time.terms.prompt_s += layers * c.prompt_attention_ratio * prompt.constants.floor_s
    step_time.terms.prompt_s_per_token += layers * c.prompt_attention_ratio * (float(
        linear_prompt_s(1.0, 1.0, state_bytes_per_element=element, bandwidth_bytes_per_s=bandwidth,
                        constants=without_floor, **shape)) - traffic / bandwidth)
