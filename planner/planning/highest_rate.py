"""The highest request rate that a deployment serves within its objectives, how sure that is, and what limits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, pools_of, resolve, shape_load
from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.planning.alternatives import COMPARED, matters
from planner.planning.bracket import Bracket, UnlimitedError, UnreachableRateError, find_bracket
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
from planner.planning.fewest import apart_in_time
from planner.planning.missed import UnreachableError, missed_objectives
from planner.planning.search_options import Search
from planner.progress import in_parallel, later
from planner.replays.fleet.replicas import serve
from planner.results.notes import notes
from planner.results.resolved import describe_deployment, fitted_deployments
from planner.results.uncertainty import Residuals, residuals_for
from planner.settings.load_options import CLOSED_LOOP
from planner.settings.objectives import Objectives, Verdict, judge, required_of
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
from planner.traces.shaping.tenants import refuse_tenant_thresholds, tenant_names

Floats = NDArray[np.float64]

SETTLED = 0.02  # change of the capacity from one horizon to twice it that counts as none
NUM_WINDOWS = 32  # of a trace, for its bootstrap
NEAR = 0.02  # tolerance of a replicate's bracket
NO_INTERVAL = "--interval has no effect here: the confidence uses the held-out errors without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One deployment under one traffic, to be judged at any rate."""

    deployment: Deployment
    trace: Trace
    objectives: Objectives
    search: Search

    def verdict(self, rate_per_s: float) -> Verdict:
        """Replay the traffic at a rate and judge it."""
        return self.judged(at_rate(self.trace, rate_per_s, self.search.scaling, self.search.seed))[0]

    def judged(self, trace: Trace) -> tuple[Verdict, Mapping[str, Floats]]:
        """Replay a trace and judge it; return the times that it was judged by, too."""
        times_s = serve(trace, self.deployment).times_s
        return judge(self.objectives, times_s, _tenants(trace) if self.search.by_tenant else None), times_s

    @property
    def limits_rps(self) -> tuple[float, float]:
        """The lowest and the highest rate that can be tried [1/s]."""
        return rates_of(self.trace, self.search.scaling)

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
    _check(scenario, search)
    is_drawn = trace.arrivals == "absent" and search.scaling == "poisson"
    if is_drawn:  # at any rate: the search finds its own
        trace = replace(at_client_rate(trace, 1.0, seed=search.seed), arrivals="recorded")
    shaped = shape_load(scenario, trace)
    recorded = rate_of(shaped)
    load = Load(deployment=resolve(scenario, shaped), trace=shaped, objectives=objectives, search=search)
    asked = _asked(load, trace, recorded)
    verdict, times_s = load.judged(apart_in_time(shaped))
    if not verdict.is_met:  # alone they miss the objectives, so they do at any rate
        return _infeasible(load, asked, verdict, times_s, "requests that each run alone", None)
    try:
        bracket = find_bracket(load.verdict, recorded, limits=load.limits_rps)
    except UnreachableRateError as error:
        verdict, times_s = load.judged(at_rate(shaped, error.rate_rps, search.scaling, search.seed))
        return _infeasible(load, asked, verdict, times_s, str(error).partition(":")[0], error.rate_rps)
    horizons = [(1, bracket.lower)]
    is_settled = search.horizon == "trace"
    while not is_settled and _can_last(shaped, search, 2 * horizons[-1][0], bracket.lower):
        times = 2 * horizons[-1][0]
        longer = replace(load, trace=repeated(shaped, times))
        bracket = find_bracket(longer.verdict, bracket.lower, limits=longer.limits_rps)
        is_settled = abs(bracket.lower / horizons[-1][1] - 1) <= SETTLED
        horizons.append((times, bracket.lower))
        load = longer
    stationary = is_settled if search.horizon == "double" and len(horizons) > 1 else None
    horizon = tuple(Horizon(num_requests=times * num_requests_at(shaped, rate, search.scaling), capacity_rps=rate)
                    for times, rate in horizons)
    scalings, routers = _compared(load, bracket.lower, is_drawn)
    return replace(
        _feasible(load, asked, bracket, recorded), stationary=stationary, horizon=horizon, scalings=scalings,
        routers=routers, confidence=_confidence(replace(load, trace=shaped), bracket) if search.replicates else None,
        notes=(*asked.notes, *_notes(bracket, stationary, horizon), *_rests_on(scalings, routers)))


def _can_last(trace: Trace, search: Search, times: int, rate_rps: float) -> bool:
    """Tell whether a trace that follows itself so many times is not too long to be replayed."""
    return times * max(trace.num_requests, num_requests_at(trace, rate_rps, search.scaling)) <= MOST_REQUESTS


