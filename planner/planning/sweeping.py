"""A grid of what-ifs over one trace: replayed in parallel, kept as they come, and their Pareto front."""

import ctypes
import functools
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl

from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import PlannerError, UnknownNameError, UsageError
from planner.files.nested import parse_json
from planner.files.table_file import DAMAGE
from planner.files.writing import write_atomically
from planner.loop.state.engine_settings import Recording
from planner.planning.cluster_tasks import on_backend
from planner.planning.fingerprint import scenario_sha256
from planner.planning.grid import OBJECTIVE, Point, Sweep, objective_column
from planner.planning.pareto import is_less_better, pareto_front
from planner.planning.replay_line import replay_line
from planner.planning.sweep_answer import Configuration, Optimum, SweepAnswer
from planner.planning.sweep_store import OWN, SweepStore
from planner.progress import stage, workers_may_stop
from planner.results.summary import numbers
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.objectives import Objectives
from planner.settings.statistic import parse_statistic
from planner.traces import Trace, read_trace
from planner.traces.results import generates
from planner.traces.shaping.client_load import NAME, client_load, refuse_client_options

ABOUT = "planner.sweep"  # of the Parquet file's metadata: the axes, and the front's metrics
OPEN_FRONT = ("without --attainment no share of the requests must keep the limits of --slo, so the front may have "
              "configurations that miss them; --attainment 0.99 leaves them out")
NOTES = 8  # that are told of a whole sweep
ROUND = 32  # configurations for each process, after which results are kept; at first
LEAST_ROUND_S = 2.0  # of a round: between two rounds the processes wait


def sweep(plan: Sweep, output: Path, *, jobs: int = -1, backend: str = "processes", address: str | None = None,
          trace: Trace | None = None) -> pl.DataFrame:
    """Replay every configuration of a grid, and write them as a table.

    Results that an earlier run left in the output, or beside it when it was killed, are reused if the configuration,
    the trace and the program are still the same.

    Parameters
    ----------
    plan : the grid.
    output : Parquet file; while the sweep runs, its results are in `OUTPUT.journal` beside it.
    jobs : processes; -1 for one a core.
    backend, address : "processes" of this machine, or a cluster: "dask" with its scheduler's address, "ray".
    trace : the plan's, if it has been read already.

    Returns
    -------
    polars.DataFrame
        One row a configuration: `key` (a hash of all that it depends on), its values by axis, `status` ("done", or
        why there is nothing), `is_pareto`, `misses` (the limits that it misses, with commas between), `notes` (a line
        each), then the numbers of the summary.

    Raises
    ------
    PlannerError : an option is wrong; the trace cannot be read; the output cannot be written.
    """
    grid = SweepGrid(plan, output, jobs=jobs, trace=trace)
    with on_backend(backend, address, grid.trace):
        grid.replay(range(len(grid.points)))
    return grid.write()


class SweepGrid:
    """The configurations of a plan, and the results of the replayed configurations."""

    def __init__(self, plan: Sweep, output: Path, *, jobs: int, trace: Trace | None = None) -> None:
        if output.suffix != ".parquet":
            raise UsageError(f"cannot write {output}: the ending must be .parquet")
        self.plan, self.points = plan, plan.points()
        self.trace = _recorded(plan, self.points) if trace is None else trace
        self._output, self._jobs = output, jobs
        self._store = SweepStore(output)
        self._extends = len(self._store) > 0
        self._keys: dict[int, str] = {}  # by place in the grid, for the places asked for

    def replay(self, places: Iterable[int]) -> None:
        """Replay the configurations, by their places in the grid, that have no result yet."""
        asked = list(places)
        todo = [place for place in dict.fromkeys(asked) if self._key(place) not in self._store]
        num_done = len(asked) - len(todo)
        with stage("replaying configurations", len(asked), num_done) as replaying, workers_may_stop():
            for part in _rounds(todo, self._jobs):
                tasks = (joblib.delayed(_row)(self._load(place), self.points[place], self.plan.objectives)
                         for place in part)
                for place, row in zip(part, joblib.Parallel(n_jobs=self._jobs, mmap_mode="c")(tasks), strict=True):
                    self._store.add(self._keys[place], row)
                num_done += len(part)
                replaying.move(num_done)

    def rows(self, places: Iterable[int]) -> list[Mapping[str, Any]]:
        """Return the results of configurations that have been replayed, by their places in the grid."""
        return [self._store[self._keys[place]] for place in places]

    def write(self) -> pl.DataFrame:
        """Write the results of all configurations that have any, in the grid's order, and return them.

        Raises
        ------
        UsageError : no configuration could be replayed.
        OutputError : the file cannot be written.
        """
        places = range(len(self.points)) if self._extends else sorted(self._keys)
        places = [place for place in places if self._key(place) in self._store]
        keys = [self._keys[place] for place in places]
        results = self._store.table(keys)
        if not (results["status"] == "done").any():
            raise UsageError(f"no configuration could be replayed; the first: {results['status'][0]}")
        table = _table(self.plan, [self.points.values(place) for place in places], keys, results)
        about = {ABOUT: json.dumps({"axes": dict(self.plan.axes), "pareto": list(self.plan.front)})}
        write_atomically(self._output, lambda path: table.write_parquet(path, metadata=about))
        self._store.settle(keys, results)
        return table

    def _key(self, place: int) -> str:
        if place not in self._keys:
            self._keys[place] = _key(self._load(place), self.plan, self.points[place])
        return self._keys[place]

    def _load(self, place: int) -> Trace:
        """Return the load of a configuration: the recorded trace, or its own random load."""
        return client_load(self.points[place].scenario) if self.trace is None else self.trace


