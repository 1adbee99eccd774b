"""The highest request rate that a deployment serves within its objectives, how sure that is, and what limits it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, resolve, shape_load
from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.fleet.replicas import serve
from planner.metrics.notes import notes
from planner.metrics.resolved import describe_deployment, fitted_scenarios
from planner.metrics.uncertainty import Residuals, residuals_for
from planner.planning.bracket import Bracket, UnreachableError, find_bracket
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.scenario import Scenario
from planner.trace import Trace
from planner.traffic.client import at_client_rate
from planner.traffic.rescaling import MOST_REQUESTS, SCALINGS, rate_of, repeated, windows

Floats = NDArray[np.float64]

SETTLED = 0.02  # change of the capacity from one horizon to twice it that counts as none
NUM_WINDOWS = 32  # of a trace, for its bootstrap
NEAR = 0.02  # tolerance of a replicate's bracket
NO_INTERVAL = "--interval does nothing here: the confidence is drawn from the held-out errors without it"
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
    jobs : processes for the replicates; -1 for one a core.
    """

    scaling: str = "compress"
    replicates: int = 20
    seed: int = 0
    by_tenant: bool = False
    horizon: str = "double"
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
        trace = SCALINGS[self.search.scaling](self.trace, rate_per_s, self.search.seed)
        result = serve(trace, self.deployment)
        return judge(self.objectives, result.times_s, _tenants(trace) if self.search.by_tenant else None)


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
        `is_monotone`, `kept_above_rps`, `missed_below_rps`, `horizon` (by length), `notes`.

    Raises
    ------
    UsageError : an option does not fit; UnreachableError, UnlimitedError: the capacity is nothing, or has no end.
    PlannerError : as a replay.
    """
    _check(scenario, search)
    if trace.arrivals == "absent" and search.scaling == "poisson":  # at any rate: the search finds its own
        trace = replace(at_client_rate(trace, 1.0, seed=search.seed), arrivals="recorded")
    shaped = shape_load(scenario, trace)
    recorded = rate_of(shaped)
    load = Load(deployment=resolve(scenario, shaped), trace=shaped, objectives=objectives, search=search)
    found = find_bracket(load.verdict, recorded)
    horizons = [(1, found.lower)]
    is_settled = search.horizon == "trace"
    while not is_settled and 2 * horizons[-1][0] * shaped.num_requests <= MOST_REQUESTS:
        times = 2 * horizons[-1][0]
        longer = replace(load, trace=repeated(shaped, times))
        found = find_bracket(longer.verdict, found.lower)
        is_settled = abs(found.lower / horizons[-1][1] - 1) <= SETTLED
        horizons.append((times, found.lower))
        load = longer
    result = _result(load, found, recorded, objectives)
    stationary = is_settled if search.horizon == "double" else None
    return result | {
        "stationary": stationary,
        "horizon": [{"num_requests": times * shaped.num_requests, "capacity_rps": rate} for times, rate in horizons],
        "confidence": _confidence(replace(load, trace=shaped), found) if search.replicates else None,
        "notes": [*notes(load.deployment, shaped), *_notes(found, stationary, horizons, shaped),
                  *([NO_INTERVAL] if scenario.interval is not None else [])],
        "workload": {"source": trace.source, "num_requests": shaped.num_requests, "recorded_rps": recorded,
                     "scaling": search.scaling, "seed": search.seed},
        "deployment": describe_deployment(load.deployment, load.deployment.scenario.data_parallel_size),
        "trace_sha256": trace.sha256,
    }


def _check(scenario: Scenario, search: Search) -> None:
    if search.scaling not in SCALINGS:
        raise UsageError(f"--scaling {search.scaling}: must be one of {', '.join(SCALINGS)}")
    if search.horizon not in ("double", "trace"):
        raise UsageError(f"--horizon {search.horizon}: must be double or trace")
    pools = [] if scenario.fleet is None else read_fleet(Path(scenario.fleet), scenario)
    for path in (scenario.autoscale, *(pool.scenario.autoscale for pool in pools)):
        if path is not None:
            raise UsageError(f"--autoscale {path}: a capacity is of a fleet that stays as it is; leave it out")
    for name in ("rate_scale", "request_rate", "max_concurrency"):
        if getattr(scenario, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: the rate is what is looked for; "
                             f"leave it out")


def _result(load: Load, found: Bracket, recorded: float, objectives: Objectives) -> dict[str, Any]:
    probes = dict(found.probes)
    num_gpus = load.deployment.num_gpus
    return {
        "capacity_rps": found.lower,
        "capacity_rps_per_gpu": found.lower / num_gpus,
        "rate_scale": found.lower / recorded,
        "num_gpus": num_gpus,
        "slo": {"limits_s": objectives.slo.limits_s,
                "percentiles_s": {statistic.name: limit for statistic, limit in objectives.statistics.items()}},
        "attainment": objectives.attainment,
        "attainment_at_capacity": probes[found.lower].attainment,
        "limiting_metric": probes[found.upper].limiting_metric,
        "bracket": {"lower_rps": found.lower, "upper_rps": found.upper},
        "is_monotone": found.is_monotone,
        "kept_above_rps": list(found.kept_above),
        "missed_below_rps": list(found.missed_below),
        "probes": [{"rate_rps": rate, "is_met": verdict.is_met, "attainment": verdict.attainment,
                    "limiting_metric": verdict.limiting_metric} for rate, verdict in found.probes],
    }


def _confidence(load: Load, found: Bracket) -> dict[str, float]:
    """Return quantiles of the capacity over resampled windows of the trace, and over errors of the step times.

    With all times of a deployment multiplied by f, a rate r behaves as r · f did and every latency is f times as long;
    so its capacity is 1 / f of that within limits of 1 / f. The draws of f are the held-out errors in TPOT of the
    constants in use. At a rate that 90 % of the draws serve, `p10`, one may be 90 % confident.
    """
    search = load.search
    spreads = [_factors(each, search) for each in fitted_scenarios(load.deployment)]
    factors = max(spreads, key=lambda spread: float(np.ptp(spread)))  # of pools, the one that is known the least
    jobs = [joblib.delayed(_replicate)(load, found.lower, factor, search.seed + 1 + k)
            for k, factor in enumerate(factors)]
    rates = np.array(joblib.Parallel(n_jobs=search.jobs)(jobs)) * found.lower / _replicate(load, found.lower, 1.0, None)
    return {name: float(np.quantile(rates, q)) for name, q in QUANTILES.items()}


def _factors(scenario: Scenario, search: Search) -> Floats:
    """Return how much longer steps may take than predicted, a draw for each replicate [1]."""
    if scenario.step_time != "roofline":
        return np.ones(search.replicates)
    residuals = residuals_for(scenario)
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
        return find_bracket(drawn.verdict, start, tolerance=NEAR, checks=()).lower / factor
    except UnreachableError:
        return 0.0


def _tenants(trace: Trace) -> NDArray[np.int64]:
    if "tenant" not in trace.requests.columns:
        raise UsageError(f"--by-tenant: {trace.source} has no column tenant")
    found: NDArray[np.int64] = trace.requests["tenant"].fill_null("").rank("dense").to_numpy().astype(np.int64)
    return found


def _notes(found: Bracket, stationary: bool | None, horizons: Sequence[tuple[int, float]], trace: Trace) -> list[str]:
    notes = []
    if found.kept_above:
        notes.append(f"attainment does not only fall with the rate: {_rates(found.kept_above)} keep the objectives, "
                     f"above rates that miss them")
    if found.missed_below:
        notes.append(f"{_rates(found.missed_below)} miss the objectives, below the capacity")
    if stationary is False:
        (_, before), (times, last) = (horizons[0], *horizons)[-2:]
        notes.append(f"the capacity is not settled: {last:.4g} requests/s at {times * trace.num_requests:,} requests, "
                     f"{before:.4g} at half as many; the trace is too short, or too bursty for one draw")
    return notes


def _rates(rates: Sequence[float]) -> str:
    return f"{', '.join(f'{rate:.4g}' for rate in rates)} requests/s"
