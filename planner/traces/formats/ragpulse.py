"""RAGPulse: JSONL whose prefix ids stand for chunks of different lengths, which files beside it give."""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.files.nested import parse_json
from planner.traces.reader import OBJECTS, Head, Reader, value_at

BLOCK_TOKENS = 16
PARTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
# Files beside the trace: a table of chunk_id and token_length, or the dataset's own files.
LENGTHS = ("ragpulse_chunk_token_lengths.csv", "ragpulse_chunk_token_lengths.csv.gz")
OWN = ("1_sys_prompt.jsonl", "2_passages.jsonl", "3_history.jsonl", "4_user_input.jsonl", "5_web_search.jsonl")


def _matches(head: Head) -> bool:
    ids = head.first.get("hash_ids")
    return isinstance(ids, Mapping) and "user_input" in ids


def _requests(line: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    row = {name: value_at(line, key) for name, key in (("arrival_s", "timestamp"), ("input_tokens", "input_length"),
                                                       ("output_tokens", "output_length"),
                                                       ("session_id", "session_id"))}
    lengths = _lengths(folder)
    ids = line.get("hash_ids")
    if lengths and isinstance(ids, Mapping):
        row["hash_ids"] = _blocks([str(chunk) for part in PARTS for chunk in _list(ids.get(part))], lengths)
    yield row


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _blocks(chunks: list[str], lengths: Mapping[str, int]) -> list[str]:
    """Return ids of equal blocks for a prompt of chunks: each names the chunks up to the one in which it ends.

    Equal ids in equal positions then mean equal chunks up to there. After a chunk of unknown length there are none.
    """
    ids: list[str] = []
    path, end = "", 0
    for chunk in chunks:
        if chunk not in lengths:
            break
        path = hashlib.blake2b(f"{path}/{chunk}".encode(), digest_size=10).hexdigest()
        end += lengths[chunk]
        ids += [f"{path}.{k}" for k in range(len(ids), end // BLOCK_TOKENS)]
    return ids


def _lengths(folder: Path) -> Mapping[str, int]:
    """Return the length of each chunk in tokens; empty if no file beside the trace has them."""
    paths = [path for name in (*LENGTHS, *OWN) if (path := folder / name).is_file()]
    return _read(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=1)
def _read(paths: tuple[tuple[Path, int], ...]) -> Mapping[str, int]:
    tokens: dict[str, int] = {}
    for path, _ in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            pairs = map(_own if path.name in OWN else _table, file)
            tokens.update(pair for pair in pairs if pair is not None)
    return tokens


def _table(line: str) -> tuple[str, int] | None:
    chunk, _, tokens = line.strip().partition(",")
    return (chunk, int(tokens)) if tokens.isdigit() else None


def _own(line: str) -> tuple[str, int] | None:
    """Read a line of the dataset's files: an object with a chunk's id and its length, or lists of both."""
    try:
        values = list(parse_json(line).values())
    except (ValueError, AttributeError):
        return None
    flat = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in values]
    return (str(flat[0]), flat[1]) if len(flat) == 2 and isinstance(flat[1], int) else None


RAGPULSE = Reader(
    name="ragpulse",
    meaning="RAGPulse JSONL: timestamp (s), chunk ids; with the chunks' lengths in files beside it",
    layouts=OBJECTS,
    columns={name: name for name in ("arrival_s", "input_tokens", "output_tokens", "session_id", "hash_ids")},
    time="s from the trace's start",
    tokens="the serving system",
    matches=_matches,
    rows=_requests,
    block_tokens=BLOCK_TOKENS,
)
