"""WEKA's agent traces: one conversation an object, its requests on a clock of its own, sub-agents inside."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.trace.reader import OBJECTS, Head, Reader, Skip

_COLUMNS = ("request_id", "session_id", "parent_id", "think_time_s", "arrival_s", "input_tokens", "output_tokens",
            "tenant", "ttft_s", "e2e_s", "hash_ids", "hash_block_tokens")


def _matches(head: Head) -> bool:
    first = head.first
    requests = first.get("requests")
    return {"id", "block_size"} <= set(first) and isinstance(requests, list) and all(
        isinstance(each, Mapping) and ("in" in each or "requests" in each) for each in requests[:1])


def _requests(conversation: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    name = str(conversation.get("id"))
    common = {"session_id": name, "hash_block_tokens": conversation.get("block_size")}
    yield from _turns(conversation.get("requests"), name, None, 0.0, common)


def _turns(turns: Any, path: str, parent: str | None, begin_s: float, common: Mapping[str, Any]
           ) -> Iterator[dict[str, Any]]:
    """Yield the requests of an agent in turn; a sub-agent's begin upon the request before it."""
    for k, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, Mapping):
            continue
        own = f"{path}/{k}"
        at = turn.get("t")
        at_s = begin_s + at if isinstance(at, int | float) else at
        if "requests" in turn:
            yield from _turns(turn["requests"], own, parent, at_s if isinstance(at_s, int | float) else begin_s, common)
            continue
        yield {
            **common, "request_id": own, "parent_id": parent, "arrival_s": at_s,
            "think_time_s": None if parent is None else turn.get("think_time"), "input_tokens": turn.get("in"),
            "output_tokens": turn.get("out"), "tenant": turn.get("model"), "ttft_s": turn.get("ttft"),
            "e2e_s": turn.get("api_time"), "hash_ids": turn.get("hash_ids"),
        }
        parent = own


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
    notes=("conversations have clocks of their own, so all begin at 0 s; their turns wait for the ones before, and "
           "measured times are those of the provider that was recorded",),
)
