"""The planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens."""

from planner.schema import REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS
from planner.trace.reader import Head, Reader, as_it_is


def _matches(head: Head) -> bool:
    return head.layout == "jsonl" and set(REQUIRED_TRACE_COLUMNS) <= set(head.columns)


NATIVE_JSONL = Reader(
    name="jsonl",
    meaning="the planner's own JSONL: the CSV's columns as keys, and hash_ids with hash_block_tokens",
    layout="jsonl",
    columns={column.name: column.name for column in TRACE_COLUMNS},
    matches=_matches,
    native=as_it_is,
    block_tokens=None,
    exact_ids=False,
)
