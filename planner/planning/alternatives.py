"""The number of GPUs under other assumptions: other routers, and other ways of scaling the traffic."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from planner.planning.fewest import cheapest_split, fewest_replicas
from planner.planning.fleets import Kind, count_gpus, replica_price, spare_gpus, spare_replicas
from planner.planning.loads import Traffic
from planner.planning.missed import UnreachableError
from planner.planning.search_options import Choices
from planner.planning.size_answer import FleetSize, RouterSize, ScalingSize
from planner.policies.builtin_routers import ROUTERS
from planner.progress import in_parallel, later
from planner.replays.result_tables import ReplayResult
from planner.settings.default_router import SERVICE_ROUTER, TURNS
from planner.settings.objectives import Objectives
from planner.settings.rate_scaling import MEANINGS
from planner.traces import Trace
from planner.traces.shaping.rescaling import SCALINGS

COMPARED = (SERVICE_ROUTER, TURNS, "least-outstanding-requests")  # routers: of a plain deployment, and better ones
MOST_TIMES = 8  # of the known number of replicas: more are not tried
ENOUGH = 100_000  # requests of a load by another way of scaling
ROUGHLY = 0.02  # precision of the number by another way of scaling [1]
MATTERS = 0.1  # share of the GPUs by which another router or way of scaling is said to matter
Task = tuple[Kind, Callable[[], Trace], float]  # fleet, load and precision
BEHIND = {SERVICE_ROUTER: "random, as a Kubernetes Service does", TURNS: "round-robin in one global order"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The fewest replicas of a kind that serve a load.

    Parameters
    ----------
    count : replicas without spares [1].
    served : how they serve it.
    limiting_metric : the metric that one replica less misses.
    stationary : whether a longer load needs as many; None if none was tried.
    times : how often the trace follows itself in the load [1].
    """

    count: int
    served: ReplayResult
    limiting_metric: str
    stationary: bool | None
    times: int

    def gpus(self, kind: Kind, choices: Choices) -> int:
        """Return the number of GPUs, with the spares' GPUs."""
        return count_gpus(self.served) + spare_gpus(self.served.deployment, choices, kind.divided)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A fleet's size under other assumptions; see the fields of `SizeAnswer` with these names."""

    routers: tuple[RouterSize, ...]
    routers_not_tried: tuple[str, ...]
    better_router: str | None
    scalings: tuple[ScalingSize, ...]
    notes: tuple[str, ...]


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
    sized = fewest_replicas(load, kind.deployed(load), objectives, guess, kind.divided, bound,
                            precision=precision)
    return traded(kind, Sized(count=sized[0], served=sized[1], limiting_metric=sized[2], stationary=None, times=1),
                  objectives, choices)


def fewest_near(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, guess: int,
                precision: float = 0.0) -> Sized | None:
    """Return the fewest replicas of a kind that serve a load, up to `MOST_TIMES` the guess; None if more are needed."""
    try:
        return fewest_of(load, kind, objectives, choices, guess, MOST_TIMES * guess, precision)
    except UnreachableError:
        return None


def traded(kind: Kind, sized: Sized, objectives: Objectives, choices: Choices) -> Sized:
    """Return a fleet of two kinds with fewer replicas of the dearer one; any other as it is."""
    if kind.decode is None:
        return sized
    one, other = (replica_price(pool, choices) for pool in sized.served.deployment.pools)
    served = cheapest_split(sized.served, objectives, (one, other))
    return replace(sized, served=served, count=sum(pool.num_groups for pool in served.deployment.pools))


