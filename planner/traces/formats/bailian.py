"""The Qwen-Bailian traces: JSONL in seconds, chains of chats, and one prefix id for every 16 tokens."""

import polars as pl

from planner.traces.reader import FLAT_OBJECTS, Reader, has_columns
from planner.traces.turns import with_roots


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
