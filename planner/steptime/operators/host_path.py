"""Collectives through the host: their time if GPUs on PCIe cannot reach each other's memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.steptime.operators.collectives import sent_bytes
from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPathConstants(KernelConstants):
    """The way from GPU to GPU through the host's memory or its root complex.

    Parameters
    ----------
    latency_s : of a collective, in addition to that of the direct path [s].
    bandwidth_bytes_per_s : of each GPU through the host, one direction [B/s].
    """

    latency_s: float
    bandwidth_bytes_per_s: float


def host_path_s(message_bytes: ArrayLike, *, op: str, num_gpus: int, direct_s: ArrayLike,
                constants: HostPathConstants) -> Floats:
    """Return the time of one of NCCL's collectives through the host [s].

    t = latency + max(direct time, ring bytes / bandwidth). In a ring of p GPUs each sends 2(p − 1)/p of an all-reduce's
    message, and (p − 1)/p of the others' (`sent_bytes`).

    Parameters
    ----------
    message_bytes, op, num_gpus : as `collectives.collective_s` takes them [B, –, 1].
    direct_s : the same collective of NCCL between GPUs with peer access [s].

    Returns
    -------
    Floats
        Seconds; non-decreasing in the message, never below the direct time.

    Raises
    ------
    UsageError : as `sent_bytes`.

    Notes
    -----
    Source: NCCL's all-reduce of two GPUs in a CUDA graph, on one machine before and after ACS and the IOMMU were off
    (`benchmarks/kernels/fit_host_path.py`). Up to 140 kB the two differ by 3 µs at every size; above 1 MB one moves
    16 GB/s, the other 36. NCCL's own name for the path through the host's memory is SHM.

    >>> constants = HostPathConstants(latency_s=3e-6, bandwidth_bytes_per_s=16e9)
    >>> (host_path_s([8192, 2**20], op="all_reduce", num_gpus=2, direct_s=[7e-6, 44e-6], constants=constants)
    ...  * 1e6).round(1).tolist()
    [10.0, 68.5]
    """
    hops = 2 * (num_gpus - 1) / num_gpus if op == "all_reduce" else 1.0  # `sent_bytes` has the other operations'
    ring_s = sent_bytes(message_bytes, op, num_gpus) * hops / constants.bandwidth_bytes_per_s
    times: Floats = constants.latency_s + np.maximum(direct_s, ring_s)
    return times
