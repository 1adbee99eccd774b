"""The planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens."""

from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.trace.native_csv import ALSO, COLUMNS, SKIPS, UNITS
from planner.trace.reader import FLAT_OBJECTS, Reader, has_columns

NATIVE_JSONL = Reader(
    name="jsonl",
    meaning="the planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS | {"hash_ids": "hash_ids", "hash_block_tokens": "hash_block_tokens"},
    also=ALSO,
    time="s from the trace's start; measured times in s, or in ms where the column's name ends in _ms",
    tokens="whoever wrote the file",
    matches=has_columns(*REQUIRED_TRACE_COLUMNS),
    units=UNITS,
    skips=SKIPS,
    fills_times=False,
)
