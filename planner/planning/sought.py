"""The question of a capacity search: one deployment under one traffic, at any rate or with any number of users."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, resolve, with_router
from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import UsageError
from planner.planning.bracket import RATE, UNKNOWNS, Unknown
from planner.planning.capacity_answer import SearchedTraffic
from planner.planning.fewest import LOST, STRAINED, apart_in_time, together_or_lost
from planner.planning.search_options import Search
from planner.planning.user_loads import beginning, limited, of_users, think_time
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.rate_scaling import MEANINGS
from planner.settings.scenario import Scenario
from planner.settings.statistic import statistics_ms
from planner.traces import Trace
from planner.traces.shaping.client_load import at_client_rate
from planner.traces.shaping.closed_load import in_turn, load_of, pausing, with_pauses
from planner.traces.shaping.rescaling import (
    MOST_REQUESTS,
    SCALINGS,
    at_rate,
    num_requests_at,
    rate_of,
    rates_of,
    repeated,
    windows,
)
from planner.traces.shaping.tenants import tenant_names

NUM_WINDOWS = 32  # of a trace, for its bootstrap
START = 16  # users of a replica that are tried first


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One deployment under one traffic, to be judged at any rate.

    Parameters
    ----------
    is_drawn : whether the arrivals are drawn, because the trace has none.
    """

    deployment: Deployment
    trace: Trace
    objectives: Objectives
    search: Search
    is_drawn: bool = False

    unknown: ClassVar[Unknown] = RATE

    def load(self, rate_rps: float) -> tuple[Trace, Deployment]:
        """Return the traffic at a rate, and the deployment."""
        return at_rate(self.trace, rate_rps, self.search.scaling, self.search.seed), self.deployment

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest rate that can be tried [1/s]."""
        return rates_of(self.trace, self.search.scaling)

    def num_requests_at(self, load: float) -> int:
        """Return about how many requests there are at a rate."""
        return num_requests_at(self.trace, load, self.search.scaling)

    def drawn(self, factor: float, seed: int | None) -> "Rates":
        """Return the load of resampled windows, by the clock of a deployment whose steps take `factor` times as long.

        With all its times multiplied by f, a rate r behaves as r · f did and every latency is f times as long.
        """
        trace = self.trace if seed is None else windows(self.trace, NUM_WINDOWS, seed)
        search = self.search if seed is None else replace(self.search, seed=seed)
        return replace(self, trace=trace, objectives=self.objectives.scaled(1 / factor), search=search)

    def at_pace(self, load: float, factor: float) -> float:
        """Return a rate of `drawn` by our clock [1/s]."""
        return load / factor

    def other_scalings(self, rate_rps: float) -> dict[str, "Rates"]:
        """Return the load by the other ways of scaling; none if the arrivals are drawn."""
        names = [] if self.is_drawn else [name for name in SCALINGS if name != self.search.scaling]
        return {name: self._alike(name, rate_rps) for name in names}

    def _alike(self, scaling: str, rate_rps: float) -> "Rates":
        """Return the load by another way of scaling, with about as many requests at a rate."""
        count = num_requests_at(self.trace, rate_rps, self.search.scaling)
        times = round(count / num_requests_at(self.trace, rate_rps, scaling))
        most = max(MOST_REQUESTS // self.trace.num_requests, 1)
        return replace(self, trace=repeated(self.trace, min(max(times, 1), most)),
                       search=replace(self.search, scaling=scaling))

    def replayed(self, scenario: Scenario, load: float, times: int) -> Scenario:
        """Return a scenario that replays the trace, repeated `times` times, at a rate."""
        return replace(scenario, request_rate=load, scaling=self.search.scaling, trace_copies=times,
                       seed=self.search.seed or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """One deployment under requests or sessions in turn, to be judged with any number of users.

    Parameters
    ----------
    trace : as `closed_load.in_turn`.
    pace : by which pauses of users are divided [1].
    """

    deployment: Deployment
    trace: Trace
    objectives: Objectives
    search: Search
    pace: float = 1.0

    @property
    def unknown(self) -> Unknown:
        """The kind of users, as the unknown of the search."""
        return UNKNOWNS[self.search.of]

    @property
    def limits(self) -> tuple[float, float]:
        """One user, and as many as there are in the traffic."""
        return 1.0, self.trace.requests["arrival_s"].n_unique()

    def load(self, users: float) -> tuple[Trace, Deployment]:
        """Return the requests of `users` users, and the deployment with their limit."""
        count, of, pause_s = round(users), self.search.of, self.search.think_time
        turns = self.trace if self.pace == 1 else pausing(self.trace, 1 / self.pace)
        trace = load_of(turns, of, count, None if pause_s is None else pause_s / self.pace)
        return trace, resolve(limited(self.deployment.scenario, of, count, pause_s), trace)

    def num_requests_at(self, load: float) -> int:
        """Return the requests, which do not depend on the number of users."""
        return self.trace.num_requests

    def drawn(self, factor: float, seed: int | None) -> "Users":
        """Return resampled requests or sessions, by the clock of a deployment whose steps take `factor` times as long.

        By that clock pauses are shorter and objectives tighter by the factor.
        """
        trace = self.trace if seed is None else windows(self.trace, min(NUM_WINDOWS, int(self.limits[1])), seed)
        return replace(self, trace=trace, pace=factor, objectives=self.objectives.scaled(1 / factor))

    def at_pace(self, load: float, factor: float) -> float:
        """Return a number of users, which no clock changes."""
        return load

    def replayed(self, scenario: Scenario, load: float, times: int) -> Scenario:
        """Return a scenario that replays `load` users."""
        return of_users(replace(scenario, seed=self.search.seed or None), self.search.of, round(load),
                        self.search.think_time, times)


Sought = Rates | Users


def longer(sought: Sought, times: int) -> Sought:
    """Return the question for the trace, repeated `times` times."""
    return replace(sought, trace=repeated(sought.trace, times))


def behind(sought: Sought, router: str) -> Sought:
    """Return the traffic on the same replicas behind another router."""
    return replace(sought, deployment=with_router(sought.deployment, router))


def served(sought: Sought, load: float) -> ReplayResult:
    """Replay a load."""
    return serve(*sought.load(load))


def verdict(sought: Sought, load: float) -> Verdict:
    """Replay a load and judge it."""
    return judged(sought, served(sought, load))


def quick_verdict(sought: Sought, load: float, *, is_told: bool = False) -> Verdict:
    """Judge a load; the replay ends once limits `STRAINED` times as high are lost, and the verdict is then `LOST`.

    The strain of a load below that foretells the largest load.

    Parameters
    ----------
    is_told : whether the verdict has the statistics of `verdict`.
    """
    if sought.search.by_tenant:
        return verdict(sought, load)
    kept = together_or_lost(*sought.load(load), sought.objectives, strain=STRAINED)
    if kept is None:
        return LOST
    return judged(sought, kept[0]) if is_told else kept[1]


def judged(sought: Sought, result: ReplayResult) -> Verdict:
    """Judge a replay by the objectives of the search."""
    tenants = tenants_of(result.trace) if sought.search.by_tenant else None
    return replace(judge(sought.objectives, result.times_s, tenants), statistics_ms=statistics_ms(result.times_s))


def tenants_of(trace: Trace) -> NDArray[np.int64]:
    """Return the number of each request's tenant, shape [num_requests]."""
    if "tenant" not in trace.requests.columns:
        raise UsageError(f"--by-tenant: {trace.source} has no column tenant")
    return tenant_names(trace).rank("dense").to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posed:
    """The question for a capacity: the search, with the assumptions, workload and think time for its answer.

    Parameters
    ----------
    start : load that is tried first.
    alone : requests apart in time. If they miss the objectives, every rate does. None for users.
    shaped : the trace after the load options.
    scenario : as it was given, with a context limit with which the engine starts.
    lowered : a sentence on a context limit that is lower than the engine's default.
    assumptions : a sentence each.
    workload, think_time_s : as of `CapacityAnswer`.
    """

    sought: Sought
    start: float
    alone: Trace | None
    shaped: Trace
    scenario: Scenario
    lowered: str | None
    assumptions: tuple[str, ...]
    workload: SearchedTraffic
    think_time_s: float | None = None


