"""The planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens."""

from dataclasses import replace

from planner.traces.formats.native_csv import COLUMNS, NATIVE_CSV
from planner.traces.reader import FLAT_OBJECTS

NATIVE_JSONL = replace(
    NATIVE_CSV,
    name="jsonl",
    meaning="the planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS | {"hash_ids": "hash_ids", "hash_block_tokens": "hash_block_tokens"},
)
