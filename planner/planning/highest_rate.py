"""The highest request rate that a deployment serves within its objectives, how sure that is, and what limits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, pools_of, resolve, shape_load
from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.planning.alternatives import COMPARED, matters
from planner.planning.bracket import Bracket, UnlimitedError, UnreachableRateError, find_bracket
from planner.planning.fewest import apart_in_time
from planner.planning.missed import UnreachableError, describe_missed, missed_objectives
from planner.progress import in_parallel
from planner.replays.fleet.replicas import serve
from planner.results.notes import notes
from planner.results.resolved import describe_deployment, fitted_deployments
from planner.results.uncertainty import Residuals, residuals_for
from planner.settings.objectives import Objectives, Verdict, describe_objectives, judge
from planner.settings.rate_scaling import MEANINGS, RECOMMENDED
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
QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to look for a capacity.

    Parameters
    ----------
    scaling : a name of `traffic.SCALINGS`.
    replicates : of the bootstrap that the confidence comes from; 0 for none.
    seed : of every draw.
    by_tenant : whether every tenant must keep the objectives by itself.
    horizon : "double", as long as that changes the answer, or "trace", as it is.
    compares : whether the capacity by other ways of scaling and behind other routers is looked for too.
    jobs : processes for the replicates and for these; -1 for one a core.
    """

    scaling: str = RECOMMENDED
    replicates: int = 20
    seed: int = 0
    by_tenant: bool = False
    horizon: str = "double"
    compares: bool = True
    jobs: int = -1


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