def pose(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> Posed:
    """Return the question for the largest load of `search.of`."""
    return (pose_rates if search.of == "requests" else pose_users)(trace, scenario, objectives, search)


def pose_rates(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> Posed:
    """Return the question for the highest rate; see `capacity.capacity`."""
    is_drawn = trace.arrivals == "absent" and search.scaling == "poisson"
    if is_drawn:  # at any rate: the search finds its own
        trace = replace(at_client_rate(trace, 1.0, seed=search.seed), arrivals="recorded")
    shaped = shape_load(scenario, trace)
    recorded = rate_of(shaped)
    started = startable(scenario, shaped)
    return Posed(
        sought=Rates(deployment=started.deployment, trace=shaped, objectives=objectives, search=search,
                     is_drawn=is_drawn),
        start=recorded, alone=apart_in_time(shaped), shaped=shaped, scenario=started.scenario, lowered=started.lowered,
        assumptions=(f"the rate changes by {search.scaling}: {MEANINGS[search.scaling]}",),
        workload=SearchedTraffic(source=trace.source, num_requests=shaped.num_requests, recorded_rps=recorded,
                                 scaling=search.scaling, seed=search.seed))


def pose_users(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> Posed:
    """Return the question for the most users; see `capacity.capacity`.

    With `search.of` "concurrency" all requests are there at the start, and as many as there are users are in flight;
    with "sessions" all sessions are, and as many are open. With a `think_time` and "concurrency" each user sends every
    n-th request, and pauses after the answer to the one before.
    """
    if not scenario.wait_for_parents and (search.of == "sessions" or search.think_time is not None):
        raise UsageError(f"--of {search.of}: without --wait-for-parents no request waits for another; leave it out")
    one = limited(scenario, search.of, 1, None)
    shaped = with_pauses(shape_load(one, trace), search.of, search.think_time)
    turns = in_turn(shaped, search.of)
    started = startable(one if search.of == "sessions" else scenario, turns)
    users = Users(deployment=started.deployment, trace=turns, objectives=objectives, search=search)
    think_s, assumption = think_time(shaped, search.of, search.think_time)
    return Posed(
        sought=users, start=START * max(scenario.data_parallel_size, 1), alone=None, shaped=shaped,
        scenario=replace(scenario, max_model_len=started.scenario.max_model_len), lowered=started.lowered,
        assumptions=(*filter(None, [started.lowered]), assumption, beginning(search.of)), think_time_s=think_s,
        workload=SearchedTraffic(source=trace.source, num_requests=shaped.num_requests, seed=search.seed,
                                 num_sessions=int(users.limits[1]) if search.of == "sessions" else None))
