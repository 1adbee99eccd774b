"""A reader bound to a file: each column under its name there, or the error that names the column that is missing."""

import dataclasses
import difflib

from planner.errors import TraceError
from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.traces.aggregates import with_counts
from planner.traces.cached_parts import with_cached_parts
from planner.traces.likely import offers, with_http_status
from planner.traces.reader import MOST_KEYS, OBJECTS, OF_REQUESTS, Head, Reader


def bind(source: str, head: Head, reader: Reader) -> Reader:
    """Return the reader with the columns that a file has, each under the one name that it has there.

    Raises
    ------
    TraceError : a required column is missing, or a column is there twice.
    """
    if reader.rows is not None:
        return reader
    paths = {}
    for name, wanted in reader.columns.items():
        path = next((path for path in (wanted, *reader.also.get(name, ())) if head.has(path)), None)
        if path is not None:
            paths[name] = path
        elif name in REQUIRED_TRACE_COLUMNS and not (name == "arrival_s" and reader.arrivals == "optional"):
            raise missing_column(source, head, wanted)
    for path in paths.values():
        if head.columns.count(path) > 1:
            raise TraceError(f"trace {source} line {head.line}: column {path} appears twice; must appear once")
    reader = with_cached_parts(head, dataclasses.replace(reader, columns=paths, also={}))
    return with_counts(head, with_http_status(head, reader)) if reader.name.split(",")[0] in OF_REQUESTS else reader


def missing_column(source: str, head: Head, wanted: str) -> TraceError:
    """Return the error of a file that lacks a column, with the name that is nearest."""
    close = difflib.get_close_matches(wanted, head.columns, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    hint = ("; ".join(offers(head)) if wanted in REQUIRED_TRACE_COLUMNS else "") or hint.removeprefix("; ")
    what, label = ("JSON: ", "its keys") if head.layout in OBJECTS else ("", "found")
    return TraceError(
        f"trace {source} line {head.line}: {what}column {wanted} is missing; {label}: {', '.join(head.columns)}"
        f"{hint and '; '}{hint} (--format forces a format; --column names a column, as in "
        f"--column input_tokens=prompt_tokens)"
    )


def unknown_json(source: str, head: Head) -> TraceError:
    """Return the error of JSON in no known format, with its keys."""
    looks = "; ".join(offers(head))
    more = "" if len(head.columns) <= MOST_KEYS else f" and {len(head.columns) - MOST_KEYS} more"
    return TraceError(
        f"trace {source}: is JSON in no known format, with the keys {', '.join(head.columns[:MOST_KEYS])}{more}"
        f"{looks and '; '}{looks}; name its columns, as in --column input_tokens=prompt_tokens "
        f"--column output_tokens=usage.output --column arrival_s=ts:ms (results of benchmarks go to planner validate)"
    )