def _check(scenario: Scenario, search: Search) -> None:
    refuse_tenant_thresholds(scenario)
    if search.scaling not in SCALINGS:
        raise UsageError(f"--scaling {search.scaling}: must be one of {', '.join(SCALINGS)}")
    if search.horizon not in ("double", "trace"):
        raise UsageError(f"--horizon {search.horizon}: must be double or trace")
    pools = [] if scenario.fleet is None else read_fleet(Path(scenario.fleet), scenario)
    for path in (scenario.autoscale, *(pool.scenario.autoscale for pool in pools)):
        if path is not None:
            raise UsageError(f"--autoscale {path}: a capacity needs a fixed number of replicas; leave it out")
    for name in ("rate_scale", "request_rate", *CLOSED_LOOP):
        if getattr(scenario, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: this command finds the rate; "
                             f"leave it out")


def _asked(load: Load, trace: Trace, recorded: float) -> CapacityAnswer:
    """Return what was asked, what was assumed and of what, in an answer that has no rate yet.

    Parameters
    ----------
    trace : as it was given; `load` has it shaped.
    recorded : its rate when shaped [1/s].
    """
    objectives, search, scenario = load.objectives, load.search, load.deployment.scenario
    is_routed = _is_routed(load.deployment)
    assumptions = [f"the rate changes by {search.scaling}: {MEANINGS[search.scaling]}"]
    if is_routed:
        assumptions.append(f"the router is {scenario.router}")
    return CapacityAnswer(
        feasible=False, missed=(), capacity_rps=0.0, capacity_rps_per_gpu=0.0, rate_scale=0.0,
        attainment_at_capacity=None, limiting_metric="none", bracket=RateBracket(lower_rps=0.0, upper_rps=None),
        is_monotone=True, kept_above_rps=(), missed_below_rps=(), probes=(), stationary=None, horizon=(),
        confidence=None, scalings=(), routers=(),
        slo=required_of(objectives), attainment=objectives.attainment, scaling=search.scaling,
        router=scenario.router if is_routed else None, assumptions=tuple(assumptions),
        num_gpus=load.deployment.num_gpus,
        notes=(*notes(load.deployment, load.trace), *([NO_INTERVAL] if scenario.interval is not None else [])),
        workload=SearchedTraffic(source=trace.source, num_requests=load.trace.num_requests, recorded_rps=recorded,
                                 scaling=search.scaling, seed=search.seed),
        deployment=describe_deployment(load.deployment, scenario.data_parallel_size), trace_sha256=trace.sha256)


def _is_routed(deployment: Deployment) -> bool:
    """Tell whether a router has replicas to choose from."""
    return sum(pool.num_replicas for pool in pools_of(deployment, deployment.scenario.data_parallel_size)) > 1


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


def _feasible(load: Load, asked: CapacityAnswer, bracket: Bracket, recorded: float) -> CapacityAnswer:
    """Return the highest rate, and what every tried rate came to."""
    probes = dict(bracket.probes)
    return replace(
        asked, feasible=True, capacity_rps=bracket.lower, capacity_rps_per_gpu=bracket.lower / load.deployment.num_gpus,
        rate_scale=bracket.lower / recorded, attainment_at_capacity=probes[bracket.lower].attainment,
        limiting_metric=probes[bracket.upper].limiting_metric,
        bracket=RateBracket(lower_rps=bracket.lower, upper_rps=bracket.upper), is_monotone=bracket.is_monotone,
        kept_above_rps=bracket.kept_above, missed_below_rps=bracket.missed_below,
        probes=tuple(Probe(rate_rps=rate, is_met=verdict.is_met, attainment=verdict.attainment,
                           limiting_metric=verdict.limiting_metric) for rate, verdict in bracket.probes))


def _compared(load: Load, rate_rps: float,
              is_drawn: bool) -> tuple[tuple[ScalingCapacity, ...], tuple[RouterCapacity, ...]]:
    """Return the capacity by other ways of scaling and behind other routers, from the known one; no bootstrap of them.

    The known one is the first; of one replica there are no routers.
    """
    search, router, is_routed = load.search, load.deployment.scenario.router, _is_routed(load.deployment)
    ways = [name for name in SCALINGS if search.compare_assumptions and not is_drawn and name != search.scaling]
    others = [name for name in COMPARED if search.compare_assumptions and is_routed and name != router]
    loads = [*(load.alike(name, rate_rps) for name in ways), *(load.behind(name) for name in others)]
    calls = [later(_capacity_from)(each, rate_rps) for each in loads]
    rates = in_parallel("other scalings and routers", calls, len(calls), search.jobs)
    by_scaling = zip((search.scaling, *ways), (rate_rps, *rates[:len(ways)]), strict=True)
    by_router = zip((str(router), *others), (rate_rps, *rates[len(ways):]), strict=True) if is_routed else ()
    return (tuple(ScalingCapacity(scaling=name, capacity_rps=rate) for name, rate in by_scaling),
            tuple(RouterCapacity(router=name, capacity_rps=rate) for name, rate in by_router))


