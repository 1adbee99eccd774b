"""Blocks of checked rows gathered into one trace: in order of arrival, with prefix ids, times and notes."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import NoOutputsError, TraceError
from planner.files.counts import count_text
from planner.schema import MAX_SECONDS, TRACE_COLUMNS
from planner.settings.format_spec import MAPPED
from planner.traces.aggregates import apart, refuse_sums
from planner.traces.check import Checked, check_rows
from planner.traces.lines import BlockRows, skip_rows
from planner.traces.number_forms import REMEDY
from planner.traces.prefix_ids import PrefixIds, intern_ids, take_rows, within_groups
from planner.traces.reader import DEPLOYED, MODEL, SENT, Head, Reader
from planner.traces.results import with_results
from planner.traces.table import Arrivals, Trace, account_of
from planner.traces.times import fill_times
from planner.traces.units import quotient

BadRows = Literal["error", "drop"]
MOST_MODELS = 5  # that a note names
NO_OUTPUTS = ("output_tokens = 0;", "output_tokens is missing")  # of rows as embedding models have them
DAYS, MOST_DAYS = (40_000, 60_000), 400  # of spreadsheets, from 2009 to 2064, and of one trace
DROP = "--on-bad-rows drop skips such rows"
_TIMES = {column.name for column in TRACE_COLUMNS if column.unit == "s"}


@dataclass(slots=True, kw_only=True)
class Gathered:
    """The content of the rows read until now."""

    tables: list[pl.DataFrame] = field(default_factory=list)
    ids: list[pl.Series] = field(default_factory=list)
    id_lengths: list[NDArray[np.int64]] = field(default_factory=list)
    block_tokens: int | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    num_bad: int = 0
    num_rows: int = 0
    own_ids: bool = False
    place: str = "line"
    forms: dict[str, str] = field(default_factory=dict)
    first_fault: str = ""
    deployed: dict[str, Counter[str]] = field(default_factory=dict)


def gather(source: str, batches: Iterator[BlockRows], reader: Reader, on_bad_rows: BadRows) -> Gathered:
    """Check the rows of each block, and keep the good ones.

    Raises
    ------
    TraceError : a row is bad, unless `on_bad_rows` is "drop".
    """
    gathered = Gathered()
    for batch in batches:
        rows = skip_rows(batch if reader.has_outputs else with_results(batch), reader)
        gathered.place = rows.place
        checked = check_rows(source, rows, reader)
        fault = checked.first_fault
        if fault is not None and on_bad_rows == "error":
            raise _row_error(source, rows, checked, reader)
        _merge_forms(source, gathered, checked)
        if fault is not None and not gathered.first_fault:
            gathered.first_fault = f"{rows.place} {fault.line}: {fault.text}"
        gathered.dropped.update(rows.skipped)
        gathered.dropped.update(checked.dropped)
        gathered.num_bad += checked.dropped.total()
        gathered.num_rows += rows.num_rows
        gathered.own_ids = gathered.own_ids or checked.own_ids
        if names := [name for name in DEPLOYED if name in rows.table.columns]:
            good = pl.Series(rows.lines).is_in(checked.table["line"].cast(pl.Int64).implode())
            for name in names:
                gathered.deployed.setdefault(name, Counter()).update(
                    rows.table.filter(good)[name].cast(pl.String).drop_nulls().to_list())
        _append(source, gathered, checked)
    return gathered


def _row_error(source: str, rows: BlockRows, checked: Checked, reader: Reader) -> TraceError:
    """Return the error of a block's first fault; to drop rows is no remedy if all rows have the fault."""
    fault = checked.first_fault
    assert fault is not None
    remedy, kind = fault.remedy or DROP, TraceError
    if not checked.table.height and rows.num_rows > 1 and checked.dropped[fault.reason] == rows.num_rows:
        name = fault.reason.split(" ")[0]
        is_empty = fault.text.startswith(NO_OUTPUTS) or " = 0; output_tokens must" in fault.text
        kind = NoOutputsError if is_empty else kind
        shown = (f"or unit, as in --column {name}={reader.columns.get(name, 'COLUMN')}:ms" if name in _TIMES else
                 f"as in --column {name}=COLUMN")
        other = f"--column names another column {shown}" if name in MAPPED else None  # other faults have no column
        if name in _TIMES and fault.reason.endswith(("not a number", "not a date and time")):
            other = f"--column names another column as in --column {name}=COLUMN; or write times as 2026-11-30 10:00:00"
        remedy = "; ".join(filter(None, (f"all {rows.num_rows:,} rows are alike", fault.remedy or other)))
    return kind(f"trace {source} {rows.place} {fault.line}: {fault.text} ({remedy})")


