"""Dense GEMM: the time of one linear layer from its shape, the hardware's peaks and seven constants."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.steptime.operators.constant_ranges import KernelConstants

Floats = NDArray[np.float64]

# Rows of one output tile: a batch below it cannot fill more of an idle wave than its own share.
TILE_TOKENS = 128
NARROW_TOKENS = 16  # rows of the narrowest tile


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants(KernelConstants):
    """Constants of kernels of one GPU, engine and precision; fitted in `hardware_db/kernels/gemm.toml`.

    Parameters
    ----------
    flops_frac : of the dense peak, in large products [1].
    bandwidth_frac : of the device memory's bandwidth, streaming weights and activations [1].
    quantize_bandwidth_frac : of the same, quantizing 16-bit activations before the product [1].
    floor_s : the smallest call [s].
    depth_s : per element of the inner dimension k, which is summed in sequence [s].
    idle_outputs : outputs that the hardware could compute beside the real ones in a last, half-empty wave [1].
    sharpness : exponent p of the smooth maximum of the two roofs; 1 adds them, large p takes the larger [1].
    narrow_frac : of the traffic's time, the share in kernels of one narrow tile, up to 16 tokens [1].
    tile_tokens : rows of the smallest tile, all of which are multiplied however few tokens there are; 1 if that is
        hidden behind the reading of weights, as on all GPUs whose kernels were measured [1].
    """

    flops_frac: float
    bandwidth_frac: float
    quantize_bandwidth_frac: float
    floor_s: float
    depth_s: float
    idle_outputs: float
    sharpness: float
    narrow_frac: float = 1.0
    tile_tokens: float = 1.0


def gemm_s(m: ArrayLike, n: ArrayLike, k: ArrayLike, *, weight_bytes_per_element: float,
           activation_bytes_per_element: float, flops_per_s: float, bandwidth_bytes_per_s: float,
           constants: GemmConstants, quantizes: bool = True) -> Floats:
    """Return the time of y[m, n] = x[m, k] · W[k, n], weights read from device memory [s].

    t = floor + k·depth + ‖M, C‖_p + Q, with

    - M = (n·k·w + m·k·a + 2·m·n) / (bandwidth · bandwidth_frac), all traffic once; up to 16 tokens times narrow_frac,
      no faster than at the peak;
    - C = 2·k·(max(m, tile)·n + idle · min(1, m/128)) / (flops · flops_frac);
    - Q = m·k·(2 + a) / (bandwidth · quantize_bandwidth_frac) if a < 2: x is read in 16 bit and written in a bytes;
      0 if x comes quantized, from the kernel before.

    Parameters
    ----------
    m : tokens of the step [1], shape broadcastable with n and k.
    n, k : outputs and inputs of the layer on this GPU [1].
    weight_bytes_per_element : with its scales: bf16 2, fp8 1, nvfp4 0.5625 [B].
    activation_bytes_per_element : of x as it is multiplied: 2, 1 or 0.5625 [B].
    flops_per_s, bandwidth_bytes_per_s : dense peak of the precision multiplied in; device memory [FLOP/s, B/s].
    quantizes : whether x comes in 16 bit, as in the benchmarks.

    Returns
    -------
    Floats
        Seconds, in the broadcast shape; non-decreasing in m, n and k, never below either roof.

    Notes
    -----
    Valid for n, k >= 512 and m from 1 to 16,384. Steps of tile and wave quantization are smoothed: one shape in ten is
    off by 20 % or more, either way. Weights that stay in a large L2 are read faster than this; between the layers of a
    model they do not.
    Structure: roofs after Williams et al., Roofline, CACM 2009; constants fitted by `benchmarks/kernels/fit_gemm.py`.

    >>> h100 = GemmConstants(flops_frac=0.82, bandwidth_frac=0.90, quantize_bandwidth_frac=1.0, floor_s=3e-6,
    ...                      depth_s=2.7e-10, idle_outputs=1.2e5, sharpness=3.1)
    >>> bf16 = dict(weight_bytes_per_element=2.0, activation_bytes_per_element=2.0, flops_per_s=989.4e12,
    ...             bandwidth_bytes_per_s=3.35e12, constants=h100)
    >>> (gemm_s([1, 4096], 8192, 8192, **bf16) * 1e6).round(1)
    array([ 49.7, 685.7])
    """
    m, n, k = (np.asarray(size, float) for size in (m, n, k))
    traffic = n * k * weight_bytes_per_element + m * k * activation_bytes_per_element + 2 * m * n
    rows = np.where(m > 0, np.maximum(m, constants.tile_tokens), 0.0)
    flops = 2 * k * (rows * n + constants.idle_outputs * np.minimum(1.0, m / TILE_TOKENS))
    quantized = m * k * (2 + activation_bytes_per_element) if quantizes and activation_bytes_per_element < 2 else 0.0
    narrow_frac = min(constants.bandwidth_frac / constants.narrow_frac, 1.0)
    bandwidth_frac = np.where(m <= NARROW_TOKENS, narrow_frac, constants.bandwidth_frac)
    roofs = smooth_maximum(traffic / (bandwidth_bytes_per_s * bandwidth_frac),
                           flops / (flops_per_s * constants.flops_frac), constants.sharpness)
    quantize_s = quantized / (bandwidth_bytes_per_s * constants.quantize_bandwidth_frac)
    total: Floats = constants.floor_s + k * constants.depth_s + roofs + quantize_s
    return total


def smooth_maximum(a: ArrayLike, b: ArrayLike, sharpness: float) -> Floats:
    """Return the p-norm of two non-negative times: at least the larger, at most their sum for p >= 1.

    >>> round(float(smooth_maximum(3.0, 4.0, 2.0)), 12)
    5.0
    """
    larger = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.where(larger > 0, larger, 1.0)
    result: Floats = larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)
    return result
