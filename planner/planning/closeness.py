"""How close drawn traces are to the recorded one: in their statistics, and in the predictions of a replay."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from planner.errors import UsageError
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.run import replay
from planner.settings.load_options import CLOSED_LOOP
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.burstiness import dispersions, gap_cv
from planner.traces.shaping.rescaling import rate_of
from planner.traces.shaping.sharing import sharing

Floats = NDArray[np.float64]

LOADS = (0.3, 0.6, 0.85)  # of the recorded trace's capacity, or of its rate if there are no objectives
METRICS = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms")
GOODPUT = "request_goodput"
CACHE_TOKENS = (100_000, 1_000_000, 10_000_000)


def compare_statistics(trace: Trace, drawn: Sequence[Trace]) -> dict[str, Any]:
    """Compare drawn traces with the recorded one.

    Returns
    -------
    dict
        `ks`: the largest difference of the distribution functions of gaps, prompts and outputs [1], the median over
        the draws. The rest as pairs, recorded and the median over the draws: `request_rate` [1/s], means of tokens,
        `gap_cv`, `dispersion` by window, `length_correlation` (Spearman), and, if sharing is known, `hit_rate` by
        cache size in tokens, "inf" for one without limits.
    """
    own, others = _statistics(trace), [_statistics(each) for each in drawn]
    pairs = {name: {"recorded": value, "drawn": _median([each.get(name) for each in others])}
             for name, value in own.items()}
    return {"ks": {name: _median([_ks(trace, each, name) for each in drawn])
                   for name in ("gap_s", "input_tokens", "output_tokens")},
            "dispersion": _group(pairs, "dispersion "), "hit_rate": _group(pairs, "hit_rate "),
            **{name: pair for name, pair in pairs.items() if " " not in name}}


def _group(pairs: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): pair for name, pair in pairs.items() if name.startswith(prefix)}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _column(trace: Trace, name: str) -> Floats:
    if name == "gap_s":
        return np.asarray(np.diff(trace.requests["arrival_s"].to_numpy()))
    return np.asarray(trace.requests[name].to_numpy(), np.float64)


def _ks(trace: Trace, drawn: Trace, name: str) -> float | None:
    """Return the Kolmogorov–Smirnov distance of two traces' values; None if one has no values (gaps of one request)."""
    one, two = np.sort(_column(trace, name)), np.sort(_column(drawn, name))
    if not len(one) or not len(two):
        return None
    every = np.concatenate((one, two))
    shares = [np.searchsorted(each, every, side="right") / len(each) for each in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max())


def _statistics(trace: Trace) -> dict[str, float | None]:
    arrival_s = trace.requests["arrival_s"].to_numpy()
    inputs, outputs = _column(trace, "input_tokens"), _column(trace, "output_tokens")
    span_s = float(arrival_s[-1] - arrival_s[0])
    varied = len(inputs) > 2 and np.ptp(inputs) > 0 and np.ptp(outputs) > 0
    statistics: dict[str, float | None] = {
        "request_rate": (len(inputs) - 1) / span_s if span_s > 0 else None, "mean_input_tokens": float(inputs.mean()),
        "mean_output_tokens": float(outputs.mean()), "gap_cv": gap_cv(arrival_s),
        "length_correlation": float(spearmanr(inputs, outputs).statistic) if varied else None}
    statistics |= {f"dispersion {window_s:g}s": value for window_s, value in dispersions(arrival_s).items()}
    if trace.prefix is not None:
        shared = sharing(trace.prefix, trace.requests["input_tokens"].to_numpy())
        statistics |= {f"hit_rate {tokens}": shared.hit_rate(tokens) for tokens in CACHE_TOKENS}
        statistics["hit_rate inf"] = shared.infinite_hit_rate
    return statistics


def compare_predictions(trace: Trace, drawn: Sequence[Trace], scenario: Scenario, objectives: Objectives | None, *,
                        loads: Sequence[float] = LOADS) -> dict[str, Any]:
    """Compare the predictions of replays of drawn traces with the prediction of a replay of the recorded trace.

    Parameters
    ----------
    drawn : several, since a draw's tails are noisy: the spread over them is told as well.
    scenario : the deployment, in an open loop, without a rate of its own.
    objectives : for goodput and capacity; None for neither.
    loads : shares of the recorded trace's capacity, or without objectives of its rate [1].

    Returns
    -------
    dict
        `capacity_rps` and, load by load in `loads`, `request_rate` and METRICS: each with `recorded`, `drawn` (the
        median over the draws), `difference` (of the two, relative) and `low` and `high`, of single draws.

    Raises
    ------
    UsageError : the scenario has a rate or a closed loop.
    PlannerError : as a replay, or as a search for the capacity.
    """
    for name in ("request_rate", "rate_scale", *CLOSED_LOOP):
        if getattr(scenario, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: this command chooses the loads; "
                             f"leave it out")
    predictions: dict[str, Any] = {"capacity_rps": None, "loads": []}
    unit = rate_of(trace)
    if objectives is not None:
        own, *others = (replayed_capacity(each, scenario, objectives) for each in (trace, *drawn))
        predictions["capacity_rps"] = _difference(own, others)
        unit = own
    for load in loads:
        rows = [_predicted(each, scenario, objectives, load * unit) for each in (trace, *drawn)]
        metrics = {name: _difference(rows[0][name], [row[name] for row in rows[1:]])
                   for name in rows[0] if rows[0][name] is not None}
        predictions["loads"].append({"load": load, "request_rate": load * unit, **metrics})
    return predictions


def replayed_capacity(trace: Trace, scenario: Scenario, objectives: Objectives) -> float:
    """Return a deployment's capacity of a trace whose time is compressed [1/s].

    Raises
    ------
    UsageError : it is 0.
    """
    as_replays = "compress"
    search = Search(scaling=as_replays, replicates=0, horizon="trace", compare_assumptions=False, jobs=1)
    answer = capacity(trace, scenario, objectives, search)
    if not answer.feasible:
        raise UsageError(f"--slo: the capacity is 0 requests/s: {answer.sentence}")
    return answer.capacity


def _predicted(trace: Trace, scenario: Scenario, objectives: Objectives | None,
               rate_per_s: float) -> dict[str, float | None]:
    summary = replay(trace, replace(scenario, request_rate=rate_per_s), slo=objectives).summary.values_by_key
    return {name: summary[name] for name in (*METRICS, *((GOODPUT,) if objectives is not None else ()))}


def _difference(recorded: float | None, drawn: Sequence[float | None]) -> dict[str, float | None]:
    """Return the recorded value, the drawn ones' median and how far they are off [1]; None if there is no value."""
    middle = _median(drawn)
    relative = [value / recorded - 1 for value in drawn if value is not None] if recorded else []
    return {"recorded": recorded, "drawn": middle,
            "difference": None if not relative or middle is None or not recorded else middle / recorded - 1,
            "low": min(relative, default=None), "high": max(relative, default=None)}