def _merge_forms(source: str, gathered: Gathered, checked: Checked) -> None:
    for name, form in checked.forms.items():
        if gathered.forms.setdefault(name, form) != form:
            raise TraceError(f"trace {source}: {name} is written with {gathered.forms[name]} and with {form}; {REMEDY}")


def _form_notes(gathered: Gathered, reader: Reader) -> list[str]:
    return [f"{reader.columns.get(name, name)} is read with {form}" for name, form in sorted(gathered.forms.items())]


def _model_notes(gathered: Gathered, reader: Reader) -> list[str]:
    """Return the models of a file, if there are several, and how to keep one of them."""
    models = gathered.deployed.get(MODEL, Counter()).most_common()
    if len(models) < 2:
        return []
    shown = ", ".join(f"{name} ({count_text(count, 'row')})" for name, count in models[:MOST_MODELS])
    more = f" and {len(models) - MOST_MODELS:,} more" if len(models) > MOST_MODELS else ""
    keep = shlex.quote(f"{reader.columns[MODEL]}={models[0][0]}")
    return [f"the file has {len(models)} models: {shown}{more}. All of them count as requests to one model; --where "
            f"{keep} keeps one"]


def _append(source: str, gathered: Gathered, checked: Checked) -> None:
    gathered.tables.append(checked.table)
    if checked.id_lengths is None or checked.ids is None:
        gathered.id_lengths.append(np.zeros(checked.table.height, dtype=np.int64))
        return
    gathered.id_lengths.append(checked.id_lengths)
    gathered.ids.append(checked.ids)
    if gathered.block_tokens not in (None, checked.block_tokens):
        first = int(checked.table["line"].min() or 0)  # type: ignore[arg-type]
        raise TraceError(
            f"trace {source}: hash_block_tokens = {checked.block_tokens} from {gathered.place} {first} on, after "
            f"{gathered.block_tokens}; must be one value in the file (split the file, or hash again)"
        )
    gathered.block_tokens = checked.block_tokens


def assemble(
    source: str, gathered: Gathered, head: Head, reader: Reader, sha256: str, on_bad_rows: BadRows
) -> Trace:
    """Join the blocks, count from the earliest date, refuse repeated ids, and sort by arrival.

    Raises
    ------
    TraceError : no row is left, or rows do not fit each other.
    """
    if not gathered.num_rows:
        what = "a header but no rows" if head.layout == "csv" else f"no requests of format {reader.name!r}"
        raise TraceError(f"trace {source}: has {what}; must have at least one request")
    table, arrivals = _joined(source, gathered)
    prefix = _prefix(gathered, table, reader)
    gathered.tables.clear()
    is_dated = table["arrival_s"].dtype.is_temporal()
    days = [] if is_dated else _day_notes(table["arrival_s"], reader)
    if (column := reader.unsure_time) and not is_dated:
        if days:
            raise TraceError(f"trace {source}: {days[0]}")
        ours = next(name for name, path in reader.columns.items() if path == column)
        value = f" = {table[ours][0]:g}" if ours in table.columns else ""
        given = f"--column {shlex.quote(f'{ours}={column}')}"
        raise TraceError(f"trace {source}: {column} looks like {ours}, but {column}{value} does not say its unit; give "
                         f"{given}:s or {given}:ms")
    zero_at_s = float(table["arrival_s"].to_physical().to_numpy().min()) / 1e9 if is_dated else None
    table = _from_earliest(source, table, gathered.place)
    sum_notes = refuse_sums(source, table, reader, zero_at_s, head)
    table, many_notes = apart(source, gathered.place, table, reader, head)
    rows = _unique_rows(source, table, gathered, on_bad_rows) if gathered.own_ids else None
    order = _arrival_order(table, rows)
    if order is not None:
        table = table[order]
        prefix = None if prefix is None else take_rows(prefix, order)
    if reader.finish is not None:
        table = reader.finish(_with_names(table))
    if reader.fills_times:
        table = fill_times(table)
    notes = (*_model_notes(gathered, reader), *reader.notes, *reader.head_notes(head), *_form_notes(gathered, reader),
             *days, *sum_notes, *many_notes, *arrival_notes(table, arrivals))
    names = [column.name for column in TRACE_COLUMNS
             if column.name in table.columns and table[column.name].null_count() < table.height]
    requests = _in_one_piece(table, names)
    account = account_of(
        requests, source=source, format=reader.name, rows_read=gathered.num_rows, dropped=gathered.dropped,
        ignored_columns=_ignored(head, reader), notes=notes, num_bad=gathered.num_bad,
    )
    return Trace(
        requests=requests, prefix=prefix, source=source, format=reader.name, sha256=sha256, account=account,
        arrivals=arrivals, zero_at_s=zero_at_s, deployed=gathered.deployed,
    )


