"""How far predictions are from a user's measurements: errors by group, limits on them, and how often intervals hold."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.deployment.deploy import deploy
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.files.table_file import columns_of
from planner.measured.agentic import is_agentic
from planner.measured.doubts import doubts, far_off
from planner.measured.run_table import Measurement, table_notes
from planner.measured.runs import groups_of, is_table, model_of, read_runs
from planner.measured.stalls import MEANS, OF_STALLS, STEADY
from planner.measured.steplog import is_step_log, predict_steps, read_steps
from planner.measured.validate import (
    Prediction,
    deploy_measured,
    errors,
    errors_by_group,
    log_error,
    metrics_of,
    predict_all,
    with_stalls,
)
from planner.measured.validate_answer import (
    ErrorLimit,
    IntervalCoverage,
    MeasuredRow,
    StalledRow,
    UnpredictedRow,
    ValidateAnswer,
)
from planner.results.uncertainty import Residuals, residuals_for
from planner.settings.scenario import Scenario
from planner.settings.statistic import metric_key
from planner.steptime.engine_constants import read_table
from planner.traces.shaping.client_load import NAME

FEW_ROWS = 8  # that the result holds one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The measured values of a file, and their predictions.

    Parameters
    ----------
    predictions : one for each run or step.
    notes : the part of the file that they cover, columns that nothing depends on, and errors that are questioned.
    """

    predictions: Sequence[Prediction]
    notes: tuple[str, ...] = ()


def predict_file(path: Path, scenario: Scenario, *, client: str | None, jobs: int,
                 format: str | None = None) -> Predicted:
    """Predict the measured values of a file.

    Parameters
    ----------
    path, scenario, client, format : as `runs.read_runs`; or a log of steps, each step against the step-time
        model.
    jobs : processes; -1 for as many as there are cores.

    Raises
    ------
    TraceError, UsageError : as `runs.read_runs` and `steplog.predict_steps`.
    """
    if format is None and is_step_log(path):
        groups = groups_of(scenario, model_of(deploy(scenario)), "steps")
        log = read_steps(path, scenario)
        return _questioned(predict_steps(log, scenario, groups), [f"{path}: {log.account}"])
    columns = columns_of(path) if format is None else []
    runs = read_runs(path, scenario, client=client, format=format)
    notes = table_notes(path, columns, client) if is_table(columns) and not is_agentic(columns) else []
    if is_table(columns) and scenario.calibration is not None:
        _check_calibration(scenario, {run.groups["engine"] for run in runs})
        runs = [run if run.scenario is None or not _is_for(scenario.calibration, run.groups["engine"]) else
                dataclasses.replace(run, scenario=dataclasses.replace(run.scenario, calibration=scenario.calibration))
                for run in runs]
    recorded = [] if is_table(columns) else [
        run.load for run in runs if run.load is not None and run.load.format != NAME]
    notes += dict.fromkeys(note for run in runs for note in run.notes)
    about = [note for load in recorded for note in (str(load.account), *load.account.notes)]
    return _questioned(with_stalls(predict_all(runs, jobs=jobs)), [*about, *notes])


def _questioned(predictions: Sequence[Prediction], notes: Sequence[str]) -> Predicted:
    """Return predictions with notes, and a further note for errors that are too large and that no stall explains."""
    log_errors = {metric: np.array([log_error(p, metric) if _is_questioned(p, metric) else math.nan
                                    for p in predictions]) for metric in metrics_of(predictions)}
    return Predicted(predictions=predictions, notes=(
        *notes, *doubts(log_errors, [p.measurement.groups for p in predictions]),
        *far_off(log_errors, [p.measurement.id for p in predictions])))


def _is_questioned(prediction: Prediction, metric: str) -> bool:
    """Tell whether an error may come from a wrong description: no stall explains it, and no other metric has it."""
    return metric not in OF_STALLS if prediction.stall else metric != STEADY


def _is_for(calibration: str, engine: str) -> bool:
    return bool(read_table(Path(calibration), "source").get("engine", engine) == engine)


def _check_calibration(scenario: Scenario, engines: set[str]) -> None:
    assert scenario.calibration is not None
    if not any(_is_for(scenario.calibration, engine) for engine in engines):
        raise UsageError(f"--calibration {scenario.calibration}: was fitted to an engine that is not in the table: "
                         f"{', '.join(sorted(engines))}")


def accuracy(predicted: Predicted, *, level: float | None, limits: Mapping[str, float]) -> ValidateAnswer:
    """Return how far predictions are off.

    Parameters
    ----------
    level : share of measurements that an interval should hold; None for no intervals.
    limits : largest MAPE by metric [1].
    """
    predictions = predicted.predictions
    overall = errors(predictions)
    bounds = [] if level is None else bounds_of(predictions, level)
    interval = None if level is None else interval_coverage(predictions, bounds, level)
    rows = tuple(_row(p, bounds[place] if bounds else {}) for place, p in enumerate(predictions)) if (
        len(predictions) <= FEW_ROWS) else None
    outside = sum(len(row.outside) for row in rows or ())
    checks = {}
    for metric, limit in limits.items():
        summary = overall.by_metric.get(metric)
        checks[metric] = ErrorLimit(limit=limit, mape=None if summary is None else summary.mape,
                                    met=summary is not None and summary.mape <= limit)
    return ValidateAnswer(
        coverage=overall.coverage, overall=overall, groups=tuple(errors_by_group(predictions)),
        rows=rows,
        unpredicted=tuple(UnpredictedRow(id=p.measurement.id, status=p.status) for p in predictions
                          if p.status != "ok"),
        stalls=tuple(row for p in predictions if (row := _stalled_row(p)) is not None),
        interval=interval, max_error=checks,
        met=all(check.met for check in checks.values()) and (not checks or overall.coverage == 1) and not outside,
        notes=(*predicted.notes, *(interval.notes if interval else ())))


