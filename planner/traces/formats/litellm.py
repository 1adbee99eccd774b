"""LiteLLM's SpendLogs: one call a row, from its database, an export or its logging callback."""

import polars as pl

from planner.traces.reader import ANY, ENDED, FIRST_TOKEN, Reader, Skip, has_columns
from planner.traces.turns import with_turns

_NOT_TEXT = "embedding|transcription|speech|image|moderation|rerank"


def _streamed(table: pl.DataFrame) -> pl.DataFrame:
    """Keep the TTFT of streamed calls alone: of others the log has the end in its place."""
    if {"ttft_s", "e2e_s"} <= set(table.columns):
        streamed = (pl.col("ttft_s") < pl.col("e2e_s")) | (pl.col("output_tokens") == 1)
        table = table.with_columns(pl.when(streamed).then("ttft_s"))
    return with_turns(table)


LITELLM = Reader(
    name="litellm",
    meaning="LiteLLM SpendLogs: a SQL table, CSV, JSON or Parquet export, or the logging payload",
    layouts=ANY,
    columns={
        "request_id": "request_id",
        "arrival_s": "startTime",
        FIRST_TOKEN: "completionStartTime",
        ENDED: "endTime",
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "cached_tokens": "metadata.usage_object.prompt_tokens_details.cached_tokens",
        "session_id": "session_id",
        "tenant": "team_id",
        "status": "status",
        "cache_hit": "cache_hit",
        "call_type": "call_type",
    },
    also={"tenant": ("end_user", "user"), "request_id": ("id",),
          "cached_tokens": ("metadata.usage.prompt_tokens_details.cached_tokens",)},
    time="dates (UTC without a time zone), or s since 1970; arrivals are startTime, from the earliest",
    tokens="the provider's usage",
    matches=has_columns("startTime", "endTime", "prompt_tokens", "completion_tokens"),
    units=dict.fromkeys(("startTime", "completionStartTime", "endTime"), "date"),
    clock="other",
    skips=(Skip(reason="status is not success", where=(pl.col("status") != "success") & (pl.col("status") != "")),
           Skip(reason="answered from the gateway's cache",
                where=pl.col("cache_hit").str.to_lowercase().is_in(["true", "1"])),
           Skip(reason="generates no text", where=pl.col("call_type").str.contains(_NOT_TEXT))),
    finish=_streamed,
)
