"""The target of a calibration: the observations in a file, the fold of each, and their source."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, deploy
from planner.errors import PlannerError, UsageError
from planner.files.table_file import columns_of
from planner.measured.calibration.calibrate_answer import FitSource
from planner.measured.calibration.observations import Observations, Runs, Steps, prepare
from planner.measured.recorded import as_means, is_recorded, time_blocks
from planner.measured.run_table import METRICS, Measurement
from planner.measured.runs import groups_of, is_table, model_of, read_runs
from planner.measured.steplog import is_step_log, read_steps
from planner.measured.validate import predict_all
from planner.settings.scenario import Scenario
from planner.versions import versions

BLOCKS_PER_FOLD = 4  # of a recorded run, or of a log


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTarget:
    """The measurements to fit to.

    Parameters
    ----------
    observed : of one engine.
    folds : the fold of each, shape [num].
    engine : its name.
    left_out : how many rows, or steps of a log, were left out, by why.
    source : description of them in a calibration's file.
    """

    observed: Observations
    folds: NDArray[np.int64]
    engine: str
    left_out: Mapping[str, int]
    source: FitSource


def read_target(path: Path, scenario: Scenario, *, folds: int, client: str | None, jobs: int,
                format: str | None = None) -> FitTarget:
    """Read the measurements to fit to, with the fold of each observation.

    Repeats of a configuration are in one fold, as are the neighbours in a recorded run or a log, because they share
    their errors.

    Parameters
    ----------
    path, scenario, client, format : a log of steps, or as `runs.read_runs`; of a table with several engines the
        scenario's.
    folds : how many.
    jobs : processes.

    Raises
    ------
    UsageError : nothing in the file can be predicted.
    PlannerError : as `runs.read_runs` and `steplog.read_steps`.
    """
    if format is None and is_step_log(path):
        return _steps(path, scenario, folds)
    columns = columns_of(path) if format is None else []
    read = read_runs(path, scenario, client=client, free=("engine",), format=format)
    engines = sorted({run.groups["engine"] for run in read if run.status == "ok"})
    engine = engines[0] if len(engines) == 1 else scenario.engine
    if is_table(columns):
        runs, left_out = _predictable(path, read, engine, jobs)
        keys = [_key(run) for run in runs]
    else:
        blocks = [time_blocks(run, BLOCKS_PER_FOLD * folds) if is_recorded(run) else [as_means(run)] for run in read]
        runs = [block for part in blocks for block in part]
        keys = [str(k * folds // len(runs)) for k in range(len(runs))] if len(read) < folds else [
            str(k) for k, part in enumerate(blocks) for _ in part]
        left_out = {}
    order = {key: place for place, key in enumerate(dict.fromkeys(sorted(keys) if is_table(columns) else keys))}
    prepared = prepare(runs)
    metrics = (*METRICS, *dict.fromkeys(name for m, _ in prepared for name in m.measured if name not in METRICS))
    return FitTarget(observed=Runs(prepared=prepared, metrics=metrics),
                     folds=np.array([order[key] % folds for key in keys]), engine=engine, left_out=left_out,
                     source=_source(path, engine, [_named(m, deployment) for m, deployment in prepared], left_out,
                                    num_runs=len(runs) if is_table(columns) else len(read),
                                    num_blocks=len(runs) if not is_table(columns) and len(runs) > len(read) else None))


def _steps(path: Path, scenario: Scenario, folds: int) -> FitTarget:
    log = read_steps(path, scenario)
    deployment = deploy(scenario)
    groups = groups_of(scenario, model_of(deployment), "steps")
    blocks = np.arange(len(log.measured_ms)) * (BLOCKS_PER_FOLD * folds) // len(log.measured_ms)
    return FitTarget(observed=Steps(log=log, deployment=deployment), folds=blocks % folds, engine=scenario.engine,
                     left_out=log.left_out,
                     source=_source(path, scenario.engine, [groups], log.left_out, num_steps=len(log.measured_ms)))


def _predictable(path: Path, read: Sequence[Measurement], engine: str,
                 jobs: int) -> tuple[list[Measurement], dict[str, int]]:
    """Return the rows of an engine that can be predicted, and how many others there are, by why they cannot."""
    predictions = predict_all([run for run in read if run.groups["engine"] == engine], jobs=jobs)
    kept = [p.measurement for p in predictions if p.status == "ok" and p.measurement.measured]
    if not kept:
        reason = predictions[0].status if predictions else f"no row has the engine {engine}"
        raise UsageError(f"{path}: no row can be predicted ({reason}); nothing to fit")
    others = Counter(f"of the engine {name}" for run in read if (name := run.groups["engine"]) != engine)
    return kept, dict(others + Counter(
        "without a measured latency" if p.status == "ok" else p.status for p in predictions
        if p.status != "ok" or not p.measurement.measured))


def _key(run: Measurement) -> str:
    """Return a run's configuration and load, the same for its repeats."""
    assert run.scenario is not None
    assert run.load is not None
    table = run.load.requests
    return "|".join(map(str, (*run.groups.values(), table["input_tokens"][0], table["output_tokens"][0],
                              run.scenario.max_concurrency)))


def _named(run: Measurement, deployment: Deployment) -> dict[str, str]:
    """Return a run's groups with the catalog's names, by which a replay is known, in place of its table's."""
    return {**run.groups, "gpu": deployment.scenario.gpu or "unnamed", "model": model_of(deployment)}


def _source(path: Path, engine: str, groups: Sequence[Mapping[str, str]], left_out: Mapping[str, int],
            **counts: Any) -> FitSource:
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise PlannerError(f"{path}: cannot be read: {error}") from error
    gpu, model, layout = (tuple(sorted({row[name] for row in groups})) for name in ("gpu", "model", "layout"))
    return FitSource(engine=engine, measured=path.name, sha256=sha256, gpu=gpu, model=model, layout=layout,
                     num_left_out=sum(left_out.values()), planner=versions()["planner"], **counts)
