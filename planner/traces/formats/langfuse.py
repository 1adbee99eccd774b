"""Langfuse's observations: the generations of an export or of its API."""

import polars as pl

from planner.traces.reader import ANY, ENDED, FIRST_TOKEN, Head, Reader, Skip
from planner.traces.turns import with_turns

_INPUT = ("usageDetails.input", "usage.input", "promptTokens", "inputUsage", "usage_details.input")
_OUTPUT = ("usageDetails.output", "usage.output", "completionTokens", "outputUsage", "usage_details.output")


def _matches(head: Head) -> bool:
    return any(map(head.has, ("startTime", "start_time"))) and all(
        any(map(head.has, paths)) for paths in (_INPUT, _OUTPUT)) and any(map(head.has, ("traceId", "trace_id")))


LANGFUSE = Reader(
    name="langfuse",
    meaning="Langfuse observations: the generations of an export or of its API",
    layouts=ANY,
    columns={
        "request_id": "id",
        "arrival_s": "startTime",
        FIRST_TOKEN: "completionStartTime",
        ENDED: "endTime",
        "input_tokens": _INPUT[0],
        "output_tokens": _OUTPUT[0],
        "cached_tokens": "usageDetails.input_cached_tokens",
        "session_id": "sessionId",
        "tenant": "userId",
        "ttft_s": "timeToFirstToken",
        "type": "type",
        "level": "level",
    },
    also={"arrival_s": ("start_time",), ENDED: ("end_time",), FIRST_TOKEN: ("completion_start_time",),
          "input_tokens": _INPUT[1:], "output_tokens": _OUTPUT[1:], "session_id": ("session_id",),
          "tenant": ("user_id",), "cached_tokens": ("usage_details.input_cached_tokens",),
          "ttft_s": ("time_to_first_token",)},
    time="dates (UTC without a time zone); arrivals are startTime, from the earliest; timeToFirstToken in s",
    tokens="the usage that the application reported, else Langfuse's tokenizer",
    matches=_matches,
    units=dict.fromkeys(("startTime", "completionStartTime", "endTime", "start_time", "completion_start_time",
                         "end_time"), "date"),
    clock="other",
    skips=(Skip(reason="is not a generation", where=(pl.col("type") != "GENERATION")),
           Skip(reason="level is ERROR", where=pl.col("level") == "ERROR")),
    finish=with_turns,
)
