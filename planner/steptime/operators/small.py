"""Small kernels between a layer's products: norms, rotary embedding and activation, in memory or in the L2 cache."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallConstants(KernelConstants):
    """Constants of small kernels of one GPU; fitted in `hardware_db/kernels/small.toml`.

    Parameters
    ----------
    floor_s : the smallest call [s].
    bandwidth_frac : of the device memory's bandwidth, streaming [1].
    cache_bytes : of the bytes that one kernel touches, as many are in the cache; about half of it [B].
    cache_bandwidth_bytes_per_s : reading and writing there; 0 if not measured [B/s].
    hidden_s : of its streaming time, the part that a kernel's launch hides: a token has a block of threads, and until
        every multiprocessor has one, more tokens take no longer; 0 if not measured [s].
    """

    floor_s: float
    bandwidth_frac: float
    cache_bytes: float
    cache_bandwidth_bytes_per_s: float
    hidden_s: float


def small_kernel_s(traffic_bytes: ArrayLike, touched_bytes: ArrayLike, *, bandwidth_bytes_per_s: float,
                   constants: SmallConstants, num_floors: float = 1.0) -> Floats:
    """Return the time of a kernel that streams activations [s].

    t = floors + max(0, S − min(hidden, floors)), S = traffic · (h / cache bandwidth + (1 − h) / memory), with
    h = min(1, cache / touched): its inputs were written by the kernel before, and stay in the cache as far as there is
    room for them and for its outputs.

    Parameters
    ----------
    traffic_bytes : read and written [B].
    touched_bytes : distinct bytes of that: half of it if the kernel works in place [B].
    bandwidth_bytes_per_s : of the device memory [B/s].
    num_floors : least time of this kernel, in floors of the smallest such kernel [1].

    Returns
    -------
    Floats
        Seconds, in the broadcast shape; non-decreasing in all of them, never below S nor longer than without a cache.

    >>> card = SmallConstants(floor_s=2e-6, bandwidth_frac=0.9, cache_bytes=40e6, cache_bandwidth_bytes_per_s=2.5e12,
    ...                       hidden_s=1e-6)
    >>> sizes = [1e6, 20e6, 160e6]
    >>> found = small_kernel_s(sizes, sizes, bandwidth_bytes_per_s=1e12, constants=card)
    >>> (found * 1e6).round(1)
    array([  2. ,   9. , 150.3])
    """
    traffic, touched = np.asarray(traffic_bytes, float), np.asarray(touched_bytes, float)
    floors_s, memory = num_floors * constants.floor_s, bandwidth_bytes_per_s * constants.bandwidth_frac
    streamed_s = traffic / memory
    if constants.cache_bandwidth_bytes_per_s > memory:
        hit_rate = np.minimum(1.0, constants.cache_bytes / np.maximum(touched, 1.0))
        streamed_s = hit_rate * traffic / constants.cache_bandwidth_bytes_per_s + (1.0 - hit_rate) * streamed_s
    total: Floats = floors_s + np.maximum(streamed_s - min(constants.hidden_s, floors_s), 0.0)
    return total
