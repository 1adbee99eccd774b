"""Units that fail as a whole: replicas placed on GPUs, nodes and zones, and the share of time in which enough serve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.catalog.catalog_files import load_gpu

UNITS = {"gpu": "GPUs", "node": "nodes", "zone": "zones"}  # with their plurals


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The rule that puts replicas on units.

    Replicas fill the nodes one after another, and a replica with more GPUs than a node has takes whole nodes. Zones
    have equal shares of the replicas.

    Parameters
    ----------
    unit : "gpu", "node" or "zone".
    replicas_per_unit : replicas on a full GPU or node [1]; above 1 on a GPU for MIG slices alone.
    units_per_replica : GPUs or nodes that a replica needs, each of which takes it down [1].
    zones : number of zones [1].
    """

    unit: str
    replicas_per_unit: int
    units_per_replica: int
    zones: int

    def groups(self, count: int) -> list[range]:
        """Return the replicas that fail together, by number, the largest group first.

        >>> Placement(unit="node", replicas_per_unit=2, units_per_replica=1, zones=3).groups(5)
        [range(0, 2), range(2, 4), range(4, 5)]
        >>> Placement(unit="zone", replicas_per_unit=1, units_per_replica=1, zones=3).groups(4)
        [range(0, 4, 3), range(1, 4, 3), range(2, 4, 3)]
        """
        if self.unit == "zone":
            return [range(zone, count, self.zones) for zone in range(min(self.zones, count))]
        size = self.replicas_per_unit
        return [range(first, min(first + size, count)) for first in range(0, count, size)]

    def num_units(self, count: int) -> int:
        """Return the units that hold `count` replicas [1]."""
        return len(self.groups(count)) * self.units_per_replica

    def num_failed(self, count: int) -> int:
        """Return the replicas that the worst unit takes down [1]."""
        return len(self.groups(count)[0])

    def words(self, count: int) -> str:
        """Return a number of replicas and their units in words, as in "5 replicas on 3 nodes"."""
        number = self.num_units(count)
        return f"{count:,} replicas {'in' if self.unit == 'zone' else 'on'} {number:,} {UNITS[self.unit]}"


def placement_of(unit: str, gpu_name: str, num_gpus: int, replicas_per_node: int | None, zones: int) -> Placement:
    """Return the rule that places replicas.

    Parameters
    ----------
    num_gpus : GPUs of a replica, or MIG slices [1].
    replicas_per_node : at most; None for as many as the GPUs of a node hold [1].
    """
    gpu = load_gpu(gpu_name)
    per_unit = gpu.instances  # GPUs, or slices of one
    if unit == "node":
        per_unit *= load_gpu(gpu.slice_of).gpus_per_node if gpu.slice_of else gpu.gpus_per_node
    held = max(per_unit // num_gpus, 1)
    if unit == "node":
        held = min(held, replicas_per_node or held)
    return Placement(unit=unit, replicas_per_unit=held, zones=zones,
                     units_per_replica=1 if unit == "zone" else math.ceil(num_gpus / per_unit))


def share_down(mtbf_h: float, mttr_h: float, units: int = 1) -> float:
    """Return the share of time in which at least one of some units is down [1].

    A unit that works for an exponential time with mean MTBF and is repaired in a mean MTTR is down for MTTR / (MTBF +
    MTTR) of the time (Barlow and Proschan, Mathematical Theory of Reliability, 1965, chapter 3). Units are independent.

    >>> share_down(999.0, 1.0)
    0.001
    """
    return 1.0 - (mtbf_h / (mtbf_h + mttr_h)) ** units if units > 1 else mttr_h / (mtbf_h + mttr_h)


def share_within(sizes: Sequence[int], needed: int, down: float) -> float:
    """Return the share of time in which at least `needed` replicas work [1].

    Units of `sizes` replicas are down independently for a share `down` of the time. With equal sizes the number of
    working units is binomial, the k-out-of-n system; other sizes are convolved one unit after another.

    >>> share_within([1, 1], 1, 0.1)
    0.99
    """
    shares = np.ones(1)  # of time, by the number of replicas that work
    for size in sizes:
        more = np.zeros(len(shares) + size)
        more[:len(shares)] += down * shares
        more[size:] += (1.0 - down) * shares
        shares = more
    return 1.0 - float(shares[:needed].sum())
