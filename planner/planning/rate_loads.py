"""Loads of a capacity as a request rate: one deployment under one traffic, to be judged at any rate."""

from dataclasses import dataclass, replace
from typing import ClassVar

from planner.deployment.deploy import Deployment
from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.planning.bracket import RATE, Unknown
from planner.planning.capacity_answer import SearchedTraffic
from planner.planning.capacity_search import NUM_WINDOWS, Posed, judged
from planner.planning.fewest import apart_in_time
from planner.planning.search_options import Search
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import Objectives, Verdict
from planner.settings.rate_scaling import MEANINGS
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import at_client_rate
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

    def served(self, load: float, objectives: Objectives | None = None) -> ReplayResult:
        """Replay the traffic at a rate; raise LostError once `objectives` are lost."""
        return serve(at_rate(self.trace, load, self.search.scaling, self.search.seed), self.deployment,
                     objectives=objectives)

    def verdict(self, load: float) -> Verdict:
        """Replay the traffic at a rate and judge it."""
        return judged(self, self.served(load))

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest rate that can be tried [1/s]."""
        return rates_of(self.trace, self.search.scaling)

    def longer(self, times: int) -> "Rates":
        """Return the load of a trace that goes on with itself so many times."""
        return replace(self, trace=repeated(self.trace, times))

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

    def behind(self, router: str) -> "Rates":
        """Return the load on the same replicas behind another router."""
        scenario = replace(self.deployment.scenario, router=router)
        return replace(self, deployment=replace(self.deployment, scenario=scenario))

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
        """Return a scenario that replays the trace at a rate, when the trace goes on with itself so many times."""
        return replace(scenario, request_rate=load, scaling=self.search.scaling, trace_copies=times,
                       seed=self.search.seed or None)


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
