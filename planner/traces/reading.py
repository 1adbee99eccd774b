"""Reading a trace: the source's blocks through the format's reader and the shared checks into one sorted table."""

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import TraceError, UsageError
from planner.traces.formats.known import check_format, find_reader, knows
from planner.traces.gather import BadRows, assemble, gather
from planner.traces.head import check_text, objects_head, read_head
from planner.traces.lines import BlockRows, parse_rows
from planner.traces.reader import Head, Reader
from planner.traces.records import document_rows, line_rows, objects_of, objects_of_lines, parse_document
from planner.traces.server_texts import instead_of, kind_of, read_server_text
from planner.traces.source import BLOCK_BYTES, as_utf8, decompressed, line_blocks, raw_blocks
from planner.traces.table import Trace
from planner.traces.tabular import is_tabular, open_table, table_head, table_rows

__all__ = ["BadRows", "read_trace", "trace_of"]

HEAD_OBJECTS = 100
MOST_REQUESTS = "PLANNER_MOST_REQUESTS"  # environment variable: the largest number of requests of a trace; no bound
HEAD_BYTES = 2**16  # by which a server's text is known


def read_trace(
    source: str | os.PathLike[str], *, format: str | None = None, on_bad_rows: BadRows = "error",
    limit: int | None = None, has_outputs: bool = True,
) -> Trace:
    """Read a recorded trace, or a bundled sample by its name.

    Parameters
    ----------
    source : path, "-" for stdin, a database's URI with a table or a query after "#", or a sample's name (a file of
        the same name is read as ``./name``). Gzip and Zstandard are undone; the format is known from the content, not
        from the name.
    format : a key of FORMATS, to force a reader (`source` is a file then), or a map of columns; see
        `columns.parse_format`. None to detect it.
    on_bad_rows : "error" raises at the first bad row; "drop" drops bad rows and counts them by reason.
    limit : read no more than the first `limit` rows in file order; None for all.
    has_outputs : whether requests generate tokens. If not, as with an embedding model, none are read.

    Returns
    -------
    Trace
        sorted by arrival, rows with equal arrivals in file order. Arrivals are the file's, in seconds; if
        the file has dates, they count from its earliest.

    Raises
    ------
    TraceError : the file cannot be read, or a row is bad; the message names file, line, column and value.
    UsageError : an argument is unknown (UnknownNameError for a format) or out of range.
    """
    _check_arguments(on_bad_rows, limit)
    check_format(format)
    trace = _read(os.fspath(source), format, on_bad_rows, limit, has_outputs)
    most = os.environ.get(MOST_REQUESTS)
    if most and trace.num_requests > int(most):
        raise TraceError(f"trace {source}: has {trace.num_requests:,} requests; must have at most {int(most):,} "
                         f"(${MOST_REQUESTS}); cut the file, or read its first rows with --limit")
    return dataclasses.replace(trace, spec=format)


def _read(source: str, format: str | None, on_bad_rows: BadRows, limit: int | None, has_outputs: bool) -> Trace:
    """Read a trace; the parameters are the same as of `read_trace`."""
    if format is None and source.replace("-", "").isalnum() and source in _sample_names():
        return _sample(source, limit)
    if is_tabular(source):
        return _read_table(source, format, on_bad_rows, limit, has_outputs)
    digest = hashlib.sha256()
    raw = raw_blocks(source, digest, _sample_names)
    recoded: list[str] = []
    blocks = as_utf8(line_blocks(decompressed(source, raw), BLOCK_BYTES), recoded)
    first = next(blocks, b"")
    if format is None and kind_of(first[:HEAD_BYTES].decode(errors="replace").split("\n")) is not None:
        text = b"".join((first, *blocks))
        return _of_server(source, text, digest.hexdigest(), on_bad_rows, limit)
    head = read_head(source, first)
    if head is None or _is_enveloped(head, format):
        text = b"".join((first, *blocks))
        check_text(source, text, 1)
        values = [parse_document(source, text)] if head is None else objects_of_lines(source, text)
        return trace_of(source, objects_of(source, values[0] if len(values) == 1 else values),
                        sha256=digest.hexdigest(), format=format, on_bad_rows=on_bad_rows, limit=limit,
                        has_outputs=has_outputs)
    reader = find_reader(source, head, format, has_outputs=has_outputs)
    batches = _batches(source, _after_header(first, head, blocks), head, reader, limit)
    gathered = gather(source, batches, reader, on_bad_rows)
    for _ in raw:  # hash the bytes that a limit left unread
        pass
    separated = [f"columns are separated by {head.separator!r}"] if head.separator != "," else []
    reader = replace(reader, notes=(*reader.notes, *separated, *recoded))
    return assemble(source, gathered, head, reader, digest.hexdigest(), on_bad_rows)


def _of_server(source: str, text: bytes, sha256: str, on_bad_rows: BadRows, limit: int | None) -> Trace:
    """Read a server's text as a trace, if its lines have times and lengths."""
    server = read_server_text(text.decode(errors="replace").splitlines())
    assert server is not None
    if not server.has_lengths:
        raise instead_of(source, server)
    trace = trace_of(source, server.requests, sha256=sha256, on_bad_rows=on_bad_rows, limit=limit)
    account = replace(trace.account, format=f"{server.kind}-log", notes=(*server.notes, *trace.account.notes))
    return replace(trace, format=account.format, account=account)


