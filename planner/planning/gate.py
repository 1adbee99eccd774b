"""The gate: replay the scenarios of a targets file, and judge each target against its limits and its baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from planner.errors import CapacityError, PlannerError, TargetsError, UnknownNameError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.baseline import changes, read_baseline, write_baseline
from planner.planning.capacity import capacity as find_capacity
from planner.planning.check_answer import CheckAnswer, ScenarioMetrics, TargetVerdict
from planner.planning.search_options import DEFAULT_ATTAINMENT, Search
from planner.planning.study import Study
from planner.planning.targets import Gated, Target, read_targets
from planner.progress import counted
from planner.replays.result_tables import ReplayResult
from planner.results.saturation import saturation_sentence
from planner.results.summary import numbers
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.judged import Judged
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.settings.statistic import Statistic, parse_statistic
from planner.traces import Trace
from planner.traces.shaping.client_load import read_load

RATES = ("capacity_rps", "capacity_rps_per_gpu")
USERS = {"capacity_concurrency": "concurrency", "capacity_sessions": "sessions"}  # a target on users: its unknown
CAPACITY = (*RATES, *USERS)  # metrics of a search
NO_VALUE = "no request has this metric"
UNANSWERED = "too many requests are never answered"
PASSES = ("met", "recorded", "not compared")


def check(path: Path, *, baseline: Path | None = None, update: bool = False) -> CheckAnswer:
    """Judge a targets file.

    Parameters
    ----------
    path : the targets file. A statistic in a scenario's `slo` is judged as a target of that name, unless all of the
        scenario's targets have capacity metrics; then the capacity is searched within it.
    baseline : values that `max_regression` compares with; None for no comparison. A file that is missing has no values.
    update : write the baseline anew in place of comparing with it.

    Raises
    ------
    TargetsError : the targets file, or a file or name in it, is wrong.
    UsageError : `update` without a path.
    BaselineError : it is not one.
    """
    gated = read_targets(path)
    if update and baseline is None:
        raise UsageError("--update-baseline: needs --baseline PATH")
    recorded = None if update or baseline is None else read_baseline(baseline)
    scenarios: dict[str, ScenarioMetrics] = {}
    checks: list[TargetVerdict] = []
    notes: list[str] = []
    for each in counted("judging scenarios", gated):
        name = each.study.name
        try:
            outcome = _outcome(each)
        except PlannerError as error:
            raise TargetsError(f"{path}: scenario.{name}: {error}") from error
        notes += [f"{name}: {note}" for note in (*each.study.notes, *outcome.notes)]
        scenarios[name] = ScenarioMetrics(trace_sha256=outcome.trace_sha256, metrics=outcome.metrics)
        before = {} if recorded is None else recorded["scenarios"].get(name, {}).get("metrics", {})
        changed = changes(recorded, name, outcome.trace_sha256) if recorded is not None and before else []
        for target in each.targets:
            rows = _limits(target, outcome, name, before.get(target.metric))
            if target.max_regression is not None:
                rows.append(_regression(target, target.max_regression, outcome, name,
                                        None if recorded is None else before, changed, update))
            checks += rows
        checks += _objective_rows(each, outcome)
    if update:
        assert baseline is not None
        write_baseline(baseline, scenarios)
    return CheckAnswer(targets=str(path), met=all(row.verdict in PASSES for row in checks), checks=tuple(checks),
                       scenarios=scenarios, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _GateOutcome:
    """The outcome of a scenario: the metrics of its targets, all None with a reason if its model does not fit.

    Parameters
    ----------
    objectives : the outcome of each objective in its `slo`, by name, as the summary has it.
    """

    trace_sha256: str
    metrics: dict[str, float | None]
    notes: list[str]
    reason: str | None = None
    objectives: Mapping[str, Judged] = field(default_factory=dict)


def _outcome(gated: Gated) -> _GateOutcome:
    study = gated.study
    trace = read_load(study.trace, study.scenario, study.format, study.on_bad_rows)
    names = [target.metric for target in gated.targets]
    try:
        known, notes, objectives = _metrics(trace, study.scenario, study.objectives, names)
    except CapacityError as error:
        return _GateOutcome(trace_sha256=trace.sha256, metrics=dict.fromkeys(names), notes=[], reason=str(error))
    for name in names:
        if name not in known:
            raise UnknownNameError("metric", name, known)
        if known[name] is None and name in ("slo_attainment", "request_goodput") and not _has_request_limits(study):
            raise UsageError(f"{name} needs slo, as in slo = \"ttft:500 tpot:50\"")
    return _GateOutcome(trace_sha256=trace.sha256, metrics={name: known[name] for name in names}, notes=notes,
                        objectives=objectives)


def _has_request_limits(study: Study) -> bool:
    return study.objectives is not None and len(study.objectives.slo.limits_s) > 0


@keeps_answers
def _metrics(trace: Trace, scenario: Scenario, objectives: Objectives | None,
             names: list[str]) -> tuple[dict[str, float | None], list[str], dict[str, Judged]]:
    """Return the numbers of the summary and other metrics that are asked for, notes on them, and the objectives."""
    outcome = replay(trace, scenario, slo=objectives, recording=Recording())
    summary = outcome.summary
    if summary.would_not_start is not None:
        raise CapacityError(summary.would_not_start)
    statistics = {name: statistic for name in names if (statistic := parse_statistic(name)) is not None}
    values, figures = dict(summary.values_by_key), summary.figures
    values |= {name: _statistic(outcome.result, statistic) for name, statistic in statistics.items()
               if name not in values}
    for name, share in (figures.slo_attainment_by_metric or {}).items():
        values[f"slo_attainment_by_metric.{name}"] = share
    capacity: dict[str, float | None] = dict.fromkeys(CAPACITY)
    notes = [*summary.notes, *([saturation_sentence(figures.saturation)] if "saturated" in names else [])]
    if set(names) & set(CAPACITY):
        found, about = _capacity(trace, scenario, objectives, names)
        capacity |= found
        notes += about
    notes += _unanswered(summary, statistics)
    return numbers(values) | capacity, list(dict.fromkeys(notes)), {one.name: one for one in figures.objectives}


def _statistic(result: ReplayResult, statistic: Statistic) -> float | None:
    """Return a statistic of completed requests that the summary does not have [ms]."""
    values = result.times_s[statistic.metric]
    value = statistic.of(values[~np.isnan(values) & ~np.isnan(result.e2e_s)])
    return None if math.isnan(value) else 1e3 * value


def _unanswered(summary: Summary, statistics: Mapping[str, Statistic]) -> list[str]:
    """Return a note if latencies are judged and some requests have none."""
    num_requests = summary.workload["num_requests"]
    lost = num_requests - summary.figures.completed
    if lost == 0 or not statistics:
        return []
    return [f"{', '.join(statistics)}: of completed requests only. {lost:,} of {num_requests:,} were not completed; a "
            f"target on slo_attainment, or the statistic in slo, counts them"]


def _capacity(trace: Trace, scenario: Scenario, objectives: Objectives | None,
              names: list[str]) -> tuple[dict[str, float], list[str]]:
    """Return the metrics of the searches that are asked for, and notes on them."""
    asked = [name for name in names if name in CAPACITY]
    if objectives is None:
        raise UsageError(f"{asked[0]} needs slo, as in slo = \"ttft:500 tpot:50\"")
    objectives = replace(objectives, attainment=objectives.attainment or DEFAULT_ATTAINMENT)
    search = Search(replicates=0, compare_assumptions=False, seed=scenario.seed or 0)
    found: dict[str, float] = {}
    notes: list[str] = []
    if rates_asked := [name for name in asked if name in RATES]:
        without_rate, search_of_rates, about = _without_rate(scenario, search, rates_asked)
        notes += about
        rates = find_capacity(trace, without_rate, objectives, search_of_rates)
        found |= {"capacity_rps": rates.capacity, "capacity_rps_per_gpu": rates.capacity_per_gpu}
        notes += rates.notes
    for name in (name for name in asked if name in USERS):
        users = find_capacity(trace, scenario, objectives, replace(search, of=USERS[name]))
        found[name] = users.capacity
        notes += [*(f"{name}: {text}" for text in users.assumptions), *users.notes]
    return found, notes


def _without_rate(scenario: Scenario, search: Search, asked: list[str]) -> tuple[Scenario, Search, list[str]]:
    """Return the scenario and the search of its capacity, without the scenario's rate, and a note on that rate."""
    options = [name for name in ("rate_scale", "request_rate") if getattr(scenario, name) is not None]
    if not options:
        return scenario, search, []
    by = search if scenario.scaling is None else replace(search, scaling=scenario.scaling)
    rates = ", ".join(f"{name} = {getattr(scenario, name):g}" for name in options)
    return (replace(scenario, rate_scale=None, request_rate=None, scaling=None), by,
            [f"{', '.join(asked)}: the search looks for the rate by scaling = {by.scaling}; {rates} of the scenario is "
             f"for its other targets"])


