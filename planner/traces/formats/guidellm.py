"""GuideLLM's benchmarks.json, versions 1 and 2: the requests of each benchmark, by how they ended."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import TraceError
from planner.files.finite import is_number
from planner.traces.reader import ENDED, FIRST_TOKEN, OBJECTS, SENT, Reader, Skip, first_at, value_at
from planner.traces.turns import with_turns

_ENDINGS = ("successful", "incomplete", "errored")
_COLUMNS = ("request_id", "arrival_s", SENT, FIRST_TOKEN, ENDED, "input_tokens", "output_tokens", "cached_tokens",
            "session_id", "status")
# Paths of each in versions 2 and 1; the first that exists counts.
_PATHS: Mapping[str, tuple[str, ...]] = {
    "request_id": ("request_id",),
    SENT: ("info.timings.request_start", "request_start_time", "start_time"),
    FIRST_TOKEN: ("info.timings.first_token_iteration", "first_token_time"),
    ENDED: ("info.timings.last_token_iteration", "info.timings.request_end", "request_end_time", "last_token_time",
            "end_time"),
    "input_tokens": ("prompt_tokens", "input_metrics.text_tokens", "input_metrics.total_tokens"),
    "output_tokens": ("output_tokens", "output_metrics.text_tokens", "output_metrics.total_tokens"),
    "cached_tokens": ("cached_tokens", "input_metrics.cached_tokens"),
    "session_id": ("info.conversation_id",),
}
_DUE = ("info.timings.targeted_start", "scheduler_info.targeted_start_time")


def _requests(report: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of all benchmarks, which follow each other on one clock.

    Raises
    ------
    TraceError : the file was saved with the benchmarks' statistics alone.
    """
    listed = report.get("benchmarks")
    benchmarks = listed if isinstance(listed, list) else []
    if benchmarks and not any(value_at(one, f"requests.{ending}") for one in benchmarks for ending in _ENDINGS):
        raise TraceError("is GuideLLM's summary, without requests; give it to planner validate or calibrate, or save "
                         "the requests (guidellm benchmark --sample-requests N, or leave the option out)")
    for benchmark in benchmarks:
        by_ending = value_at(benchmark, "requests")
        for ending in _ENDINGS:
            rows = value_at(by_ending, ending)
            for row in rows if isinstance(rows, list) else ():
                yield _request(row, ending)


def _request(row: Any, ending: str) -> dict[str, Any]:
    """Return one request; it was due when the schedule said, unless it was sent earlier."""
    values = {name: first_at(row, paths) for name, paths in _PATHS.items()}
    due_at_s, sent_at_s = first_at(row, _DUE), values[SENT]
    is_due = is_number(due_at_s) and is_number(sent_at_s) and 0 < due_at_s <= sent_at_s
    return values | {"arrival_s": due_at_s if is_due else sent_at_s, "status": ending}


GUIDELLM = Reader(
    name="guidellm",
    meaning="GuideLLM benchmarks.json, versions 1 and 2",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="s since 1970; arrivals are when requests were due, and count from the earliest",
    tokens="the server's usage, else GuideLLM's tokenizer",
    matches=lambda head: isinstance(head.first.get("benchmarks"), list),
    clock="other",
    rows=_requests,
    skips=(Skip(reason="GuideLLM says errored", where=pl.col("status") == "errored"),
           Skip(reason="GuideLLM says incomplete", where=pl.col("status") == "incomplete")),
    finish=with_turns,
)