def _day_notes(arrival_s: pl.Series, reader: Reader) -> list[str]:
    """Return a note if numbers of a user's column look like days, as spreadsheets count them from 1900."""
    path, values = reader.columns.get("arrival_s", "arrival_s"), arrival_s.to_numpy()
    first, last = values.min(), values.max()
    is_of_days = DAYS[0] <= first and last <= DAYS[1] and last - first < MOST_DAYS and (values % 1).any()
    if path == "arrival_s" or not is_of_days:
        return []
    return [f"{path} = {arrival_s[0]} looks like a day as spreadsheets count it, and no time in seconds; if it is, "
            f"give the cells a format with the date and the time (yyyy-mm-dd hh:mm:ss.000), and export again"]


def _joined(source: str, gathered: Gathered) -> tuple[pl.DataFrame, Arrivals]:
    """Join the blocks' rows; if none has an arrival, all come at 0 s."""
    clocks = {table["arrival_s"].dtype if "arrival_s" in table.columns else None
              for table in gathered.tables if table.height}
    if len(clocks) > 1:
        raise TraceError(
            f"trace {source}: some arrivals are dates or count from 1970, others count from the trace's start or "
            "are missing; must be of one kind in the file (split the file)"
        )
    if gathered.own_ids:
        gathered.tables = [_with_names(table) for table in gathered.tables]
    table = pl.concat([table for table in gathered.tables if table.height] or gathered.tables[:1], how="diagonal")
    if not table.height:
        reasons = ", ".join(f"{count} {reason}" for reason, count in gathered.dropped.items())
        raise TraceError(f"trace {source}: no row is left of {gathered.num_rows} ({reasons}; "
                         f"{gathered.first_fault or 'see the conditions'}); check the columns and their units")
    if "arrival_s" in table.columns:
        return table, "recorded"
    return table.with_columns(arrival_s=pl.lit(0.0)), "absent"


def _with_names(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.col("request_id").cast(pl.String))


def _prefix(gathered: Gathered, table: pl.DataFrame, reader: Reader) -> PrefixIds | None:
    if gathered.block_tokens is None:
        return None
    lengths = np.concatenate(gathered.id_lengths)
    prefix = intern_ids(gathered.ids, lengths, gathered.block_tokens)
    if reader.id_scope == "session" and "session_id" in table.columns:
        return within_groups(prefix, table["session_id"])
    return prefix


def _from_earliest(source: str, table: pl.DataFrame, place: str) -> pl.DataFrame:
    """Turn dates into seconds from the earliest; nanoseconds are subtracted as integers, so nothing is rounded."""
    arrival = table["arrival_s"]
    if not arrival.dtype.is_temporal():
        return table
    zero = arrival.to_physical().min()
    instants = [name for name in ("arrival_s", SENT) if name in table.columns]
    table = table.with_columns(quotient(table[name].to_physical() - zero, 1e9).alias(name) for name in instants)
    latest_s = table["arrival_s"].max()
    if isinstance(latest_s, float) and latest_s > MAX_SECONDS:
        first, last = (int(table["line"][at]) for at in (arrival.arg_min() or 0, arrival.arg_max() or 0))
        raise TraceError(
            f"trace {source} {place}s {first} and {last}: arrivals are {latest_s:.4g} s apart; must be within "
            f"{MAX_SECONDS:.0f} s (correct the dates)"
        )
    return table


def _unique_rows(
    source: str, table: pl.DataFrame, gathered: Gathered, on_bad_rows: BadRows
) -> NDArray[np.int64] | None:
    """Rows to keep if a request_id comes twice (the first of each); None if all are different."""
    ids = table["request_id"]
    if ids.n_unique() == ids.len():
        return None
    again = ~ids.is_first_distinct()
    if on_bad_rows == "error":
        row = int(again.arg_true()[0])
        first = int((ids == ids[row]).arg_true()[0])
        text = f"request_id = {ids[row]} is also on {gathered.place} {table['line'][first]}; must be unique"
        raise TraceError(f"trace {source} {gathered.place} {table['line'][row]}: {text} ({DROP})")
    gathered.dropped["request_id is repeated"] += int(again.sum())
    gathered.num_bad += int(again.sum())
    return (~again).arg_true().cast(pl.Int64).to_numpy()