def _objective_rows(gated: Gated, found: _GateOutcome) -> list[TargetVerdict]:
    """Return a row for each statistic in a scenario's `slo`; none if all targets have capacity metrics."""
    if gated.study.objectives is None or all(target.metric in CAPACITY for target in gated.targets):
        return []
    return [_objective_row(gated.study.name, statistic, 1e3 * limit_s, found)
            for statistic, limit_s in gated.study.objectives.statistics.items()]


def _objective_row(scenario: str, statistic: Statistic, limit: float, found: _GateOutcome) -> TargetVerdict:
    judged = found.objectives.get(statistic.name)
    value = None if judged is None else judged.value
    is_met = judged is not None and bool(judged.is_met)
    reason = found.reason if judged is None else NO_VALUE if is_met else UNANSWERED
    return TargetVerdict(
        scenario=scenario, metric=statistic.key, kind="max", limit=limit, predicted=value, baseline=None,
        margin=None if value is None else limit - value, verdict="met" if is_met else "missed",
        reason=reason if value is None else None)


def _limits(target: Target, found: _GateOutcome, scenario: str, before: float | None) -> list[TargetVerdict]:
    """Return a row for each limit of a target; `before` is its metric's value in the baseline."""
    predicted, reason = found.metrics[target.metric], found.reason
    return [TargetVerdict(scenario=scenario, metric=target.metric, predicted=predicted, baseline=before, margin=margin,
                          reason=NO_VALUE if predicted is None and reason is None else reason, kind=kind, limit=limit,
                          verdict="met" if margin is not None and margin >= 0 else "missed")
            for kind, limit, margin in target.margins(predicted)]


