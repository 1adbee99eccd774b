"""Grouped-query attention of a step, all layers: prompts and decodes, windows, FlashAttention-2's tiles."""

from collections.abc import Iterator, Sequence

import numpy as np

from planner.catalog.gpus import Gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.layer_group import LayerGroup
from planner.engines import ENGINES
from planner.steptime.context_parallel import exchanges, heads_of_group
from planner.steptime.context_reads import (
    DecodeCoefficients,
    PromptCoefficients,
    context_reads,
    decodes_within_peaks,
    full_layers,
    hardware_of,
    kernel_row,
    prompts_within_peaks,
    sustained,
)
from planner.steptime.contribution import Contribution
from planner.steptime.indexer_time import chosen_pair_s, indexers
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
from planner.steptime.step_context import StepContext

FASTEST_GDDR_BYTES_PER_S = 1.8e12


def gqa_contributions(stack: StepContext, attention: Gqa, groups: Sequence[LayerGroup],
                      counts: Floats) -> Iterator[Contribution]:
    """Yield the time of grouped-query attention, with an indexer by kernels of its own."""
    prompt, decode = _prompts(stack, attention), _decodes(stack, attention, counts)
    yield context_reads(stack, attention, groups, prompt, decode, chosen_pair_s(stack, attention, groups))
    is_triton = runs_triton(stack, attention)
    if uses_flash2(stack) or is_triton:  # both take decodes beside prompts as prompts, without a split of their keys
        yield _beside_prompts(groups, prompt.per_pair, decode)
        if stack.gpu.multiprocessors and full_layers(groups) and not is_triton:
            yield _tiles(stack, attention, counts, prompt.per_pair, float(np.min(decode.per_context_token)),
                         full_layers(groups))
    yield from indexers(stack, groups)
    yield from exchanges(stack, attention, full_layers(groups))


def gqa_fits(stack: StepContext, attention: Gqa) -> tuple[Fit[PromptAttention], Fit[DecodeAttention]]:
    """Return the constants of the prompts' and the decodes' kernels."""
    wanted, family = kernel_row(stack), "attention"
    if runs_triton(stack, attention):
        wanted, family = wanted | {"kv_cache_dtype": "fp8"}, "sink_attention"  # measured with FP8 keys alone
    return (find_fit(PromptAttention, family, phase="context", **wanted),
            find_fit(DecodeAttention, family, phase="generation", **wanted))


def runs_triton(stack: StepContext, attention: Gqa) -> bool:
    """Tell whether layers run vLLM's Triton kernel since no other kernel on the GPU has attention sinks.

    FlashAttention-3 has them on Hopper, FlashInfer with TensorRT-LLM's kernels on Blackwell with HBM. On other GPUs of
    NVIDIA vLLM falls back to Triton (vllm-project/vllm#40153: gpt-oss-20b on RTX PRO 6000).
    """
    return (attention.has_sinks and ENGINES[stack.engine].kernels.runs_flash_attention and stack.gpu.vendor == "NVIDIA"
            and not _has_later_kernels(stack.gpu))


def uses_flash2(stack: StepContext) -> bool:
    """Tell whether attention runs FlashAttention-2: under vLLM with a 16-bit KV cache, on GPUs without a later kernel.

    FlashAttention-3, which packs the heads of every batch, is Hopper's; FlashInfer with TensorRT-LLM's kernels, which
    takes prompts and decodes apart, that of Blackwell with HBM.
    """
    return (ENGINES[stack.engine].kernels.runs_flash_attention and stack.gpu.vendor == "NVIDIA"
            and stack.kv_bytes_per_element == 2.0 and not _has_later_kernels(stack.gpu))


def _has_later_kernels(gpu: Gpu) -> bool:
    """Tell whether a GPU is Hopper, or Blackwell with HBM: both have FP8, and memory faster than any GDDR."""
    return "fp8" in gpu.flops_per_s and gpu.hbm_bandwidth_bytes_per_s > FASTEST_GDDR_BYTES_PER_S


def _shapes(stack: StepContext, attention: Gqa) -> tuple[int, int]:
    """Return the heads and KV heads of one GPU."""
    ranks = stack.layout.tensor_parallel_size
    return -(-attention.num_heads // ranks), -(-attention.num_kv_heads // ranks)


def _prompts(stack: StepContext, attention: Gqa) -> PromptCoefficients:
    fit, (heads, kv_heads) = gqa_fits(stack, attention)[0], _shapes(stack, attention)
    hardware = hardware_of(stack, fit)
    return prompts_within_peaks(stack, attention, hardware, prompt_attention_coefficients(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=attention.head_dim,
        kv_bytes_per_element=stack.measured_kv_bytes, constants=fit.constants, **sustained(stack, hardware)))


def _decodes(stack: StepContext, attention: Gqa, counts: Floats) -> DecodeCoefficients:
    fit, (_, kv_heads) = gqa_fits(stack, attention)[1], _shapes(stack, attention)
    hardware, heads = hardware_of(stack, fit), heads_of_group(stack, attention.num_heads)
    return decodes_within_peaks(stack, attention, hardware, decode_attention_coefficients(
        counts, num_heads=heads, num_kv_heads=kv_heads, head_dim=attention.head_dim,
        kv_bytes_per_element=stack.measured_kv_bytes, constants=fit.constants, **hardware))


def _beside_prompts(groups: Sequence[LayerGroup], pair_s: float, decode: DecodeCoefficients) -> Contribution:
    """Return how much longer decodes take for their context in a step with prompts."""
    read_s = float(np.max(decode.per_context_token))
    more_s = mixed_decode_s(read_s, pair_s) - read_s
    windowed = sum(group.entries_per_token for group in groups if group.seen_tokens)
    return Contribution("decodes beside prompts", {"mixed_s_per_context_token": full_layers(groups) * more_s,
                                                   "mixed_s_per_window_token": windowed * more_s})


def _tiles(stack: StepContext, attention: Gqa, counts: Floats, pair_s: float, read_s: float,
           num_layers: float) -> Contribution:
    """Return the waits of decodes of uneven contexts, in layers that attend to everything (`timing.uneven_s`).

    Parameters
    ----------
    pair_s : one query and one key in one layer, as prompts' tiles multiply them [s].
    read_s : reading one context token in one layer [s]; the share of a place takes no longer, so that steps of the
        same decodes never get shorter.
    num_layers : that attend to everything [1].
    """
    gpu, (heads, kv_heads) = stack.gpu, _shapes(stack, attention)
    at_once = tiles_at_once(int(gpu.multiprocessors), gpu.shared_memory_bytes, attention.head_dim)
    tile_s = own_s(pair_s, heads, at_once)
    splits = [num_splits(max(int(count), 1) * kv_heads, int(gpu.multiprocessors)) for count in counts]
    return Contribution("tiles of uneven contexts", {
        "own_s_per_token": num_layers * tile_s, "decode_share": min(kv_heads / at_once, read_s / tile_s),
        "mixed_share": heads / at_once}, {"decode_part": 1.0 / np.array(splits)})
