"""A product with 32-bit weights, which routers of some models keep: its time by cuBLAS, in FP32 or in TF32."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats

FLOOR_S = 4e-6  # of two kernels: one widens the activations
BANDWIDTH_FRAC = 0.9
SPLIT_TOKENS = 16  # up to this many, several thread blocks share one sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp32Gemm(KernelConstants):
    """Constants of cuBLAS with 32-bit inputs.

    Parameters
    ----------
    depth_s, split_depth_s : per element of the inner dimension, summed by one thread block and by several [s].
    flops_frac : of the peak, for the time that further tokens add [1].
    """

    depth_s: float
    split_depth_s: float
    flops_frac: float


# By the format multiplied in, from 1 to 1,024 tokens by 256 x 6,144 on a GB200: median error 4 and 3 % from 4 tokens on
# (vllm-project/vllm#47973, Apache-2.0, read 2026-11). TF32 has half the 16-bit peak.
FP32_GEMMS: Mapping[str, Fp32Gemm] = {
    "fp32": Fp32Gemm(depth_s=9.6e-9, split_depth_s=2.6e-9, flops_frac=0.94),
    "tf32": Fp32Gemm(depth_s=2.6e-9, split_depth_s=1.3e-9, flops_frac=0.35),
}


def fp32_gemm_s(m: ArrayLike, n: float, k: float, *, flops_per_s: float, bandwidth_bytes_per_s: float,
                constants: Fp32Gemm, floor_s: float = FLOOR_S) -> Floats:
    """Return the time of y[m, n] = x[m, k] · W[k, n] in 32 bit, x given in 16 [s].

    t = floor + k·depth + 2·m·n·k / (flops · flops_frac) + 6·m·k / (bandwidth · 0.9), with a smaller depth up to 16
    tokens, for which cuBLAS splits the sum.

    Parameters
    ----------
    m : tokens of the step [1].
    n, k : outputs and inputs [1]; of a router, the experts and the hidden size.
    flops_per_s, bandwidth_bytes_per_s : dense peak of the format multiplied in; device memory.
    floor_s : of both kernels [s].

    Notes
    -----
    For few outputs alone, whose weights a cache holds: with n = 256 a handful of thread blocks is at work, so the time
    is the length of their sums.

    >>> (fp32_gemm_s([8, 64, 1024], 256, 6144, flops_per_s=80e12, bandwidth_bytes_per_s=8e12,
    ...              constants=FP32_GEMMS["fp32"]) * 1e6).round(0)  # 17, 63 and 111 measured
    array([ 20.,  66., 111.])
    """
    m = np.asarray(m, float)
    depth_s = np.where(m <= SPLIT_TOKENS, constants.split_depth_s, constants.depth_s)
    multiply_s = 2.0 * m * n * k / (flops_per_s * constants.flops_frac)
    widen_s = 6.0 * m * k / (bandwidth_bytes_per_s * BANDWIDTH_FRAC)
    total: Floats = floor_s + k * depth_s + multiply_s + widen_s
    return total
