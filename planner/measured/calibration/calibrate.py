"""A calibration: constants chosen and fitted to a user's runs, their error on runs left out, and their file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

from planner.catalog.catalog_files import data_dir
from planner.errors import TraceError, UnknownNameError, UsageError
from planner.files.counts import count_text, share_text
from planner.files.keys import asdict
from planner.files.writing import write_text
from planner.measured.calibration.calibrate_answer import CalibrateAnswer, FitSource, FittedConstant, Quantiles
from planner.measured.calibration.constant_fit import ERROR_SCALE, LOOSE, QUANTILE, Calibration, fit
from planner.measured.calibration.fit_target import read_target
from planner.measured.calibration.identify import Choice, check, choose, sensitivities
from planner.measured.calibration.observations import Observations, Runs
from planner.measured.doubts import doubts
from planner.measured.run_table import METRICS
from planner.measured.validate import summarize_errors
from planner.measured.validate_answer import ErrorSummary
from planner.progress import counted
from planner.results.uncertainty import Residuals, residuals_of, with_derived
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import bounds, read_constants

Floats = NDArray[np.float64]

KEPT = "it was fitted, and the fit is not used; a note says why"
FEWEST_RUNS = 6  # that can tell whether fitted constants predict other loads better


def calibrate(path: Path, scenario: Scenario, *, names: Sequence[str] | None, folds: int, jobs: int,
              client: str | None = None, format: str | None = None) -> CalibrateAnswer:
    """Fit an engine's constants to measurements, from its bundled constants or the scenario's calibration.

    Parameters
    ----------
    path, scenario, client, format : as `target.read_target`.
    names : constants to fit; None for all that the measurements can tell apart.
    folds : parts that are left out in turn, each of whole configurations, or blocks of a recorded run or a log.
    jobs : processes; -1 for as many as there are cores.

    Raises
    ------
    UsageError : `names` cannot be told apart, or the measurements are too few.
    TraceError : no constants explain the measurements.
    PlannerError : as `target.read_target`.
    """
    if folds < 2:
        raise UsageError(f"--folds {folds}; must be at least 2")
    if scenario.step_time != "roofline":
        raise UsageError(f"--step-time {scenario.step_time}: a linear step time has no constants to fit")
    _check_names(names)
    target = read_target(path, scenario, folds=folds, client=client, jobs=jobs, format=format)
    start, observed = starting_constants(scenario, target.engine), target.observed
    chosen, before, fitted = _fitted_to(observed, target.folds, start, names, jobs)
    _check_explained(path, observed, fitted.log_errors)
    kept = _too_few(before) if names is None else []
    if not kept:
        held_out, without = _held_out(observed, target.folds, start, chosen.names, jobs)
        kept = _without_gain(observed, target.folds, held_out, before) if names is None else []
    if kept:
        chosen = Choice(names=(), left={**chosen.left, **dict.fromkeys(chosen.names, KEPT)})
        fitted, held_out, without = Calibration(constants=start, intervals={}, log_errors=before), before, []
    doubted = _doubts(observed, before)
    return CalibrateAnswer(
        engine=target.engine,
        fitted={name: _fitted(name, start[name], fitted, without) for name in chosen.names},
        left=dict(chosen.left), constants=dict(fitted.constants),
        before=_errors(observed, before), after=_errors(observed, fitted.log_errors),
        held_out=_errors(observed, held_out), folds=len(set(target.folds.tolist())),
        residuals=quantiles(residuals(observed, held_out, str(path))), left_out=dict(target.left_out),
        source=replace(target.source, doubts=tuple(doubted)) if doubted else target.source,
        num_values=_num_values(observed), notes=(
            *kept, *_few_runs(target.source, observed, len(chosen.names)),
            *(f"before the fit, {doubt}. Constants fitted to a wrong deployment hold for no other"
              for doubt in doubted)))


def _fitted_to(observed: Observations, folds: NDArray[np.int64], start: Mapping[str, float],
               names: Sequence[str] | None, jobs: int) -> tuple[Choice, Floats, Calibration]:
    """Fit `names`, or the constants that can be told apart and tested; return them, log errors before, and the fit."""
    values = np.isfinite(observed.log_measured).sum(axis=1)
    testable = int(values.sum() - np.bincount(folds, values).max()) - 1
    with observed.evaluator(jobs) as evaluate:
        candidates = list(names or bounds())
        jacobian = sensitivities(observed, start, candidates, evaluate)
        chosen = _chosen(jacobian, candidates, testable, is_explicit=names is not None)
        before = np.log(evaluate([start])[0]) - observed.log_measured
        fitted = fit(observed, start, chosen.names, evaluate=evaluate)
        while names is None and (narrowed := _narrowed(chosen, fitted)) != chosen:
            chosen = narrowed
            fitted = fit(observed, start, chosen.names, evaluate=evaluate)
    return chosen, before, fitted


def _too_few(before: Floats) -> list[str]:
    """Return a sentence if there are too few runs to test a fit on.

    Fitted to three, constants passed for three of six models, and TPOT of other loads was worse for each of them.
    """
    return [] if len(before) >= FEWEST_RUNS else [
        f"the constants are not changed: {count_text(len(before), 'run')} cannot tell whether fitted constants predict "
        f"other loads better. Measure {FEWEST_RUNS} or more, or choose the constants with --fit"]


def _without_gain(observed: Observations, folds: NDArray[np.int64], held_out: Floats, before: Floats) -> list[str]:
    """Return a sentence if constants fitted to the other folds do not predict a fold that is left out better.

    They must do so in more than half of the folds, and on average, by the loss of a fit.

    Parameters
    ----------
    held_out, before : log(predicted / measured) by metric, shape [num, num_metrics]; NaN without a value.
    """
    known = np.isfinite(held_out) & np.isfinite(before)
    tested = np.unique(folds[known.any(axis=1)])
    losses = np.log1p((np.stack((held_out, before)) / ERROR_SCALE) ** 2) * np.array(observed.weights) ** 2
    falls = np.where(known, losses[1] - losses[0], 0.0).sum(axis=1)
    num_better = sum(falls[folds == fold].sum() > 0 for fold in tested)
    if 2 * num_better > len(tested) and falls.sum() > 0:
        return []
    errors = [_errors(observed, np.where(known, each, np.nan)) for each in (held_out, before)]
    changes = [f"; {metric.removesuffix('_ms').upper()} {share_text(after.mape)} off, was {share_text(was.mape)}"
               for metric, after in errors[0].items() if after is not None and (was := errors[1][metric]) is not None]
    return [f"the constants are not changed: fitted without a part of the runs, they predict that part better in "
            f"{num_better} of {len(tested)} cases{''.join(changes)}. Measure more loads, or choose the constants with "
            f"--fit"]


def _num_values(observed: Observations) -> int:
    return int(np.isfinite(observed.log_measured).sum())


def _few_runs(source: FitSource, observed: Observations, num_constants: int) -> list[str]:
    """Return a warning if there are fewer runs than fitted constants: blocks of a run share its load and its errors."""
    num_runs = source.num_runs
    if num_runs is None or num_runs >= num_constants:
        return []
    return [f"{count_text(num_constants, 'constant')} from {count_text(num_runs, 'run')}: the "
            f"{_num_values(observed):,} fitted values share {'its load' if num_runs == 1 else 'their loads'}, so the "
            "constants and their error hold for such loads only. Measure more loads, or fit fewer constants with --fit"]


def _doubts(observed: Observations, log_errors: Floats) -> list[str]:
    return doubts({metric: log_errors[:, k] for k, metric in enumerate(observed.metrics)})


def _check_explained(path: Path, observed: Observations, log_errors: Floats) -> None:
    """Raise a TraceError if fitted constants leave larger errors in a metric than a correctly read deployment has."""
    left = _doubts(observed, log_errors)
    if left:
        raise TraceError(f"{path}: no constants explain it. After the fit, {left[0]}; or empty the metric's cells to "
                         f"fit the other metrics")


def residuals(observed: Observations, log_errors: Floats, source: str) -> Residuals:
    """Return the quantiles of held-out errors; for runs, with the errors in E2EL and throughput that follow.

    Parameters
    ----------
    log_errors : log(predicted / measured), shape [num, len(metrics)].
    """
    by_metric = {metric: log_errors[:, k] for k, metric in enumerate(observed.metrics)}
    if isinstance(observed, Runs) and observed.metrics == METRICS:
        measured = {metric: np.exp(observed.log_measured[:, k]) for k, metric in enumerate(observed.metrics)}
        by_metric = with_derived(by_metric, measured, observed.mean_output_tokens)
    return residuals_of(by_metric, source)


def residuals_text(held_out: Residuals, table: str) -> str:
    """Return quantiles as TOML: the `[residuals]` of an engine's file, for one."""
    rounded = quantiles(held_out)
    return tomli_w.dumps({table: {"probabilities": rounded.probabilities, "log_errors": dict(rounded.log_errors)}})


