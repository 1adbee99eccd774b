"""The number of GPUs under other assumptions: other routers, and other ways of scaling the traffic."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib

from planner.planning.fewest import cheapest_split, fewest_replicas
from planner.planning.fleets import Choices, Kind, count_gpus, replica_price, spare_gpus, spare_replicas
from planner.planning.loads import Traffic
from planner.planning.missed import UnreachableError
from planner.policies.builtin_routers import ROUTERS
from planner.progress import in_parallel
from planner.replays.result_tables import ReplayResult
from planner.settings.default_router import ROUTER, SERVICE_ROUTER
from planner.settings.objectives import Objectives
from planner.settings.rate_scaling import MEANINGS
from planner.traces import Trace
from planner.traces.shaping.rescaling import SCALINGS

COMPARED = (SERVICE_ROUTER, ROUTER, "least-outstanding-requests")  # routers: of a plain deployment, and better ones
MOST_TIMES = 8  # of the known number of replicas: more are not tried
ENOUGH = 100_000  # requests of a load by another way of scaling
ROUGHLY = 0.02  # precision of the number by another way of scaling [1]
MATTERS = 0.1  # share of the GPUs by which another router or way of scaling is said to matter
Task = tuple[str, str, Kind, Callable[[], Trace], float]  # of what another, its name, fleet, load and precision
BEHIND = {SERVICE_ROUTER: "random, as a Kubernetes Service does", ROUTER: "round-robin in one global order"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The fewest replicas of a kind that serve a load.

    Parameters
    ----------
    count : replicas without spares [1].
    served : how they serve it.
    limiting_metric : what one replica less misses.
    stationary : whether a longer load needs as many; None where none was tried.
    times : how often the trace follows itself in the load [1].
    """

    count: int
    served: ReplayResult
    limiting_metric: str
    stationary: bool | None
    times: int

    def gpus(self, kind: Kind, choices: Choices) -> int:
        """Return the GPUs, those of spares too."""
        return count_gpus(self.served) + spare_gpus(self.served.deployment, choices, kind.divided)


def fewest_of(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, guess: int, bound: int,
              precision: float) -> Sized:
    """Return the fewest replicas of a kind that serve a load, or of two kinds the cheapest that are found.

    Parameters
    ----------
    guess, bound, precision : as of `fewest.fewest_replicas`.

    Raises
    ------
    UnreachableError : no number up to the bound does.
    """
    found = fewest_replicas(load, kind.deployed(load), objectives, guess, kind.divided, bound,
                            precision=precision)
    return traded(kind, Sized(count=found[0], served=found[1], limiting_metric=found[2], stationary=None, times=1),
                  objectives, choices)


def traded(kind: Kind, sized: Sized, objectives: Objectives, choices: Choices) -> Sized:
    """Return a fleet of two kinds with fewer replicas of the dearer one; any other as it is."""
    if kind.decode is None:
        return sized
    one, other = (replica_price(pool, choices) for pool in sized.served.deployment.pools)
    served = cheapest_split(sized.served, objectives, (one, other))
    return replace(sized, served=served, count=sum(pool.num_groups for pool in served.deployment.pools))