def _arrival_order(table: pl.DataFrame, rows: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Rows in order of arrival, ties in file order; None if the table is in order already."""
    arrival_s = table["arrival_s"].to_numpy()
    if rows is None:
        if bool(np.all(arrival_s[1:] >= arrival_s[:-1])):
            return None
        rows = np.arange(table.height, dtype=np.int64)
    return rows[np.argsort(arrival_s[rows], kind="stable")]


def _in_one_piece(table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return columns of a table, each in one piece of memory; the table loses them, so that none is there twice."""
    return pl.DataFrame([table.drop_in_place(name).rechunk() for name in names])


def _ignored(head: Head, reader: Reader) -> tuple[str, ...]:
    """Return the file's columns that a flat format does not use, and the paths beside used ones in nested objects."""
    if reader.rows is not None:
        return ()
    used = {path for name, path in reader.columns.items() if name not in DEPLOYED}
    partly = {path.split(".")[0] for path in used if path not in head.columns}
    beside = [path for path in head.paths if path.split(".")[0] in partly - set(head.columns) | partly]
    paths = [*(name or "(unnamed)" for name in head.columns if name not in used and name not in partly),
             *(path for path in beside if path not in used and path not in head.columns)]
    return tuple(paths)


FEWEST = 20  # requests, below which nothing is said of a closed loop
SHARE = 0.9  # of the requests that must look like a closed loop's
PROMPT_FRAC = 0.05  # of the median latency, within which a closed loop's client sends the next


def arrival_notes(table: pl.DataFrame, arrivals: str) -> Iterator[str]:
    """Yield notes on a trace's arrivals.

    Parameters
    ----------
    table : requests sorted by arrival, `sent_at_s` if the file has it.
    arrivals : "recorded" or "absent".
    """
    if arrivals == "absent":
        yield ("the file has no arrival times: a replay needs --request-rate (Poisson arrivals) or --max-concurrency "
               "(a closed loop)")
        return
    if SENT in table.columns:
        late_ms = (table[SENT] - table["arrival_s"]).drop_nulls().to_numpy() * 1000
        if len(late_ms) and np.percentile(late_ms, 99) > 1:
            yield (f"arrivals are scheduled times. Requests were sent later, {np.median(late_ms):.3g} ms in the median "
                   f"and {np.percentile(late_ms, 99):.3g} ms at p99; measured times do not include this delay")
    concurrency = closed_loop_of(table)
    if concurrency is not None:
        yield (f"requests arrived as others ended, {concurrency} in flight: a closed loop, so arrivals depend on the "
               f"measured system; --max-concurrency {concurrency} replays a closed loop")


def closed_loop_of(table: pl.DataFrame) -> int | None:
    """Return how many requests a closed loop kept in flight; None if arrivals do not look like one's.

    In a closed loop almost every arrival follows shortly upon an end, and brings the number in flight back to the
    same.

    Parameters
    ----------
    table : sorted by arrival, with `e2e_s` if it was measured.
    """
    if "e2e_s" not in table.columns:
        return None
    known = table.filter(pl.col("e2e_s").is_not_null())
    sent = known[SENT].fill_null(known["arrival_s"]) if SENT in known.columns else known["arrival_s"]
    arrival_s, e2e_s = sent.sort().to_numpy(), known["e2e_s"].to_numpy()[sent.arg_sort().to_numpy()]
    n = len(known)
    if n < FEWEST or arrival_s[-1] <= arrival_s[0]:
        return None
    ends = np.sort(arrival_s + e2e_s)
    ended = np.searchsorted(ends, arrival_s, side="right")
    in_flight = np.arange(1, n + 1) - ended
    level = int(np.median(in_flight))
    later = ended > 0
    if level < 1 or level >= n / 2 or later.sum() < n / 2:
        return None
    since_s = (arrival_s - ends[np.maximum(ended - 1, 0)])[later]
    is_back = in_flight[later] == level
    is_prompt = since_s <= PROMPT_FRAC * np.median(e2e_s)
    return level if float((is_back & is_prompt).mean()) >= SHARE else None
