"""NVIDIA Dynamo's request traces, dynamo.request.trace.v1: the request_end events of a JSONL log."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.traces.reader import OBJECTS, Head, Reader, value_at
from planner.traces.turns import with_turns

_PATHS = {
    "request_id": "request.request_id",
    "arrival_s": "request.request_received_ms",
    "input_tokens": "request.input_tokens",
    "output_tokens": "request.output_tokens",
    "cached_tokens": "request.cached_tokens",
    "ttft_s": "request.ttft_ms",
    "e2e_s": "request.total_time_ms",
    "session_id": "agent_context.session_id",
    "tenant": "request.model",
    "hash_ids": "request.replay.input_sequence_hashes",
    "hash_block_tokens": "request.replay.trace_block_size",
}


def _event(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event of a line, which a file sink wraps."""
    event = line.get("event")
    return event if isinstance(event, Mapping) else line


def _matches(head: Head) -> bool:
    return any(str(_event(row).get("schema", "")).startswith("dynamo.request.trace") for row in head.objects[:1])


def _requests(line: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    event = _event(line)
    if event.get("event_type") == "request_end":
        yield {name: value_at(event, path) for name, path in _PATHS.items()}


DYNAMO = Reader(
    name="dynamo",
    meaning="NVIDIA Dynamo request traces (dynamo.request.trace.v1): request_end events as JSONL",
    layouts=OBJECTS,
    columns={name: name for name in _PATHS},
    time="ms since 1970; arrivals are request_received_ms, from the earliest; latencies in ms",
    tokens="the serving system",
    matches=_matches,
    units={"arrival_s": "ms", "ttft_s": "ms", "e2e_s": "ms"},
    clock="other",
    rows=_requests,
    id_blocks="all",
    finish=with_turns,
)
