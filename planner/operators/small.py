"""Small kernels between a layer's products: norms, rotary embedding and activation, in memory or in the L2 cache."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.operators.constants import KernelConstants
from planner.operators.gemm import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallConstants(KernelConstants):
    """What a GPU's L2 cache does for small kernels; fitted in `hardware_db/kernels/small.toml`.

    Parameters
    ----------
    cache_bytes : of what one kernel touches, this much it finds in the cache; about half of it [B].
    cache_bandwidth_bytes_per_s : reading and writing there; 0 where nobody measured it [B/s].
    """

    cache_bytes: float
    cache_bandwidth_bytes_per_s: float


def small_kernel_s(traffic_bytes: ArrayLike, touched_bytes: ArrayLike, *, bandwidth_bytes_per_s: float,
                   constants: SmallConstants) -> Floats:
    """Return the time of a kernel that streams activations, without its launch [s].

    t = traffic · (h / cache bandwidth + (1 − h) / bandwidth), with h = min(1, cache / touched): its inputs were written
    by the kernel before, and stay in the cache as far as there is room for them and for its outputs.

    Parameters
    ----------
    traffic_bytes : read and written [B].
    touched_bytes : distinct bytes of that: half of it where the kernel works in place [B].
    bandwidth_bytes_per_s : of the device memory, as such kernels reach it [B/s].

    Returns
    -------
    Floats
        Seconds, in the broadcast shape; non-decreasing in both, never longer than without a cache.

    >>> card = SmallConstants(cache_bytes=40e6, cache_bandwidth_bytes_per_s=2.5e12)
    >>> (small_kernel_s([20e6, 160e6], [20e6, 160e6], bandwidth_bytes_per_s=0.9e12, constants=card) * 1e6).round(1)
    array([  8. , 149.3])
    """
    traffic, touched = np.asarray(traffic_bytes, float), np.asarray(touched_bytes, float)
    memory_s: Floats = traffic / bandwidth_bytes_per_s
    if constants.cache_bandwidth_bytes_per_s <= bandwidth_bytes_per_s:
        return memory_s
    found = np.minimum(1.0, constants.cache_bytes / np.maximum(touched, 1.0))
    cached: Floats = found * traffic / constants.cache_bandwidth_bytes_per_s + (1.0 - found) * memory_s
    return cached
