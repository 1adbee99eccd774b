"""Measured serving results as a table of runs: each row's deployment, its load, and its measured values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.deployment.pools import PoolSpec
from planner.errors import PlannerError, TraceError, UsageError
from planner.files.table_file import read_table_file
from planner.measured.agentic import agentic_rows, is_agentic
from planner.measured.apart import apart_run
from planner.measured.inferencex import BENCHMARKS, published_run
from planner.measured.lanes import UNREAD, is_lanes, lanes_rows
from planner.measured.run_columns import (
    MEASURED,
    RECORDED_ONLY,
    check_columns,
    check_numbers,
    is_apart,
    is_inferencemax,
    measured_columns,
    text_of,
)
from planner.measured.run_row import Row, own_run, read_row
from planner.measured.statistics import OF_ALL
from planner.model.layout import Layout
from planner.settings.scenario import Scenario
from planner.traces import Trace

METRICS = ("ttft_ms", "tpot_ms")  # means over requests
GROUPS = ("gpu", "engine", "model", "precision", "client", "layout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured run.

    Parameters
    ----------
    id : of the row.
    groups : the row's value of each of GROUPS.
    measured : mean TTFT and TPOT by the names of METRICS, and other statistics by theirs [ms, tokens/s].
    bounds : edges of values that are known no better than a bucket of a histogram [ms].
    scenario, layout : the deployment; None if the row cannot be understood.
    load : the prompts of one attention rank; all there at 0 s, `max_concurrency` of the scenario in flight.
    tokens_per_counted : the engine's tokens of a prompt for each that the client counted; the load has them [1].
    reading : time that the API server takes to read a token, against the random text of the engines' fits [1].
    num_opening : requests that do not count: an opening burst that the measurement does not show [1].
    is_lanes : whether the load is lanes. Opening requests fill the cache, and others count while all lanes are live.
    pools : prefill pools and decode pools, if these are apart; the load is then the load of all, and layout None.
    status : "ok", or why the row cannot be predicted.
    notes : sentences on how the run was read.
    """

    id: str
    groups: Mapping[str, str]
    measured: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scenario: Scenario | None = None
    layout: Layout | None = None
    load: Trace | None = field(default=None, repr=False)
    tokens_per_counted: float = 1.0
    reading: float = 1.0
    num_opening: int = 0
    is_lanes: bool = False
    pools: tuple[PoolSpec, ...] = ()
    status: str = "ok"
    notes: tuple[str, ...] = ()


def counted(measurement: Measurement, metric: str, predicted: float) -> float:
    """Return the value by which a prediction counts: right within the measured value's bucket, else off from its edge.

    >>> run = Measurement(id="a", groups={}, measured={"p50_ttft_ms": 75.0}, bounds={"p50_ttft_ms": (50.0, 100.0)})
    >>> counted(run, "p50_ttft_ms", 99.0), counted(run, "p50_ttft_ms", 110.0)
    (75.0, 82.5)
    """
    low, high = measurement.bounds.get(metric, (0.0, 0.0))
    nearest = min(max(predicted, low), high)
    return predicted * measurement.measured[metric] / nearest if nearest > 0 else predicted


def read_measured(path: Path, *, client: str | None = None) -> list[Measurement]:
    """Read a table of runs under a benchmark's load: one row a run, with its deployment, load and measured means.

    Columns: `gpu` (or `system`), `engine` (or `backend`), `model`, `isl`, `osl`, `concurrency`, `tp`, and
    `measured_ttft_ms`, `measured_tpot_ms`, or statistics such as `measured_p99_ttft_ms`. Optional: `id`, `precision`,
    `pp`, `dp`, `moe_ep`, `n_gpus`, `client`, `engine_version` (or `backend_version`), `measured_date`, and any option
    of the scenario that a run of one engine can have. Recipes of published benchmarks apply to rows with their client
    only. Columns that begin with `note_` are not read. A table of InferenceMAX's points (see
    `run_columns.INFERENCEMAX`) is read as it is, as is one of agentic runs (see `agentic`) or of lanes (see `lanes`).
    A row whose deployment cannot be understood keeps the reason in `status`.

    Parameters
    ----------
    client : of rows that name none.

    Raises
    ------
    TraceError : the file is missing, is no table, lacks a column, has an unknown one, or a cell is wrong.
    """
    table = read_table_file(path)
    if is_agentic(table.columns):
        return [Measurement(**fields) for fields in agentic_rows(path, table)]
    if is_lanes(table.columns):
        return [Measurement(**fields) for fields in lanes_rows(path, table)]
    check_columns(path, table.columns)
    check_numbers(path, table)
    client = client or ("inferencex" if is_inferencemax(table.columns) else None)
    read = _apart_measurement if is_apart(table.columns) else measurement_of_row
    return [read(path, cells, k, client) for k, cells in enumerate(table.iter_rows(named=True))]


