"""Rows in envelopes: the lists of objects that JSON objects hold, as APIs and log stores answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
