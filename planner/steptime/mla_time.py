"""Multi-head latent attention of a step, all layers, dense or with an indexer."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import LayerGroup
from planner.loop.state.count_table import node_counts
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
    sparse_prompts,
    sustained,
)
from planner.steptime.contribution import Contribution
from planner.steptime.dense_time import gemms_s, projection_format
from planner.steptime.fused_norms import nvlink_generation
from planner.steptime.indexer_time import indexers, padded_heads
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.attention import PromptAttention
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients, mla_prompt_coefficients
from planner.steptime.step_context import StepContext

# FlashMLA's sparse kernel for prompts, of the 16-bit peak: 640 TFLOP/s on H800, 1,450 on B200 (its README).
SPARSE_FLOPS_FRAC = 0.645
BLACKWELL_MULTIPROCESSORS = 148.0  # of B200 and B300, as CUDA reports
MLA_HEADS = (8, 16, 32, 64, 128)  # of a GPU, that decode kernels were fitted with


def mla_contributions(stack: StepContext, attention: Mla, groups: Sequence[LayerGroup],
                      counts: Floats) -> Iterator[Contribution]:
    """Yield the time of layers with latent attention, their expansion of cached latents included."""
    prompt_fit, decode_fit = mla_fits(stack, attention)
    seats = _seats(stack, counts)
    decode = _decodes(stack, attention, counts, decode_fit, seats)
    yield context_reads(stack, attention, groups, _prompts(stack, attention, prompt_fit), decode)
    if full_layers(groups):
        yield from longest(stack, decode_fit, float(np.min(decode.per_context_token)), full_layers(groups), seats)
    yield from indexers(stack, groups)
    yield from exchanges(stack, attention, full_layers(groups))
    if not attention.is_sparse:
        yield Contribution("expansion of latents", {"prompt_s_per_expanded_token": expansion_s(stack, attention,
                                                                                               groups)})


def mla_fits(stack: StepContext, attention: Mla) -> tuple[Fit[PromptAttention], Fit[MlaDecode]]:
    """Return the constants of the prompts' and the decodes' kernels."""
    wanted = kernel_row(stack)
    return (find_fit(PromptAttention, "mla", phase="context", **wanted),
            decode_fit_of(wanted, _checked_heads(stack, attention)))


def _checked_heads(stack: StepContext, attention: Mla) -> int:
    """Return the heads that a decode's kernel multiplies on a GPU, of all tokens that are checked together.

    They are rows of one product: FlashMLA's `get_mla_metadata` takes their number, `s_q * h_q // h_kv`.
    """
    return stack.tokens_per_decode * heads_of_group(stack, attention.num_heads)


def decode_fit_of(wanted: dict[str, Any], heads: float) -> Fit[MlaDecode]:
    """Return the constants of the decodes' kernel that was fitted with the nearest number of heads."""
    nearest = tuple(sorted(MLA_HEADS, key=lambda count: abs(math.log(count / heads))))
    return find_fit(MlaDecode, "mla", phase="generation", **wanted, num_heads=nearest)


def _prompts(stack: StepContext, attention: Mla, fit: Fit[PromptAttention]) -> PromptCoefficients:
    heads = -(-attention.num_heads // stack.layout.tensor_parallel_size)
    if attention.is_sparse:
        return sparse_prompts(stack, attention, fit.constants.floor_s, padded_heads(stack.gpu, heads),
                              attention.num_heads, SPARSE_FLOPS_FRAC)
    hardware = hardware_of(stack, fit)
    return prompts_within_peaks(stack, attention, hardware, mla_prompt_coefficients(
        num_heads=heads, qk_nope_head_dim=attention.qk_nope_head_dim, qk_rope_head_dim=attention.qk_rope_head_dim,
        v_head_dim=attention.v_head_dim, constants=fit.constants, **sustained(stack, hardware)))


def _decodes(stack: StepContext, attention: Mla, counts: Floats, fit: Fit[MlaDecode],
             seats: Floats | None) -> DecodeCoefficients:
    hardware, running = hardware_of(stack, fit), node_counts()
    coefficients = decodes_within_peaks(stack, attention, hardware, mla_decode_coefficients(
        running, num_padded=counts - running, num_heads=_checked_heads(stack, attention),
        kv_lora_rank=attention.kv_lora_rank, qk_rope_head_dim=attention.qk_rope_head_dim,
        kv_bytes_per_element=stack.measured_kv_bytes, constants=fit.constants, **hardware))
    return coefficients if seats is None else coefficients._replace(
        per_context_token=coefficients.per_context_token * np.maximum(seats / np.maximum(running, 1), 1.0))


def _seats(stack: StepContext, counts: Floats) -> Floats | None:
    """Return into how many equal parts a step's sequences divide the GPU; None if contexts are shared out evenly.

    TensorRT-LLM's kernels for Blackwell, which all engines use there, give each row of a step the same number of
    multiprocessors, for any context: with n rows, padding of a CUDA graph included, each has an
    n-th of the GPU. With more rows than multiprocessors, others follow as places come free.

    Source: `numCtasPerSeqKv` in FlashInfer's `trtllm/fmha/fmhaKernels.cuh`.

    Parameters
    ----------
    counts : rows of the steps at the curve's nodes, padding included.
    """
    if nvlink_generation(stack.gpu) != "blackwell":
        return None
    seats: Floats = np.clip(np.asarray(counts, float), 1.0, BLACKWELL_MULTIPROCESSORS)
    return seats


def longest(stack: StepContext, fit: Fit[MlaDecode], read_s: float, num_layers: float,
            seats: Floats | None) -> Iterator[Contribution]:
    """Yield the waits of decodes if one context is longer than the mean (`timing.uneven_s`).

    Parameters
    ----------
    read_s : one context token in one layer if no decode is waited for [s].
    num_layers : that attend to everything [1].
    seats : see `_seats`; without them, no part is split.
    """
    if seats is not None:
        yield Contribution("longest context", {
            "own_s_per_token": num_layers * read_s, "decode_share": 1.0, "mixed_share": 1.0}, {"decode_part": seats})
        return
    own_s = stack.constants.decode_attention_ratio * fit.constants.s_per_own_token
    if own_s > 0.0:
        yield Contribution("longest context", {
            "own_s_per_token": num_layers * own_s, "decode_share": read_s / own_s, "mixed_share": 1.0},
            {"decode_part": 1.0})


def expansion_s(stack: StepContext, attention: Mla, groups: Sequence[LayerGroup]) -> float:
    """Return the time of a token of a prompt's cached context to become keys and values again, all layers [s].

    Its latent goes through kv_b_proj in each step that a chunk of the prompt is in; sparse attention multiplies the
    latent itself. It is a token's part of a large product.

    Source: vLLM's `MLACommonImpl._compute_prefill_context`; SGLang and TensorRT-LLM do the same.
    """
    many = np.array([4096.0, 8192.0])
    gemms = attention.projections(groups[0], stack.arch.hidden_size, stack.layout.tensor_parallel_size)
    gemm = next(gemm for gemm in gemms if gemm.name == "kv_b_proj")
    low, high = gemms_s(stack, many, gemm.n, gemm.k, projection_format(stack, gemm))
    return sum(group.count for group in groups) * float((high - low) / (many[1] - many[0]))
