"""Reading a trace: the source's blocks through the format's reader and the shared checks into one sorted table."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError, UsageError
from planner.schema import MAX_SECONDS, TRACE_COLUMNS
from planner.trace.check import Checked, check_rows
from planner.trace.formats import check_format, find_reader
from planner.trace.lines import parse_rows
from planner.trace.prefix import PrefixIds, intern_ids, take_rows
from planner.trace.reader import Head, Reader, check_text, read_head
from planner.trace.source import BLOCK_BYTES, decompressed, line_blocks, raw_blocks
from planner.trace.table import Trace, account_of

BadRows = Literal["error", "drop"]


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What has been read so far."""

    tables: list[pl.DataFrame] = field(default_factory=list)
    ids: list[pl.Series] = field(default_factory=list)
    id_lengths: list[NDArray[np.int64]] = field(default_factory=list)
    block_tokens: int | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    num_rows: int = 0
    own_ids: bool = False


def read_trace(
    source: str, *, format: str | None = None, on_bad_rows: BadRows = "error", limit: int | None = None
) -> Trace:
    """Read a recorded trace, or a bundled sample by its name.

    Parameters
    ----------
    source : path, "-" for stdin, or a sample's name (a file of the same name is read as ``./name``). Gzip and
        Zstandard are undone; the format is known from the content, not from the name.
    format : a key of FORMATS, to force a reader (`source` is a file then); None to detect it.
    on_bad_rows : "error" raises at the first bad row; "drop" drops bad rows and counts them by reason.
    limit : read no more than the first `limit` rows in file order; None for all.

    Returns
    -------
    Trace
        sorted by arrival, rows with equal arrivals in file order. Arrivals are those of the file, in seconds; where
        the file has dates, they count from its earliest.

    Raises
    ------
    TraceError : the file cannot be read, or a row is bad; the message names file, line, column and value.
    UsageError : an argument is unknown (UnknownNameError for a format) or out of range.
    """
    _check_arguments(on_bad_rows, limit)
    check_format(format)
    if format is None and source.replace("-", "").isalnum() and source in _sample_names():
        return _sample(source, limit)
    digest = hashlib.sha256()
    raw = raw_blocks(source, digest, _sample_names)
    blocks = line_blocks(decompressed(source, raw), BLOCK_BYTES)
    first = next(blocks, b"")
    head = read_head(source, first)
    reader = find_reader(source, head, format)
    gathered = _gather(source, _after_header(first, head, blocks), head, reader, on_bad_rows, limit)
    for _ in raw:  # hash what a limit left unread
        pass
    return _assemble(source, gathered, head, reader, digest.hexdigest(), on_bad_rows)


def _check_arguments(on_bad_rows: str, limit: int | None) -> None:
    if on_bad_rows not in ("error", "drop"):
        raise UsageError(f"on_bad_rows = {on_bad_rows!r}; must be 'error' or 'drop'")
    if limit is not None and limit < 1:
        raise UsageError(f"limit = {limit}; must be >= 1 (leave it out to read all rows)")


def _sample_names() -> list[str]:
    from planner.synthetic import sample_names  # samples are built from these modules, so not at import

    return sample_names()


def _sample(name: str, limit: int | None) -> Trace:
    from planner import workload
    from planner.synthetic import load_sample

    trace = load_sample(name)
    return trace if limit is None else workload.limit(trace, limit)


