"""Rent of GPUs in the cheapest whole instances of a cloud."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from planner.catalog.prices import GpuPrice


class Rent(NamedTuple):
    """The price of GPUs [USD/h], and the instances in words: "1 × p5.48xlarge of 8 GPUs, 5 GPUs idle"."""

    usd_per_hour: float
    words: str = ""


class _Holder(NamedTuple):
    """Instances of a kind that hold replicas together: mostly one instance, more if a replica spans them."""

    row: GpuPrice
    replicas: int
    num_instances: int


def rent(num_replicas: int, gpus_per_replica: int, prices: Sequence[GpuPrice]) -> Rent:
    """Return the cheapest instances that hold replicas; if two choices cost the same, the one with fewer GPUs.

    An instance holds floor(its GPUs / GPUs of a replica) replicas. A replica is split over instances only if no
    instance is large enough, and then takes whole instances of one kind.

    Parameters
    ----------
    prices : of one cloud, region and term, for this GPU; at least one.
    """
    holders, counts, left = _holders(gpus_per_replica, prices), Counter[GpuPrice](), num_replicas
    best = _cheapest(num_replicas, holders)
    while left > 0:
        held = holders[best[left][2]]
        counts[held.row] += held.num_instances
        left -= held.replicas
    texts = [f"{count:,} × {row.instance} of {row.gpus} GPU{'s' * (row.gpus != 1)}" if row.gpus else
             f"{count:,} × {row.gpu} by the GPU" for row, count in counts.items()]
    idle = best[-1][1] - num_replicas * gpus_per_replica
    return Rent(best[-1][0], " + ".join(texts) + f", {idle:,} GPU{'s' * (idle != 1)} idle" * (idle > 0))


def rents_up_to(most: int, gpus_per_replica: int, prices: Sequence[GpuPrice]) -> list[float]:
    """Return the price of 0, 1, 2 … replicas up to a number, as `rent` [USD/h]."""
    return [usd for usd, _, _ in _cheapest(most, _holders(gpus_per_replica, prices))]


def _holders(size: int, prices: Sequence[GpuPrice]) -> list[_Holder]:
    """Return how each kind of instance holds replicas of a size."""
    holders = [_Holder(row, row.gpus // size if row.gpus else 1, 1 if row.gpus else size) for row in prices
               if row.gpus is None or row.gpus >= size]
    return holders or [_Holder(row, 1, math.ceil(size / (row.gpus or 1))) for row in prices]


def _cheapest(most: int, holders: Sequence[_Holder]) -> list[tuple[float, int, int]]:
    """Return, for 0 to `most` replicas, the lowest price, the GPUs and the place of the instance that is added last."""
    best: list[tuple[float, int, int]] = [(0.0, 0, -1)]
    for number in range(1, most + 1):
        added = []
        for place, held in enumerate(holders):
            usd, gpus, _ = best[max(number - held.replicas, 0)]
            added.append((round(usd + held.num_instances * held.row.usd_per_hour, 9),
                          gpus + held.num_instances * (held.row.gpus or 1), place))
        best.append(min(added))
    return best