def _regression(target: Target, limit: float, found: _GateOutcome, scenario: str, before: Mapping[str, float] | None,
                changed: list[str], update: bool) -> TargetVerdict:
    """Return the row of a target's `max_regression`; `before` has the baseline's metrics, None without --baseline."""
    metric, predicted = target.metric, found.metrics[target.metric]
    reason, margin = None, None
    if update:
        verdict = "recorded"
    elif before is None:
        verdict, reason = "not compared", "no --baseline is given"
    elif metric not in before:
        verdict, reason = "no baseline", "the baseline lacks this metric"
    elif changed:
        verdict, reason = "not compared", "; ".join(changed)
    else:
        verdict, reason, margin = _compared(target, limit, predicted, before[metric], found.reason)
    return TargetVerdict(scenario=scenario, metric=metric, predicted=predicted, baseline=(before or {}).get(metric),
                         margin=margin, reason=reason, kind="max_regression", limit=limit, verdict=verdict)


def _compared(target: Target, limit: float, predicted: float | None, before: float | None,
              reason: str | None) -> tuple[str, str | None, float | None]:
    """Return how a metric compares with its baseline: the verdict, its reason, and the share that is still allowed."""
    if predicted is None or before is None:
        return "met" if predicted == before else "regressed", reason or NO_VALUE, None
    worse = (predicted - before) * (1 if target.is_less_better else -1)
    if before == 0:
        return ("regressed", "the baseline is 0", None) if worse > 0 else ("met", None, None)
    margin = limit - worse / abs(before)
    return "met" if margin >= 0 else "regressed", None, margin
