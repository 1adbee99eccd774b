"""Trace formats with a request a row under the names of its columns: a `Reader` is a table of these names."""

import polars as pl

from planner.traces.reader import ANY, ENDED, FLAT_OBJECTS, OBJECTS, TEXTS, Reader, Skip, has_columns
from planner.traces.turns import with_roots, with_turns

AZURE_COLUMNS = {"arrival_s": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}

AZURE = Reader(
    name="azure",
    meaning="Azure LLM inference traces (2023, 2024, 2025): TIMESTAMP,ContextTokens,GeneratedTokens",
    layouts=TEXTS,
    columns=AZURE_COLUMNS,
    time="UTC dates to 100 ns; arrivals count from the earliest",
    tokens="the serving system",
    matches=has_columns(*AZURE_COLUMNS.values()),
    units={"TIMESTAMP": "date"},
    clock="other",
)

SPLITWISE_COLUMNS = {"arrival_s": "arrival_timestamp", "input_tokens": "prompt_size", "output_tokens": "token_size"}

SPLITWISE = Reader(
    name="splitwise-sim",
    meaning="splitwise-sim CSV: arrival_timestamp (s), prompt_size, token_size",
    layouts=TEXTS,
    columns=SPLITWISE_COLUMNS | {"request_id": "request_id", "tenant": "application_id"},
    time="s from the trace's start",
    tokens="the traces that it was made from",
    matches=has_columns(*SPLITWISE_COLUMNS.values()),
)

APEX_COLUMNS = {"arrival_s": "StartTimeOffset", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}

APEX = Reader(
    name="apex",
    meaning="APEX+ JSONL: StartTimeOffset (ns), ContextTokens, GeneratedTokens, RequestID",
    layouts=FLAT_OBJECTS,
    columns=APEX_COLUMNS | {"request_id": "RequestID"},
    time="ns from the trace's start",
    tokens="the workload's tokenizer",
    matches=has_columns(*APEX_COLUMNS.values()),
    units={"StartTimeOffset": "ns"},
)

LMBENCHMARK_COLUMNS = {"arrival_s": "launch_time", ENDED: "finish_time", "ttft_s": "ttft",
                       "input_tokens": "prompt_tokens", "output_tokens": "generation_tokens"}

LMBENCHMARK = Reader(
    name="lmbenchmark",
    meaning="LMBenchmark CSV: launch_time, finish_time, ttft, prompt_tokens, generation_tokens",
    layouts=TEXTS,
    columns=LMBENCHMARK_COLUMNS,
    time="s since 1970; arrivals are launch_time, from the earliest",
    tokens="the server's usage",
    matches=has_columns(*LMBENCHMARK_COLUMNS.values()),
    clock="other",
)

LLMPERF = Reader(
    name="llmperf",
    meaning="LLMPerf individual_responses.json",
    layouts=OBJECTS,
    columns={"input_tokens": "number_input_tokens", "output_tokens": "number_output_tokens", "ttft_s": "ttft_s",
             "e2e_s": "end_to_end_latency_s", "error": "error_code"},
    time="s; when requests were sent is not recorded; its inter_token_latency_s includes the TTFT, and is ignored",
    tokens="LLMPerf's tokenizer, a Llama's",
    matches=has_columns("number_input_tokens", "number_output_tokens", "end_to_end_latency_s"),
    arrivals="absent",
    skips=(Skip(reason="the client recorded an error", where=pl.col("error").is_not_null()),),
)

COUNTED = [pl.col(name).cast(pl.Float64, strict=False) for name in ("input_tokens", "output_tokens")]

BURSTGPT = Reader(
    name="burstgpt",
    meaning="BurstGPT CSV, versions 1 to 3: Timestamp (s), Request tokens, Response tokens, Model, Log Type",
    layouts=TEXTS,
    columns={"arrival_s": "Timestamp", "input_tokens": "Request tokens", "output_tokens": "Response tokens",
             "tenant": "Model", "session_id": "Session ID", "e2e_s": "Elapsed time"},
    time="s from the start of the recording, in whole seconds",
    tokens="the service",
    matches=has_columns("Timestamp", "Request tokens", "Response tokens"),
    skips=(Skip(reason="failed (0 tokens)", where=(COUNTED[0] == 0) | (COUNTED[1] == 0)),),
    finish=with_turns,
)

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


def _chained(table: pl.DataFrame) -> pl.DataFrame:
    """Tell the first of a chain, whose parent is -1, and name each chain after it."""
    if "parent_id" not in table.columns:
        return table
    return with_roots(table.with_columns(pl.when(pl.col("parent_id") != "-1").then("parent_id")))

BAILIAN = Reader(
    name="bailian",
    meaning="Qwen-Bailian JSONL: timestamp (s), chat_id, parent_chat_id, hash_ids of 16 tokens",
    layouts=FLAT_OBJECTS,
    columns={"request_id": "chat_id", "parent_id": "parent_chat_id", "arrival_s": "timestamp",
             "input_tokens": "input_length", "output_tokens": "output_length", "tenant": "type",
             "hash_ids": "hash_ids"},
    time="s from the trace's start",
    tokens="the serving system",
    matches=has_columns("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"),
    block_tokens=16,
    finish=_chained,
)

NOTHING = ["-", ""]  # Envoy's text for nothing

ENVOY = Reader(
    name="envoy-ai-gateway",
    meaning="Envoy AI Gateway access logs: start_time, duration (ms), genai_tokens_input, genai_tokens_output",
    layouts=ANY,
    columns={"arrival_s": "start_time", "e2e_s": "duration", "input_tokens": "genai_tokens_input",
             "output_tokens": "genai_tokens_output", "tenant": "route_name", "code": "response_code"},
    also={"tenant": ("genai_model_name",)},
    time="dates (UTC without a time zone); arrivals are start_time, from the earliest; duration in ms",
    tokens="the provider's usage",
    matches=has_columns("start_time", "genai_tokens_input", "genai_tokens_output"),
    units={"start_time": "date", "duration": "ms"},
    clock="other",
    skips=(Skip(reason="response_code is not 2xx", where=~pl.col("code").str.starts_with("2")),
           Skip(reason="no token counts",
                where=pl.col("input_tokens").is_in(NOTHING) | pl.col("output_tokens").is_in(NOTHING))),
)

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
