"""How finely each kind of fleet is sized: one of dozens of replicas far above the cheapest price is sized roughly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import CapacityError, CatalogError, UsageError
from planner.planning.fewest import LONG, ROUGHLY, guessed, together
from planner.planning.fleets import Kind
from planner.planning.layouts import replica_cost
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, UnableFleet
from planner.progress import in_parallel, later
from planner.settings.objectives import Objectives
from planner.traces import Trace

FAR_REPLICAS, FAR_TIMES = 24, 3  # of a fleet too large to be chosen, and its price over the cheapest's
MARGIN = 1.2  # on both, if both fleets are known roughly


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How a kind is sized.

    Parameters
    ----------
    guess : replicas that the search begins with [1].
    is_near : whether the guess is the answer for a part of the load.
    precision : share by which the number of replicas may be too high, and the headroom too low [1].
    """

    guess: int = 1
    is_near: bool = False
    precision: float = 0.0


def efforts(load: Trace, kinds: Sequence[Kind], objectives: Objectives, choices: Choices) -> list[Effort]:
    """Return how to size each kind; of a long load, its first part tells which kinds are far.

    Prices of power, and kinds with prefill apart, are known after a search alone: with them no kind is far.
    """
    if load.num_requests < LONG:
        return [Effort() for _ in kinds]
    calls = [later(_roughly)(load, kind, objectives) for kind in kinds]
    counts: list[int | None] = in_parallel("sizing fleets on a part of the load", calls, len(calls), choices.jobs)
    costs = [None if count is None else count * replica_cost(kind, choices)
             for count, kind in zip(counts, kinds, strict=True)]
    cheapest = min((cost for cost in costs if cost is not None), default=math.inf)
    can_be_far = choices.power_price is None and all(kind.divided is together for kind in kinds)
    return [Effort() if count is None or cost is None else Effort(
        guess=count, is_near=True,
        precision=ROUGHLY if can_be_far and _far(count, cost, cheapest, MARGIN) else 0.0)
        for count, cost in zip(counts, costs, strict=True)]


def _roughly(load: Trace, kind: Kind, objectives: Objectives) -> int | None:
    """Return about how many replicas serve a load; None if the kind cannot be deployed."""
    try:
        return guessed(load, kind.started(load).deployed(load), objectives, 1, kind.divided, None)
    except (CapacityError, CatalogError, UsageError):
        return None


def _far(count: int, cost: float, cheapest: float, margin: float) -> bool:
    return count >= margin * FAR_REPLICAS and cost > margin * FAR_TIMES * cheapest


def is_far(fleet: Fleet | UnableFleet, best: Fleet | UnableFleet) -> bool:
    """Tell whether a fleet has dozens of replicas at several times the price of the cheapest."""
    return (isinstance(fleet, Fleet) and isinstance(best, Fleet)
            and _far(fleet.num_replicas, fleet.cost_usd_per_hour, best.cost_usd_per_hour, 1.0))
