"""AIPerf's profile_export.jsonl: one request a line, its metadata and its metrics with their units."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.files.finite import is_number
from planner.traces.reader import OBJECTS, SENT, Head, Reader, Skip, first_at, value_at
from planner.traces.turns import with_turns
from planner.traces.units import PER_SECOND

_COLUMNS = ("request_id", "arrival_s", SENT, "input_tokens", "output_tokens", "ttft_s", "e2e_s", "session_id",
            "cached_tokens", "phase", "cancelled", "failed")
_TOKENS = {"input_tokens": ("input_sequence_length", "usage_prompt_tokens"),
           "output_tokens": ("output_sequence_length", "usage_completion_tokens"),
           "cached_tokens": ("usage_prompt_cache_read_tokens", "usage_cached_tokens")}


def _matches(head: Head) -> bool:
    return value_at(head.first, "metadata.request_start_ns") is not None and "metrics" in head.first


def _requests(line: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    metadata, metrics = (line.get(key) for key in ("metadata", "metrics"))
    if not isinstance(metadata, Mapping):
        return
    tokens = {name: first_at(metrics, [f"{key}.value" for key in keys]) for name, keys in _TOKENS.items()}
    yield {
        **tokens,
        "request_id": metadata.get("x_request_id"),
        "arrival_s": metadata.get("credit_issued_ns") or metadata.get("request_start_ns"),
        SENT: metadata.get("request_start_ns"),
        "ttft_s": _seconds(metrics, "time_to_first_token"),
        "e2e_s": _seconds(metrics, "request_latency"),
        "session_id": metadata.get("x_correlation_id") or metadata.get("conversation_id"),
        "phase": metadata.get("benchmark_phase"),
        "cancelled": metadata.get("was_cancelled"),
        "failed": bool(line.get("error")),
    }


def _seconds(metrics: Any, name: str) -> Any:
    """Return a time in seconds; unchanged if its unit is unknown, so that the check reports it."""
    value, unit = value_at(metrics, f"{name}.value"), value_at(metrics, f"{name}.unit")
    per_second = PER_SECOND.get({"sec": "s", "seconds": "s"}.get(str(unit), str(unit)))
    if per_second is None:
        return None if value is None else f"{value} {unit}"
    return value / per_second if is_number(value) else value


AIPERF = Reader(
    name="aiperf",
    meaning="AIPerf profile_export.jsonl: one request a line, with metadata and metrics",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="ns since 1970; arrivals are when requests were due, and count from the earliest; metrics name their unit",
    tokens="the server's usage or AIPerf's tokenizer, as its --use-server-token-count says",
    matches=_matches,
    units={"arrival_s": "ns", SENT: "ns"},
    clock="other",
    rows=_requests,
    skips=(Skip(reason="of the warm-up", where=pl.col("phase") == "warmup"),
           Skip(reason="was cancelled", where=pl.col("cancelled") == "true"),
           Skip(reason="the client recorded an error", where=pl.col("failed") == "true")),
    finish=with_turns,
)