def _after_header(first: bytes, head: Head, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each block of rows with the number of its first line."""
    line = 1
    if head.layout == "csv":
        first = first.split(b"\n", head.line)[head.line]
        line += head.line
    while first:
        yield line, first
        line += first.count(b"\n")
        first = next(blocks, b"")


def _gather(
    source: str,
    blocks: Iterator[tuple[int, bytes]],
    head: Head,
    reader: Reader,
    on_bad_rows: BadRows,
    limit: int | None,
) -> _Gathered:
    gathered = _Gathered()
    for line, block in blocks:
        check_text(source, block, line)
        left = None if limit is None else limit - gathered.num_rows
        rows = parse_rows(source, block, head, reader, line, gathered.num_rows, left)
        checked = check_rows(source, rows, reader)
        if checked.first_fault is not None and on_bad_rows == "error":
            raise _row_error(source, checked.first_fault.line, checked.first_fault.text)
        gathered.dropped.update(checked.dropped)
        gathered.num_rows += rows.num_rows
        gathered.own_ids = gathered.own_ids or checked.own_ids
        _append(source, gathered, checked, line)
        if limit is not None and gathered.num_rows >= limit:
            break
    return gathered


def _row_error(source: str, line: int, text: str) -> TraceError:
    return TraceError(f"trace {source} line {line}: {text} (--on-bad-rows drop skips such rows)")


def _append(source: str, gathered: _Gathered, checked: Checked, line: int) -> None:
    gathered.tables.append(checked.table)
    if checked.id_lengths is None or checked.ids is None:
        gathered.id_lengths.append(np.zeros(checked.table.height, dtype=np.int64))
        return
    gathered.id_lengths.append(checked.id_lengths)
    gathered.ids.append(checked.ids)
    if gathered.block_tokens not in (None, checked.block_tokens):
        raise TraceError(
            f"trace {source}: hash_block_tokens = {checked.block_tokens} from line {line} on, after "
            f"{gathered.block_tokens}; must be one value in the file (split the file, or hash again)"
        )
    gathered.block_tokens = checked.block_tokens


def _assemble(
    source: str, gathered: _Gathered, head: Head, reader: Reader, sha256: str, on_bad_rows: BadRows
) -> Trace:
    """Join the blocks, count from the earliest date, refuse repeated ids, and sort by arrival."""
    if not gathered.num_rows:
        raise TraceError(f"trace {source}: has a header but no rows; must have at least one request")
    table = pl.concat(gathered.tables, how="diagonal")
    if not table.height:
        reasons = ", ".join(f"{count} {reason}" for reason, count in gathered.dropped.items())
        raise TraceError(f"trace {source}: no row is left of {gathered.num_rows} ({reasons}); check the columns' units")
    prefix = _prefix(gathered)
    gathered.tables.clear()
    table = _from_earliest(source, table)
    rows = _unique_rows(source, table, gathered.dropped, on_bad_rows) if gathered.own_ids else None
    order = _arrival_order(table, rows)
    if order is not None:
        table = table[order]
        prefix = None if prefix is None else take_rows(prefix, order)
    names = [column.name for column in TRACE_COLUMNS if column.name in table.columns]
    requests = table.select(names).rechunk()
    account = account_of(
        requests, source=source, format=reader.name, rows_read=gathered.num_rows, dropped=gathered.dropped,
        ignored_columns=_ignored(head, reader),
    )
    return Trace(
        requests=requests, prefix=prefix, source=source, format=reader.name, sha256=sha256, account=account
    )


def _prefix(gathered: _Gathered) -> PrefixIds | None:
    if gathered.block_tokens is None:
        return None
    lengths = np.concatenate(gathered.id_lengths)
    return intern_ids(gathered.ids, lengths, gathered.block_tokens)


def _from_earliest(source: str, table: pl.DataFrame) -> pl.DataFrame:
    """Turn dates into seconds from the earliest; nanoseconds are subtracted as integers, so nothing is rounded."""
    arrival = table["arrival_s"]
    if not arrival.dtype.is_temporal():
        return table
    nanoseconds = arrival.to_physical()
    arrival_s = (nanoseconds - nanoseconds.min()) / 1e9
    latest_s = arrival_s.max()
    if isinstance(latest_s, float) and latest_s > MAX_SECONDS:
        first, last = (int(table["line"][at]) for at in (arrival.arg_min() or 0, arrival.arg_max() or 0))
        raise TraceError(
            f"trace {source} lines {first} and {last}: arrivals are {latest_s:.4g} s apart; must be within "
            f"{MAX_SECONDS:.0f} s (correct the dates)"
        )
    return table.with_columns(arrival_s.alias("arrival_s"))


def _unique_rows(
    source: str, table: pl.DataFrame, dropped: Counter[str], on_bad_rows: BadRows
) -> NDArray[np.int64] | None:
    """Rows to keep where a request_id comes twice (the first of each); None where all are different."""
    ids = table["request_id"]
    if ids.n_unique() == ids.len():
        return None
    again = ~ids.is_first_distinct()
    if on_bad_rows == "error":
        row = int(again.arg_true()[0])
        first = int((ids == ids[row]).arg_true()[0])
        text = f"request_id = {ids[row]} is also on line {table['line'][first]}; must be unique"
        raise _row_error(source, int(table["line"][row]), text)
    dropped["request_id is repeated"] += int(again.sum())
    return (~again).arg_true().cast(pl.Int64).to_numpy()


def _arrival_order(table: pl.DataFrame, rows: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Rows in order of arrival, ties in file order; None where the table is in order already."""
    arrival_s = table["arrival_s"].to_numpy()
    if rows is None:
        if bool(np.all(arrival_s[1:] >= arrival_s[:-1])):
            return None
        rows = np.arange(table.height, dtype=np.int64)
    return rows[np.argsort(arrival_s[rows], kind="stable")]


def _ignored(head: Head, reader: Reader) -> tuple[str, ...]:
    used = {*reader.columns.values()} | ({"hash_ids", "hash_block_tokens"} if reader.layout == "jsonl" else set())
    return tuple(name or "(unnamed)" for name in head.columns if name not in used)
