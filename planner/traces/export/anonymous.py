"""A trace without anything that could name a person: timing, lengths and sharing alone, ids salted and hashed."""

import dataclasses
import hashlib
import hmac
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from planner.errors import PlannerError
from planner.files.finite import is_numeral
from planner.schema import PARENT_SEPARATOR
from planner.traces import Trace
from planner.traces.prefix_ids import intern_ids

HASHED = {"request_id": "request", "parent_id": "request", "session_id": "session", "tenant": "tenant"}  # by whose name
HEX_CHARS = 16
NANOSECONDS = 9  # digits of a second that differences are rounded to
_HASH = re.compile(rf"[0-9a-f]{{{HEX_CHARS}}}")
SHORT = 6  # characters below which an id may occur in a number or a hash by chance
FIXED = {"", "ok", "true", "false"}  # words of target formats


def anonymize(trace: Trace, salt: str) -> Trace:
    """Return a trace with the same timing, lengths and sharing, and nothing else.

    Names of requests, sessions and tenants become the first 16 hexadecimal digits of their HMAC-SHA256 under the salt,
    so that a reader without salt and names cannot tell them, and files with one salt agree. Prefix ids are numbered in
    order of appearance, priorities by rank. Arrivals count from the first.

    Parameters
    ----------
    salt : kept secret; another salt gives other names.
    """
    table = trace.requests
    columns = [_hashed(table[name], scope, salt) for name, scope in HASHED.items() if name in table.columns]
    if "priority" in table.columns:
        columns.append((table["priority"].rank("dense") - 1).cast(pl.Float64).alias("priority"))
    columns.append((table["arrival_s"] - table["arrival_s"][0]).round(NANOSECONDS))
    prefix = trace.prefix
    if prefix is not None:
        prefix = intern_ids([pl.Series(prefix.values)], np.diff(prefix.offsets), prefix.block_tokens)
    return dataclasses.replace(trace, requests=table.with_columns(columns), prefix=prefix, source="anonymous",
                               sha256="")


def _hashed(names: pl.Series, scope: str, salt: str) -> pl.Series:
    different = names.drop_nulls().unique()
    hashes = [PARENT_SEPARATOR.join(_hash(f"{scope}\0{part}", salt) for part in _parts(names.name, name)) or None
              for name in different.to_list()]
    return names.replace_strict(different, pl.Series(hashes, dtype=pl.String), default=None, return_dtype=pl.String)


def _parts(column: str, value: str) -> list[str]:
    """Return the names of a cell: of a `parent_id` there may be several, or none."""
    if column != "parent_id":
        return [value]
    return [part.strip() for part in value.split(PARENT_SEPARATOR) if part.strip()]


def _hash(name: str, salt: str) -> str:
    return hmac.new(salt.encode(), name.encode(), hashlib.sha256).hexdigest()[:HEX_CHARS]


def check_anonymous(files: Mapping[str, bytes], written: Trace, original: Trace) -> int:
    """Prove that nothing but numbers and hashes was written, and no name of the original trace.

    Parameters
    ----------
    files : the written bytes, by the ending that is added to the path.
    written, original : the trace that was written, and its original.

    Returns
    -------
    How many different names of the original were looked for.

    Raises
    ------
    PlannerError : something else is there.
    """
    names = _names(original)
    for column in HASHED:
        if column in written.requests.columns:
            for value in written.requests[column].drop_nulls():
                _refuse_unless(all(map(_HASH.fullmatch, _parts(column, value))), f"{value!r} as {column}")
    for name, content in files.items():
        if name:
            continue  # a header of fixed words
        for value in _texts(content):
            is_hashed = all(map(_HASH.fullmatch, value.split(PARENT_SEPARATOR)))
            _refuse_unless(value not in names and (is_hashed or value in FIXED), repr(value))
        words = " ".join(_keys(content))
        for known in names:
            is_word = len(known) < SHORT or known in words
            _refuse_unless(is_word or known.encode() not in content, f"the name {known!r}")
    return len(names)


def _refuse_unless(is_clean: bool, what: str) -> None:
    if not is_clean:
        raise PlannerError(f"the anonymous trace would hold {what}; nothing is written")


def _names(trace: Trace) -> set[str]:
    """Return the names that must not be found; plain numbers are left out, since lengths and times are numbers too."""
    return {name for column in HASHED if column in trace.requests.columns
            for value in trace.requests[column].drop_nulls().unique().to_list()
            for name in _parts(column, value) if not is_numeral(name)}


def _texts(content: bytes) -> Iterator[str]:
    """Yield every text in a file but the names of its columns; each different one at least once."""
    if content.startswith(b"PAR1"):
        table = pl.read_parquet(io.BytesIO(content))
        yield from _cells(table)
    elif content.startswith(b"{"):
        for line in content.splitlines():
            yield from _strings(json.loads(line).values())
    else:
        table = pl.read_csv(io.BytesIO(content), infer_schema=False)
        yield from (text for text in _cells(table) if not is_numeral(text))


def _keys(content: bytes) -> list[str]:
    """Return the names of a file's columns, or of the keys of its first line."""
    if content.startswith(b"PAR1"):
        return list(pl.read_parquet_schema(io.BytesIO(content)))
    first = content.partition(b"\n")[0]
    return re.findall(r'"(\w+)":', first.decode()) if content.startswith(b"{") else first.decode().split(",")


def _cells(table: pl.DataFrame) -> Iterator[str]:
    for column in table.select(pl.selectors.string()):
        yield from column.drop_nulls().unique().to_list()


def _strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from _strings(value.values() if isinstance(value, dict) else value)
