"""A file's head: whether it is CSV, JSON lines or one JSON document, and the names of its columns."""

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import TraceError
from planner.files.finite import is_numeral
from planner.files.nested import parse_json
from planner.files.table_file import SAYS_SEPARATOR, separator_of
from planner.traces.reader import MOST_KEYS, Head

HEAD_LINES = 100
_LOGGED = re.compile(r"\[?\d[\d/.-]*[-T ]\d\d:\d\d[\d:.Z]*(,\d{3})?\]?\s+\S")  # a time, and words
_OF_KUBERNETES = re.compile(r"\S+ std(?:out|err) [FP] ")  # before each line of a container's log
_YAML_KEY = re.compile(r"([\w.'\"-]+):(?:\s|$)")


def read_head(source: str, block: bytes) -> Head | None:
    """Read the header or the first objects from a file's first block; None if it begins a JSON document.

    Raises
    ------
    TraceError : the file is empty or binary, or its header has no names.
    """
    check_text(source, block, 1)
    lines = block.split(b"\n", HEAD_LINES)[:HEAD_LINES]
    at = next((i for i, line in enumerate(lines) if line.strip() and not SAYS_SEPARATOR.match(line)), None)
    if at is None:
        raise TraceError(f"trace {source}: is empty; must hold a CSV header or JSON lines")
    line = lines[at].decode().strip()
    if (keys := _yaml_keys(lines[at:])) is not None:
        raise TraceError(f"trace {source}: is YAML with the keys {', '.join(keys)}; a trace must be CSV, JSON or "
                         f"Parquet (a benchmark's report in YAML goes to planner validate)")
    if _is_prose(line):
        remedy = "; cut -d' ' -f4- FILE takes Kubernetes' prefix off" if _OF_KUBERNETES.match(line) else ""
        raise TraceError(f"trace {source} line {at + 1}: {line[:60]!r} is a line of text, and no log that the planner "
                         f"reads (vLLM's, SGLang's, or a web server's access log); must be CSV, JSON or "
                         f"Parquet{remedy}")
    if line.startswith(("{", "[")):
        objects = [row for later in lines[at:] if (row := _object(later)) is not None]
        if objects and {"log", "stream", "time"} == objects[0].keys():
            raise TraceError(f"trace {source}: is Docker's log of a container; jq -j .log FILE takes its lines out")
        return None if _object(lines[at]) is None else objects_head("jsonl", objects, at + 1)
    return _csv_head(source, line, at + 1)


def _is_prose(line: str) -> bool:
    """Tell whether a line is one of a log or a page: a time with words after it, or words in no columns."""
    return _LOGGED.match(line) is not None or (
        line[:1] not in "{[" and re.search(r"[\s<+]", line) is not None and not re.search(r"[,;\t|]", line))


def objects_head(layout: Any, objects: Sequence[Mapping[str, Any]], line: int = 1) -> Head:
    """Return the head of a file that holds these objects first."""
    keys: dict[str, None] = {}
    for row in objects:
        keys.update(dict.fromkeys(row))
    return Head(layout=layout, columns=tuple(keys), objects=tuple(objects), line=line)


def check_text(source: str, block: bytes, first_line: int) -> None:
    """Raise a TraceError that names the line if a block is not UTF-8 text."""
    at = block.find(b"\0")
    if at < 0 and not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError as error:
            at = error.start
    if at >= 0:
        line = first_line + block.count(b"\n", 0, at)
        is_utf16 = {at % 2} == {place % 2 for place, byte in enumerate(block[:8]) if not byte}  # every second byte is 0
        remedy = f" (iconv -f UTF-16{'LE' if at % 2 else 'BE'} -t UTF-8 recodes UTF-16)" if is_utf16 else ""
        raise TraceError(
            f"trace {source} line {line}: byte 0x{block[at]:02x} is not UTF-8 text; must be UTF-8 CSV or JSON, "
            f"plain, .gz or .zst, or Parquet{remedy}"
        )


def _yaml_keys(lines: Sequence[bytes]) -> list[str] | None:
    """Return the keys at the top of YAML, None if the lines are not."""
    kept = [line.decode(errors="replace") for line in lines if line.strip() and not line.startswith(b"#")]
    if kept and kept[0].rstrip() == "---":
        kept = kept[1:]
    keys = [match[1].strip("'\"") for line in kept if (match := _YAML_KEY.match(line))]
    is_yaml = bool(kept) and _YAML_KEY.match(kept[0]) and all(
        _YAML_KEY.match(line) or line.startswith((" ", "-", "]", "}")) for line in kept[1:])
    return keys[:MOST_KEYS] if is_yaml else None


def _csv_head(source: str, line: str, number: int) -> Head:
    separator = separator_of(line.encode())
    try:
        names = tuple(name.strip() for name in next(csv.reader([line], delimiter=separator)))
    except csv.Error:
        raise TraceError(
            f"trace {source} line {number}: is not a CSV header; must be names with {separator!r} between, then a line "
            f"feed"
        ) from None
    if len(names) > 1 and all(is_numeral(name) for name in names):
        raise TraceError(f"trace {source} line {number}: holds values; must be a header with the columns' names")
    return Head(layout="csv", columns=names, line=number, separator=separator)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
