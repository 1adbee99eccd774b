"""A calibration: constants chosen and fitted to a user's runs, their error on runs left out, and their file."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibrate import LOOSE, Calibration, Evaluate, Prepared, evaluator, fit, prepare
from planner.catalog import data_dir
from planner.engines import bounds, read_constants
from planner.errors import PlannerError, UnknownNameError, UsageError
from planner.files import write_text
from planner.identify import QUANTILE, Choice, check, choose, sensitivities
from planner.measured import METRICS, Measurement
from planner.recorded import as_means, is_recorded, time_blocks
from planner.runs import columns_of, is_table, read_runs
from planner.scenario import Scenario
from planner.steplog import is_step_log
from planner.uncertainty import Residuals, residuals_of, with_derived
from planner.validate import predict_all, summarize_errors

Floats = NDArray[np.float64]

BLOCKS_PER_FOLD = 4  # of a recorded run


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to fit to: runs of one engine, the fold of each, and where they came from."""

    runs: Sequence[Measurement]
    folds: NDArray[np.int64]
    engine: str
    left_out: int  # rows of other engines, and rows that cannot be predicted


def calibrate(path: Path, scenario: Scenario, *, names: Sequence[str] | None, folds: int, jobs: int,
              client: str | None = None) -> dict[str, Any]:
    """Fit an engine's constants to measured runs, from its bundled ones or those of the scenario's calibration.

    Parameters
    ----------
    path, scenario, client : as `runs.read_runs`; of a table with several engines, the scenario's.
    names : constants to fit; None for all that the runs can tell apart.
    folds : parts that are left out in turn, each of whole configurations, or time blocks of a recorded run.
    jobs : processes; -1 for as many as there are cores.

    Returns
    -------
    dict
        `constants`, `fitted`, `left` (reason by name), `intervals`, `before`, `after`, `held_out` (errors by metric),
        `residuals` (quantiles of the held-out errors) and `source`.

    Raises
    ------
    UsageError : `names` cannot be told apart, or the runs are too few.
    PlannerError : as `runs.read_runs`.
    """
    if folds < 2:
        raise UsageError(f"--folds {folds}; must be at least 2")
    target = _target(path, scenario, folds, client, jobs)
    start = _start(scenario, target.engine)
    prepared = prepare(target.runs, start)
    _check_names(names)
    with evaluator(prepared, jobs=jobs) as evaluate:
        candidates = list(names or bounds())
        jacobian = sensitivities(prepared, start, candidates, evaluate)
        chosen = _chosen(jacobian, candidates, is_explicit=names is not None)
        before = np.log(evaluate([start])[0]) - _measured(prepared)
        found = fit(prepared, start, chosen.names, evaluate=evaluate)
        while names is None and (narrowed := _narrowed(chosen, found)) != chosen:
            chosen = narrowed
            found = fit(prepared, start, chosen.names, evaluate=evaluate)
    held_out = _held_out(prepared, target.folds, start, found.constants, chosen.names, jobs)
    return {
        "engine": target.engine,
        "fitted": {name: {"start": start.get(name, 1.0), "value": found.constants[name],
                          **_bounded(name, found.intervals[name])} for name in chosen.names},
        "left": dict(chosen.left),
        "constants": dict(found.constants),
        "before": _errors(before),
        "after": _errors(found.log_errors),
        "held_out": _errors(held_out),
        "folds": len(set(target.folds.tolist())),
        "residuals": residuals_dict(residuals(prepared, held_out, str(path))),
        "source": _source(path, prepared, target),
    }


def residuals(prepared: Prepared, log_errors: Floats, source: str) -> Residuals:
    """Return the quantiles of held-out errors, with those in E2EL and throughput that follow.

    Parameters
    ----------
    log_errors : log(predicted / measured), shape [num_runs, len(METRICS)].
    """
    measured = np.exp(_measured(prepared))
    outputs = np.array([_mean_output(m) for m, _ in prepared])
    by_metric = {metric: log_errors[:, k] for k, metric in enumerate(METRICS)}
    return residuals_of(with_derived(by_metric, {metric: measured[:, k] for k, metric in enumerate(METRICS)}, outputs),
                        source)


