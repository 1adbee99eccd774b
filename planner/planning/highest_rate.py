"""The highest request rate that a deployment serves within its objectives, how sure that is, and what limits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, pools_of
from planner.deployment.pools import read_fleet
from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import UsageError
from planner.planning.alternatives import COMPARED, matters
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.bracket import RATE, UNKNOWNS, Unknown, UnreachableLoadError
from planner.planning.capacity_answer import (
    CapacityAnswer,
    Confidence,
    Horizon,
    Probe,
    RateBracket,
    RouterCapacity,
    ScalingCapacity,
    SearchedTraffic,
)
from planner.planning.capacity_search import Settled, confidence_of, largest_from, search_notes, settled
from planner.planning.fewest import apart_in_time
from planner.planning.missed import missed_objectives
from planner.planning.replay_line import replay_line
from planner.planning.search_options import Search
from planner.progress import in_parallel, later
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.results.notes import notes
from planner.results.rejections import rejected_by_reason, rejection_notes
from planner.results.resolved import describe_deployment
from planner.settings.load_options import CLOSED_LOOP
from planner.settings.objectives import Objectives, Verdict, judge, required_of
from planner.settings.rate_scaling import MEANINGS
from planner.settings.scenario import Scenario
from planner.settings.statistic import statistics_ms
from planner.traces import Trace
from planner.traces.shaping.client_load import at_client_rate
from planner.traces.shaping.rescaling import (
    MOST_REQUESTS,
    SCALINGS,
    at_rate,
    num_requests_at,
    part_words,
    rate_of,
    rates_of,
    repeated,
    windows,
)
from planner.traces.shaping.tenants import refuse_tenant_thresholds, tenant_names

Floats = NDArray[np.float64]

NUM_WINDOWS = 32  # of a trace, for its bootstrap
NO_INTERVAL = "--interval has no effect here: the confidence uses the held-out errors without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One deployment under one traffic, to be judged at any rate."""

    deployment: Deployment
    trace: Trace
    objectives: Objectives
    search: Search

    unknown: ClassVar[Unknown] = RATE

    def verdict(self, load: float) -> Verdict:
        """Replay the traffic at a rate and judge it."""
        return self.judged(at_rate(self.trace, load, self.search.scaling, self.search.seed))[0]

    def judged(self, trace: Trace) -> tuple[Verdict, ReplayResult]:
        """Replay a trace and judge it; return the replay too."""
        result = serve(trace, self.deployment)
        times_s = result.times_s
        verdict = judge(self.objectives, times_s, tenants_of(trace) if self.search.by_tenant else None)
        return replace(verdict, statistics_ms=statistics_ms(times_s)), result

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest rate that can be tried [1/s]."""
        return rates_of(self.trace, self.search.scaling)

    def longer(self, times: int) -> "Load":
        """Return the load of a trace that goes on with itself so many times."""
        return replace(self, trace=repeated(self.trace, times))

    def num_requests_at(self, load: float) -> int:
        """Return about how many requests there are at a rate."""
        return num_requests_at(self.trace, load, self.search.scaling)

    def drawn(self, factor: float, seed: int | None) -> "Load":
        """Return the load of resampled windows, by the clock of a deployment whose steps take `factor` times as long.

        With all its times multiplied by f, a rate r behaves as r · f did and every latency is f times as long.
        """
        trace = self.trace if seed is None else windows(self.trace, NUM_WINDOWS, seed)
        search = self.search if seed is None else replace(self.search, seed=seed)
        return replace(self, trace=trace, objectives=self.objectives.scaled(1 / factor), search=search)

    def at_pace(self, load: float, factor: float) -> float:
        """Return a rate of `drawn` by our clock [1/s]."""
        return load / factor

    def behind(self, router: str) -> "Load":
        """Return the load on the same replicas behind another router."""
        scenario = replace(self.deployment.scenario, router=router)
        return replace(self, deployment=replace(self.deployment, scenario=scenario))

    def alike(self, scaling: str, rate_rps: float) -> "Load":
        """Return the load by another way of scaling, with about as many requests at a rate."""
        count = num_requests_at(self.trace, rate_rps, self.search.scaling)
        times = round(count / num_requests_at(self.trace, rate_rps, scaling))
        most = max(MOST_REQUESTS // self.trace.num_requests, 1)
        return replace(self, trace=repeated(self.trace, min(max(times, 1), most)),
                       search=replace(self.search, scaling=scaling))


@keeps_answers
def capacity(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> CapacityAnswer:
    """Find the highest rate at which a deployment keeps its objectives.

    Parameters
    ----------
    trace : as read; the scenario's window and number of requests are applied to it here.
    scenario : in an open loop, without a rate of its own.
    objectives : what the load must keep.
    search : how to look.

    Raises
    ------
    UsageError : an option does not fit; UnlimitedError: the capacity has no end.
    PlannerError : as a replay.
    """
    check_search(scenario, search)
    is_drawn = trace.arrivals == "absent" and search.scaling == "poisson"
    if is_drawn:  # at any rate: the search finds its own
        trace = replace(at_client_rate(trace, 1.0, seed=search.seed), arrivals="recorded")
    shaped = shape_load(scenario, trace)
    recorded = rate_of(shaped)
    started = startable(scenario, shaped)
    load = Load(deployment=started.deployment, trace=shaped, objectives=objectives, search=search)
    asked = _asked(load, trace, recorded, started.lowered)
    verdict, alone = load.judged(apart_in_time(shaped))
    asked = replace(asked, notes=(*asked.notes, *rejection_notes(load.deployment, rejected_by_reason(alone))))
    if not verdict.is_met:  # alone they miss the objectives, so they do at any rate
        return _infeasible(load, asked, verdict, alone.times_s, "requests that each run alone", None)
    try:
        found = settled(load, recorded)
    except UnreachableLoadError as error:
        verdict, lowest = load.judged(at_rate(shaped, error.lowest, search.scaling, search.seed))
        return _infeasible(load, asked, verdict, lowest.times_s, str(error).partition(":")[0], error.lowest)
    bracket, longest = found.bracket, load.longer(found.times)
    scalings, routers = _compared(longest, bracket.lower, is_drawn)
    return replace(
        _feasible(longest, asked, found, recorded, started.scenario), scalings=scalings, routers=routers,
        confidence=Confidence(**confidence_of(load, bracket.lower)) if search.replicates else None,
        notes=(*asked.notes, *search_notes(bracket, found, RATE), *_rests_on(scalings, routers)))


def check_search(scenario: Scenario, search: Search) -> None:
    """Raise UsageError where an option does not fit a search for a capacity."""
    refuse_tenant_thresholds(scenario)
    if search.scaling not in SCALINGS:
        raise UsageError(f"--scaling {search.scaling}: must be one of {', '.join(SCALINGS)}")
    if search.of not in UNKNOWNS:
        raise UsageError(f"--of {search.of}: must be one of {', '.join(UNKNOWNS)}")
    if search.of == "requests" and search.think_time is not None:
        raise UsageError(f"--think-time {search.think_time:g}: requests at a rate have none; give --of concurrency or "
                         f"--of sessions")
    if search.horizon not in ("double", "trace"):
        raise UsageError(f"--horizon {search.horizon}: must be double or trace")
    pools = [] if scenario.fleet is None else read_fleet(Path(scenario.fleet), scenario)
    for path in (scenario.autoscale, *(pool.scenario.autoscale for pool in pools)):
        if path is not None:
            raise UsageError(f"--autoscale {path}: a capacity needs a fixed number of replicas; leave it out")
    for name in ("rate_scale", "request_rate", *CLOSED_LOOP):
        if getattr(scenario, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: this command finds the "
                             f"load; leave it out")


def _asked(load: Load, trace: Trace, recorded: float, lowered: str | None) -> CapacityAnswer:
    """Return what was asked, what was assumed and of what, in an answer that has no rate yet.

    Parameters
    ----------
    trace : as it was given; `load` has it shaped.
    recorded : its rate when shaped [1/s].
    lowered : a sentence on a context limit that is lower than the engine's default.
    """
    objectives, search, scenario = load.objectives, load.search, load.deployment.scenario
    routed = is_routed(load.deployment)
    assumptions = [f"the rate changes by {search.scaling}: {MEANINGS[search.scaling]}"]
    if routed:
        assumptions.append(f"the router is {scenario.router}")
    return CapacityAnswer(
        feasible=False, lowered=lowered, missed=(), capacity_rps=0.0, capacity_rps_per_gpu=0.0, rate_scale=0.0,
        attainment_at_capacity=None, limiting_metric="none", bracket=RateBracket(lower_rps=0.0, upper_rps=None),
        is_monotone=True, kept_above_rps=(), missed_below_rps=(), probes=(), stationary=None, horizon=(),
        confidence=None, scalings=(), routers=(),
        slo=required_of(objectives), attainment=objectives.attainment, scaling=search.scaling,
        router=scenario.router if routed else None, assumptions=tuple(assumptions),
        num_gpus=load.deployment.num_gpus,
        notes=(*notes(load.deployment, load.trace), *([NO_INTERVAL] if scenario.interval is not None else [])),
        workload=SearchedTraffic(source=trace.source, num_requests=load.trace.num_requests, recorded_rps=recorded,
                                 scaling=search.scaling, seed=search.seed),
        deployment=describe_deployment(load.deployment, scenario.data_parallel_size), trace_sha256=trace.sha256)


def is_routed(deployment: Deployment) -> bool:
    """Tell whether a router has replicas to choose from."""
    return sum(pool.num_replicas for pool in pools_of(deployment, deployment.scenario.data_parallel_size)) > 1


def other_routers(deployment: Deployment, search: Search) -> list[str]:
    """Return the routers behind which the capacity is looked for too."""
    is_asked = search.compare_assumptions and is_routed(deployment)
    return [name for name in COMPARED if is_asked and name != deployment.scenario.router]


def _infeasible(load: Load, asked: CapacityAnswer, verdict: Verdict, times_s: Mapping[str, Floats], who: str,
                rate_rps: float | None) -> CapacityAnswer:
    """Return that no rate keeps the objectives, with the best values that there are.

    Parameters
    ----------
    verdict, times_s : at the lightest load [s].
    who : is judged there, in words.
    rate_rps : the lowest that was tried; None where requests were alone [1/s].
    """
    return replace(asked, missed=tuple(missed_objectives(load.objectives, times_s)),
                   limiting_metric=verdict.limiting_metric, bracket=RateBracket(lower_rps=0.0, upper_rps=rate_rps),
                   sentence=f"{who}: {verdict.shortfall}")


def _feasible(load: Load, asked: CapacityAnswer, found: Settled, recorded: float,
              scenario: Scenario) -> CapacityAnswer:
    """Return the highest rate, and what every tried rate came to.

    Parameters
    ----------
    scenario : as it was given, with a context limit with which the engine starts.
    """
    bracket = found.bracket
    probes = dict(bracket.probes)
    replayed = replace(scenario, request_rate=bracket.lower, scaling=load.search.scaling, trace_copies=found.times,
                       seed=load.search.seed or None)
    kept = part_words(load.trace, bracket.lower, load.search.scaling)
    return replace(
        asked, feasible=True, assumptions=(*asked.assumptions, *filter(None, [kept])),
        replay_command=replay_line(load.trace, replayed, load.objectives),
        capacity_rps=bracket.lower, capacity_rps_per_gpu=bracket.lower / load.deployment.num_gpus,
        rate_scale=bracket.lower / recorded, attainment_at_capacity=probes[bracket.lower].attainment,
        limiting_metric=probes[bracket.upper].limiting_metric,
        bracket=RateBracket(lower_rps=bracket.lower, upper_rps=bracket.upper), is_monotone=bracket.is_monotone,
        stationary=found.is_stationary,
        horizon=tuple(Horizon(num_requests=count, capacity_rps=rate) for count, rate in found.lengths),
        kept_above_rps=bracket.kept_above, missed_below_rps=bracket.missed_below,
        probes=tuple(Probe(rate_rps=rate, is_met=verdict.is_met, attainment=verdict.attainment,
                           limiting_metric=verdict.limiting_metric, statistics_ms=verdict.values)
                     for rate, verdict in bracket.probes))


def _compared(load: Load, rate_rps: float,
              is_drawn: bool) -> tuple[tuple[ScalingCapacity, ...], tuple[RouterCapacity, ...]]:
    """Return the capacity by other ways of scaling and behind other routers, from the known one; no bootstrap of them.

    The known one is the first; of one replica there are no routers.
    """
    search, router = load.search, load.deployment.scenario.router
    ways = [name for name in SCALINGS if search.compare_assumptions and not is_drawn and name != search.scaling]
    others = other_routers(load.deployment, search)
    loads = [*(load.alike(name, rate_rps) for name in ways), *(load.behind(name) for name in others)]
    calls = [later(largest_from)(each, rate_rps) for each in loads]
    rates = in_parallel("other scalings and routers", calls, len(calls), search.jobs)
    by_scaling = zip((search.scaling, *ways), (rate_rps, *rates[:len(ways)]), strict=True)
    behind = zip((str(router), *others), (rate_rps, *rates[len(ways):]), strict=True)
    return (tuple(ScalingCapacity(scaling=name, capacity_rps=rate) for name, rate in by_scaling),
            tuple(RouterCapacity(router=name, capacity_rps=rate) for name, rate in behind
                  if is_routed(load.deployment)))


def _rests_on(scalings: Sequence[ScalingCapacity], routers: Sequence[RouterCapacity]) -> list[str]:
    """Return notes where the capacity by other ways of scaling, or behind other routers, is more than a tenth off."""
    by_scaling = [(f"{row.scaling} ({MEANINGS[row.scaling]})", row.capacity_rps) for row in scalings]
    by_router = [(row.router, row.capacity_rps) for row in routers]
    return [*_depends(by_scaling, "scaling", "how the rate is scaled"), *_depends(by_router, "router", "the router")]


def _depends(rates: Sequence[tuple[str, float | None]], option: str, what: str) -> list[str]:
    """Return a note where one of several capacities is more than a tenth off the first."""
    if not rates or rates[0][1] is None or not matters(rates[0][1], (rate for _, rate in rates[1:])):
        return []
    text = ", ".join(f"{'no' if rate is None else format(rate, '.4g')} requests/s with {name}" for name, rate in rates)
    return [f"the capacity depends on {what}: {text}; --{option} chooses"]


def tenants_of(trace: Trace) -> NDArray[np.int64]:
    """Return the number of each request's tenant, shape [num_requests]."""
    if "tenant" not in trace.requests.columns:
        raise UsageError(f"--by-tenant: {trace.source} has no column tenant")
    return tenant_names(trace).rank("dense").to_numpy().astype(np.int64)
