"""A grid of what-ifs over one trace: replayed in parallel, kept as they come, and their Pareto front."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl

from planner.client import NAME, client_load, refuse_client_options
from planner.errors import PlannerError, UnknownNameError, UsageError
from planner.files import append_text, write_atomically
from planner.fingerprint import scenario_sha256
from planner.grid import Point, Sweep
from planner.metrics import numbers
from planner.pareto import is_less_better, pareto_front
from planner.run import replay
from planner.settings import Recording
from planner.slo import Slo
from planner.trace import Trace, read_trace

OWN = "summary_"  # before a number of the summary that has an option's name, where that is an axis
BACKENDS = ("processes", "dask", "ray")
ROUND = 32  # configurations for each process, after which results are kept


def sweep(plan: Sweep, output: Path, *, jobs: int = -1, backend: str = "processes", address: str | None = None,
          progress: Callable[[int, int], None] = lambda done, total: None) -> pl.DataFrame:
    """Replay every configuration of a grid, and write them as a table.

    What an earlier run left in the output, or beside it when it was killed, is taken over where the configuration, the
    trace and the program are still the same.

    Parameters
    ----------
    plan : the grid.
    output : Parquet file; while the sweep runs, its results are in `OUTPUT.journal` beside it.
    jobs : processes; -1 for one a core.
    backend, address : "processes" of this machine, or a cluster: "dask" with its scheduler's address, "ray".
    progress : is told how many configurations are done, of how many.

    Returns
    -------
    polars.DataFrame
        One row a configuration: `key` (a hash of all that it depends on), its values by axis, `status` ("done", or
        why there is nothing), `is_pareto`, then the numbers of the summary.

    Raises
    ------
    PlannerError : an option is wrong; the trace cannot be read; the output cannot be written.
    """
    if output.suffix != ".parquet":
        raise UsageError(f"cannot write {output}: the ending must be .parquet")
    points = plan.points()
    traces = _traces(plan, points)
    journal = output.with_name(f"{output.name}.journal")
    keys = [_key(trace, plan, point) for trace, point in zip(traces, points, strict=True)]
    done = _kept(output, journal)
    todo = [place for place, key in enumerate(keys) if key not in done]
    num_done = len(points) - len(todo)
    progress(num_done, len(points))
    with _on(backend, address):
        for places in _rounds(todo, jobs):
            tasks = [joblib.delayed(_row)(traces[place], points[place], plan.slo) for place in places]
            for place, row in zip(places, joblib.Parallel(n_jobs=jobs)(tasks), strict=True):
                done[keys[place]] = row
                append_text(journal, json.dumps({"key": keys[place], "row": row}) + "\n")
            num_done += len(places)
            progress(num_done, len(points))
    rows = [done[key] for key in keys]
    if all(row["status"] != "done" for row in rows):
        raise UsageError(f"no configuration can be replayed; the first: {rows[0]['status']}")
    table = _table(plan, points, keys, rows)
    write_atomically(output, table.write_parquet)
    journal.unlink(missing_ok=True)
    return table


def _traces(plan: Sweep, points: Sequence[Point]) -> Sequence[Trace]:
    """Read the trace once for all, or make each configuration's own load."""
    if plan.trace == NAME:
        return [client_load(point.scenario) for point in points]
    for point in points:
        refuse_client_options(point.scenario, plan.trace)
    return [read_trace(plan.trace, format=plan.format)] * len(points)


def _key(trace: Trace, plan: Sweep, point: Point) -> str:
    limits = None if plan.slo is None else plan.slo.limits_s
    return scenario_sha256(point.scenario, point.num_replicas, trace.sha256, trace.format, limits)


def _rounds(todo: Sequence[int], jobs: int) -> Iterator[Sequence[int]]:
    size = ROUND * joblib.effective_n_jobs(jobs)
    for start in range(0, len(todo), size):
        yield todo[start : start + size]


def _row(trace: Trace, point: Point, slo: Slo | None) -> dict[str, Any]:
    """Replay one configuration; one that the model, the GPU or the policy does not allow says why."""
    try:
        summary = replay(trace, point.scenario, slo=slo, recording=Recording(), num_replicas=point.num_replicas).summary
    except UnknownNameError:
        raise
    except PlannerError as error:
        return {"status": str(error)}
    return {"status": "done", "num_gpus": summary["deployment"]["num_gpus"], "bottleneck": summary["bottleneck"],
            **numbers(summary)}


def _kept(output: Path, journal: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier runs left, by key; a last line that was cut off is done again."""
    found: dict[str, dict[str, Any]] = {}
    if output.exists():
        try:
            for row in pl.read_parquet(output).to_dicts():
                found[row.pop("key")] = _without_axes(row)
        except (pl.exceptions.PolarsError, KeyError, OSError) as error:
            raise PlannerError(f"{output}: is no sweep's table: {error}; move it away") from error
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            found[entry["key"]] = entry["row"]
    return found


def _without_axes(row: Mapping[str, Any]) -> dict[str, Any]:
    names = list(row)
    kept = {name.removeprefix(OWN): row[name] for name in names[names.index("status") :] if name != "is_pareto"}
    return kept if kept["status"] == "done" else {"status": kept["status"]}


def _table(plan: Sweep, points: Sequence[Point], keys: Sequence[str],
           rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    for metric in plan.front:
        if metric not in names:
            raise UnknownNameError("metric", metric, names)
    signs = [1.0 if is_less_better(metric) else -1.0 for metric in plan.front]
    costs = np.array([[_cost(row.get(metric), sign) for metric, sign in zip(plan.front, signs, strict=True)]
                      for row in rows])
    if plan.attainment is not None:
        costs[[(row.get("slo_attainment") or 0.0) < plan.attainment for row in rows]] = np.nan
    front = pareto_front(costs)
    columns: dict[str, Any] = {"key": keys}
    columns |= {axis: [point.values[axis] for point in points] for axis in plan.axes}
    columns |= {"status": [row["status"] for row in rows], "is_pareto": front}
    columns |= {f"{OWN}{name}" if name in plan.axes else name: [row.get(name) for row in rows]
                for name in names if name != "status"}
    table = pl.DataFrame(columns, strict=False)
    return table.with_columns(pl.selectors.by_dtype(pl.Null).cast(pl.Float64))


def _cost(value: float | None, sign: float) -> float:
    return np.nan if value is None else sign * value


def _on(backend: str, address: str | None) -> Any:
    """Return the context in which joblib sends its tasks to a backend."""
    if backend not in BACKENDS:
        raise UnknownNameError("backend", backend, BACKENDS)
    if backend == "processes":
        if address is not None:
            raise UsageError(f"--address {address}: needs --backend dask or ray")
        return nullcontext()
    try:
        if backend == "dask":
            from distributed import Client

            Client(address)
        else:
            import ray
            from ray.util.joblib import register_ray

            ray.init(address=address)
            register_ray()
    except ImportError as error:
        raise UsageError(f"--backend {backend}: {error}; pip install {backend}") from error
    except (OSError, ConnectionError, ValueError) as error:
        raise UsageError(f"--backend {backend}: no cluster at {address or 'the default address'}: {error}") from error
    return joblib.parallel_config(backend=backend, n_jobs=-1)
