"""Routed experts of a step, all layers: their kernel, and its time."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.catalog.layers.mlps import Experts
from planner.engines import ENGINES
from planner.errors import CatalogError
from planner.model.expert_balance import balanced_load
from planner.model.precision import KERNELS, WEIGHT_FORMATS, expert_format
from planner.steptime.contribution import Contribution
from planner.steptime.dense_time import preferred_kernels
from planner.steptime.fused_norms import nvlink_generation
from planner.steptime.kernel_constants import Fit, find_fits, find_measured
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.moe import MoeConstants, moe_s, touched_experts
from planner.steptime.step_context import StepContext

MOE_KERNELS = 4  # of a layer's routed experts: permutation, two grouped products with the activation, combination
MOE_PRODUCTS = 2
# vLLM pads MXFP4 experts for Marlin: the hidden size, and the width on one GPU, to multiples of these (mxfp4.py).
MARLIN_PADS_TO = (256, 128)
MOE_BACKENDS = {"marlin": ("marlin",), "triton": ("triton", "fused_moe"), "deep_gemm": ("deepgemm",),
                "cutlass": ("cutlass",),
                "flashinfer_trtllm": ("trtllm", "min_latency")}  # a part of their kernels' names in the benchmarks


def routed_experts(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield the routed experts of all MoE layers; data-parallel attention ranks share one set of them."""
    for num_layers, experts in stack.arch.mlps_of(Experts):
        layer_s, read = _layer(stack, experts, counts * stack.layout.data_parallel_size)
        yield Contribution("experts", curve={"experts_s": num_layers * layer_s, "shared_s": num_layers * layer_s,
                                             "tokens_bytes": num_layers * read})


def layer_experts_s(stack: StepContext, experts: Experts, counts: Floats) -> Floats:
    """Return the time of one layer's experts for the tokens of all ranks, `counts` of each [s]."""
    return _layer(stack, experts, counts * stack.layout.data_parallel_size)[0]


def moe_kernels(stack: StepContext) -> tuple[str, tuple[Fit[MoeConstants], ...]]:
    """Return the format in which routed experts are multiplied, and the kernels to choose from.

    If a GPU gets the tokens of its own experts alone, the kernels that were measured that way. Else the kernels of
    the user's backend: the engine's own, else another's, since both call the same library; without a measurement on
    this GPU, the engine's choice. Marlin's is int4's for other 4-bit formats too: it was measured with them only on
    B200, with kernels around it that engines do not run.
    """
    choices = WEIGHT_FORMATS[expert_format(stack.arch, stack.quantization)].moe
    if stack.layout.dispatches and stack.moe_backend == "auto":
        try:
            return preferred_kernels(MoeConstants, "dispatched_moe", choices, stack)
        except CatalogError:  # this format was not measured that way: the kernels of GPUs that hold all tokens stand in
            pass
    if stack.moe_backend == "marlin" and not {"int4_wo", "w4a16_mxfp4"}.isdisjoint(choices):
        choices = ("int4_wo",)
    name, fits = preferred_kernels(MoeConstants, "moe", choices, stack)
    backend = moe_backend(stack, name)
    if backend == "auto":
        return name, fits
    others = find_fits(MoeConstants, "moe", gpu=stack.gpu.kernels_of, engine=stack.engine,
                        dtype=KERNELS[name].like or name, is_shared=True)
    named = (tuple(fit for fit in choice
                   if any(word in fit.row.get("kernel", "") for word in MOE_BACKENDS[backend]))
             for choice in (fits, tuple(_borrowed(stack.engine, fits, fit) for fit in others)))
    return name, next(filter(None, named), fits)


def _borrowed(engine: str, measured: tuple[Fit[MoeConstants], ...], kernel: Fit[MoeConstants]) -> Fit[MoeConstants]:
    """Return a kernel that was measured under another engine as this engine runs it.

    The imbalance is this engine's: tokens choose experts, not kernels, and the engines' benchmarks draw them in
    different ways. On B200 the busiest of 8 GPUs has 2.7 times the mean load in SGLang's FP8 rows, and 1.5 times in
    TensorRT-LLM's.
    """
    imbalance = min(fit.constants.imbalance_exponent for fit in measured)
    at_tokens, ratios = ENGINES[engine].kernels.borrowed_experts
    return replace(kernel, constants=replace(kernel.constants, imbalance_exponent=imbalance),
                   row={**kernel.row, "at_tokens": at_tokens, "ratios": ratios})


def moe_backend(stack: StepContext, dtype: str) -> str:
    """Return the backend of the routed experts: the user's, or the engine's choice for a format on this GPU."""
    if stack.moe_backend != "auto":
        return stack.moe_backend
    return ENGINES[stack.engine].kernels.auto_experts.get((nvlink_generation(stack.gpu) or "", dtype), "auto")


