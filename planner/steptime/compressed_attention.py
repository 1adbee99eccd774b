"""Compressed sparse attention (DeepSeek-V4) of a step, all layers."""

import math
from collections.abc import Iterator, Sequence

from planner.catalog.gpus import Gpu
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.layer_group import LayerGroup
from planner.engines import ENGINES
from planner.loop.state.count_table import node_counts
from planner.steptime.context_reads import (
    DecodeCoefficients,
    PromptCoefficients,
    context_reads,
    decodes_within_peaks,
    hardware_of,
    kernel_row,
    prompts_within_peaks,
    sparse_prompts,
    sustained,
)
from planner.steptime.contribution import Contribution
from planner.steptime.indexer_time import indexers, kernel_generation, padded_heads
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.mla_time import decode_fit_of
from planner.steptime.operators.attention import PromptAttention, prompt_attention_coefficients
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients
from planner.steptime.step_context import StepContext

# Share of the 16-bit peak that prompts reach, heads padded; `indexer_time` has the source.
FLOPS_FRAC = {"hopper": 0.35, "blackwell": 0.6}
SPARSE_HEADS = 64  # that FlashMLA's sparse kernel for decodes has room for, at least (`get_padded_num_q_heads` in vLLM)


def csa_contributions(stack: StepContext, attention: Csa, groups: Sequence[LayerGroup],
                      counts: Floats) -> Iterator[Contribution]:
    """Yield the time of compressed sparse attention for entries and windows, with its indexers."""
    prompt_fit, decode_fit = csa_fits(stack, attention)
    yield context_reads(stack, attention, groups, _prompts(stack, attention, prompt_fit),
                        _decodes(stack, attention, counts, decode_fit))
    yield from indexers(stack, groups)


def csa_fits(stack: StepContext, attention: Csa) -> tuple[Fit[PromptAttention], Fit[MlaDecode]]:
    """Return the constants of the prompts' and the decodes' kernels; the decodes' is MLA's."""
    wanted = kernel_row(stack)
    of_decodes = wanted | {"engine": ENGINES[stack.engine].kernels.compressed}
    return (find_fit(PromptAttention, "mla", phase="context", **wanted),
            decode_fit_of(of_decodes, csa_heads(stack, attention)))


def csa_heads(stack: StepContext, attention: Csa) -> int:
    """Return the heads that a GPU's kernel multiplies for decodes, padding included [1]."""
    return max(math.ceil(attention.num_heads / stack.layout.tensor_parallel_size), SPARSE_HEADS)


def csa_flops_frac(gpu: Gpu) -> float:
    """Return the share of the 16-bit peak that prompts reach, heads padded [1]."""
    return FLOPS_FRAC[kernel_generation(gpu)]


def _prompts(stack: StepContext, attention: Csa, fit: Fit[PromptAttention]) -> PromptCoefficients:
    """Return one layer's coefficients; a draft's layer without the sparse kernel is as one of multi-query attention."""
    heads = -(-attention.num_heads // stack.layout.tensor_parallel_size)
    if attention.is_sparse:
        return sparse_prompts(stack, attention, fit.constants.floor_s, padded_heads(stack.gpu, heads),
                              attention.num_heads, csa_flops_frac(stack.gpu))
    hardware = hardware_of(stack, fit)
    return prompts_within_peaks(stack, attention, hardware, prompt_attention_coefficients(
        num_heads=heads, num_kv_heads=1, head_dim=attention.head_dim, kv_bytes_per_element=stack.kv_bytes_per_element,
        constants=fit.constants, **sustained(stack, hardware)))


def _decodes(stack: StepContext, attention: Csa, counts: Floats, fit: Fit[MlaDecode]) -> DecodeCoefficients:
    """Return one layer's coefficients: MLA's kernel, whose latent is an entry without a rotary part of its own."""
    hardware, running = hardware_of(stack, fit), node_counts()
    entry_bytes = attention.kv_bytes(stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
    return decodes_within_peaks(stack, attention, hardware, mla_decode_coefficients(
        running, num_padded=counts - running, num_heads=csa_heads(stack, attention), kv_lora_rank=attention.head_dim,
        qk_rope_head_dim=0, kv_bytes_per_element=entry_bytes / attention.head_dim, constants=fit.constants,
        **hardware))
