"""Any other file, by a map of its columns: a format's spec applied to a reader."""

import dataclasses
import difflib
from collections.abc import Mapping

import polars as pl

from planner.errors import UsageError
from planner.schema import MAX_TOKENS, TRACE_COLUMNS
from planner.settings.format_spec import NAME
from planner.traces.number_forms import NUMERIC
from planner.traces.reader import ANY, Reader, Skip
from planner.traces.units import INSTANTS, UNITS

MEANINGS = ("sums", "lengths")  # of the token counts beside a number of requests
_TIMES = {column.name for column in TRACE_COLUMNS if column.unit == "s"} | set(INSTANTS)

COLUMNS = Reader(
    name=NAME,
    meaning="any CSV, JSON, Parquet or SQL table, whose columns are named by --column",
    layouts=ANY,
    columns={column.name: column.name for column in TRACE_COLUMNS},
    time="as --column says: s, ms, us, ns or date; arrivals later than 2001 count from the earliest",
    tokens="the author of the file",
    matches=lambda head: False,
    clock="either",
    arrivals="optional",
)


def with_columns(reader: Reader, columns: Mapping[str, str], where: Mapping[str, str]) -> Reader:
    """Return a reader with some of its columns renamed, in other units, and only some of its rows counted.

    Raises
    ------
    UsageError : a unit fits no column of its kind, or the format's rows are made of deeper objects.
    """
    if not columns and not where:
        return reader
    if reader.rows is not None:
        raise UsageError(f"format {reader.name!r} finds its own columns; leave --column and --where out")
    paths, also, units, block_tokens = dict(reader.columns), dict(reader.also), dict(reader.units), reader.block_tokens
    counts, meanings = reader.counts, dict[str, str]()
    for name, text in columns.items():
        if name == "num_requests" and text == "1":
            counts = "no"
            continue
        path, unit = _unit_of(name, text)
        if name in NUMERIC | {*INSTANTS} and meanings.setdefault(path, name) != name:
            raise UsageError(f"--column {name}={text}: {meanings[path]} is read from {path} already; must be another "
                             f"column")
        paths[name] = path
        also.pop(name, None)
        units.pop(path, None)
        if name == "hash_ids" and unit:
            block_tokens = int(unit)
        elif name == "num_requests" and unit:
            counts = "sums" if unit == "sums" else "lengths"
        elif unit:
            units[path] = unit
    skips = list(reader.skips)
    for k, (path, value) in enumerate(where.items()):
        _check_name(path)
        paths[f"where {k}"] = path
        skips.append(Skip(reason=f"{path} is not {value}",
                          where=pl.col(f"where {k}").ne_missing(pl.lit(value))))
    return dataclasses.replace(reader, columns=paths, also=also, units=units, block_tokens=block_tokens,
                               skips=tuple(skips), counts=counts)


def _unit_of(name: str, text: str) -> tuple[str, str]:
    """Split a column's path and its unit; a colon may be part of the path."""
    _check_name(text)
    path, colon, unit = text.rpartition(":")
    if not colon:
        return text, ""
    if name == "hash_ids":
        if not (unit.isascii() and unit.isdigit() and 1 <= int(unit) <= MAX_TOKENS):
            raise UsageError(f"--column {name}={text}: {unit!r} must be the number of tokens of one id, at least 1")
        return path, unit
    if name == "num_requests":
        if unit not in MEANINGS:
            raise UsageError(f"--column {name}={text}: {unit!r} must be one of {', '.join(MEANINGS)}")
        return path, unit
    if unit not in UNITS:
        close = difflib.get_close_matches(unit, UNITS, n=1, cutoff=0.4)
        if not unit.isalpha():
            return text, ""
        raise UsageError(f"--column {name}={text}: unknown unit {unit!r}; must be one of {', '.join(UNITS)}"
                         + (f" (did you mean {close[0]!r}?)" if close else ""))
    if name not in _TIMES or (unit == "date" and name not in INSTANTS):
        raise UsageError(f"--column {name}={text}: {name} has no unit {unit!r}; leave it out")
    return path, unit


def _check_name(text: str) -> None:
    if '"' in text or "\\" in text:
        raise UsageError(f"column {text}: must be without quotes and backslashes (rename it in the file)")