def spread(traffic: Traffic, kind: Kind, objectives: Objectives, choices: Choices, count: int, times: int,
           num_gpus: int) -> dict[str, Any]:
    """Size a kind of fleet behind other routers, and by other ways of scaling, from the known number of replicas.

    Every search ends at `MOST_TIMES` the known number of replicas. Those behind other routers are on the same load.
    Those by other ways of scaling are on one load with about as many requests, up to 100,000, and may be 2 % too high.

    Parameters
    ----------
    count, times, num_gpus : of the known fleet; GPUs with those of spares [1].

    Returns
    -------
    dict
        `routers` and `scalings`: a row for each that was tried, the known one first, with `num_replicas`, `num_gpus`
        (None where it takes more than `more_than_replicas`); `routers_not_tried`; `better_router`, with fewer GPUs by
        more than a tenth, None without one; `notes`.
    """
    load, router = traffic.load(times), str(kind.scenario.router)
    spares = spare_replicas(choices, kind.divided)
    known = {"num_replicas": count + spares, "num_gpus": num_gpus, "more_than_replicas": None}
    others = [name for name in COMPARED if name != router] if count > 1 else []
    ways = [name for name in SCALINGS if name != traffic.scaling] if traffic.is_rescaled else []
    tasks: list[Task] = [("router", name, kind.behind(name), lambda: load, 0.0) for name in others]
    tasks += [("scaling", name, kind, _alike(traffic, name, min(load.num_requests, ENOUGH)), ROUGHLY) for name in ways]
    calls = (joblib.delayed(_row)(made(), each, objectives, choices, count, precision)
             for _, _, each, made, precision in tasks)
    rows = in_parallel("sizing behind other routers and by other scalings", calls, len(tasks), choices.jobs)
    named = [{what: name, **row} for (what, name, *_), row in zip(tasks, rows, strict=True)]
    routers = [{"router": router, **known}, *(row for row in named if "router" in row)]
    scalings = [{"scaling": traffic.named_scaling, **known}, *(row for row in named if "scaling" in row)]
    better = min(routers, key=lambda row: row["num_gpus"] or num_gpus)
    is_better = (better["num_gpus"] or num_gpus) < num_gpus / (1 + MATTERS)
    not_tried = [name for name in ROUTERS if name not in (router, *others)] if others else []
    return {"routers": routers, "routers_not_tried": not_tried,
            "better_router": better["router"] if is_better else None,
            "scalings": scalings, "notes": [*_router_note(routers, not_tried), *_scaling_note(scalings)]}


def _alike(traffic: Traffic, scaling: str, num_requests: int) -> Callable[[], Trace]:
    return lambda: traffic.alike(scaling, num_requests)


def _row(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, count: int,
         precision: float) -> dict[str, Any]:
    """Return how many replicas a kind needs for a load, or that it is more than the bound."""
    bound, spares = MOST_TIMES * count, spare_replicas(choices, kind.divided)
    try:
        found = fewest_of(load, kind, objectives, choices, count, bound, precision)
    except UnreachableError:
        return {"num_replicas": None, "num_gpus": None, "more_than_replicas": bound + spares}
    return {"num_replicas": found.count + spares, "num_gpus": found.gpus(kind, choices), "more_than_replicas": None}


def _router_note(routers: Sequence[dict[str, Any]], not_tried: Sequence[str]) -> list[str]:
    """Return a note where the number of GPUs rests on the router."""
    own, *others = routers
    if not matters(own["num_gpus"], (row["num_gpus"] for row in others)):
        return []
    numbers = ", ".join(f"{_number(row)} with {BEHIND.get(row['router'], row['router'])}" for row in others)
    counted = [row for row in routers if row["num_gpus"] is not None]
    best = min(counted, key=lambda row: row["num_gpus"])["router"]
    return [f"the number of GPUs depends on the router: {own['num_gpus']:,} with "
            f"{BEHIND.get(own['router'], own['router'])}; {numbers}. Of these {best} needs the fewest GPUs. Not tried: "
            f"{', '.join(not_tried)} (--router)"]


def _scaling_note(scalings: Sequence[dict[str, Any]]) -> list[str]:
    """Return a note where the number of GPUs rests on the way of scaling."""
    if not matters(scalings[0]["num_gpus"], (row["num_gpus"] for row in scalings[1:])):
        return []
    numbers = ", ".join(f"{_number(row)} with {row['scaling']} ({MEANINGS[row['scaling']]})" for row in scalings)
    return [f"the number of GPUs depends on how the rate is scaled: {numbers}; --scaling chooses"]


def matters(own: float, others: Iterable[float | None]) -> bool:
    """Tell whether one of the others is more than a tenth off one's own value, or missing."""
    return any(value is None or abs(value / own - 1) > MATTERS for value in others)


def _number(row: dict[str, Any]) -> str:
    if row["num_gpus"] is None:
        return f"more than {row['more_than_replicas']:,} replicas"
    return f"{row['num_gpus']:,}"
