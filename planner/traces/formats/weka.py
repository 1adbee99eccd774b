"""WEKA's agent traces: one conversation an object, its requests on a clock of its own, sub-agents inside."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.files.finite import is_number
from planner.schema import PARENT_SEPARATOR
from planner.traces.reader import OBJECTS, Head, Reader, Skip, total

_COLUMNS = ("request_id", "session_id", "parent_id", "think_time_s", "arrival_s", "input_tokens", "output_tokens",
            "tenant", "ttft_s", "e2e_s", "hash_ids", "hash_block_tokens")


def _matches(head: Head) -> bool:
    first = head.first
    requests = first.get("requests")
    return {"id", "block_size"} <= set(first) and isinstance(requests, list) and all(
        isinstance(row, Mapping) and ("in" in row or "requests" in row) for row in requests[:1])


def _requests(conversation: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    name = str(conversation.get("id"))
    common = {"session_id": name, "hash_block_tokens": conversation.get("block_size")}
    yield from _turns(conversation.get("requests"), name, None, 0.0, common)


def _turns(turns: Any, path: str, parent: str | None, begin_s: float, common: Mapping[str, Any]
           ) -> Iterator[dict[str, Any]]:
    """Yield the requests of an agent in turn. A request after a sub-agent waits for its last request, too."""
    before_end_s, joined, joined_end_s = begin_s, "", 0.0
    for k, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, Mapping):
            continue
        name = f"{path}/{k}"
        at_s = total(begin_s, turn.get("t"))
        if "requests" in turn:
            for row in _turns(turn["requests"], name, parent, _begin_of(turn, at_s, before_end_s), common):
                joined, joined_end_s = row["request_id"], _end_of(row)
                yield row
            continue
        think_s = None if parent is None else turn.get("think_time")
        if joined and is_number(at_s):  # recorded from the end of the request before the sub-agent
            think_s = max(at_s - max(joined_end_s, before_end_s), 0.0)
        row = {
            **common, "request_id": name, "parent_id": PARENT_SEPARATOR.join(filter(None, (parent, joined))) or None,
            "arrival_s": at_s, "think_time_s": think_s, "input_tokens": turn.get("in"),
            "output_tokens": turn.get("out"), "tenant": turn.get("model"), "ttft_s": turn.get("ttft"),
            "e2e_s": turn.get("api_time"), "hash_ids": turn.get("hash_ids"),
        }
        yield row
        parent, before_end_s, joined = name, _end_of(row), ""


def _begin_of(agent: Mapping[str, Any], ended_s: Any, before_end_s: float) -> float:
    """Return when a sub-agent began: its own time is its end."""
    duration_ms: Any = agent.get("duration_ms")
    if not is_number(ended_s) or not is_number(duration_ms):
        return before_end_s
    return max(float(ended_s) - float(duration_ms) / 1000, before_end_s)


def _end_of(row: Mapping[str, Any]) -> float:
    end_s = total(row["arrival_s"], row["e2e_s"] or 0.0)
    return float(end_s) if is_number(end_s) else 0.0


WEKA = Reader(
    name="weka",
    meaning="WEKA (kv-cache-tester) agent traces: JSON or JSONL, one conversation an object",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="s from each conversation's own start",
    tokens="the provider's usage",
    matches=_matches,
    rows=_requests,
    skips=(Skip(reason="no output tokens", where=pl.col("output_tokens") == "0"),),
    id_blocks="full",
    id_scope="session",
    notes=("each conversation has its own clock, so all begin at 0 s; a turn waits for the turn before it, and "
           "measured times are the recorded provider's",),
)