def _recorded(plan: Sweep, points: Sequence[Point]) -> Trace | None:
    """Read the trace once for all; None if each configuration makes its own load."""
    if plan.trace == NAME:
        return None
    for point in points:
        refuse_client_options(point.scenario, plan.trace)
    return read_trace(plan.trace, format=plan.format, has_outputs=any(generates(point.scenario) for point in points))


def _key(trace: Trace, plan: Sweep, point: Point) -> str:
    limits = None if plan.objectives is None else plan.objectives.limits_s
    return scenario_sha256(point.scenario, trace.sha256, trace.format, limits)


def _rounds(todo: Sequence[int], jobs: int) -> Iterator[Sequence[int]]:
    """Divide configurations into rounds, which get longer while the caller is through with one in no time."""
    start, size = 0, ROUND * joblib.effective_n_jobs(jobs)
    while start < len(todo):
        begin_s = time.monotonic()
        yield todo[start : start + size]
        start += size
        if time.monotonic() - begin_s < LEAST_ROUND_S:
            size *= 2


def _row(trace: Trace, point: Point, objectives: Objectives | None) -> dict[str, Any]:
    """Replay one configuration; one that the model, the GPU or the policy does not allow says why."""
    keep_freed_memory()
    scenario = point.scenario
    try:
        summary = replay(trace, scenario, slo=objectives, recording=Recording()).summary
        if summary.would_not_start is not None:
            started = startable(scenario, shape_load(scenario, trace))
            scenario = started.scenario
            summary = replay(trace, scenario, slo=objectives, recording=Recording()).summary
            summary = summary.noted([started.lowered])
    except UnknownNameError:
        raise
    except PlannerError as error:
        return {"status": str(error)}
    return {"status": "done", "num_gpus": summary.deployment["num_gpus"],
            "max_model_len": summary.deployment["max_model_len"], "bottleneck": summary.utilization.bottleneck,
            "replay_command": replay_line(trace, scenario, objectives),
            "notes": "\n".join((*point.notes, *summary.notes)), **_objective_values(summary),
            **numbers(summary.values_by_key)}


def _objective_values(summary: Summary) -> dict[str, float | None]:
    """Return the values of statistic objectives by their columns [ms]."""
    return {objective_column(statistic): one.value for one in summary.figures.objectives
            if (statistic := parse_statistic(one.name)) is not None}


def _table(plan: Sweep, values: Sequence[Mapping[str, Any]], keys: Sequence[str],
           results: pl.DataFrame) -> pl.DataFrame:
    """Return the table of a sweep: each configuration's values, whether it is on the front, and its results."""
    for metric in plan.front:
        if metric not in results.columns:
            raise UnknownNameError("metric", metric, results.columns)
    limits = [limit.metric for limit in plan.limits if limit.metric in results.columns]
    short = list(results.select(list(dict.fromkeys(("status", *limits)))).iter_rows(named=True))
    signs = [1.0 if is_less_better(metric) else -1.0 for metric in plan.front]
    kept = results.select(pl.col(metric).cast(pl.Float64).fill_null(np.nan) * sign
                          for metric, sign in zip(plan.front, signs, strict=True)).to_numpy(writable=True)
    kept[[shortfall(plan, row) > 0 for row in short]] = np.nan
    columns: dict[str, Any] = {"key": keys}
    columns |= {axis: [each[axis] for each in values] for axis in plan.axes}
    columns |= {"status": results["status"], "is_pareto": pareto_front(kept),
                "misses": [_misses(plan, row) for row in short]}
    columns |= {f"{OWN}{name}" if name in plan.axes else name: results[name]
                for name in results.columns if name != "status"}
    table = pl.DataFrame(columns, strict=False)
    return table.with_columns(pl.selectors.by_dtype(pl.Null).cast(pl.Float64))


