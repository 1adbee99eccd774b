"""The planner's own CSV, a header with our column names, and its own JSONL with the same names as keys."""

from dataclasses import replace

import polars as pl

from planner.schema import REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS
from planner.traces.reader import FLAT_OBJECTS, Reader, Skip, has_columns

ENDINGS = ("rejected", "unfinished", "cancelled", "failed", "error")  # of the other requests in a replay's table
COLUMNS = {column.name: column.name for column in TRACE_COLUMNS} | {"status": "status"}
ALSO = {"ttft_s": ("ttft_ms",), "tpot_s": ("tpot_ms",), "e2e_s": ("e2e_ms", "e2el_ms")}
UNITS = {"ttft_ms": "ms", "tpot_ms": "ms", "e2e_ms": "ms", "e2el_ms": "ms"}
SKIPS = (Skip(reason="status is not completed", where=pl.col("status").is_in(ENDINGS)),)

NATIVE_CSV = Reader(
    name="csv",
    meaning="the planner's own CSV: arrival_s,input_tokens,output_tokens and optional columns",
    layouts=("csv",),
    columns=COLUMNS,
    also=ALSO,
    time="s from the trace's start; measured times in s, or in ms if the column's name ends in _ms",
    tokens="the author of the file",
    matches=has_columns(*REQUIRED_TRACE_COLUMNS),
    units=UNITS,
    skips=SKIPS,
    fills_times=False,
)


NATIVE_JSONL = replace(
    NATIVE_CSV,
    name="jsonl",
    meaning="the planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS | {"hash_ids": "hash_ids", "hash_block_tokens": "hash_block_tokens"},
)
