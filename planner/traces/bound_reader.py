"""A reader bound to a file: each column under its name there, or the error that names all columns that are missing."""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping

from planner.errors import NoOutputsError, TraceError
from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.settings.format_spec import NAME, parse_format
from planner.traces.aggregates import with_counts
from planner.traces.cached_parts import with_cached_parts
from planner.traces.likely import names_end, nearest_names, offers, with_deployed, with_http_status
from planner.traces.reader import ENDED, MOST_KEYS, OBJECTS, OF_REQUESTS, Head, Reader


def bind(source: str, head: Head, reader: Reader, spec: str | None = None) -> Reader:
    """Return the reader with the columns that a file has, each under the one name that it has there.

    Parameters
    ----------
    spec : format and columns that the user gave; the error for missing columns repeats them.

    Raises
    ------
    TraceError : required columns or columns of `spec` are missing, or a column is there twice.
    """
    if reader.rows is not None:
        return reader
    asked = () if spec is None else parse_format(spec)[1]
    paths, missing = {}, {}
    for name, wanted in reader.columns.items():
        path = next((path for path in (wanted, *reader.also.get(name, ())) if head.has(path)), None)
        is_required = name in REQUIRED_TRACE_COLUMNS and not (name == "arrival_s" and reader.arrivals == "optional")
        if path is not None:
            paths[name] = path
        elif is_required or name in asked or name.startswith("where "):
            missing[name] = wanted
    if missing:
        raise _missing_columns(source, head, missing, spec)
    for path in paths.values():
        if head.columns.count(path) > 1:
            raise TraceError(f"trace {source} line {head.line}: column {path} appears twice; must appear once")
    reader = with_deployed(head, with_cached_parts(head, dataclasses.replace(
        reader, columns=paths, also={}, notes=(*reader.notes, *_arrival_notes(paths)))))
    return with_counts(head, with_http_status(head, reader)) if reader.name.split(",")[0] in OF_REQUESTS else reader


def _arrival_notes(paths: Mapping[str, str]) -> Iterator[str]:
    """Yield how arrivals follow from ends, and whether a column of arrivals has the name of an end."""
    path = paths.get("arrival_s")
    if path is None and {ENDED, "e2e_s"} <= paths.keys():
        yield f"arrivals are {paths[ENDED]} - {paths['e2e_s']}, because the file has no column of arrivals"
    if path is not None and names_end(path):
        yield (f"arrivals are read from {path}, which has the name of an end. If it has ends, requests arrive too "
               f"late; --column {shlex.quote(f'{ENDED}={path}')} --column e2e_s=COLUMN reads ends and latencies")


def _missing_columns(source: str, head: Head, missing: Mapping[str, str], spec: str | None) -> TraceError:
    """Return the error of a file that lacks columns: all of them, with the nearest names, as one command.

    Parameters
    ----------
    missing : our column, or a condition, -> name that the file lacks.
    """
    what, label = ("JSON: ", "its keys") if head.layout in OBJECTS else ("", "found")
    names = list(missing.values())
    listed = f"column {names[0]} is" if len(names) == 1 else f"columns {', '.join(names)} are"
    name, asked, where = parse_format(spec) if spec else (NAME, {}, {})
    known = {ours: text for ours, text in asked.items() if ours not in missing}
    words, nearest = nearest_names(head, missing, known)
    typed = {ours: text.removeprefix(missing[ours]) for ours, text in asked.items() if ours in missing}  # units
    given = [f"--format {name}"] * (name != NAME)
    given += [f"--column {shlex.quote(f'{ours}={path}' + typed.get(ours, ''))}"
              for ours, path in {**known, **nearest}.items() if not ours.startswith("where ")]
    given += ["--where " + shlex.quote(f"{nearest.get(f'where {k}', path)}={value}")
              for k, (path, value) in enumerate(where.items())]
    kind = NoOutputsError if nearest == {"output_tokens": "COLUMN"} else TraceError
    return kind("; ".join(filter(None, (
        f"trace {source} line {head.line}: {what}{listed} missing; {label}: {', '.join(head.columns)}", *words,
        f"give {' '.join(given)}", *offers(head, {**known, **nearest}))))
        + (" (--format forces a format)" if spec is None else ""))


def unknown_json(source: str, head: Head) -> TraceError:
    """Return the error of JSON in no known format, with its keys."""
    words, candidates = nearest_names(head, {name: name for name in REQUIRED_TRACE_COLUMNS}, {})
    more = "" if len(head.columns) <= MOST_KEYS else f" and {len(head.columns) - MOST_KEYS} more"
    given = " ".join("--column " + shlex.quote(f"{name}={path}") for name, path in candidates.items())
    if not head.columns:
        return TraceError(f"trace {source}: is JSON without requests; a trace has an object for each request")
    return TraceError("; ".join((
        f"trace {source}: is JSON in no known format, with the keys {', '.join(head.columns[:MOST_KEYS])}{more}",
        *words, f"name its columns, as in {given}", *offers(head, candidates),
        "results of benchmarks go to planner validate")))
