"""Exchange of tokens with the GPUs of their experts: the time of sending them there, or of bringing results back."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.model.node_link import NodeLink
from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConstants(KernelConstants):
    """Latency and bandwidth of one exchange kernel in one direction, on one GPU model.

    Parameters
    ----------
    latency_s : of an exchange between two GPUs [s].
    doubling_s : extra latency for each doubling of the GPUs [s].
    bandwidth_frac : of the scale-up link, one direction [1].
    network_frac : of the network between nodes, one direction [1].
    """

    latency_s: float
    doubling_s: float
    bandwidth_frac: float
    network_frac: float = 1.0


def exchange_s(copy_bytes: ArrayLike, *, per_gpu: float, per_node: float, num_gpus: int, num_nodes: int,
               link_bandwidth_bytes_per_s: float, node_link: NodeLink | None, constants: ExchangeConstants) -> Floats:
    """Return the time of one direction of an exchange [s].

    t = latency + doubling · log₂(p / 2) + max(m · c_gpu · (1 − 1/p_node) / (link · bandwidth_frac),
    m · c_node · (1 − 1/N) / (network · network_frac)): copies that stay on their GPU or in their node do not load the
    link, and a link and the network are loaded at the same time.

    Parameters
    ----------
    copy_bytes : of one copy of each token that a GPU sends: tokens · hidden · bytes of the format [B].
    per_gpu, per_node : copies of a token over the scale-up link, and over the network [1].
    num_gpus, num_nodes : that share the experts; p and N; p_node is their quotient [1].
    link_bandwidth_bytes_per_s : scale-up link of one GPU, one direction [B/s].
    node_link : a GPU's share of the network; None inside one node.

    Returns
    -------
    Floats
        Seconds, shape of `copy_bytes`; non-decreasing in the bytes and in the GPUs.

    Notes
    -----
    Source: Hockney's latency-bandwidth model (Parallel Computing, 1994), over the two links of Zhao et al., DeepEP,
    2025; constants fitted by `benchmarks/kernels/fit_exchanges.py`.

    >>> low_latency = ExchangeConstants(latency_s=16e-6, doubling_s=0.0, bandwidth_frac=0.5)
    >>> sent = [0.0, 512 * 7168.0]
    >>> (exchange_s(sent, per_gpu=8, per_node=8, num_gpus=4, num_nodes=1, link_bandwidth_bytes_per_s=900e9,
    ...             node_link=None, constants=low_latency) * 1e6).round(1).tolist()
    [16.0, 64.9]
    """
    sent = np.asarray(copy_bytes, float)
    gpus_of_node = num_gpus / num_nodes
    times = sent * per_gpu * (1.0 - 1.0 / gpus_of_node) / (link_bandwidth_bytes_per_s * constants.bandwidth_frac)
    if num_nodes > 1:
        assert node_link is not None, "`deploy` asks for it"
        over_s = sent * per_node * (1.0 - 1.0 / num_nodes) / (node_link.bandwidth_bytes_per_s * constants.network_frac)
        times = np.maximum(times, over_s)
    total: Floats = constants.latency_s + constants.doubling_s * math.log2(num_gpus / 2.0) + times
    return total
