"""Rows out of JSON values: whole documents, and lines whose objects hold the columns deeper down."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.errors import TraceError
from planner.files.nested import parse_json
from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.traces.lines import BadRow, BlockRows, is_ids, parse_object, split_lines
from planner.traces.reader import Reader, value_at

Record = Mapping[str, Any]


def parse_document(source: str, text: bytes) -> Any:
    """Parse a file that is one JSON value.

    Raises
    ------
    TraceError : it is not.
    """
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"trace {source} line {error.lineno}: is not valid JSON ({error.msg}); must be JSON lines, one whole "
            "object on each, or one JSON document (the file may be truncated here)"
        ) from None
    except ValueError as error:
        raise TraceError(f"trace {source}: cannot be read as a JSON document ({error})") from None


def objects_of_lines(source: str, text: bytes) -> list[Any]:
    """Parse JSON lines that hold envelopes.

    Raises
    ------
    TraceError : a line is no JSON object.
    """
    numbered = [(line, parse_object(line, part)) for line, part in split_lines(text, 1, "jsonl")]
    for line, value in numbered:
        if isinstance(value, BadRow):
            raise TraceError(f"trace {source} line {line}: {value.text}")
    return [value for _, value in numbered]


def objects_of(source: str, document: Any) -> list[Record]:
    """Return the objects at a document's top: itself, or a list's elements.

    Raises
    ------
    TraceError : it is, or holds, something else.
    """
    rows = document if isinstance(document, list) else [document]
    wrong = next((k for k, row in enumerate(rows) if not isinstance(row, dict)), None)
    if wrong is not None or not rows:
        what = "is empty" if not rows else f"entry {wrong} is {json.dumps(rows[wrong or 0])[:40]}"
        raise TraceError(f"trace {source}: {what}; must be a JSON object, or a list of objects")
    return rows


def document_rows(source: str, values: Sequence[Record], reader: Reader, folder: Path, limit: int | None) -> BlockRows:
    """Return the requests of a document's objects as rows, which are counted from 1.

    Raises
    ------
    TraceError : the format's own, or it takes one object, and there are several.
    """
    if reader.single and len(values) > 1:
        raise _several(source)
    records = list(islice(_records(source, values, reader, folder), limit))
    numbers = np.arange(len(records), dtype=np.int64)
    return BlockRows(table=table_of(records, reader), lines=numbers + 1, numbers=numbers, faults=(),
                     num_rows=len(records), place="row")


def line_rows(source: str, block: bytes, reader: Reader, first_line: int, first_row: int,
              limit: int | None) -> BlockRows:
    """Return the requests of a block of JSON lines as rows; a line that is no object is a fault.

    Raises
    ------
    TraceError : as `document_rows`.
    """
    folder = Path(source).parent
    records: list[Record] = []
    lines: list[int] = []
    numbers: list[int] = []
    faults: list[BadRow] = []
    row = first_row
    for line, text in split_lines(block, first_line, "jsonl"):
        value = parse_object(line, text)
        if isinstance(value, BadRow):
            faults.append(value)
            row += 1
        else:
            if reader.single and row > 0:
                raise _several(source)
            for record in _records(source, [value], reader, folder):
                records.append(record)
                lines.append(line)
                numbers.append(row)
                row += 1
        if limit is not None and row - first_row >= limit:
            break
    keep = len(records) if limit is None else max(limit - len(faults), 0)
    records = records[:keep]
    return BlockRows(table=table_of(records, reader), lines=np.array(lines[:keep], np.int64),
                     numbers=np.array(numbers[:keep], np.int64), faults=faults, num_rows=len(records) + len(faults))


def _records(source: str, values: Iterable[Record], reader: Reader, folder: Path) -> Iterator[Record]:
    for value in values:
        if reader.rows is None:
            yield value
            continue
        try:
            yield from reader.rows(value, folder)
        except TraceError as error:
            raise TraceError(f"trace {source}: {error}") from None


def _several(source: str) -> TraceError:
    return TraceError(f"trace {source}: holds several runs, whose clocks differ; must be one (write it to a file of "
                      "its own, for example with head -n 1)")


def table_of(records: Sequence[Record], reader: Reader) -> pl.DataFrame:
    """Return a reader's columns of some records as cells: strings, and lists of ids; a column without any is absent."""
    columns = {}
    for name, path in reader.columns.items():
        values = [value_at(record, path) for record in records]
        if name == "hash_ids":
            columns[name] = _lists(values)
        else:
            columns[name] = pl.Series(name, [_cell(value) for value in values], dtype=pl.String)
    filled = {name: column for name, column in columns.items()
              if name in REQUIRED_TRACE_COLUMNS or column.null_count() < len(column)}
    return pl.DataFrame(filled)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()  # half of a surrogate pair
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    try:
        return str(value) if isinstance(value, int) else json.dumps(value)
    except ValueError:
        return "a number of thousands of digits"


def _lists(values: Sequence[Any]) -> pl.Series:
    """Return lists of ids, as integers if all are; a value that is no list of ids becomes a list with a null in it."""
    lists = [value if value is None or is_ids(value) else [None] for value in values]
    if all(ids is None or set(map(type, ids)) <= {int} for ids in lists):
        try:
            arrays = [np.array(ids or [], np.int64) for ids in lists]
        except OverflowError:
            pass
        else:
            whole = pl.Series("hash_ids", arrays, dtype=pl.List(pl.Int64)).cast(pl.List(pl.Int64))  # Array if even
            absent = pl.Series([ids is None for ids in lists], dtype=pl.Boolean)
            return whole.zip_with(~absent, pl.Series([None], dtype=pl.List(pl.Int64)))
    texts = [None if ids is None else [None if one is None else _cell(one) for one in ids] for ids in lists]
    return pl.Series("hash_ids", texts, dtype=pl.List(pl.String))
