"""The network between the nodes of one replica."""

import math
from dataclasses import dataclass

from planner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """The network between nodes: InfiniBand, RoCE, Slingshot.

    Parameters
    ----------
    bandwidth_bytes_per_s : of one GPU's share of its node's network, one direction: 50e9 if each has 400 Gb/s [B/s].
    latency_s : of one step from node to node [s].

    Raises
    ------
    UsageError : the bandwidth is not above 0, or the latency below it.
    """

    bandwidth_bytes_per_s: float
    latency_s: float

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise UsageError(f"inter_node_bandwidth = {self.bandwidth_bytes_per_s / 1e9:g}: must be above 0 [GB/s]")
        if not 0 <= self.latency_s < math.inf:
            raise UsageError(f"inter_node_latency = {self.latency_s:g}: must not be negative [s]")
