"""Blocks of text split into rows of cells; each row knows its line, and a line that is no row is a fault."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from planner.errors import TraceError
from planner.files.nested import parse_json
from planner.traces.reader import Head, Layout, Reader

MOST_PARTS = 5  # of a path in JSON text, of which all ways to join them into keys are tried
_QUOTED = re.compile(rb'"[^"]*"')
_NOT_FINITE = re.compile(rb"NaN|Infinity|[eE]\+?\d{3}")
_SCALARS = {int, str, float, bool, type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """Why a row cannot be used: its line or number, the reason (for counting), the text for the user, and a remedy."""

    line: int
    reason: str
    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockRows:
    """The rows of one block.

    Parameters
    ----------
    table : cells as strings under our column names, `hash_ids` as lists [num_rows - len(faults)].
    lines : line of each row of the table in the file, from 1; if `place` is "row", its number, from 1.
    numbers : number of each row of the table among the file's rows, faulty ones included, from 0.
    faults : lines that could not be split into cells.
    num_rows : rows of the block, faulty ones included.
    skipped : rows that are no served requests by the format's own word, by reason; none of them is in the table.
    place : unit of `lines`.
    """

    table: pl.DataFrame
    lines: NDArray[np.int64]
    numbers: NDArray[np.int64]
    faults: Sequence[BadRow]
    num_rows: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    place: str = "line"


def parse_rows(
    source: str, block: bytes, head: Head, reader: Reader, first_line: int, first_row: int, limit: int | None
) -> BlockRows:
    """Split a block into rows: all at once if it is clean, else line by line.

    Parameters
    ----------
    first_line, first_row : line of the block's first line, and number of its first row.
    limit : stop after this many rows; None for all.

    Raises
    ------
    TraceError : lines that pass one by one cannot be parsed together.
    """
    split, judge = _SPLIT[head.layout], _JUDGE[head.layout]
    table = split(block, head, reader)
    if table is not None and table.height == block.count(b"\n"):
        table = table if limit is None else table.head(limit)
        order = np.arange(table.height, dtype=np.int64)
        return BlockRows(table=table, lines=first_line + order, numbers=first_row + order, faults=(),
                         num_rows=table.height)
    records = list(islice(split_lines(block, first_line, head.layout), limit))
    faults = {i: fault for i, (line, text) in enumerate(records) if (fault := judge(line, text, head, reader))}
    good = np.array([i for i in range(len(records)) if i not in faults], dtype=np.int64)
    texts = (records[i][1] for i in good)
    table = split(b"".join(text + b"\n" for text in (map(_quoted, texts) if head.layout == "jsonl" else texts)), head,
                  reader)
    if table is None or table.height != len(good):
        last = first_line + block.count(b"\n") - 1
        raise TraceError(f"trace {source} lines {first_line} to {last}: cannot be split into columns; check the quotes")
    return BlockRows(
        table=table,
        lines=np.array([line for line, _ in records], dtype=np.int64)[good],
        numbers=first_row + good,
        faults=list(faults.values()),
        num_rows=len(records),
    )


def split_lines(block: bytes, first_line: int, layout: Layout) -> Iterator[tuple[int, bytes]]:
    """Yield every row that is not blank with its line; a quoted CSV field may go on over several lines."""
    join = layout == "csv" and block.count(b'"') % 2 == 0
    start, text = first_line, b""
    for line, part in enumerate(block.split(b"\n"), first_line):
        text = text + b"\n" + part if text else part
        if join and text.count(b'"') % 2:
            continue
        if text.strip():
            yield start, text
        start, text = line + 1, b""


def _csv_table(block: bytes, head: Head, reader: Reader) -> pl.DataFrame | None:
    bare = _QUOTED.sub(b"", block) if b'"' in block else block
    num_rows = bare.count(b"\n")
    if bare.count(head.separator.encode()) != num_rows * (len(head.columns) - 1):
        return None
    schema = {str(i): pl.String() for i in range(len(head.columns))}
    wanted = {name: cell_of(column, head, str) for name, column in reader.columns.items() if head.has(column)}
    if not num_rows:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String()))
    try:
        table = pl.read_csv(block, has_header=False, schema=schema, separator=head.separator)
    except PolarsError:
        return None
    if table.height != num_rows:
        return None
    return table.select(cell.alias(name) for name, cell in wanted.items())


def cell_of(path: str, head: Head, name_of: Callable[[int], str]) -> pl.Expr:
    """Return a column of a table by its path: a column, or the value under keys of the JSON text in a column.

    Parameters
    ----------
    name_of : from a column's place in the head to its name in the table.
    """
    if path in head.columns:
        return pl.col(name_of(head.columns.index(path)))
    cells = [pl.col(name_of(head.columns.index(path[:at]))).str.json_path_match(f"${keys}")
             for at, sign in enumerate(path) if sign == "." and path[:at] in head.columns
             for keys in _json_paths(path[at + 1:].split("."))]
    return pl.coalesce(cells)


def _json_paths(parts: Sequence[str]) -> list[str]:
    """Return the paths that parts may be, as a key may have dots in it; each part a key of its own comes first."""
    groupings = _groupings(parts) if len(parts) <= MOST_PARTS else [list(parts), [".".join(parts)]]
    return ["".join(f'["{key}"]' for key in keys) for keys in groupings]


def _groupings(parts: Sequence[str]) -> list[list[str]]:
    return [[".".join(parts[:end]), *rest] for end in range(1, len(parts) + 1)
            for rest in (_groupings(parts[end:]) if end < len(parts) else [[]])]


def skip_rows(rows: BlockRows, reader: Reader) -> BlockRows:
    """Leave out the rows that are no served requests, each counted under the first reason that holds of it."""
    skipped: dict[str, int] = {}
    table = rows.table
    for skip in reader.skips:
        if not set(skip.where.meta.root_names()) <= set(table.columns) or not table.height:
            continue
        keep = ~table.select(skip.where.fill_null(False).alias("skip"))["skip"]
        if keep.all():
            continue
        skipped[skip.reason] = int((~keep).sum())
        inside = keep.to_numpy()
        table = table.filter(keep)
        rows = replace(rows, table=table, lines=rows.lines[inside], numbers=rows.numbers[inside])
    return replace(rows, skipped=skipped) if skipped else rows


def _csv_fault(line: int, text: bytes, head: Head, reader: Reader) -> BadRow | None:
    bare = _QUOTED.sub(b"", text)
    if b'"' in bare:
        return BadRow(line=line, reason="unclosed quote",
                      text="a quote is not closed; must be closed in the same field")
    fields, wanted = bare.count(head.separator.encode()) + 1, len(head.columns)
    if fields == wanted:
        return None
    reason = "too few fields" if fields < wanted else "too many fields"
    return BadRow(line=line, reason=reason, text=f"has {fields} fields; must have the header's {wanted}")


def _json_table(block: bytes, head: Head, reader: Reader) -> pl.DataFrame | None:
    names = {name: column for name, column in reader.columns.items() if name != "hash_ids"}
    lists = reader.columns.get("hash_ids")
    for id_type in (pl.Int64(), pl.String()):
        schema: dict[str, pl.DataType] = dict.fromkeys(names.values(), pl.String())
        if lists is not None:
            schema[lists] = pl.List(id_type)
        try:
            table = pl.read_ndjson(block, schema=schema)
        except PolarsError:
            if lists is None:
                return None
            continue
        ids = {} if lists is None else {"hash_ids": lists}
        return table.select(pl.col(column).alias(name) for name, column in (names | ids).items())
    return None


def _json_fault(line: int, text: bytes, head: Head, reader: Reader) -> BadRow | None:
    row = parse_object(line, text)
    if isinstance(row, BadRow):
        return row
    ids = row.get(reader.columns.get("hash_ids", ""))
    if ids is None or is_ids(ids):
        return None
    return BadRow(line=line, reason="hash_ids is not a list", text=f"hash_ids = {_short(ids)}; must be a list of ids")


def parse_object(line: int, text: bytes) -> dict[str, Any] | BadRow:
    """Parse a line as a JSON object."""
    try:
        row = parse_json(text)
    except ValueError as error:
        return BadRow(
            line=line, reason="not JSON",
            text=f"is not valid JSON ({error}); must be one whole object (the file may be truncated here)",
        )
    if not isinstance(row, dict):
        return BadRow(line=line, reason="not a JSON object", text=f"is {_short(row)}; must be a JSON object")
    return row


def is_ids(value: Any) -> bool:
    """Tell whether a value is a list of ids: finite numbers, strings and nulls."""
    return isinstance(value, list) and set(map(type, value)) <= _SCALARS and all(
        math.isfinite(one) for one in value if isinstance(one, float))


def _quoted(text: bytes) -> bytes:
    """Return a line of JSON with its infinite numbers and NaN as strings: a column that is not read may hold them."""
    return text if not _NOT_FINITE.search(text) else json.dumps(parse_json(
        text, parse_constant=str, parse_float=lambda part: part if math.isinf(float(part)) else float(part))).encode()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


_SPLIT = {"csv": _csv_table, "jsonl": _json_table}
_JUDGE = {"csv": _csv_fault, "jsonl": _json_fault}
