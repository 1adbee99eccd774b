"""LLMServingSim's workloads and measured runs: JSONL with arrivals in nanoseconds, and sessions of sub-requests."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.files.finite import is_number
from planner.traces.reader import OBJECTS, Head, Reader, between

BLOCK_TOKENS = 16  # of a prefix id that we make of a prompt's tokens: vLLM's block

_COLUMNS = ("request_id", "arrival_s", "input_tokens", "output_tokens", "session_id", "parent_id", "think_time_s",
            "ttft_s", "e2e_s", "hash_ids")


def _matches(head: Head) -> bool:
    first = head.first
    is_session = "arrival_time_ns" in first and isinstance(first.get("sub_requests"), list)
    return is_session or ({"input_toks", "output_toks"} <= set(first)
                          and bool({"arrival_time_ns", "arrival_time"} & set(first)))


def _requests(line: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    if "sub_requests" in line:
        yield from _session(line)
        return
    arrival_s, queued_s = line.get("arrival_time_ns"), line.get("queued_ts")
    tokens = line.get("input_tok_ids")
    yield {
        "request_id": line.get("request_id"), "input_tokens": line.get("input_toks"),
        "output_tokens": line.get("output_toks"),
        "arrival_s": line.get("arrival_time") if arrival_s is None else _seconds(arrival_s),
        "ttft_s": between(queued_s, line.get("first_token_ts")),
        "e2e_s": between(queued_s, line.get("last_token_ts")),
        "hash_ids": prefix_ids(tokens) if isinstance(tokens, list) else None,
    }


def prefix_ids(tokens: Sequence[Any]) -> list[str]:
    """Return an id for each block of BLOCK_TOKENS tokens: of all tokens up to its end; the last one may be part-filled.

    >>> [each == prefix_ids([7] * 16)[0] for each in prefix_ids([7] * 20)]
    [True, False]
    """
    digest, ids = hashlib.blake2b(digest_size=8), []
    for first in range(0, len(tokens), BLOCK_TOKENS):
        digest.update(repr(tokens[first : first + BLOCK_TOKENS]).encode())
        ids.append(digest.hexdigest())
    return ids


def _session(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a session's requests: each waits for the one before, and for that one's tool."""
    name, parent, think_s = str(line.get("session_id")), None, None
    turns = line.get("sub_requests")
    for k, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, Mapping):
            continue
        request_id = f"{name}/{k}"
        yield {"request_id": request_id, "session_id": name, "parent_id": parent, "think_time_s": think_s,
               "arrival_s": _seconds(line.get("arrival_time_ns")), "input_tokens": turn.get("input_toks"),
               "output_tokens": turn.get("output_toks")}
        parent, think_s = request_id, _seconds(turn.get("tool_duration_ns") or 0)


def _seconds(nanoseconds: Any) -> Any:
    return nanoseconds / 1e9 if is_number(nanoseconds) else nanoseconds


LLMSERVINGSIM = Reader(
    name="llmservingsim",
    meaning="LLMServingSim JSONL: arrival_time_ns, input_toks, output_toks, sessions, and its measured runs",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="ns from the trace's start; a measured run's s since 1970 count from the earliest; its times begin in the "
         "engine's queue",
    tokens="the workload's tokenizer",
    matches=_matches,
    clock="either",
    rows=_requests,
    block_tokens=BLOCK_TOKENS,
    id_blocks="all",
)
