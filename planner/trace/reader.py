"""A reader: what a trace format is called, how its head is known, and how its columns become ours."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from planner.errors import TraceError

Layout = Literal["csv", "jsonl"]
HEAD_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a file, from which its format is known.

    Parameters
    ----------
    layout : "csv", or "jsonl" where the first character is a brace.
    columns : names in the header, or keys of the first hundred objects.
    first : the first object of a JSONL file; empty for CSV.
    line : number of the line that holds the header or the first object, from 1.
    """

    layout: Layout
    columns: tuple[str, ...]
    first: Mapping[str, Any]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One trace format.

    Parameters
    ----------
    name : the name that ``--format`` takes.
    meaning : one line for the help text.
    layout : how rows are laid out in the file.
    columns : our column -> the file's column, for each column of the format.
    matches : whether a file with this head is in this format.
    native : turns the file's cells, strings under our column names, into values in our units. A column left as
        strings is parsed by its type in ``schema.TRACE_COLUMNS``; arrivals as Datetime count from the earliest.
    block_tokens : tokens that one of the row's `hash_ids` stands for, where the format fixes it; None: the file
        says so in `hash_block_tokens`, or has no ids.
    exact_ids : the ids must cover the prompt exactly; otherwise a prompt may go on beyond its ids, unshared.
    """

    name: str
    meaning: str
    layout: Layout
    columns: Mapping[str, str]
    matches: Callable[[Head], bool]
    native: Callable[[pl.DataFrame], pl.DataFrame]
    block_tokens: int | None
    exact_ids: bool


def as_it_is(raw: pl.DataFrame) -> pl.DataFrame:
    """Leave the cells to the shared parsing: the file is in our units."""
    return raw


def numbers(text: pl.Series) -> pl.Series:
    """Parse a column of cells as floats; null where a cell is empty or not a number. Blanks around it are allowed."""
    value = text.cast(pl.Float64, strict=False)
    if value.null_count() > text.null_count():
        value = text.str.strip_chars().cast(pl.Float64, strict=False)
    return value


def read_head(source: str, block: bytes) -> Head:
    """Read the header or the first objects from a file's first block.

    Raises
    ------
    TraceError : the file is empty or binary, its delimiter is not a comma, or its JSON is not one object a line.
    """
    check_text(source, block, 1)
    lines = block.split(b"\n", HEAD_LINES)[:HEAD_LINES]
    at = next((i for i, line in enumerate(lines) if line.strip()), None)
    if at is None:
        raise TraceError(f"trace {source}: is empty; must hold a CSV header or JSON lines")
    line = lines[at].decode().strip()
    if line.startswith(("{", "[")):
        return _json_head(source, line, [later.decode() for later in lines[at:]], at + 1)
    return _csv_head(source, line, at + 1)


def check_text(source: str, block: bytes, first_line: int) -> None:
    """Raise a TraceError that names the line where a block is not UTF-8 text."""
    at = block.find(b"\0")
    if at < 0 and not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError as error:
            at = error.start
    if at >= 0:
        line = first_line + block.count(b"\n", 0, at)
        raise TraceError(
            f"trace {source} line {line}: byte 0x{block[at]:02x} is not UTF-8 text; must be UTF-8 CSV or JSONL, "
            "plain, .gz or .zst"
        )


def _csv_head(source: str, line: str, number: int) -> Head:
    if "," not in line:
        for found in ";\t|":
            if found in line:
                raise TraceError(
                    f"trace {source} line {number}: columns are separated by {found!r}; must be ',' "
                    "(write the file again with commas and decimal points)"
                )
    try:
        names = tuple(name.strip() for name in next(csv.reader([line])))
    except csv.Error:
        raise TraceError(
            f"trace {source} line {number}: is not a CSV header; must be names with commas between, then a line feed"
        ) from None
    if len(names) > 1 and all(_is_number(name) for name in names):
        raise TraceError(f"trace {source} line {number}: holds values; must be a header with the columns' names")
    return Head(layout="csv", columns=names, first={}, line=number)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json_head(source: str, line: str, lines: list[str], number: int) -> Head:
    keys: dict[str, None] = {}
    first = _object(line)
    if first is None:
        raise TraceError(
            f"trace {source} line {number}: is not a JSON object; must be JSONL, one whole object on each line "
            "(a list or an indented document must be rewritten, for example with jq -c)"
        )
    for later in lines:
        keys.update(dict.fromkeys(_object(later) or {}))
    return Head(layout="jsonl", columns=tuple(keys), first=first, line=number)


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