def _misses(plan: Sweep, row: Mapping[str, Any]) -> str:
    """Return the metrics whose limits a configuration misses; empty if it has no result."""
    if row["status"] != "done":
        return ""
    return ", ".join(limit.metric for limit in plan.limits if limit.shortfall(row.get(limit.metric)) > 0)


def describe(plan: Sweep, output: Path, table: pl.DataFrame, optimum: Optimum | None = None) -> SweepAnswer:
    """Return the outcome of a sweep, or of a search for its front."""
    answer = _answer(plan.axes, plan.front, output, table, optimum)
    asked = plan.objectives
    is_open = asked is not None and bool(asked.slo.limits_s) and asked.attainment is None
    return replace(answer, notes=(OPEN_FRONT, *answer.notes)) if is_open else answer


def describe_file(output: Path) -> tuple[SweepAnswer, pl.DataFrame]:
    """Return the outcome of a sweep, as `describe`, and its table, from the file that it wrote.

    Raises
    ------
    PlannerError : the file cannot be read, or is no sweep's.
    """
    try:
        about = parse_json(pl.read_parquet_metadata(output)[ABOUT])
        table = pl.read_parquet(output)
        return _answer(about["axes"], about["pareto"], output, table, None), table
    except DAMAGE as error:
        raise PlannerError(f"{output}: cannot be read: {error}; move it away and run the sweep again") from error
    except (ValueError, KeyError) as error:
        raise PlannerError(f"{output}: is not a table of planner sweep, or is from an older one ({error!r}); run the "
                           f"sweep again, which keeps the file's rows") from error


def _answer(axes: Mapping[str, Any], metrics: Sequence[str], output: Path, table: pl.DataFrame,
            optimum: Optimum | None) -> SweepAnswer:
    front = table.filter("is_pareto").drop("notes", strict=False).sort(metrics[0], maintain_order=True).to_dicts()
    counts = {str(status): count for status, count in table.group_by("status").len().sort("status").iter_rows()}
    return SweepAnswer(output=str(output), num_configurations=table.height, status=counts,
                       axes={name: tuple(values) for name, values in axes.items()}, pareto=tuple(metrics),
                       front=tuple(front), rows=_rows(axes, metrics, table), notes=_notes(table), optimum=optimum)


def _rows(axes: Mapping[str, Any], metrics: Sequence[str], table: pl.DataFrame) -> tuple[Configuration, ...]:
    """Return all configurations with the columns that tell them apart: the front first, then by the first metric."""
    if "misses" not in table.columns:  # of an older sweep
        table = table.with_columns(pl.lit("").alias("misses"))
    ordered = table.sort(pl.col("is_pareto").not_(), pl.col("misses") != "", pl.col(metrics[0]) * (
        1.0 if is_less_better(metrics[0]) else -1.0), nulls_last=True, maintain_order=True)
    objectives = [name for name in table.columns if name.startswith(OBJECTIVE) and name not in metrics]
    values = ordered.select(*axes, *metrics, *objectives).to_dicts()
    others = ordered.select("bottleneck", "status", "is_pareto", "misses").to_dicts()
    return tuple(Configuration(values=each, **other) for each, other in zip(values, others, strict=True))


def _notes(table: pl.DataFrame) -> tuple[str, ...]:
    """Return the most frequent notes, with their numbers of configurations; an older sweep's file has no notes."""
    done = table.filter(status="done")
    if "notes" not in table.columns:
        return ()
    counts = Counter(note for notes in done["notes"].drop_nulls() for note in notes.split("\n") if note)
    found = [note if count == done.height else f"{note} ({count:,} of {done.height:,} configurations)"
             for note, count in counts.most_common(NOTES)]
    others = len(counts) - NOTES
    return (*found, *([f"{others:,} more notes in the output's column notes"] if others > 0 else []))


def shortfall(plan: Sweep, row: Mapping[str, Any]) -> float:
    """Return the shares by which a configuration misses its limits, summed over the limits [1].

    Raises
    ------
    UnknownNameError : a limit has a metric that no summary has.
    """
    if row["status"] == "done":
        for limit in plan.limits:
            if limit.metric not in row:
                raise UnknownNameError("metric", limit.metric, row)
    return sum(limit.shortfall(row.get(limit.metric)) for limit in plan.limits)


KEPT_BYTES = 1 << 30
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB that it frees. Elsewhere than with glibc nothing changes.

    By default glibc returns an array to the system when it is freed, and each page of the next one is new: 4,258 page
    faults in each replay of the conversation hour, a seventh of its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for threshold in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        mallopt(threshold, KEPT_BYTES)
