"""The step-time model: operator times of a model on a GPU, under an engine, as the terms and curves of the loop."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from planner.engines import ENGINES
from planner.errors import CatalogError
from planner.loop.state.count_table import node_counts
from planner.loop.state.engine_state import records
from planner.loop.state.terms import CURVE, STEP_TIME, StepTime
from planner.model.precision import (
    KERNELS,
    WEIGHT_FORMATS,
    WIDENING_FRAC,
    attention_format,
    expert_format,
    is_native,
    usable_kernels,
    weight_format,
)
from planner.model.projections import Gemm, projections
from planner.model.small_kernels import LAYER_KERNELS, NORM_SHARE, Small, sampler, small_kernels
from planner.steptime.attention_time import add_attention, decode_fit, linear_fits, prompt_fit
from planner.steptime.collective_time import (
    ACTIVATION_BYTES,
    add_collectives,
    collective_fit,
    collectives_s,
    exchange_ops,
    fused_reduces,
)
from planner.steptime.compressed_attention import index_share
from planner.steptime.draft_time import add_heads, add_passes
from planner.steptime.host_time import add_host
from planner.steptime.kernel_constants import Fit, find_fit, find_fits
from planner.steptime.lora import add_adapters
from planner.steptime.operators.fp32_gemm import FLOOR_S, FP32_GEMMS, fp32_gemm_s
from planner.steptime.operators.gemm import Floats, GemmConstants, gemm_s
from planner.steptime.operators.moe import MoeConstants, moe_s, touched_experts
from planner.steptime.operators.small import SmallConstants, small_kernel_s
from planner.steptime.step_context import StepContext

T = TypeVar("T")
MOE_KERNELS = 4  # of a layer's routed experts: permutation, two grouped products with the activation, combination
MOE_PRODUCTS = 2
HEAD_FORMAT = "bf16"  # of the LM head, in every format
AS_DELTA_NET = "Mamba-2 (as a gated delta net)"  # whose scan nobody measured
MOE_BACKENDS = {"marlin": ("marlin",), "triton": ("triton", "fused_moe"), "deep_gemm": ("deepgemm",),
                "flashinfer_trtllm": ("trtllm", "min_latency")}  # what their kernels' names have, as benchmarked


def roofline(stack: StepContext) -> StepTime:
    """Return how long steps take.

    Each operator's time comes from its formula in `steptime/operators`. The formula's constants are fitted to measured
    kernels on this GPU. An operator that nobody measured on it takes the medians over other GPUs. The engine's
    constants scale the kernels and add the host's time. A batch passes all pipeline stages one after the other, so
    times are those of all layers. No time is below the hardware's floor.
    """
    step_time = StepTime(terms=records(1, STEP_TIME)[0], curve=records(len(node_counts()), CURVE))
    counts = padded(node_counts()).astype(np.float64)
    _linear(step_time.curve, stack, counts)
    _experts(step_time.curve, stack, counts)
    fused = fused_reduces(stack, counts)
    _activations(step_time.curve, stack, counts, fused)
    add_collectives(step_time.curve, stack, counts, fused)
    _head(step_time.curve, stack, counts)
    add_attention(step_time, stack, counts)
    step_time.terms.prompt_s_per_expanded_token = expansion_s(stack)
    curve = step_time.curve
    curve[0] = np.zeros(1, CURVE)[0]  # no tokens, no kernels
    add_host(step_time.terms, stack)
    step_time.terms.tokens_per_decode = stack.tokens_per_decode
    _draft(step_time, stack, counts)
    if stack.lora_rank:
        add_adapters(step_time, stack, stack.lora_rank)
    curve.tokens_s = curve.linear_s + curve.experts_s + curve.activations_s + curve.collectives_s + curve.draft_s
    return step_time


def expansion_s(stack: StepContext) -> float:
    """Return what a token of a prompt's cached context takes in MLA to become keys and values again, all layers [s].

    Its latent goes through kv_b_proj in each step that a chunk of the prompt is in; sparse attention multiplies the
    latent itself. It is a token's part of a large product.

    Source: vLLM's `MLACommonImpl._compute_prefill_context`; SGLang and TensorRT-LLM do the same.
    """
    if stack.arch.attention != "mla" or stack.arch.index_topk:
        return 0.0
    many = np.array([4096.0, 8192.0])
    gemm = next(gemm for gemm in projections(stack.arch, stack.layout.tensor_parallel_size) if gemm.name == "kv_b_proj")
    low, high = gemms_s(stack, many, gemm.n, gemm.k, projection_format(stack, gemm))
    return gemm.count * float((high - low) / (many[1] - many[0]))


def _draft(step_time: StepTime, stack: StepContext, counts: Floats) -> None:
    """What is drafted for the decodes, whose tokens are taken as the likeliest, without the sampler."""
    draft = stack.draft
    if draft is None or draft.arch is None:
        return
    alone = replace(stack, arch=draft.arch, quantization=draft.quantization, draft=None, lora_rank=0)
    own, hidden = roofline(alone), draft.arch.hidden_size
    own.curve.head_s -= sampling_s(alone)
    if draft.method != "medusa":
        add_passes(step_time, own, _joining_s(alone, counts, draft.fused_inputs), draft.num_tokens)
        return
    block_s = gemms_s(alone, counts, hidden, hidden, HEAD_FORMAT)
    block_bytes = WEIGHT_FORMATS[HEAD_FORMAT].bytes_per_element * hidden**2
    add_heads(step_time, draft.num_tokens * (block_s + own.curve.head_s),
               draft.num_tokens * (block_bytes + float(own.curve.head_bytes[1])))


def _joining_s(stack: StepContext, counts: Floats, inputs: int) -> Floats:
    """Return what a draft's layer takes to join its inputs, a 16-bit product that no rank shares with another [s]."""
    hidden = stack.arch.hidden_size
    joining_s = gemms_s(stack, counts, hidden, inputs * hidden, HEAD_FORMAT) if inputs else np.zeros_like(counts)
    joining_s[0] = 0.0
    return joining_s