def _capacity_from(load: Load, start: float) -> float | None:
    """Return a capacity from one that is near it, without checks of the rates around it; None where there is none."""
    try:
        return find_bracket(load.verdict, start, tolerance=NEAR, checks=(), limits=load.limits_rps).lower
    except (UnreachableError, UnlimitedError):
        return None


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


def _confidence(load: Load, bracket: Bracket) -> Confidence:
    """Return quantiles of the capacity over resampled windows of the trace, and over errors of the step times.

    With all times of a deployment multiplied by f, a rate r behaves as r · f did and every latency is f times as long;
    so its capacity is 1 / f of that within limits of 1 / f. The draws of f are the held-out errors in TPOT of the
    constants in use. At a rate that 90 % of the draws serve, `p10`, one may be 90 % confident.
    """
    search = load.search
    spreads = [_factors(each, search) for each in fitted_deployments(load.deployment)]
    factors = max(spreads, key=lambda spread: float(np.ptp(spread)))  # of pools, the one that is known the least
    calls = [later(_replicate)(load, bracket.lower, factor, search.seed + 1 + k)
             for k, factor in enumerate(factors.tolist())]
    rates = np.array(in_parallel("drawing windows and errors for the confidence", calls, len(calls), search.jobs))
    rates *= bracket.lower / _replicate(load, bracket.lower, 1.0, None)
    return Confidence(p10=float(np.quantile(rates, 0.1)), p50=float(np.quantile(rates, 0.5)),
                      p90=float(np.quantile(rates, 0.9)))


def _factors(deployment: Deployment, search: Search) -> Floats:
    """Return how much longer steps may take than predicted, a draw for each replicate [1]."""
    if deployment.stack is None:
        return np.ones(search.replicates)
    residuals = residuals_for(deployment)
    if "tpot_ms" not in residuals.log_errors:
        return np.ones(search.replicates)
    return _spread(residuals, search)


def _spread(residuals: Residuals, search: Search) -> Floats:
    drawn = np.random.default_rng(search.seed).permutation((np.arange(search.replicates) + 0.5) / search.replicates)
    return np.asarray(np.exp(-np.interp(drawn, residuals.probabilities, residuals.log_errors["tpot_ms"])))


def _replicate(load: Load, start: float, factor: float, seed: int | None) -> float:
    """Return the capacity of one draw, 0 where it has none; without a seed of the trace itself."""
    trace = load.trace if seed is None else windows(load.trace, NUM_WINDOWS, seed)
    search = load.search if seed is None else replace(load.search, seed=seed)
    drawn = replace(load, trace=trace, objectives=load.objectives.scaled(1 / factor), search=search)
    try:
        return find_bracket(drawn.verdict, start, tolerance=NEAR, checks=(), limits=drawn.limits_rps).lower / factor
    except UnreachableError:
        return 0.0


def _tenants(trace: Trace) -> NDArray[np.int64]:
    if "tenant" not in trace.requests.columns:
        raise UsageError(f"--by-tenant: {trace.source} has no column tenant")
    return tenant_names(trace).rank("dense").to_numpy().astype(np.int64)


def _notes(bracket: Bracket, stationary: bool | None, horizon: Sequence[Horizon]) -> list[str]:
    notes = []
    if bracket.kept_above:
        notes.append(f"attainment does not fall steadily with the rate: {_rates(bracket.kept_above)} meet the "
                     f"objectives, and lower rates miss them")
    if bracket.missed_below:
        notes.append(f"{_rates(bracket.missed_below)} miss the objectives, although they are below the capacity")
    if stationary is False:
        before, last = horizon[-2:]
        notes.append(f"the capacity has not converged: {last.capacity_rps:.4g} requests/s at "
                     f"{last.num_requests:,} requests, {before.capacity_rps:.4g} at "
                     f"{before.num_requests:,}; the trace is too short, or too bursty for one draw")
    return notes


def _rates(rates: Sequence[float]) -> str:
    return f"{', '.join(f'{rate:.4g}' for rate in rates)} requests/s"