def spread(traffic: Traffic, kind: Kind, objectives: Objectives, choices: Choices, count: int, times: int,
           num_gpus: int) -> Compared:
    """Size a kind of fleet behind other routers, and by other ways of scaling, from the known number of replicas.

    Every search ends at `MOST_TIMES` the known number of replicas. Those behind other routers are on the same load.
    Those by other ways of scaling are on one load with about as many requests, up to 100,000, and may be 2 % too high.

    Parameters
    ----------
    count, times, num_gpus : of the known fleet; `num_gpus` includes the spares' GPUs [1].
    """
    load, router = traffic.load(times), str(kind.scenario.router)
    spares = spare_replicas(choices, kind.divided)
    known = FleetSize(num_replicas=count + spares, num_gpus=num_gpus, more_than_replicas=None)
    others = [name for name in COMPARED if name != router] if count > 1 else []
    ways = [name for name in SCALINGS if name != traffic.scaling] if traffic.is_rescaled else []
    tasks: list[Task] = [(kind.behind(name), lambda: load, 0.0) for name in others]
    tasks += [(kind, _alike(traffic, name, min(load.num_requests, ENOUGH)), ROUGHLY) for name in ways]
    calls = (later(_size)(made(), each, objectives, choices, count, precision)
             for each, made, precision in tasks)
    sizes = in_parallel("sizing behind other routers and by other scalings", calls, len(tasks), choices.jobs)
    routers = tuple(RouterSize(router=name, size=size) for name, size in zip(
        (router, *others), (known, *sizes[:len(others)]), strict=True))
    scalings = tuple(ScalingSize(scaling=name, size=size) for name, size in zip(
        (traffic.named_scaling, *ways), (known, *sizes[len(others):]), strict=True))
    better = min(routers, key=lambda row: row.size.num_gpus or num_gpus)
    is_better = (better.size.num_gpus or num_gpus) < num_gpus / (1 + MATTERS)
    not_tried = tuple(name for name in ROUTERS if name not in (router, *others)) if others else ()
    return Compared(routers=routers, routers_not_tried=not_tried, better_router=better.router if is_better else None,
                    scalings=scalings, notes=(*_router_note(routers, not_tried), *_scaling_note(scalings)))


def _alike(traffic: Traffic, scaling: str, num_requests: int) -> Callable[[], Trace]:
    return lambda: traffic.alike(scaling, num_requests)


def _size(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, count: int,
          precision: float) -> FleetSize:
    """Return how many replicas a kind needs for a load, or that it is more than the bound."""
    spares = spare_replicas(choices, kind.divided)
    sized = fewest_near(load, kind, objectives, choices, count, precision)
    if sized is None:
        return FleetSize(num_replicas=None, num_gpus=None, more_than_replicas=MOST_TIMES * count + spares)
    return FleetSize(num_replicas=sized.count + spares, num_gpus=sized.gpus(kind, choices), more_than_replicas=None)


def _router_note(routers: Sequence[RouterSize], not_tried: Sequence[str]) -> list[str]:
    """Return a note if the number of GPUs depends on the router."""
    known = routers[0].size.num_gpus
    if known is None or not matters(known, (row.size.num_gpus for row in routers[1:])):
        return []
    first, *others = ((size_text(row.size), BEHIND.get(row.router, row.router)) for row in routers)
    numbers = ", ".join(f"{number} with {router}" for number, router in others)
    best = min((row for row in routers if row.size.num_gpus is not None), key=lambda row: row.size.num_gpus or 0).router
    return [f"the number of GPUs depends on the router: {first[0]} with {first[1]}; {numbers}. Of these {best} needs "
            f"the fewest GPUs. Not tried: {', '.join(not_tried)} (--router)"]


def _scaling_note(scalings: Sequence[ScalingSize]) -> list[str]:
    """Return a note if the number of GPUs depends on the way of scaling."""
    known = scalings[0].size.num_gpus
    if known is None or not matters(known, (row.size.num_gpus for row in scalings[1:])):
        return []
    numbers = ", ".join(f"{size_text(row.size)} with {row.scaling} ({MEANINGS[row.scaling]})" for row in scalings)
    return [f"the number of GPUs depends on how the rate is scaled: {numbers}; --scaling chooses"]


def matters(own: float, others: Iterable[float | None]) -> bool:
    """Tell whether one of the others is more than a tenth off one's own value, or missing."""
    return any(value is None or abs(value / own - 1) > MATTERS for value in others)


def size_text(size: FleetSize) -> str:
    """Return the number of GPUs of a size, or the number of replicas that it exceeds."""
    return f"more than {size.more_than_replicas:,} replicas" if size.num_gpus is None else f"{size.num_gpus:,}"
