"""LLMPerf's individual_responses.json: one response an entry, without the time of sending."""

import polars as pl

from planner.traces.reader import OBJECTS, Reader, Skip, has_columns

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
