"""inference-perf's per_request_lifecycle_metrics.json: one entry a request."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.files.finite import is_number
from planner.traces.reader import ENDED, FIRST_TOKEN, OBJECTS, SENT, Head, Reader, Skip, first_at, total, value_at
from planner.traces.turns import with_turns

_COLUMNS = ("arrival_s", SENT, FIRST_TOKEN, ENDED, "input_tokens", "output_tokens", "session_id", "failed")
_TOKENS = {side: (f"computed_metrics.{side}", f"info.{side}", f"info.{part}.{side}", f"info.{part}.text.{side}")
           for side, part in (("input_tokens", "request_metrics"), ("output_tokens", "response_metrics"))}
_TOKEN_TIMES = ("info.output_token_times", "info.response_metrics.output_token_times")


def _matches(head: Head) -> bool:
    first = head.first
    return {"start_time", "end_time"} <= set(first) and isinstance(first.get("info"), Mapping) and "request" in first


def _requests(entry: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    begin = entry.get("start_time")
    yield {
        **{side: first_at(entry, paths) for side, paths in _TOKENS.items()},
        "arrival_s": begin if entry.get("scheduled_time") is None else entry["scheduled_time"],
        SENT: begin,
        FIRST_TOKEN: _first_token_at(entry, begin),
        ENDED: entry.get("end_time"),
        "session_id": entry.get("session_id"),
        "failed": entry.get("error") is not None,
    }


def _first_token_at(entry: Mapping[str, Any], begin: Any) -> Any:
    ttft_s = value_at(entry, "computed_metrics.time_to_first_token")
    if is_number(ttft_s):
        return total(begin, ttft_s)
    times = first_at(entry, _TOKEN_TIMES)
    return times[0] if isinstance(times, list) and times else None


INFERENCE_PERF = Reader(
    name="inference-perf",
    meaning="inference-perf per_request_lifecycle_metrics.json",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="s on the client's own clock; arrivals are when requests were due, and count from the earliest",
    tokens="the server's usage, else the client's tokenizer",
    matches=_matches,
    clock="other",
    rows=_requests,
    skips=(Skip(reason="the client recorded an error", where=pl.col("failed") == "true"),),
    finish=with_turns,
)
