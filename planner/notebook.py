"""Planning questions as functions, for notebooks: `capacity`, `size`, `sweep`, `check`, `compare`, `explain` and more.

Each takes the options of its command, and returns its answer. Options that `search_options` declares have the same
defaults. A text or a path is read as on the command line.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

import planner.report.shown  # noqa: F401  registers how answers are shown
from planner.planning import cluster_share, gate, sizing
from planner.planning import probe as probing
from planner.planning.capacity import capacity as find_capacity
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.comparison import compare_studies
from planner.planning.grid import DEFAULT_FRONT, plan_sweep, read_sweep
from planner.planning.optimize import answer_sweep
from planner.planning.probe_answer import ProbeAnswer
from planner.planning.rollouts import rollouts as find_generators
from planner.planning.rollouts_answer import RolloutsAnswer
from planner.planning.search_options import DEFAULT_ATTAINMENT, SHARED, Choices, Rollouts, Search
from planner.planning.share_answer import ShareAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.study import Study
from planner.planning.sweep_answer import SweepAnswer
from planner.report.summary_tables import ROWS, comparison_table, explanation_table
from planner.results.answers import ReplayAnswer, Shown
from planner.results.phases import PHASES
from planner.results.summary_answer import Summary
from planner.run import AnyTrace, any_trace
from planner.settings.declared_options import chosen, options_of
from planner.settings.format_spec import Reading
from planner.settings.objectives import given_objectives, parse_objectives
from planner.settings.scenario import Scenario

T = TypeVar("T")
EARLIER = {"tensor_parallel_sizes": "ranks"}  # names of options in earlier releases


def takes(kind: type[Any], only: tuple[str, ...] = ()) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a function the fields of a dataclass of options as keywords, in the place of its argument of this type.

    An option's name on the command line does too, unless it is another field's. With `only`, the function takes these
    fields alone.
    """
    taken = {f.name: f for f in fields(kind) if not only or f.name in only}
    usual = kind()
    names = {name: f.name for name, f in options_of(kind, only).items()} | EARLIER | {name: name for name in taken}

    def decorate(question: Callable[..., T]) -> Callable[..., T]:
        parameters = inspect.signature(question).parameters.values()
        argument = next(p.name for p in parameters if p.annotation is kind)

        @functools.wraps(question)
        def asked(*values: Any, **options: Any) -> T:
            declared = {names[name]: options.pop(name) for name in set(options) & names.keys()}
            return question(*values, **options, **{argument: chosen(kind, declared)})

        shown = [inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, annotation=f.type,
                                   default=getattr(usual, f.name))
                 for f in taken.values()]
        asked.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [q for p in parameters for q in (shown if p.name == argument else [p])])
        return asked

    return decorate


def explain(trace: AnyTrace, scenario: Scenario, *, slo: str | None = None) -> ReplayAnswer:
    """Replay a scenario and say how time divides, the limit that binds, and which setting to change first.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    slo : objectives in ms, "ttft:500 tpot:50 p99_ttft:1000".

    Returns
    -------
    ReplayAnswer
        The keys of `explanation.explain`, and `advice`.
    """
    explanation = _compared(trace, {"": scenario}, slo)[""].explanation
    assert explanation is not None
    parts = explanation["phases"] or {"all": {"mean_ms": {}}, "slowest": {"mean_ms": {}}}
    table = pl.DataFrame({"phase": list(PHASES.values()),
                          "mean [ms]": [parts["all"]["mean_ms"].get(name) for name in PHASES],
                          "slowest 1 % [ms]": [parts["slowest"]["mean_ms"].get(name) for name in PHASES]})
    return ReplayAnswer(values_by_key=explanation, presented=Shown(
        text=str(explanation_table({"": explanation})), table=table,
        headline=f"{explanation['sentence']}\n{explanation['advice']['sentence']}"))


def compare(trace: AnyTrace, scenarios: Mapping[str, Scenario], *, slo: str | None = None) -> ReplayAnswer:
    """Replay several scenarios, set them side by side, and say why they differ from the first.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    scenarios : by a name of yours.
    slo : as of `explain`.

    Returns
    -------
    ReplayAnswer
        Summaries by name, each with its `explanation`.
    """
    compared = _compared(trace, scenarios, slo)
    comparison = {name: summary.values_by_key for name, summary in compared.items()}
    rows = [{"metric": key, **{name: summary[key] for name, summary in comparison.items()}} for _, keys in ROWS
            for key in keys if any(isinstance(summary.get(key), int | float) for summary in comparison.values())]
    explanations = {name: summary.explanation for name, summary in compared.items() if summary.explanation is not None}
    reasons = [f"{name}: {one['difference']['sentence']}" for name, one in explanations.items() if one["difference"]]
    return ReplayAnswer(values_by_key=comparison, presented=Shown(
        text=f"{comparison_table(comparison)}\n{explanation_table(explanations)}",
        headline="\n".join(reasons), table=pl.DataFrame(rows, strict=False)))