def residuals_text(found: Residuals, table: str) -> str:
    """Return quantiles as TOML: the `[residuals]` of an engine's file, for one."""
    plain = residuals_dict(found)
    return "\n".join((_toml(table, {"probabilities": plain["probabilities"]}),
                      _toml(f"{table}.log_errors", plain["log_errors"])))


def residuals_dict(found: Residuals) -> dict[str, Any]:
    """Return quantiles as plain values, as they stand in a file."""
    return {"probabilities": list(found.probabilities),
            "log_errors": {metric: [round(q, 5) for q in values] for metric, values in found.log_errors.items()}}


def write_calibration(result: Mapping[str, Any], path: Path) -> None:
    """Write a calibration as the TOML that `--calibration` takes, whole or not at all."""
    held_out = result["held_out"]
    tables: dict[str, Mapping[str, Any]] = {
        "constants": {name: float(f"{value:.6g}") for name, value in result["constants"].items()},
        "intervals": {name: [float(f"{each[bound]:.6g}") for bound in ("low", "high")]
                      for name, each in result["fitted"].items()},
        "held_out": {"folds": result["folds"], "probabilities": result["residuals"]["probabilities"]},
        "held_out.log_errors": result["residuals"]["log_errors"],
        **{f"held_out.{metric}": held_out[metric]
           for metric in METRICS if held_out[metric] is not None},
        "source": result["source"],
    }
    text = "# Written by `planner calibrate`; intervals are of 80 %, held-out errors of runs left out of the fit.\n"
    write_text(path, text + "\n".join(_toml(name, table) for name, table in tables.items()))


