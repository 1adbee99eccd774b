"""Collectives over nodes: the time on the network between nodes, on top of the time inside one."""


import numpy as np
from numpy.typing import ArrayLike

from planner.errors import UsageError
from planner.model.node_link import NodeLink
from planner.steptime.operators.gemm import Floats


def network_s(message_bytes: ArrayLike, *, op: str, num_nodes: int, gpus_per_node: int, link: NodeLink) -> Floats:
    """Return the time of a collective over several nodes on the network between them [s].

    Each GPU exchanges its part of the message, one of `gpus_per_node`, with the GPUs at the same place in other
    nodes; the parts before and after inside the nodes are that collective there. Over N nodes of g GPUs, with m bytes,
    latency α and bandwidth B:

    - all-reduce: 2 ⌈log₂ N⌉ α + 2 (N − 1)/N · m / (g B),
    - all-gather, reduce-scatter: ⌈log₂ N⌉ α + (N − 1)/N · m / (g B),
    - all-to-all: (N − 1) α + (N − 1)/N · m / B.

    Parameters
    ----------
    message_bytes : of the whole buffer, as `collectives.collective_s` counts it [B].
    op : "all_reduce", "all_gather", "reduce_scatter" or "alltoall".
    num_nodes : that the group spans; with 1 there is nothing to add [1].
    gpus_per_node : GPUs of the group in each node [1].

    Returns
    -------
    Floats
        Seconds; non-decreasing in the message and in the nodes.

    Raises
    ------
    UsageError : the operation has no formula.

    Notes
    -----
    Errs downward: the network's whole bandwidth counts, which libraries reach for messages of megabytes alone, and
    there is no other traffic. Source: recursive halving and doubling, and pairwise exchange, in Thakur, Rabenseifner
    and Gropp, Optimization of Collective Communication Operations in MPICH (IJHPCA 19, 2005); split by levels as in
    Cho et al., BlueConnect (MLSys 2019).

    >>> link = NodeLink(bandwidth_bytes_per_s=50e9, latency_s=5e-6)
    >>> (network_s([0, 8e6], op="all_reduce", num_nodes=2, gpus_per_node=8, link=link) * 1e6).round(3).tolist()
    [10.0, 30.0]
    """
    rounds = (num_nodes - 1).bit_length()  # ⌈log₂ N⌉
    costs = {"all_reduce": (2 * rounds, 2.0 / gpus_per_node), "all_gather": (rounds, 1.0 / gpus_per_node),
             "reduce_scatter": (rounds, 1.0 / gpus_per_node), "alltoall": (num_nodes - 1, 1.0)}
    if op not in costs:
        raise UsageError(f"unknown collective {op!r}; one of {', '.join(costs)}")
    steps, share = costs[op]
    sent = np.asarray(message_bytes, float) * share * (1 - 1 / num_nodes)
    times: Floats = steps * link.latency_s + sent / link.bandwidth_bytes_per_s
    return times