@takes(Search)
def capacity(trace: AnyTrace, scenario: Scenario, slo: str, *, attainment: float = DEFAULT_ATTAINMENT,
             search: Search) -> CapacityAnswer:
    """Find the highest request rate, or the most users, that keep the objectives; see `capacity.capacity`.

    Parameters
    ----------
    trace : as read, or a path or sample to read.
    slo : objectives in ms, of each request ("ttft:500") or of percentiles ("p99_ttft:500").
    attainment : share of requests that must meet their own [1].
    search : its fields as keywords; see `search_options.Search`.
    """
    return find_capacity(any_trace(trace, scenario), scenario, parse_objectives(slo, attainment), search)


def probe(trace: AnyTrace, scenario: Scenario, slo: str, *, attainment: float = DEFAULT_ATTAINMENT,
          results: str = "probe.json") -> ProbeAnswer:
    """Name three benchmarks that test a capacity, and the numbers that they should give; see `probe.probe`.

    Parameters
    ----------
    trace, slo, attainment : as of `capacity`.
    results : file that the benchmarks append their results to.
    """
    return probing.probe(any_trace(trace, scenario), scenario, parse_objectives(slo, attainment), results)


@takes(Choices)
def size(trace: AnyTrace, scenario: Scenario, slo: str, *, attainment: float = DEFAULT_ATTAINMENT,
         choices: Choices) -> SizeAnswer:
    """Find the cheapest fleet, and the one of fewest GPUs, that serves a trace; see `sizing.size`.

    Parameters
    ----------
    trace, slo, attainment : as of `capacity`.
    choices : its fields as keywords; see `search_options.Choices`. Without gpus, the scenario's.
    """
    return sizing.size(any_trace(trace, scenario), scenario, parse_objectives(slo, attainment), choices)


@takes(Choices, SHARED)
@takes(Reading)
def share(cluster: str | Path, *, minimize: str = "gpus", choices: Choices, reading: Reading) -> ShareAnswer:
    """Find a fleet for each deployment of a cluster file within its GPUs; see `cluster_share.share`.

    Parameters
    ----------
    cluster : TOML file.
    minimize : "gpus", ties by cost, or "cost", ties by GPUs.
    choices, reading : their fields as keywords; see `search_options.Choices` and `format_spec.Reading`.
    """
    return cluster_share.share(Path(cluster), choices, minimize, reading)


@takes(Rollouts)
@takes(Choices, ("prices",))
def rollouts(trace: AnyTrace, scenario: Scenario, *, rollouts: Rollouts, choices: Choices) -> RolloutsAnswer:
    """Find the generators that keep a trainer busy, the parts of a step and the cost of stragglers; see
    `rollouts.rollouts`.

    Parameters
    ----------
    trace : as of `capacity`; each row is a sample.
    rollouts, choices : their fields as keywords; see `search_options.Rollouts` and `search_options.Choices`.
    """
    return find_generators(any_trace(trace, scenario), scenario, rollouts, choices)


def check(targets: str | Path, *, baseline: str | Path | None = None, update_baseline: bool = False) -> CheckAnswer:
    """Judge the capacity targets of a file; see `gate.check`.

    Parameters
    ----------
    targets : TOML file.
    baseline : JSON file with which max_regression compares; None to compare with nothing.
    update_baseline : write the baseline anew.
    """
    return gate.check(Path(targets), baseline=None if baseline is None else Path(baseline), update=update_baseline)


def sweep(source: str | Path, scenario: Scenario | None = None, axes: Mapping[str, Sequence[Any]] | None = None, *,
          slo: str | None = None, attainment: float | None = None, pareto: Sequence[str] = DEFAULT_FRONT,
          constraints: Sequence[Mapping[str, Any]] = (), optimize: bool = False,
          output: str | Path = "sweep.parquet", backend: str = "processes", address: str | None = None,
          jobs: int = -1) -> SweepAnswer:
    """Replay a grid of what-ifs, or look for its front, and mark the configurations that no other beats.

    Parameters
    ----------
    source : a sweep's TOML file alone; or a trace's path or sample, with the options below.
    scenario : the options that do not vary.
    axes : values by option.
    slo, attainment, pareto, constraints, optimize : as in a sweep's file.
    output : Parquet file with all results; its points are not replayed again.
    backend, address : as of `sweeping.sweep`.
    jobs : processes; -1 for one a core.
    """
    plan = read_sweep(Path(source)) if axes is None else plan_sweep(
        str(source), scenario or Scenario(), axes, slo=slo, attainment=attainment, front=pareto,
        constraints=constraints)
    return answer_sweep(plan, Path(output), optimizes=optimize, jobs=jobs, backend=backend, address=address)


def _compared(trace: AnyTrace, scenarios: Mapping[str, Scenario], slo: str | None) -> dict[str, Summary]:
    """Return the summaries of scenarios, explained."""
    objectives = given_objectives(slo)
    studies = [Study(name=name, trace="given", format=None, scenario=scenario, objectives=objectives)
               for name, scenario in scenarios.items()]
    return compare_studies(studies, lambda study: any_trace(trace, study.scenario), explain=True, save=None)