def table_notes(path: Path, columns: Sequence[str], client: str | None) -> list[str]:
    """Return sentences on the columns of a table that no prediction depends on, and on the client that it implies."""
    unread = [name for name in columns if name in (UNREAD if is_lanes(columns) else RECORDED_ONLY)]
    notes = [f"{path}: predictions do not use the columns {', '.join(unread)}"] if unread else []
    if client is None and is_inferencemax(columns):
        notes.append(f"{path}: its columns are those of InferenceMAX's points, so its client and recipes apply "
                     f"(client = inferencex); to have the engines' defaults, add a column client")
    return notes


def measurement_of_row(path: Path, cells: Mapping[str, Any], k: int, client: str | None) -> Measurement:
    """Make sense of one row, its cells by the names of its columns.

    Raises
    ------
    TraceError : a cell is wrong; an error in the deployment becomes the measurement's status.
    """
    try:
        row = read_row(cells, client)
    except UsageError as error:
        raise TraceError(f"{path} row {k}: {error}") from error
    published = row.client in BENCHMARKS
    weights = row.precision or ("bf16" if published else row.options.get("quantization", "checkpoint"))
    groups = {"gpu": row.gpu, "engine": row.engine, "model": row.model, "precision": weights, "client": row.client,
              "layout": _layout_name(row)}
    has_gaps = any("itl_ms" in column and text_of(cells, column) for column in measured_columns(list(cells)))
    return _measurement(cells, k, groups,
                        lambda: published_run(row, has_gaps=has_gaps) if published else own_run(row),
                        row.tp * row.pp * row.dp)


def _apart_measurement(path: Path, cells: Mapping[str, Any], k: int, client: str | None) -> Measurement:
    """Make sense of a row with prefill and decode apart."""
    layout = "-".join(f"{side[0]}{text_of(cells, f'{side}_num_workers')}x{text_of(cells, f'{side}_gpus')}"
                      f"{'dp' if text_of(cells, f'{side}_dp_attention').lower() == 'true' else ''}"
                      for side in ("prefill", "decode"))
    groups = {name: text_of(cells, name) for name in ("gpu", "engine", "model", "precision")}
    return _measurement(cells, k, groups | {"client": client or "unknown", "layout": layout}, lambda: apart_run(cells))


def _measurement(cells: Mapping[str, Any], k: int, groups: dict[str, str],
                 run_of: Callable[[], dict[str, Any]], num_gpus: int = 1) -> Measurement:
    """Return a row's measured values, with the run that `run_of` makes of it, or why there is none as the status.

    Parameters
    ----------
    num_gpus : of the whole deployment, by which its tokens per second are counted [1].
    """
    measured = {column.removeprefix(MEASURED): float(value) for column in measured_columns(list(cells))
                if (value := text_of(cells, column))}
    measured = {OF_ALL.get(name, name): value / (num_gpus if name in OF_ALL else 1) for name, value in measured.items()}
    common: dict[str, Any] = {"id": text_of(cells, "id") or str(k), "groups": groups, "measured": measured}
    try:
        return Measurement(**common, **run_of())
    except PlannerError as error:
        return Measurement(**common, status=str(error))


def _layout_name(row: Row) -> str:
    """Return the layout as the table has it."""
    return f"tp{row.tp}{f'-pp{row.pp}' if row.pp > 1 else ''}-dp{row.dp}-ep{row.ep}"