def _is_enveloped(head: Head, format: str | None) -> bool:
    """Tell whether the rows of JSON lines are in lists that the lines' objects hold."""
    return head.layout == "jsonl" and not knows(head, format) and _rows_of(head.objects, format) is not None


def _rows_of(objects: Sequence[Mapping[str, Any]], format: str | None) -> Sequence[Mapping[str, Any]] | None:
    """Return the rows of a document: its objects, or an envelope's; None if neither has a known format."""
    return next((rows for by_names in (False, True) for rows in levels(objects)
                 if knows(objects_head("document", rows[:HEAD_OBJECTS]), format, by_names=by_names)), None)


def trace_of(
    source: str, objects: Sequence[Mapping[str, Any]], *, sha256: str = "", format: str | None = None,
    on_bad_rows: BadRows = "error", limit: int | None = None, has_outputs: bool = True,
) -> Trace:
    """Read a trace from JSON objects that are in memory; as `read_trace`, of which `source` is the name.

    Raises
    ------
    TraceError, UsageError : as `read_trace`.
    """
    objects = _rows_of(objects, format) or objects
    head = objects_head("document", objects[:HEAD_OBJECTS])
    reader = find_reader(source, head, format, has_outputs=has_outputs)
    rows = document_rows(source, objects, reader, Path(source).parent, limit)
    return assemble(source, gather(source, iter([rows]), reader, on_bad_rows), head, reader, sha256, on_bad_rows)


def _read_table(source: str, format: str | None, on_bad_rows: BadRows, limit: int | None, has_outputs: bool) -> Trace:
    name, table, sha256 = open_table(source)
    head = table_head(table)
    reader = find_reader(name, head, format, has_outputs=has_outputs)
    gathered = gather(name, table_rows(table, head, reader, limit), reader, on_bad_rows)
    return assemble(name, gathered, head, reader, sha256, on_bad_rows)


def _check_arguments(on_bad_rows: str, limit: int | None) -> None:
    if on_bad_rows not in ("error", "drop"):
        raise UsageError(f"on_bad_rows = {on_bad_rows!r}; must be 'error' or 'drop'")
    if limit is not None and limit < 1:
        raise UsageError(f"limit = {limit}; must be >= 1 (leave it out to read all rows)")


def _sample_names() -> list[str]:
    from planner.traces.synthesis import sample_names  # samples are built from these modules, so not at import

    return sample_names()


def _sample(name: str, limit: int | None) -> Trace:
    from planner.traces.shaping import window_and_rate as workload
    from planner.traces.synthesis import load_sample

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


def _batches(
    source: str, blocks: Iterator[tuple[int, bytes]], head: Head, reader: Reader, limit: int | None
) -> Iterator[BlockRows]:
    """Yield the rows of each block, no more than `limit` in all."""
    is_flat = reader.rows is None and all(path in head.columns for path in reader.columns.values())
    num_rows = 0
    for line, block in blocks:
        check_text(source, block, line)
        left = None if limit is None else limit - num_rows
        if head.layout == "csv" or is_flat:
            rows = parse_rows(source, block, head, reader, line, num_rows, left)
        else:
            rows = line_rows(source, block, reader, line, num_rows, left)
        yield rows
        num_rows += rows.num_rows
        if limit is not None and num_rows >= limit:
            return


Record = Mapping[str, Any]

DEEPEST = 4  # envelopes in envelopes
SOURCE = "_source"  # the key of a document in Elasticsearch and OpenSearch


def levels(objects: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield the candidates for a file's rows: its objects, then the content of their envelopes, and so on inwards.

    An envelope holds one list of objects. The rows of each list come in its place in the object around it, too, so
    that a path from the file's top names them.

    >>> [list(rows) for rows in levels([{"took": 1, "hits": {"hits": [{"_source": {"n": 5}}]}}])][2:]
    [[{'_source': {'n': 5}}], [{'n': 5}]]
    """
    for _ in range(DEEPEST):
        yield objects
        paths = _list_paths(objects)
        for path in paths:
            yield [row for outer in objects for row in _in_place(outer, path)]
        if len(paths) != 1:
            return
        objects = [row for outer in objects for row in _rows_at(outer, paths[0])]
        if all(isinstance(row.get(SOURCE), Mapping) for row in objects):
            yield objects
            objects = [row[SOURCE] for row in objects]


def _list_paths(objects: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the paths of the objects' lists of objects, at the least depth."""
    paths: dict[tuple[str, ...], None] = {}
    for row in objects:
        paths.update(dict.fromkeys(_paths(row)))
    least = min(map(len, paths), default=0)
    return [path for path in paths if len(path) == least]


def _paths(value: Record) -> Iterator[tuple[str, ...]]:
    for key, part in value.items():
        if isinstance(part, list) and part and all(isinstance(row, Mapping) for row in part):
            yield (key,)
        elif isinstance(part, Mapping):
            yield from ((key, *path) for path in _paths(part))


def _rows_at(value: Any, path: Sequence[str]) -> Sequence[Record]:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else ()


def _in_place(value: Record, path: Sequence[str]) -> Iterator[Record]:
    """Yield an object once for each row of its list, with the row in place of the list."""
    key, *rest = path
    inner = value.get(key)
    rows: Iterator[Any] = (_in_place(inner, rest) if rest and isinstance(inner, Mapping)
                           else iter(_rows_at(value, path)))
    yield from ({**value, key: row} for row in rows)