def quantiles(held_out: Residuals) -> Quantiles:
    """Return quantiles as they stand in a file: rounded."""
    return Quantiles(probabilities=held_out.probabilities, log_errors={
        metric: tuple(round(q, 5) for q in values) for metric, values in held_out.log_errors.items()})


def write_calibration(result: CalibrateAnswer, path: Path) -> None:
    """Write a calibration as the TOML that `--calibration` takes, whole or not at all."""
    tables: dict[str, Mapping[str, Any]] = {
        "constants": {name: float(f"{value:.6g}") for name, value in result.constants.items()},
        "intervals": {name: [float(f"{bound:.6g}") for bound in (constant.low, constant.high)]
                      for name, constant in result.fitted.items()},
        "held_out": {"folds": result.folds, "probabilities": result.residuals.probabilities,
                     "log_errors": dict(result.residuals.log_errors),
                     **{metric: asdict(errors) for metric, errors in result.held_out.items() if errors is not None}},
        "source": asdict(result.source),
    }
    text = "# Written by `planner calibrate`; intervals are of 80 %, held-out errors of runs left out of the fit.\n"
    write_text(path, text + tomli_w.dumps(tables))


def starting_constants(scenario: Scenario, engine: str) -> dict[str, float]:
    """Return an engine's bundled constants, replaced by the constants of the scenario's calibration."""
    bundled = read_constants(data_dir("hardware_db") / "engines" / f"{engine}.toml")
    return bundled | (read_constants(Path(scenario.calibration)) if scenario.calibration else {})


