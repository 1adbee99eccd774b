"""Helicone's exports: one request a row, as CSV or JSONL."""

import polars as pl

from planner.traces.reader import ANY, ENDED, Reader, Skip, has_columns
from planner.traces.turns import with_turns

HELICONE = Reader(
    name="helicone",
    meaning="Helicone exports: request_created_at, prompt_tokens, completion_tokens, delay_ms",
    layouts=ANY,
    columns={
        "request_id": "request_id",
        "arrival_s": "request_created_at",
        ENDED: "response_created_at",
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "cached_tokens": "prompt_cache_read_tokens",
        "ttft_s": "time_to_first_token",
        "e2e_s": "delay_ms",
        "tenant": "request_user_id",
        "session_id": "request_properties.Helicone-Session-Id",
        "status": "response_status",
    },
    time="dates (UTC without a time zone); arrivals are request_created_at, from the earliest; latencies in ms",
    tokens="the provider's usage",
    matches=has_columns("request_created_at", "prompt_tokens", "completion_tokens"),
    units={"request_created_at": "date", "response_created_at": "date", "time_to_first_token": "ms",
           "delay_ms": "ms"},
    clock="other",
    skips=(Skip(reason="response_status is not 2xx",
                where=~pl.col("status").str.contains(r"^2\d\d(\.0)?$") & (pl.col("status") != "")),),
    finish=with_turns,
)
