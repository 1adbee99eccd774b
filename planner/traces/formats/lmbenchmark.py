"""LMBenchmark's CSV, as llm-d's runs have it: one request a row."""

from planner.traces.reader import ENDED, TEXTS, Reader, has_columns

_COLUMNS = {"arrival_s": "launch_time", ENDED: "finish_time", "ttft_s": "ttft", "input_tokens": "prompt_tokens",
            "output_tokens": "generation_tokens"}

LMBENCHMARK = Reader(
    name="lmbenchmark",
    meaning="LMBenchmark CSV: launch_time, finish_time, ttft, prompt_tokens, generation_tokens",
    layouts=TEXTS,
    columns=_COLUMNS,
    time="s since 1970; arrivals are launch_time, from the earliest",
    tokens="the server's usage",
    matches=has_columns(*_COLUMNS.values()),
    clock="other",
)