def _check_names(names: Sequence[str] | None) -> None:
    for name in names or ():
        if name not in bounds():
            raise UnknownNameError("constant", name, bounds())
    if names is not None and len(set(names)) < len(names):
        raise UsageError(f"--fit {','.join(names)}: names a constant twice")


def _chosen(jacobian: Floats, candidates: Sequence[str], most: int, *, is_explicit: bool) -> Choice:
    if is_explicit:
        check(jacobian, candidates)
        return Choice(names=tuple(candidates), left={})
    chosen = choose(jacobian, candidates, most)
    if not chosen.names:
        raise UsageError("the runs are too few or too alike to fit any constant; measure more loads, from one request "
                         "at a time up to saturation, with short and long prompts")
    return chosen


def _narrowed(chosen: Choice, fitted: Calibration) -> Choice:
    """Leave out constants that the fit leaves wider than they were known before, at most half of them at a time."""
    widths = {name: np.log(fitted.intervals[name][1] / fitted.intervals[name][0]) / 2 / (QUANTILE * LOOSE.sigma(name))
              for name in chosen.names}
    wide = [name for name in sorted(widths, key=lambda name: -widths[name]) if widths[name] > 1]
    dropped = wide[: max(len(widths) // 2, 1)] if len(wide) < len(widths) else wide[:-1]
    reasons = {name: f"the fit leaves it within a factor of {np.exp(widths[name] * QUANTILE * LOOSE.sigma(name)):.3g}, "
                     f"wider than the prior's {np.exp(QUANTILE * LOOSE.sigma(name)):.3g}"
               for name in dropped}
    return Choice(names=tuple(name for name in chosen.names if name not in reasons), left={**chosen.left, **reasons})


def _interval(name: str, fitted: Calibration, without: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """Return the wider of two 80 % intervals: by the fit's curvature, and by the values of fits without one fold.

    A replay jumps if a request falls into another step, so that the curvature at one point can promise too much. The
    second is the jackknife of whole groups: variance (G - 1) / G · Σ (x_g - mean)² of the constant's logarithm
    (B. Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982).
    """
    low, high = fitted.intervals[name]
    logs = np.log([constants[name] for constants in without])
    if len(logs) < 2:
        return low, high
    spread = QUANTILE * float(np.sqrt((len(logs) - 1) * logs.var()))
    value = fitted.constants[name]
    return min(low, value * float(np.exp(-spread))), max(high, value * float(np.exp(spread)))


def _fitted(name: str, start: float, fitted: Calibration, without: Sequence[Mapping[str, float]]) -> FittedConstant:
    """Return a constant with its interval, within its physical range."""
    low, high = _interval(name, fitted, without)
    least, most = bounds()[name]
    return FittedConstant(start=start, value=fitted.constants[name], low=min(max(low, least), most),
                          high=min(max(high, least), most))


def _held_out(observed: Observations, folds: NDArray[np.int64], start: Mapping[str, float],
              names: Sequence[str], jobs: int) -> tuple[Floats, list[Mapping[str, float]]]:
    """Return log(predicted / measured) of each by constants fitted to the other folds, with the constants by fold.

    The errors are NaN if the others are too few to fit.
    """
    out = np.full_like(observed.log_measured, np.nan)
    without: list[Mapping[str, float]] = []
    for fold in counted("fitting without each part", sorted(set(folds.tolist()))):
        inside = folds == fold
        train, test = observed.part(~inside), observed.part(inside)
        if np.isfinite(train.log_measured).sum() <= len(names):
            continue
        with train.evaluator(jobs) as evaluate:
            fitted = fit(train, start, names, evaluate=evaluate)
        without.append(fitted.constants)
        with test.evaluator(jobs) as evaluate:
            out[inside] = np.log(evaluate([fitted.constants])[0]) - test.log_measured
    return out, without


def _errors(observed: Observations, log_errors: Floats) -> dict[str, ErrorSummary | None]:
    return {metric: summarize_errors(log_errors[:, k]) for k, metric in enumerate(observed.metrics)}