def padded(counts: Any) -> Any:
    """Return the batch sizes that CUDA graphs run: 1, 2, 4, then multiples of 8 up to 256 and of 16 up to 512.

    vLLM captures these and pads smaller batches up (vllm/config/compilation.py); larger steps run as they are.

    >>> padded(np.array([1, 3, 9, 250, 257, 513])).tolist()
    [1, 4, 16, 256, 272, 513]
    """
    small = np.where(counts <= 2, counts, np.where(counts <= 4, 4, -(-counts // 8) * 8))
    return np.where(counts > 512, counts, np.where(counts > 256, -(-counts // 16) * 16, small))


def priors(stack: StepContext) -> tuple[str, ...]:
    """Return the operators that have a kernel which nobody measured on this GPU: others stand in.

    Medians over other GPUs; and for Mamba-2, whose scan nobody measured anywhere, the gated delta net.
    """
    layout = stack.layout
    formats = {projection_format(stack, gemm)
               for gemm in projections(stack.arch, layout.tensor_parallel_size)}
    sizes = [("all_reduce", layout.tensor_parallel_size), ("all_gather", layout.tensor_parallel_size)]
    if layout.data_parallel_size > 1:
        sizes += [(op, layout.num_expert_gpus) for op in exchange_ops(stack)]
    fits: dict[str, Sequence[Fit[Any]]] = {
        "dense layers": [gemm_kernels(stack, name)[1][0] for name in sorted(formats | {HEAD_FORMAT})],
        "experts": [moe_kernels(stack)[1][0]] if stack.arch.num_moe_layers else [],
        "attention": [prompt_fit(stack), decode_fit(stack)],
        AS_DELTA_NET if stack.arch.linear_attention == "mamba" else "linear attention":
            linear_fits(stack) if stack.arch.num_linear_layers else [],
        "collectives": [collective_fit(stack, op, num_gpus) for op, num_gpus in sizes if num_gpus > 1],
    }
    unmeasured = tuple(name for name, found in fits.items()
                       if name == AS_DELTA_NET or not all(fit.is_measured for fit in found))
    over_nodes = any(num_gpus > stack.gpu.gpus_per_node for _, num_gpus in sizes)
    return (*unmeasured, "collectives between nodes") if over_nodes else unmeasured


def gemm_kernels(stack: StepContext, format_name: str) -> tuple[str, tuple[Fit[GemmConstants], ...]]:
    """Return what dense weights of a format are multiplied as, and the kernels to choose from."""
    choices = WEIGHT_FORMATS[format_name].gemm
    if stack.fp8_gemm_backend == "flashinfer_trtllm" and choices[0] == "fp8_block":
        choices = ("fp8_block_trtllm", *choices)
    return _preferred(GemmConstants, "gemm", choices, stack)


def moe_kernels(stack: StepContext) -> tuple[str, tuple[Fit[MoeConstants], ...]]:
    """Return what the routed experts are multiplied as, and the kernels to choose from.

    Those of the backend that was asked for: the engine's own, else another's, since both call the same library; where
    nobody measured it on this GPU, the engine's choice. Marlin's is that of int4 for other 4-bit formats too: nobody
    measured it with them but on B200, where it came with kernels around it that engines do not run.
    """
    choices = WEIGHT_FORMATS[expert_format(stack.arch, stack.quantization)].moe
    if stack.moe_backend == "marlin" and not {"int4_wo", "w4a16_mxfp4"}.isdisjoint(choices):
        choices = ("int4_wo",)
    name, fits = _preferred(MoeConstants, "moe", choices, stack)
    if stack.moe_backend == "auto":
        return name, fits
    anyones = find_fits(MoeConstants, "moe", gpu=stack.gpu.kernels_of, engine=stack.engine,
                        dtype=KERNELS[name].like or name, is_shared=True)
    named = (tuple(fit for fit in found
                   if any(word in fit.row.get("kernel", "") for word in MOE_BACKENDS[stack.moe_backend]))
             for found in (fits, anyones))
    return name, next(filter(None, named), fits)


def _preferred(cls: type[T], family: str, choices: tuple[str, ...],
               stack: StepContext) -> tuple[str, tuple[Fit[T], ...]]:
    """Return the first choice that the GPU can run and somebody measured, on this GPU or on another."""
    usable = usable_kernels(choices, stack.gpu)
    for name in usable:
        kernel = KERNELS[name]
        also = kernel.grouped_also if family == "moe" else ()
        try:
            fits = find_fits(cls, family, gpu=stack.gpu.kernels_of, engine=stack.engine, dtype=kernel.like or name,
                             also=also, is_shared=family in kernel.shared)
            return name, tuple(replace(fit, is_measured=False) for fit in fits) if kernel.like else fits
        except CatalogError:
            if name == usable[-1]:
                raise
    raise AssertionError("usable_kernels returns at least one")


def projection_format(stack: StepContext, gemm: Gemm) -> str:
    """Return the format of a projection: its part's, or 16 bit where the checkpoint leaves it out."""
    if gemm.part == "attention":
        return attention_format(stack.arch, stack.quantization)
    chosen = weight_format(stack.arch, stack.quantization)
    return "bf16" if gemm.part == "kept" and is_native(stack.arch, chosen) else chosen


def gemms_s(stack: StepContext, tokens: Floats, n: int, k: int, format_name: str, *, is_apart: bool = True,
            is_quantized: bool = False) -> Floats:
    """Return the time of one dense GEMM of the engine [s], shape of `tokens`: of its fastest kernel.

    is_apart : whether it is a kernel, and not one more product of another, without its own floor, depth and idle tiles.
    is_quantized : whether its input comes quantized, by the kernel before, in formats that quantize it apart.
    """
    dtype, fits = gemm_kernels(stack, format_name)
    kernel, c = KERNELS[dtype], stack.constants
    quantizes = kernel.quantizes_apart and not is_quantized
    hardware = {"flops_per_s": stack.gpu.flops_per_s[kernel.precision],
                "bandwidth_bytes_per_s": stack.gpu.hbm_bandwidth_bytes_per_s}
    weight_bytes = WEIGHT_FORMATS[format_name].bytes_per_element
    floor_s = (1 + quantizes) * c.kernel_floor_s
    widens = weight_bytes < kernel.activation_bytes == 2.0 and ENGINES[stack.engine].widens_weights
    reached = (WIDENING_FRAC if widens else 1.0) / stack.compute_ratio(kernel.precision)
    sustained = hardware | {"flops_per_s": hardware["flops_per_s"] * reached}

    def as_run(constants: GemmConstants) -> GemmConstants:
        if not is_apart:
            return replace(constants, floor_s=0.0, depth_s=0.0, idle_outputs=0.0)
        return replace(constants, floor_s=min(floor_s, constants.floor_s))

    benchmark_s: Floats = np.minimum.reduce([
        gemm_s(tokens, n, k, weight_bytes_per_element=weight_bytes,
               activation_bytes_per_element=kernel.activation_bytes, quantizes=quantizes,
               constants=as_run(fit.constants), **sustained)
        for fit in fits])
    least_s = np.maximum(n * k * weight_bytes / hardware["bandwidth_bytes_per_s"],
                         2.0 * tokens * n * k / hardware["flops_per_s"])
    return np.maximum(c.linear_ratio * benchmark_s, least_s)


def _linear(curve: Any, stack: StepContext, counts: Floats) -> None:
    """Projections, dense MLPs, routers and shared experts, each GEMM by its shape."""
    for gemm in projections(stack.arch, stack.layout.tensor_parallel_size):
        if gemm.name == "router" and _is_fp32_router(stack):
            curve.linear_s += gemm.count * _fp32_router_s(stack, counts, gemm.n, gemm.k)
            curve.tokens_bytes += gemm.parameters * 4.0
            continue
        format_name = projection_format(stack, gemm)
        is_apart = not (gemm.name.startswith("shared_") and stack.fuses_shared_experts)
        curve.linear_s += gemm.count * gemms_s(stack, counts, gemm.n, gemm.k, format_name, is_apart=is_apart)
        curve.tokens_bytes += gemm.parameters * WEIGHT_FORMATS[format_name].bytes_per_element


def _is_fp32_router(stack: StepContext) -> bool:
    """Tell whether cuBLAS multiplies the routers in 32 bit, on a GPU like the one where that was measured.

    Profiles of Blackwell alone state a peak without tensor cores. On Hopper nobody measured it, and runs whose routers
    stay in 32 bit are no slower than the others.
    """
    return stack.arch.router_in_fp32 and stack.fp32_matmul in FP32_GEMMS and "fp32" in stack.gpu.flops_per_s


def _fp32_router_s(stack: StepContext, counts: Floats, n: int, k: int) -> Floats:
    """Return the time of one 32-bit router [s]; TF32 has half the 16-bit peak."""
    peaks, name = stack.gpu.flops_per_s, stack.fp32_matmul
    peak = {"fp32": peaks["fp32"], "tf32": peaks["bf16"] / 2}[name]
    return fp32_gemm_s(counts, n, k, flops_per_s=peak, bandwidth_bytes_per_s=stack.gpu.hbm_bandwidth_bytes_per_s,
                       constants=FP32_GEMMS[name], floor_s=min(2 * stack.constants.kernel_floor_s, FLOOR_S))


def _experts(curve: Any, stack: StepContext, counts: Floats) -> None:
    """Routed experts of all MoE layers, by the fastest kernel; data-parallel attention ranks share one set of them."""
    arch, layout, c = stack.arch, stack.layout, stack.constants
    if not arch.num_moe_layers:
        return
    dtype, fits = moe_kernels(stack)
    tokens = counts * layout.data_parallel_size
    ep, tp = layout.expert_parallel_size, layout.expert_tensor_parallel_size
    element = WEIGHT_FORMATS[expert_format(arch, stack.quantization)].bytes_per_element
    precision = KERNELS[dtype].precision
    flops_per_s = stack.gpu.flops_per_s[precision]
    bandwidth = stack.gpu.hbm_bandwidth_bytes_per_s
    floor_s = (MOE_KERNELS + MOE_PRODUCTS * KERNELS[dtype].quantizes_apart) * c.kernel_floor_s
    # an expert of two matrices is one of three that are two thirds as wide: as many bytes, products and activations
    width = arch.moe_intermediate_size * arch.num_mlp_matrices / 3.0
    expert = 3.0 * arch.moe_hidden_size * width / tp
    multiply_s = 2.0 * expert * tokens * arch.num_experts_per_tok / ep / flops_per_s
    layer_s, read = np.full_like(tokens, np.inf), np.zeros_like(tokens)
    for fit in fits:
        constants = replace(fit.constants, floor_s=min(floor_s, fit.constants.floor_s))
        benchmark_s = moe_s(tokens, hidden=arch.moe_hidden_size, inter=width,
                            topk=arch.num_experts_per_tok, num_experts=arch.num_experts, moe_tp=tp, moe_ep=ep,
                            weight_bytes_per_element=element, flops_per_s=flops_per_s / stack.compute_ratio(precision),
                            bandwidth_bytes_per_s=bandwidth, constants=constants, unevenness=_unevenness(ep))
        touched = touched_experts(tokens, arch.num_experts_per_tok, arch.num_experts, ep, constants.spread_frac)
        weight_bytes = touched * expert * element
        found_s = np.maximum(c.experts_ratio * benchmark_s,
                             np.maximum(weight_bytes / bandwidth, multiply_s))
        layer_s, read = np.minimum(layer_s, found_s), np.where(found_s < layer_s, weight_bytes, read)
    curve.experts_s += arch.num_moe_layers * layer_s
    curve.shared_s += arch.num_moe_layers * layer_s
    curve.tokens_bytes += arch.num_moe_layers * read


def _unevenness(num_gpus: int) -> float:
    """Return how many standard deviations the fullest of some GPUs lies above their mean, as of a normal distribution.

    Expected largest of n standard normal values: 0.56 for 2, 1.03 for 4, 1.42 for 8, 1.77 for 16.

    >>> round(_unevenness(8), 2)
    1.42
    """
    return float(_LARGEST_OF[num_gpus]) if num_gpus in _LARGEST_OF else math.sqrt(2 * math.log(num_gpus))


_LARGEST_OF = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236, 16: 1.7660, 32: 2.0697}


def _activations(curve: Any, stack: StepContext, counts: Floats, fused: Floats) -> None:
    """Norms with residuals, rotary embedding and activation: launches, then what they read and write.

    What quantizes is in the products' benchmarks, routed experts' activation in the experts', and the launch of a norm
    in each all-reduce that is `fused`.
    """
    arch, c = stack.arch, stack.constants
    norm_s = NORM_SHARE * LAYER_KERNELS * _small_constants(stack).floor_s
    routed_apart = 0 if ENGINES[stack.engine].routes_with_experts else arch.num_moe_layers
    curve.activations_s += (routed_apart * c.moe_layer_s - fused * norm_s
                            + stack.num_older_layers * c.older_layer_s
                            + arch.num_index_layers * index_share(stack) * c.index_layer_s)
    launched = replace(arch, shared_intermediate_size=0) if stack.fuses_shared_experts else arch
    for kernel in small_kernels(launched, stack.engine, stack.layout.tensor_parallel_size):
        curve.activations_s += kernel.num * small_s(stack, kernel, counts)
        curve.tokens_bytes += kernel.num * ACTIVATION_BYTES * counts * kernel.elements


def small_s(stack: StepContext, kernel: Small, tokens: Floats) -> Floats:
    """Return the time of one small kernel, its launch included [s], shape of `tokens`."""
    return small_kernel_s(ACTIVATION_BYTES * tokens * kernel.elements, ACTIVATION_BYTES * tokens * kernel.distinct,
                          bandwidth_bytes_per_s=stack.gpu.hbm_bandwidth_bytes_per_s, constants=_small_constants(stack),
                          num_floors=LAYER_KERNELS * kernel.share)


def _small_constants(stack: StepContext) -> SmallConstants:
    """Return what small kernels take: as they were measured on this GPU, else as runs of the engine show."""
    c, fit = stack.constants, find_fit(SmallConstants, "small", gpu=stack.gpu.kernels_of, engine=stack.engine)
    return fit.constants if fit.is_measured else replace(
        fit.constants, floor_s=c.layer_s / LAYER_KERNELS, bandwidth_frac=c.activation_bandwidth_frac)


def _head(curve: Any, stack: StepContext, counts: Floats) -> None:
    """LM head on the sampled tokens, 16-bit in every format; their logits gathered, and sampled from on every GPU."""
    arch, tp = stack.arch, stack.layout.tensor_parallel_size
    width = -(-arch.vocab_size // tp)
    curve.head_s += gemms_s(stack, counts, width, arch.hidden_size, HEAD_FORMAT)
    if tp > 1:
        curve.head_s += collectives_s(stack, counts * arch.vocab_size * ACTIVATION_BYTES, "all_gather", tp)
    curve.head_s += sampling_s(stack)
    curve.head_bytes += ACTIVATION_BYTES * width * arch.hidden_size


def sampling_s(stack: StepContext) -> Floats:
    """Return what sampling takes by the number of sequences, at the counts of `engine.curve` [s]."""
    sampled = node_counts().astype(np.float64)
    return small_s(stack, sampler(stack.arch), sampled) + sampled * stack.constants.sampling_s_per_seq
