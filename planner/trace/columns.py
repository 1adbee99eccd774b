"""A map of columns: how a format's spec names the columns of any other file, their units, and which rows count."""

import dataclasses
import difflib
from collections.abc import Mapping

import polars as pl

from planner.errors import UnknownNameError, UsageError
from planner.schema import MAX_TOKENS, TRACE_COLUMNS
from planner.trace.reader import ANY, ENDED, FIRST_TOKEN, SENT, Reader, Skip
from planner.trace.units import INSTANTS, UNITS

NAME = "columns"
MAPPED = (*(column.name for column in TRACE_COLUMNS), SENT, FIRST_TOKEN, ENDED, "hash_ids", "hash_block_tokens")
_TIMES = {column.name for column in TRACE_COLUMNS if column.unit == "s"} | set(INSTANTS)

COLUMNS = Reader(
    name=NAME,
    meaning="any CSV, JSON, Parquet or SQL table, whose columns are named by --column",
    layouts=ANY,
    columns={column.name: column.name for column in TRACE_COLUMNS},
    time="as --column says: s, ms, us, ns or date; arrivals later than 2001 count from the earliest",
    tokens="whoever wrote the file",
    matches=lambda head: False,
    clock="either",
    arrivals="optional",
)


def spec_of(format: str | None, columns: list[str] | None, where: list[str] | None) -> str | None:
    """Put a format, a map of columns and conditions together in one text, as `parse_format` takes it.

    >>> spec_of(None, ["input_tokens=prompt_tokens"], ["model=llama"])
    'columns,input_tokens=prompt_tokens,where model=llama'
    """
    items = [*(columns or ()), *(f"where {each}" for each in where or ())]
    for item in items:
        if "=" not in item or "," in item:
            raise UsageError(f"--column {item!r}: must be OURS=THEIRS or OURS=THEIRS:UNIT without commas, as in "
                             f"--column arrival_s=ts:ms; --where is THEIRS=VALUE")
    return ",".join([format or NAME, *items]) if items else format


def parse_format(spec: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """Return the name of a format, and what its spec says of columns and of the rows that count.

    A spec is ``NAME``, or ``NAME,OURS=THEIRS:UNIT,…,where THEIRS=VALUE,…``.

    Raises
    ------
    UsageError : an item is neither; UnknownNameError where it names none of our columns.
    """
    name, *items = spec.split(",")
    columns: dict[str, str] = {}
    where: dict[str, str] = {}
    for item in items:
        left, equals, right = (part.strip() for part in item.strip().partition("="))
        if not equals or not right:
            raise UsageError(f"format {spec!r}: {item!r} must be OURS=THEIRS, OURS=THEIRS:UNIT or where THEIRS=VALUE")
        if left.startswith("where "):
            where[left.removeprefix("where ").strip()] = right
        elif left not in MAPPED:
            raise UnknownNameError("trace column", left, MAPPED)
        else:
            columns[left] = right
    return name.strip(), columns, where


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
    found, also, units, block_tokens = dict(reader.columns), dict(reader.also), dict(reader.units), reader.block_tokens
    for name, text in columns.items():
        path, unit = _unit_of(name, text)
        found[name] = path
        also.pop(name, None)
        units.pop(path, None)
        if name == "hash_ids" and unit:
            block_tokens = int(unit)
        elif unit:
            units[path] = unit
    skips = list(reader.skips)
    for k, (path, value) in enumerate(where.items()):
        found[f"where {k}"] = path
        skips.append(Skip(reason=f"{path} is not {value}",
                          where=pl.col(f"where {k}").ne_missing(pl.lit(value))))
    return dataclasses.replace(reader, columns=found, also=also, units=units, block_tokens=block_tokens,
                               skips=tuple(skips))


def _unit_of(name: str, text: str) -> tuple[str, str]:
    """Split a column's path and its unit; a colon may be part of the path."""
    path, colon, unit = text.rpartition(":")
    if not colon:
        return text, ""
    if name == "hash_ids":
        if not (unit.isascii() and unit.isdigit() and 1 <= int(unit) <= MAX_TOKENS):
            raise UsageError(f"--column {name}={text}: {unit!r} must be the tokens that one id stands for, at least 1")
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
