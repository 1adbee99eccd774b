"""The Mooncake traces: JSONL with arrivals in milliseconds and one prefix id for every 512 tokens."""

import polars as pl

from planner.trace.reader import Head, Reader, numbers

_COLUMNS = {
    "arrival_s": "timestamp",
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "session_id": "session_id",
}


def _matches(head: Head) -> bool:
    """Tell it from formats with the same keys: seconds and 16-token ids come with chat_id, RAG chunks as an object."""
    wanted = {"timestamp", "input_length", "output_length", "hash_ids"}
    return (
        head.layout == "jsonl"
        and wanted <= set(head.columns)
        and "chat_id" not in head.columns
        and isinstance(head.first.get("hash_ids"), list)
    )


def _native(raw: pl.DataFrame) -> pl.DataFrame:
    return raw.with_columns((numbers(raw["arrival_s"]) / 1000).alias("arrival_s"))


MOONCAKE = Reader(
    name="mooncake",
    meaning="Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids of 512 tokens",
    layout="jsonl",
    columns=_COLUMNS,
    matches=_matches,
    native=_native,
    block_tokens=512,
    exact_ids=True,
)