def parse_max_error(text: str, metrics: Sequence[str]) -> dict[str, float]:
    """Read "tpot:10 ttft:25": the largest MAPE by metric, in per cent.

    A metric by its short name is its mean.

    >>> parse_max_error("tpot:10 ttft:25", ["ttft_ms", "tpot_ms"])
    {'tpot_ms': 0.1, 'ttft_ms': 0.25}

    Raises
    ------
    UsageError : a part is not `metric:percent`, or a metric was not measured.
    """
    limits: dict[str, float] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition(":")
        spellings = (name, metric_key(name), f"{name}_ms", f"mean_{name}_ms", f"{name}_s")
        names = [known for known in spellings if known in metrics]
        if not names:
            raise UnknownNameError("--max-error metric", name, metrics)
        try:
            percent = float(value)
        except ValueError:
            percent = -1.0
        if not 0 <= percent < float("inf"):
            raise UsageError(f"--max-error {part!r}: {value!r} must be a number of per cent, as in 'tpot:10 ttft:25'")
        limits[names[0]] = percent / 100
    if not limits:
        raise UsageError(f"--max-error {text!r}: no limit given; expected for example 'tpot:10 ttft:25'")
    return limits


Bounds = Mapping[str, tuple[float, float]]


def interval_coverage(predictions: Sequence[Prediction], bounds_by_row: Sequence[Bounds],
                      level: float) -> IntervalCoverage:
    """Return the share of measurements that lie inside their intervals of a level, by metric."""
    inside: dict[str, list[bool]] = {metric: [] for metric in metrics_of(predictions)}
    for p, bounds in zip(predictions, bounds_by_row, strict=True):
        for metric, (low, high) in bounds.items():
            inside[metric].append(low <= p.measurement.measured[metric] <= high)
    residuals = _residuals_by_deployment(predictions)
    known = [row for row in residuals.values() if isinstance(row, Residuals)]
    return IntervalCoverage(
        level=level, without=tuple(sorted({str(key[1]) for key, row in residuals.items()
                                    if key is not None and isinstance(row, str)})),
        coverage={metric: sum(held) / len(held) for metric, held in inside.items() if held},
        n={metric: len(held) for metric, held in inside.items() if held},
        notes=tuple(dict.fromkeys(row.basis for row in known if row.basis)))


def bounds_of(predictions: Sequence[Prediction], level: float) -> list[Bounds]:
    """Return the interval of each predicted metric that was measured, for each row; empty without one.

    Raises
    ------
    CatalogError : no engine of the rows has held-out errors.
    """
    residuals = _residuals_by_deployment(predictions)
    missing = [row for row in residuals.values() if isinstance(row, str)]
    if missing and len(missing) == len(residuals):
        raise CatalogError(missing[0])
    return [_bounds(p, residuals.get(_deployment_key(p)), level) for p in predictions]


def _bounds(prediction: Prediction, residuals: Residuals | str | None, level: float) -> Bounds:
    if not isinstance(residuals, Residuals):
        return {}
    bounds = {metric: residuals.interval("ttft_ms" if metric == STEADY else metric.removeprefix("mean_"), predicted,
                                         level)
              for metric, predicted in prediction.predicted.items()
              if prediction.measurement.measured.get(metric, 0) > 0 and not (prediction.stall and metric in OF_STALLS)}
    return {metric: pair for metric, pair in bounds.items() if pair is not None}


Deployed = tuple[str | None, ...]  # calibration, engine, GPU, model, precision and layout


def _deployment_key(prediction: Prediction) -> Deployed | None:
    """Return the deployment on which the errors of a prediction depend; None if there is no prediction."""
    scenario, groups = prediction.measurement.scenario, prediction.measurement.groups
    if scenario is None or prediction.status != "ok":
        return None
    return (scenario.calibration, *(groups[name] for name in ("engine", "gpu", "model", "precision", "layout")))


def _residuals_by_deployment(predictions: Sequence[Prediction]) -> dict[Deployed | None, Residuals | str]:
    """Return the held-out errors of each deployment, or why there are none."""
    first = {key: p for p in reversed(predictions) if (key := _deployment_key(p)) is not None}
    return {key: _residuals(first[key].measurement) for key in sorted(first, key=str)}


def _row(prediction: Prediction, bounds: Bounds) -> MeasuredRow:
    """Return a measured row with its prediction, and the metrics outside their intervals."""
    measured = prediction.measurement.measured
    return MeasuredRow(
        id=prediction.measurement.id, measured=measured, predicted=prediction.predicted, intervals=bounds,
        outside=tuple(name for name, (low, high) in bounds.items() if not low <= measured[name] <= high))


def _stalled_row(prediction: Prediction) -> StalledRow | None:
    stall, measured = prediction.stall, prediction.measurement.measured
    if stall is None:
        return None
    return StalledRow(id=prediction.measurement.id, stall_s=stall.stall_s, num_waiting=stall.num_waiting,
                      num_requests=stall.num_requests, mean_ttft_ms=next(measured[name] for name in MEANS
                                                                         if name in measured),
                      steady_ttft_ms=stall.steady_ms)


def _residuals(run: Measurement) -> Residuals | str:
    """Return the errors behind the intervals of a run's deployment, or why there are none."""
    assert run.scenario is not None
    try:
        return residuals_for(deploy_measured(run))
    except CatalogError as error:
        return str(error)
