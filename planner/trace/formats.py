"""The trace formats that the planner reads, and how a file's format is found."""

import difflib
from collections.abc import Mapping

from planner.errors import TraceError, UnknownNameError
from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.trace.azure import AZURE
from planner.trace.mooncake import MOONCAKE
from planner.trace.native_csv import NATIVE_CSV
from planner.trace.native_jsonl import NATIVE_JSONL
from planner.trace.reader import Head, Reader
from planner.trace.vidur import VIDUR

FORMATS: Mapping[str, Reader] = {
    reader.name: reader for reader in (NATIVE_CSV, NATIVE_JSONL, AZURE, MOONCAKE, VIDUR)
}


def check_format(name: str | None) -> None:
    """Raise UnknownNameError, with the nearest name, where `name` is no format."""
    if name is not None and name not in FORMATS:
        raise UnknownNameError("trace format", name, FORMATS)


def find_reader(source: str, head: Head, name: str | None) -> Reader:
    """Choose the reader that `name` forces, or the one that knows the head.

    Raises
    ------
    TraceError : the file is not laid out as `name` wants, or a required column is missing.
    """
    reader = FORMATS[name or head.layout]
    if name is None:
        reader = next((known for known in FORMATS.values() if known.matches(head)), reader)
    if reader.layout != head.layout:
        raise TraceError(
            f"trace {source} line {head.line}: looks like {head.layout.upper()}; format {reader.name!r} must be "
            f"{reader.layout.upper()} (leave --format out to have it detected)"
        )
    _check_columns(source, head, reader)
    return reader


def _check_columns(source: str, head: Head, reader: Reader) -> None:
    for name in REQUIRED_TRACE_COLUMNS:
        wanted = reader.columns[name]
        if wanted not in head.columns:
            close = difflib.get_close_matches(wanted, head.columns, n=1, cutoff=0.4)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TraceError(
                f"trace {source} line {head.line}: column {wanted} is missing; found: {', '.join(head.columns)}{hint} "
                f"(formats: {', '.join(FORMATS)}; --format forces one)"
            )
    for wanted in reader.columns.values():
        if head.columns.count(wanted) > 1:
            raise TraceError(f"trace {source} line {head.line}: column {wanted} appears twice; must be there once")
