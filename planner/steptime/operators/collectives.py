"""Collectives: the time of an all-reduce, all-gather, reduce-scatter or all-to-all between the GPUs of a node."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.errors import UsageError
from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveConstants(KernelConstants):
    """Latency and bandwidth of one operation's two protocols on one GPU model, engine and number of GPUs.

    Parameters
    ----------
    small_latency_s, large_latency_s : of the protocol for small and that for large messages [s].
    small_bandwidth_frac, large_bandwidth_frac : of the scale-up link, one direction [1].
    """

    small_latency_s: float
    small_bandwidth_frac: float
    large_latency_s: float
    large_bandwidth_frac: float


def sent_bytes(message_bytes: ArrayLike, op: str, num_gpus: int) -> Floats:
    """Return the least that each GPU sends, and receives, of a message [B].

    All of it in an all-reduce, which only reduction in the switch reaches (a ring sends 2·(p − 1)/p); (p − 1)/p of it
    in the others, if a message is the whole gathered, scattered or exchanged buffer of one GPU.

    Raises
    ------
    UsageError : the operation has no formula, or fewer than two GPUs take part.

    >>> float(sent_bytes(1024, "all_gather", 4))
    768.0
    """
    if num_gpus < 2:
        raise UsageError(f"num_gpus = {num_gpus}; a collective needs 2 or more; leave it out on one GPU")
    shares = {"all_reduce": 1.0, "all_gather": 1 - 1 / num_gpus, "reduce_scatter": 1 - 1 / num_gpus,
              "alltoall": 1 - 1 / num_gpus}
    if op not in shares:
        raise UsageError(f"unknown collective {op!r}; one of {', '.join(shares)}")
    sent: Floats = np.asarray(message_bytes, float) * shares[op]
    return sent


def collective_s(message_bytes: ArrayLike, *, op: str, num_gpus: int, link_bandwidth_bytes_per_s: float,
                 constants: CollectiveConstants) -> Floats:
    """Return the time of one collective inside a node [s].

    t = min over the two protocols of latency + sent / (link · bandwidth_frac); `sent` as in `sent_bytes`.

    Parameters
    ----------
    message_bytes : of the whole buffer: tokens · hidden · 2 for an all-reduce of 16-bit activations [B].
    op : "all_reduce", "all_gather", "reduce_scatter" or "alltoall".
    num_gpus : that take part [1]; `constants` hold for the same number.
    link_bandwidth_bytes_per_s : scale-up link of one GPU, one direction [B/s].

    Returns
    -------
    Floats
        Seconds; non-decreasing in the message, never below the link's time.

    Notes
    -----
    Measured on an idle link, the engines' own all-reduce in a CUDA graph: without graphs small messages take 20 to
    40 µs (100 over PCIe), and waiting for the slowest GPU is not in it. Engines change protocol at fixed sizes, so near
    the change (0.25 to 2 MiB) single sizes are off by up to 60 %, on 8 L40S by 75 %. Source: Hockney's
    latency-bandwidth model (Parallel Computing, 1994); constants fitted by `benchmarks/kernels/fit_collectives.py`.

    >>> h100 = CollectiveConstants(small_latency_s=4.6e-6, small_bandwidth_frac=0.09, large_latency_s=1.1e-5,
    ...                            large_bandwidth_frac=0.55)
    >>> (collective_s([16384, 2**24], op="all_reduce", num_gpus=8, link_bandwidth_bytes_per_s=450e9,
    ...               constants=h100) * 1e6).round(1)
    array([ 5. , 78.8])
    """
    sent = sent_bytes(message_bytes, op, num_gpus) / link_bandwidth_bytes_per_s
    times: Floats = np.minimum(constants.small_latency_s + sent / constants.small_bandwidth_frac,
                               constants.large_latency_s + sent / constants.large_bandwidth_frac)
    return times
