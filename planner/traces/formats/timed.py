"""Traces as `vllm bench serve --dataset-name timed_trace` takes them: Mooncake's keys, in seconds, ids of 16 tokens."""

from planner.traces.formats.mooncake import COLUMNS, blocks_of
from planner.traces.reader import FLAT_OBJECTS, Reader

TIMED = Reader(
    name="timed-trace",
    meaning="vLLM's timed_trace JSONL: timestamp (s), input_length, output_length, hash_ids of 16 tokens",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS,
    time="s from the trace's start; --column arrival_s=timestamp:ms for other units",
    tokens="the author of the trace; --column hash_ids=hash_ids:512 for other blocks",
    matches=lambda head: (blocks := blocks_of(head)) is not None and blocks > 0,
    block_tokens=16,
    id_blocks="all",
)
