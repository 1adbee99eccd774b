"""The dense matrix products of a step: the kernel of each, and its time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from planner.catalog.layers.dense_gemm import Gemm
from planner.engines import ENGINES
from planner.errors import CatalogError
from planner.model.precision import (
    KERNELS,
    WEIGHT_FORMATS,
    WIDENING_FRAC,
    attention_format,
    is_native,
    linear_format,
    usable_kernels,
    weight_format,
)
from planner.model.projections import projections
from planner.steptime.contribution import Contribution
from planner.steptime.kernel_constants import Fit, find_fits, find_measured
from planner.steptime.operators.fp32_gemm import FLOOR_S, FP32_GEMMS, fp32_gemm_s
from planner.steptime.operators.gemm import Floats, GemmConstants, gemm_s
from planner.steptime.step_context import StepContext

T = TypeVar("T")


def dense_products(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield projections, dense MLPs, routers and shared experts, each GEMM by its shape."""
    for gemm in projections(stack.arch, stack.layout.tensor_parallel_size):
        if gemm.name == "router" and _is_fp32_router(stack):
            yield Contribution(gemm.name, curve={
                "linear_s": gemm.count * _fp32_router_s(stack, counts, gemm.n, gemm.k),
                "tokens_bytes": gemm.parameters * 4.0})
            continue
        format_name = projection_format(stack, gemm)
        stored = WEIGHT_FORMATS[format_name]
        is_apart = not (gemm.name.startswith("shared_") and stack.fuses_shared_experts)
        yield Contribution(gemm.name, curve={
            "linear_s": gemm.count * gemms_s(stack, counts, gemm.n, gemm.k, format_name, is_apart=is_apart),
            "tokens_bytes": gemm.parameters * (stored.bytes_per_element + stored.widened_bytes)})


def gemm_kernels(stack: StepContext, format_name: str) -> tuple[str, tuple[Fit[GemmConstants], ...]]:
    """Return the format in which dense weights are multiplied, and the kernels to choose from."""
    choices = WEIGHT_FORMATS[format_name].gemm
    if stack.fp8_gemm_backend == "flashinfer_trtllm" and choices[0] == "fp8_block":
        choices = ("fp8_block_trtllm", *choices)
    return preferred_kernels(GemmConstants, "gemm", choices, stack)


def preferred_kernels(cls: type[T], family: str, choices: tuple[str, ...],
                      stack: StepContext) -> tuple[str, tuple[Fit[T], ...]]:
    """Return the first choice that the GPU can run and that was measured, on this GPU or on another.

    A generation's kernel may not run on all of its GPUs: if it was measured on this one under another engine alone, a
    later choice that was measured under this engine goes before it (vLLM and SGLang multiply MXFP4 experts by Marlin on
    Blackwell with GDDR: vllm-project/vllm#40153).
    """
    usable = usable_kernels(choices, stack.gpu)
    by_engine = [name for name in usable[:-1] if find_measured(
        cls, family, gpu=stack.gpu.kernels_of, engine=stack.engine, dtype=KERNELS[name].like or name)]
    is_generations = family == "moe" and KERNELS[usable[0]].needs != "bf16"
    for name in (*(by_engine if is_generations else ()), *usable):
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
    """Return the format of a projection: its part's, or 16 bit if the checkpoint leaves it out."""
    if gemm.part == "attention":
        return attention_format(stack.arch, stack.quantization)
    if gemm.part == "linear":
        return linear_format(stack.arch, stack.quantization)
    chosen = weight_format(stack.arch, stack.quantization)
    return "bf16" if gemm.part in ("kept", "unquantized") and is_native(stack.arch, chosen) else chosen


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
    stored = WEIGHT_FORMATS[format_name]
    weight_bytes = stored.bytes_per_element + stored.widened_bytes
    floor_s = (1 + quantizes + (stored.widened_bytes > 0)) * c.kernel_floor_s
    widens = weight_bytes < kernel.activation_bytes == 2.0 and ENGINES[stack.engine].kernels.widens_weights
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


def _is_fp32_router(stack: StepContext) -> bool:
    """Tell whether cuBLAS multiplies the routers in 32 bit, on a GPU like the one that was measured.

    Profiles of Blackwell alone state a peak without tensor cores. On Hopper it was not measured, and runs whose routers
    stay in 32 bit are no slower than the others.
    """
    return stack.arch.router_in_fp32 and stack.fp32_matmul in FP32_GEMMS and "fp32" in stack.gpu.flops_per_s


def _fp32_router_s(stack: StepContext, counts: Floats, n: int, k: int) -> Floats:
    """Return the time of one 32-bit router [s]; TF32 has half the 16-bit peak."""
    peaks, name = stack.gpu.flops_per_s, stack.fp32_matmul
    peak = {"fp32": peaks["fp32"], "tf32": peaks["bf16"] / 2}[name]
    return fp32_gemm_s(counts, n, k, flops_per_s=peak, bandwidth_bytes_per_s=stack.gpu.hbm_bandwidth_bytes_per_s,
                       constants=FP32_GEMMS[name], floor_s=min(2 * stack.constants.kernel_floor_s, FLOOR_S))