def _own_kernel(stack: StepContext, experts: Experts, dtype: str) -> Fit[MoeConstants] | None:
    """Return the kernel as it was measured with experts of this very shape, on GPUs that hold whole experts.

    It stands alone: a kernel that was measured with other shapes says less of these. By itself an engine runs its own;
    one that was asked for by name is the same library's under any engine.
    """
    layout, backend = stack.layout, moe_backend(stack, dtype)
    if layout.dispatches or layout.expert_tensor_parallel_size > 1:
        return None
    by = {"engine": stack.engine} if backend == "auto" else {}
    fit = find_measured(MoeConstants, "shaped_moe", gpu=stack.gpu.kernels_of, dtype=dtype, backend=backend, **by,
                        hidden_size=experts.input_width(stack.arch.hidden_size), inter_size=experts.width,
                        num_experts=experts.num_experts)
    return fit if fit and layout.expert_parallel_size <= fit.row["largest_ep"] else None


def _measured_ratio(fit: Fit[MoeConstants], tokens: Floats) -> Floats:
    """Return the measured time over the formula's at counts of tokens, between the counts that a row states."""
    if "ratios" not in fit.row:
        return np.ones_like(tokens)
    at = np.log(np.maximum(tokens, 1.0))
    ratio: Floats = np.interp(at, np.log(fit.row["at_tokens"]), fit.row["ratios"])
    return ratio


def _layer(stack: StepContext, experts: Experts, tokens: Floats) -> tuple[Floats, Floats]:
    """Return the time of one layer's experts by the fastest kernel [s], and its reads of their weights [bytes]."""
    arch, layout, c = stack.arch, stack.layout, stack.constants
    dtype, fits = moe_kernels(stack)
    if shaped := _own_kernel(stack, experts, dtype):
        fits = (shaped,)
    ep, tp = layout.expert_parallel_size, layout.expert_tensor_parallel_size
    element = WEIGHT_FORMATS[expert_format(arch, stack.quantization)].bytes_per_element
    precision = KERNELS[dtype].precision
    flops_per_s = stack.gpu.flops_per_s[precision]
    bandwidth = stack.gpu.hbm_bandwidth_bytes_per_s
    floor_s = (MOE_KERNELS + MOE_PRODUCTS * KERNELS[dtype].quantizes_apart) * c.kernel_floor_s
    hidden, visited = float(experts.input_width(arch.hidden_size)), experts.num_experts_per_tok
    # an expert of two matrices is one of three that are two thirds as wide: as many bytes, products and activations
    width = experts.width * experts.num_matrices / 3.0
    if stack.moe_backend == "marlin" and expert_format(arch, stack.quantization) == "mxfp4":
        hidden, width = (-(-size // multiple) * multiple for size, multiple in
                         ((hidden, MARLIN_PADS_TO[0]), (width, MARLIN_PADS_TO[1] * tp)))
    expert = 3.0 * hidden * width / tp
    multiply_s = 2.0 * expert * tokens * visited / ep / flops_per_s
    slots = layout.slots(experts.num_experts)
    most = balanced_load(experts.num_experts, slots, ep) if layout.enable_eplb else math.inf
    layer_s, read = np.full_like(tokens, np.inf), np.zeros_like(tokens)
    for fit in fits:
        constants = replace(fit.constants, floor_s=min(floor_s, fit.constants.floor_s))
        benchmark_s = moe_s(tokens, hidden=hidden, inter=width, topk=visited, num_experts=slots,
                            moe_tp=tp, moe_ep=ep, weight_bytes_per_element=element,
                            flops_per_s=flops_per_s / stack.compute_ratio(precision),
                            bandwidth_bytes_per_s=bandwidth, constants=constants, unevenness=unevenness(ep),
                            most_imbalance=most, is_dispatched=layout.dispatches)
        touched = touched_experts(tokens, visited, slots, ep, constants.spread_frac)
        weight_bytes = touched * expert * element
        found_s = np.maximum(c.experts_ratio * benchmark_s * _measured_ratio(fit, tokens),
                             np.maximum(weight_bytes / bandwidth, multiply_s))
        layer_s, read = np.minimum(layer_s, found_s), np.where(found_s < layer_s, weight_bytes, read)
    return layer_s, read


def unevenness(num_gpus: int) -> float:
    """Return how many standard deviations the fullest of some GPUs lies above their mean, as of a normal distribution.

    Expected largest of n standard normal values: 0.56 for 2, 1.03 for 4, 1.42 for 8, 1.77 for 16.

    >>> round(unevenness(8), 2)
    1.42
    """
    return float(_LARGEST_OF[num_gpus]) if num_gpus in _LARGEST_OF else math.sqrt(2 * math.log(num_gpus))


_LARGEST_OF = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236, 16: 1.7660, 32: 2.0697}