def _toml(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"{json.dumps(key) if not key.isidentifier() else key} = {json.dumps(value, ensure_ascii=False)}"
             for key, value in table.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _target(path: Path, scenario: Scenario, folds: int, client: str | None, jobs: int) -> Target:
    """Read the runs of one engine, and say which fold each belongs to."""
    columns = columns_of(path) if path.is_file() else []
    if is_step_log(columns):
        raise UsageError(f"{path}: is a log of steps; calibrate fits to runs or requests (validate compares steps)")
    found = read_runs(path, scenario, client=client, free=("engine",))
    engines = sorted({run.groups["engine"] for run in found if run.status == "ok"})
    engine = engines[0] if len(engines) == 1 else scenario.engine
    if is_table(columns):
        own = [run for run in found if run.groups["engine"] == engine]
        predictions = predict_all(own, jobs=jobs)
        runs = [p.measurement for p in predictions if p.status == "ok" and p.measurement.measured]
        if not runs:
            reason = predictions[0].status if own else f"no row has the engine {engine}"
            raise UsageError(f"{path}: none of its rows can be predicted ({reason}); nothing to fit")
        keys = [_key(run) for run in runs]
    else:
        blocks = [time_blocks(run, BLOCKS_PER_FOLD * folds) if is_recorded(run) else [as_means(run)] for run in found]
        runs = [block for each in blocks for block in each]
        keys = [str(k * folds // len(runs)) for k in range(len(runs))] if len(found) < folds else [
            str(k) for k, each in enumerate(blocks) for _ in each]
    order = {key: place for place, key in enumerate(dict.fromkeys(sorted(keys) if is_table(columns) else keys))}
    return Target(runs=runs, folds=np.array([order[key] % folds for key in keys]), engine=engine,
                  left_out=len(found) - len(runs) if is_table(columns) else 0)


def _key(run: Measurement) -> str:
    """Return a run's configuration and load, the same for its repeats."""
    assert run.scenario is not None
    assert run.load is not None
    table = run.load.requests
    return "|".join(map(str, (*run.groups.values(), table["input_tokens"][0], table["output_tokens"][0],
                              run.scenario.max_concurrency)))


def _start(scenario: Scenario, engine: str) -> dict[str, float]:
    if scenario.step_time != "roofline":
        raise UsageError(f"--step-time {scenario.step_time}: a line has no constants to fit")
    bundled = read_constants(data_dir("hardware_db") / "engines" / f"{engine}.toml")
    return bundled | (read_constants(Path(scenario.calibration)) if scenario.calibration else {})


def _check_names(names: Sequence[str] | None) -> None:
    for name in names or ():
        if name.partition("@")[0].partition(".")[0] not in bounds():
            raise UnknownNameError("constant", name, bounds())
    if names is not None and len(set(names)) < len(names):
        raise UsageError(f"--fit {','.join(names)}: names a constant twice")


def _chosen(jacobian: Floats, candidates: Sequence[str], *, is_explicit: bool) -> Choice:
    if is_explicit:
        check(jacobian, candidates)
        return Choice(names=tuple(candidates), left={})
    chosen = choose(jacobian, candidates)
    if not chosen.names:
        raise UsageError("the runs are too few or too alike to fit any constant; measure more loads, from one request "
                         "at a time up to saturation, with short and long prompts")
    return chosen


def _best(prepared: Prepared, starts: Sequence[Mapping[str, float]], names: Sequence[str],
          evaluate: Evaluate) -> Calibration:
    """Fit from several starts, and keep what errs least: a scheduler's TTFT jumps, and a fit may stop at a jump."""
    fits = [fit(prepared, start, names, evaluate=evaluate) for start in starts]
    return min(fits, key=lambda found: float(np.nanmean(np.abs(found.log_errors))))


def _narrowed(chosen: Choice, found: Calibration) -> Choice:
    """Leave out what the fit leaves wider than it was known before, at most half of the constants at a time."""
    widths = {name: np.log(found.intervals[name][1] / found.intervals[name][0]) / 2 / (QUANTILE * LOOSE.sigma(name))
              for name in chosen.names}
    wide = [name for name in sorted(widths, key=lambda name: -widths[name]) if widths[name] > 1]
    dropped = wide[: max(len(widths) // 2, 1)] if len(wide) < len(widths) else wide[:-1]
    reasons = {name: f"the fit leaves it within a factor of {np.exp(widths[name] * QUANTILE * LOOSE.sigma(name)):.3g}, "
                     f"which says less than the {np.exp(QUANTILE * LOOSE.sigma(name)):.3g} that is known before"
               for name in dropped}
    return Choice(names=tuple(name for name in chosen.names if name not in reasons), left={**chosen.left, **reasons})


def _bounded(name: str, interval: tuple[float, float]) -> dict[str, float]:
    """Return an interval within the constant's physical range."""
    least, most = bounds().get(name, interval)
    return {"low": min(max(interval[0], least), most), "high": min(max(interval[1], least), most)}


def _held_out(prepared: Prepared, folds: NDArray[np.int64], start: Mapping[str, float], fitted: Mapping[str, float],
              names: Sequence[str], jobs: int) -> Floats:
    """Return log(predicted / measured) of each run by constants fitted to the other folds; NaN where too few.

    Each fold's fit sets out from the start and from what all runs gave; the runs that are left in decide.
    """
    out = np.full((len(prepared), len(METRICS)), np.nan)
    for fold in sorted(set(folds.tolist())):
        inside = folds == fold
        train = [each for each, is_in in zip(prepared, inside, strict=True) if not is_in]
        test = [each for each, is_in in zip(prepared, inside, strict=True) if is_in]
        if np.isfinite(_measured(train)).sum() <= len(names):
            continue
        with evaluator(train, jobs=jobs) as evaluate:
            found = _best(train, (start, fitted), names, evaluate)
        with evaluator(test, jobs=jobs) as evaluate:
            out[inside] = np.log(evaluate([found.constants])[0]) - _measured(test)
    return out


def _measured(prepared: Prepared) -> Floats:
    """Return the logarithms of what was measured, shape [num_runs, len(METRICS)]; NaN where it was not."""
    values = [[m.measured.get(metric, np.nan) for metric in METRICS] for m, _ in prepared]
    return np.log(values).reshape(-1, len(METRICS))


def _errors(log_errors: Floats) -> dict[str, Any]:
    return {metric: summarize_errors(log_errors[:, k]) for k, metric in enumerate(METRICS)}


def _mean_output(run: Measurement) -> float:
    assert run.load is not None
    mean: Any = run.load.requests["output_tokens"].mean()
    return float(mean)


def _source(path: Path, prepared: Prepared, target: Target) -> dict[str, Any]:
    from planner.run import versions

    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise PlannerError(f"{path}: cannot be read: {error}") from error
    groups = {name: sorted({m.groups[name] for m, _ in prepared}) for name in ("gpu", "model", "layout")}
    return {"engine": target.engine, "measured": path.name, "sha256": sha256, "num_runs": len(prepared),
            "num_left_out": target.left_out, **groups, "planner": versions()["planner"]}
