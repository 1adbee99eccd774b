"""Planning questions as functions, for notebooks: `capacity`, `size`, `compare`, `sweep`, `explain`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from planner.files.keys import asdict
from planner.planning import sizing, sweeping
from planner.planning.capacity import capacity as find_capacity
from planner.planning.comparison import compare_studies
from planner.planning.grid import DEFAULT_FRONT, plan_sweep
from planner.planning.optimize import optimize as optimize_grid
from planner.planning.search_options import DEFAULT_ATTAINMENT, Choices, Search
from planner.planning.study import Study
from planner.report.plan_tables import capacity_table, capacity_words, sizing_table, sizing_words
from planner.report.summary_tables import ROWS, comparison_table, explanation_table
from planner.report.sweep_tables import sweep_table
from planner.results.answers import Answer
from planner.results.phases import PHASES
from planner.settings.objectives import given_objectives, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import read_load
from planner.traces.shaping.rate_series import read_rate_series

AnyTrace = Trace | str | Path
SEARCH, CHOICES = Search(), Choices()  # with their defaults


def explain(trace: AnyTrace, scenario: Scenario, *, slo: str | None = None) -> Answer:
    """Replay a scenario and say how time divides, the limit that binds, and which setting to change first.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    slo : objectives in ms, "ttft:500 tpot:50 p99_ttft:1000".

    Returns
    -------
    Answer
        The keys of `explanation.explain`, and `advice`.
    """
    explanation = _compared(trace, {"": scenario}, slo)[""]["explanation"]
    parts = explanation["phases"] or {"all": {"mean_ms": {}}, "slowest": {"mean_ms": {}}}
    table = pl.DataFrame({"phase": list(PHASES.values()),
                          "mean [ms]": [parts["all"]["mean_ms"].get(name) for name in PHASES],
                          "slowest 1 % [ms]": [parts["slowest"]["mean_ms"].get(name) for name in PHASES]})
    return Answer(values_by_key=explanation, text=explanation_table({"": explanation}), table=table,
                  headline=f"{explanation['sentence']}\n{explanation['advice']['sentence']}")


def compare(trace: AnyTrace, scenarios: Mapping[str, Scenario], *, slo: str | None = None) -> Answer:
    """Replay several scenarios, set them side by side, and say why they differ from the first.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    scenarios : by a name of yours.
    slo : as of `explain`.

    Returns
    -------
    Answer
        Summaries by name, each with its `explanation`.
    """
    comparison = _compared(trace, scenarios, slo)
    rows = [{"metric": key, **{name: summary[key] for name, summary in comparison.items()}} for _, keys in ROWS
            for key in keys if any(isinstance(summary.get(key), int | float) for summary in comparison.values())]
    explanations = {name: summary["explanation"] for name, summary in comparison.items()}
    reasons = [f"{name}: {one['difference']['sentence']}" for name, one in explanations.items() if one["difference"]]
    return Answer(values_by_key=comparison, text=f"{comparison_table(comparison)}\n{explanation_table(explanations)}",
                  headline="\n".join(reasons), table=pl.DataFrame(rows, strict=False))


def capacity(trace: AnyTrace, scenario: Scenario, slo: str, *, attainment: float = DEFAULT_ATTAINMENT,
             of: str = SEARCH.of, think_time: float | None = SEARCH.think_time, scaling: str = SEARCH.scaling,
             horizon: str = SEARCH.horizon, by_tenant: bool = SEARCH.by_tenant, replicates: int = SEARCH.replicates,
             seed: int = SEARCH.seed,
             compare_assumptions: bool = SEARCH.compare_assumptions, jobs: int = SEARCH.jobs) -> Answer:
    """Find the highest request rate, or the most users, that keep the objectives; see `capacity.capacity`.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    slo : objectives in ms, of each request ("ttft:500") or of percentiles ("p99_ttft:500").
    attainment : share of requests that must meet their own [1].
    of, think_time, scaling, horizon, by_tenant, replicates, seed, jobs : as of `search_options.Search`.
    compare_assumptions : whether the answer by other ways of scaling and behind other routers is given too.
    """
    search = Search(of=of, think_time=think_time, scaling=scaling, horizon=horizon, by_tenant=by_tenant,
                    replicates=replicates, seed=seed, compare_assumptions=compare_assumptions, jobs=jobs)
    answer = find_capacity(_read(trace, scenario), scenario, parse_objectives(slo, attainment), search)
    lines, values = [*capacity_words(answer), *answer.notes], asdict(answer)
    return Answer(values_by_key=values, text=capacity_table(answer), headline="\n".join(lines),
                  table=pl.DataFrame(values["probes"]))


def size(trace: AnyTrace, scenario: Scenario, slo: str, *, attainment: float = DEFAULT_ATTAINMENT,
         gpus: Sequence[str] = CHOICES.gpus, quantizations: Sequence[str | None] = CHOICES.quantizations,
         tensor_parallel_sizes: Sequence[int] = CHOICES.ranks, prices: Mapping[str, float] | None = None,
         reserved_prices: Mapping[str, float] | None = None, spot_prices: Mapping[str, float] | None = None,
         power_price: float | None = CHOICES.power_price, co2_per_kwh: float | None = CHOICES.co2_per_kwh,
         sort: str | None = CHOICES.sort, sensitivity: bool = CHOICES.sensitivity,
         growth: str | None = CHOICES.growth, months: int = CHOICES.months,
         change_cost: float = CHOICES.change_cost, spare: int = CHOICES.num_spare,
         period_s: float | None = CHOICES.period_s, rate_series: str | Path | None = None,
         forecast_s: float | None = CHOICES.forecast_s, think_time: float | None = CHOICES.think_time,
         scaling: str = CHOICES.scaling, thresholds: Sequence[int] = CHOICES.thresholds,
         compare_assumptions: bool = CHOICES.compare_assumptions, jobs: int = CHOICES.jobs) -> Answer:
    """Find the cheapest fleet, and the one of fewest GPUs, that serves a trace; see `sizing.size`.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    slo, attainment : as of `capacity`.
    gpus : to choose from; the scenario's if none are given.
    quantizations, tensor_parallel_sizes, spare, period_s, forecast_s, think_time, scaling, thresholds, jobs : as of
        `search_options.Choices`.
    prices, reserved_prices, spot_prices, power_price, co2_per_kwh, sort, sensitivity, growth, months, change_cost :
        as of `search_options.Choices`; the answer's `options` have a row for each price term.
    rate_series : CSV of rates over time that the trace's traffic takes on; see `rate_series.read_rate_series`.
    compare_assumptions : as of `capacity`.
    """
    choices = Choices(gpus=[gpus] if isinstance(gpus, str) else gpus, quantizations=quantizations,
                      ranks=tensor_parallel_sizes, prices=prices or {},
                      reserved_prices=reserved_prices or {}, spot_prices=spot_prices or {}, power_price=power_price,
                      co2_per_kwh=co2_per_kwh, sort=sort, sensitivity=sensitivity, growth=growth, months=months,
                      change_cost=change_cost,
                      num_spare=spare, period_s=period_s, forecast_s=forecast_s, jobs=jobs, scaling=scaling,
                      compare_assumptions=compare_assumptions, think_time=think_time, thresholds=thresholds,
                      series=None if rate_series is None else read_rate_series(Path(rate_series)))
    answer = sizing.size(_read(trace, scenario), scenario, parse_objectives(slo, attainment), choices)
    shown = ("gpu", "tensor_parallel_size", "quantization", "num_replicas", "num_gpus", "cost_usd_per_hour",
             "cost_usd_per_million_output_tokens", "attainment", "p99_ttft_ms", "p99_tpot_ms", "headroom",
             "limiting_metric", "reason")
    values = asdict(answer)
    table = pl.DataFrame([{key: fleet.get(key) for key in shown} for fleet in values["alternatives"]], strict=False)
    lines = [*sizing_words(answer), *answer.notes]
    return Answer(values_by_key=values, text=sizing_table(answer), table=table, headline="\n".join(lines))


def sweep(trace: str | Path, scenario: Scenario, axes: Mapping[str, Sequence[Any]], *, slo: str | None = None,
          attainment: float | None = None, pareto: Sequence[str] = DEFAULT_FRONT,
          constraints: Sequence[Mapping[str, Any]] = (), optimize: bool = False,
          output: str | Path = "sweep.parquet", jobs: int = -1) -> Answer:
    """Replay a grid of what-ifs, or look for its front, and mark the configurations that no other beats.

    Parameters
    ----------
    trace : a path or sample.
    scenario : the options that do not vary.
    axes : values by option.
    slo, attainment, pareto, constraints, optimize : as in a sweep's file.
    output : Parquet file with all results; its points are not replayed again.
    jobs : processes; -1 for one a core.

    Returns
    -------
    Answer
        Its table is the front.
    """
    plan = plan_sweep(str(trace), scenario, axes, slo=slo, attainment=attainment, front=pareto,
                      constraints=constraints)
    table, best = (optimize_grid(plan, Path(output), jobs=jobs) if optimize
                   else (sweeping.sweep(plan, Path(output), jobs=jobs), None))
    answer = sweeping.describe(plan, Path(output), table, best)
    text = sweep_table(answer)
    front = pl.DataFrame(answer.front).select(*plan.axes, *plan.front) if answer.front else pl.DataFrame()
    return Answer(values_by_key=asdict(answer), text=text, headline=text.splitlines()[-1], table=front)


def _compared(trace: AnyTrace, scenarios: Mapping[str, Scenario], slo: str | None) -> dict[str, dict[str, Any]]:
    """Return the summaries of scenarios, explained."""
    objectives = given_objectives(slo)
    studies = [Study(name=name, trace="given", format=None, scenario=scenario, objectives=objectives)
               for name, scenario in scenarios.items()]
    return compare_studies(studies, lambda study: _read(trace, study.scenario), explain=True, save=None)


def _read(trace: AnyTrace, scenario: Scenario) -> Trace:
    return trace if isinstance(trace, Trace) else read_load(str(trace), scenario, None, "error")