def capacity(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> dict[str, Any]:
    """Find the highest rate at which a deployment keeps its objectives.

    Parameters
    ----------
    trace : as read; the scenario's window and number of requests are applied to it here.
    scenario : in an open loop, without a rate of its own.
    objectives : what the load must keep.
    search : how to look.

    Returns
    -------
    dict
        As the contract has it: `capacity_rps` and per GPU, `rate_scale` against the trace, `attainment` asked for and
        at capacity, `limiting_metric` just above it, `bracket`, `confidence`, `stationary`, `probes`; besides these
        `feasible`, `is_monotone`, `kept_above_rps`, `missed_below_rps`, `horizon` (by length), `notes`. What it rests
        on: `slo` (`text`, `limits_s`, `attainment`), `scaling`, `router` (None for one replica), `assumptions` in
        words, `scalings` and `routers`: the capacity by other ways of scaling and, of several replicas, behind other
        routers. Where no rate keeps the objectives, `feasible` is False, the capacity 0, and `missed` has the
        objectives with the best value of each.

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
    rests_on = _question(load, trace, shaped, recorded)
    verdict, times_s = load.judged(apart_in_time(shaped))
    if not verdict.is_met:  # alone they miss the objectives, so they do at any rate
        return _infeasible(load, verdict, times_s, "requests that each run alone", None) | rests_on
    try:
        found = find_bracket(load.verdict, recorded, limits=load.limits_rps)
    except UnreachableRateError as error:
        verdict, times_s = load.judged(at_rate(shaped, error.rate_rps, search.scaling, search.seed))
        return _infeasible(load, verdict, times_s, str(error).partition(":")[0], error.rate_rps) | rests_on
    horizons = [(1, found.lower)]
    is_settled = search.horizon == "trace"
    while not is_settled and _can_last(shaped, search, 2 * horizons[-1][0], found.lower):
        times = 2 * horizons[-1][0]
        longer = replace(load, trace=repeated(shaped, times))
        found = find_bracket(longer.verdict, found.lower, limits=longer.limits_rps)
        is_settled = abs(found.lower / horizons[-1][1] - 1) <= SETTLED
        horizons.append((times, found.lower))
        load = longer
    result = _result(load, found, recorded)
    stationary = is_settled if search.horizon == "double" and len(horizons) > 1 else None
    compared = _compared(load, found.lower, is_drawn)
    horizon = [{"num_requests": times * num_requests_at(shaped, rate, search.scaling), "capacity_rps": rate}
               for times, rate in horizons]
    return result | rests_on | compared | {
        "stationary": stationary, "horizon": horizon,
        "confidence": _confidence(replace(load, trace=shaped), found) if search.replicates else None,
        "notes": [*rests_on["notes"], *_notes(found, stationary, horizon), *compared["notes"]],
    }


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
    for name in ("rate_scale", "request_rate", "max_concurrency"):
        if getattr(scenario, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: this command finds the rate; "
                             f"leave it out")


def _question(load: Load, trace: Trace, shaped: Trace, recorded: float) -> dict[str, Any]:
    """Return what was asked, what was assumed, and of what."""
    objectives, search, scenario = load.objectives, load.search, load.deployment.scenario
    is_routed = _is_routed(load.deployment)
    assumptions = [f"the rate changes by {search.scaling}: {MEANINGS[search.scaling]}"]
    if is_routed:
        assumptions.append(f"the router is {scenario.router}")
    return {
        "slo": describe_objectives(objectives), "attainment": objectives.attainment, "scaling": search.scaling,
        "router": scenario.router if is_routed else None, "assumptions": assumptions,
        "num_gpus": load.deployment.num_gpus,
        "notes": [*notes(load.deployment, shaped), *([NO_INTERVAL] if scenario.interval is not None else [])],
        "workload": {"source": trace.source, "num_requests": shaped.num_requests, "recorded_rps": recorded,
                     "scaling": search.scaling, "seed": search.seed},
        "deployment": describe_deployment(load.deployment, scenario.data_parallel_size),
        "trace_sha256": trace.sha256,
    }


def _is_routed(deployment: Deployment) -> bool:
    """Tell whether a router has replicas to choose from."""
    return sum(pool.num_replicas for pool in pools_of(deployment, deployment.scenario.data_parallel_size)) > 1


def _infeasible(load: Load, verdict: Verdict, times_s: Mapping[str, Floats], who: str,
                rate_rps: float | None) -> dict[str, Any]:
    """Return that no rate keeps the objectives, with the best values that there are.

    Parameters
    ----------
    verdict, times_s : at the lightest load [s].
    who : is judged there, in words.
    rate_rps : the lowest that was tried; None where requests were alone [1/s].
    """
    return {
        "feasible": False, "missed": describe_missed(missed_objectives(load.objectives, times_s)),
        "capacity_rps": 0.0, "capacity_rps_per_gpu": 0.0,
        "rate_scale": 0.0, "attainment_at_capacity": None, "limiting_metric": verdict.limiting_metric,
        "bracket": {"lower_rps": 0.0, "upper_rps": rate_rps}, "is_monotone": True, "kept_above_rps": [],
        "missed_below_rps": [], "probes": [], "stationary": None, "horizon": [], "confidence": None, "scalings": [],
        "routers": [], "sentence": f"{who}: {verdict.shortfall}",
    }


def _result(load: Load, found: Bracket, recorded: float) -> dict[str, Any]:
    probes = dict(found.probes)
    return {
        "feasible": True,
        "missed": [],
        "capacity_rps": found.lower,
        "capacity_rps_per_gpu": found.lower / load.deployment.num_gpus,
        "rate_scale": found.lower / recorded,
        "attainment_at_capacity": probes[found.lower].attainment,
        "limiting_metric": probes[found.upper].limiting_metric,
        "bracket": {"lower_rps": found.lower, "upper_rps": found.upper},
        "is_monotone": found.is_monotone,
        "kept_above_rps": list(found.kept_above),
        "missed_below_rps": list(found.missed_below),
        "probes": [{"rate_rps": rate, "is_met": verdict.is_met, "attainment": verdict.attainment,
                    "limiting_metric": verdict.limiting_metric} for rate, verdict in found.probes],
    }


def _compared(load: Load, rate_rps: float, is_drawn: bool) -> dict[str, Any]:
    """Return the capacity by other ways of scaling and behind other routers, from the known one; no bootstrap of them.

    Returns
    -------
    dict
        `scalings` and `routers`: a row for each with its `capacity_rps`, None where it has none; the known one first,
        and of one replica no routers. `notes` where one is more than a tenth off.
    """
    search, router, is_routed = load.search, load.deployment.scenario.router, _is_routed(load.deployment)
    ways = [name for name in SCALINGS if search.compares and not is_drawn and name != search.scaling]
    others = [name for name in COMPARED if search.compares and is_routed and name != router]
    tasks = [*(("scaling", name, load.alike(name, rate_rps)) for name in ways),
             *(("router", name, load.behind(name)) for name in others)]
    calls = [joblib.delayed(_capacity_from)(each, rate_rps) for _, _, each in tasks]
    rates = in_parallel("other scalings and routers", calls, len(calls), search.jobs)
    rows = [{what: name, "capacity_rps": rate} for (what, name, _), rate in zip(tasks, rates, strict=True)]
    scalings = [{"scaling": search.scaling, "capacity_rps": rate_rps}, *(row for row in rows if "scaling" in row)]
    routers = [{"router": router, "capacity_rps": rate_rps}, *(row for row in rows if "router" in row)]
    routers = routers if is_routed else []
    return {"scalings": scalings, "routers": routers,
            "notes": [*_rests_on(scalings, "scaling", "how the rate is scaled"),
                      *_rests_on(routers, "router", "the router")]}


def _capacity_from(load: Load, start: float) -> float | None:
    """Return a capacity from one that is near it, without checks of the rates around it; None where there is none."""
    try:
        return find_bracket(load.verdict, start, tolerance=NEAR, checks=(), limits=load.limits_rps).lower
    except (UnreachableError, UnlimitedError):
        return None


def _rests_on(rows: Sequence[Mapping[str, Any]], key: str, what: str) -> list[str]:
    """Return a note where one of several capacities is more than a tenth off the first."""
    if not rows or not matters(rows[0]["capacity_rps"], (row["capacity_rps"] for row in rows[1:])):
        return []
    rates = ", ".join(f"{'no' if row['capacity_rps'] is None else format(row['capacity_rps'], '.4g')} requests/s with "
                      f"{row[key]}{f' ({MEANINGS[row[key]]})' if key == 'scaling' else ''}" for row in rows)
    return [f"the capacity depends on {what}: {rates}; --{key} chooses"]


def _confidence(load: Load, found: Bracket) -> dict[str, float]:
    """Return quantiles of the capacity over resampled windows of the trace, and over errors of the step times.

    With all times of a deployment multiplied by f, a rate r behaves as r · f did and every latency is f times as long;
    so its capacity is 1 / f of that within limits of 1 / f. The draws of f are the held-out errors in TPOT of the
    constants in use. At a rate that 90 % of the draws serve, `p10`, one may be 90 % confident.
    """
    search = load.search
    spreads = [_factors(each, search) for each in fitted_deployments(load.deployment)]
    factors = max(spreads, key=lambda spread: float(np.ptp(spread)))  # of pools, the one that is known the least
    calls = [joblib.delayed(_replicate)(load, found.lower, factor, search.seed + 1 + k)
             for k, factor in enumerate(factors.tolist())]
    rates = np.array(in_parallel("drawing windows and errors for the confidence", calls, len(calls), search.jobs))
    rates *= found.lower / _replicate(load, found.lower, 1.0, None)
    return {name: float(np.quantile(rates, q)) for name, q in QUANTILES.items()}


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


def _notes(found: Bracket, stationary: bool | None, horizon: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    if found.kept_above:
        notes.append(f"attainment does not fall steadily with the rate: {_rates(found.kept_above)} meet the "
                     f"objectives, and lower rates miss them")
    if found.missed_below:
        notes.append(f"{_rates(found.missed_below)} miss the objectives, although they are below the capacity")
    if stationary is False:
        before, last = horizon[-2:]
        notes.append(f"the capacity has not converged: {last['capacity_rps']:.4g} requests/s at "
                     f"{last['num_requests']:,} requests, {before['capacity_rps']:.4g} at "
                     f"{before['num_requests']:,}; the trace is too short, or too bursty for one draw")
    return notes


def _rates(rates: Sequence[float]) -> str:
    return f"{', '.join(f'{rate:.4g}' for rate in rates)} requests/s"
