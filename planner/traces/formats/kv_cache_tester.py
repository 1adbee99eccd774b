"""kv-cache-tester's detailed_results.csv: one request of a replayed conversation a row."""

import polars as pl

from planner.traces.reader import TEXTS, Reader, Skip, has_columns
from planner.traces.turns import with_turns

KV_CACHE_TESTER = Reader(
    name="kv-cache-tester",
    meaning="kv-cache-tester detailed_results.csv: request_start_time, input_tokens, output_tokens_actual",
    layouts=TEXTS,
    columns={"arrival_s": "request_start_time", "input_tokens": "input_tokens",
             "output_tokens": "output_tokens_actual", "ttft_s": "ttft", "e2e_s": "ttlt", "session_id": "trace_id",
             "tenant": "user_id", "success": "success"},
    time="s since 1970; arrivals are request_start_time (timestamp is the end), from the earliest",
    tokens="the client's tokenizer",
    matches=has_columns("request_start_time", "input_tokens", "output_tokens_actual", "trace_id"),
    clock="other",
    skips=(Skip(reason="success is not True", where=pl.col("success").str.to_lowercase() != "true"),),
    finish=with_turns,
)
