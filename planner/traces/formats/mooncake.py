"""Mooncake's traces, with a prefix id for every 512 tokens; vLLM's timed_trace and AIPerf's mooncake_trace."""

from planner.traces.reader import FLAT_OBJECTS, Head, Reader
from planner.traces.turns import with_sequence

BLOCK_TOKENS = 512

COLUMNS = {
    "arrival_s": "timestamp",
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "session_id": "session_id",
    "think_time_s": "delay",
    "hash_ids": "hash_ids",
}


def blocks_of(head: Head) -> int | None:
    """Return how many ids the first row's prompt has more than 512-token blocks would need; None without ids.

    Qwen-Bailian, which has chat_id, and RAGPulse, whose ids are no list, have the same keys.
    """
    tokens, ids = head.first.get("input_length"), head.first.get("hash_ids")
    if not head.has("timestamp") or "chat_id" in head.columns or not isinstance(ids, list):
        return None
    return len(ids) - -(-tokens // BLOCK_TOKENS) if isinstance(tokens, int) else 0


MOONCAKE = Reader(
    name="mooncake",
    meaning="Mooncake and AIPerf mooncake_trace JSONL: timestamp (ms), input_length, output_length, hash_ids of 512 "
            "tokens",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS,
    time="ms from the trace's start",
    tokens="the serving system",
    matches=lambda head: (blocks := blocks_of(head)) is not None and blocks <= 0,
    units={"timestamp": "ms", "delay": "ms"},
    block_tokens=BLOCK_TOKENS,
    id_blocks="all",
)


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


def _matches(head: Head) -> bool:
    keys = set(head.columns)
    is_timed = all(row.get("timestamp") is not None for row in head.objects)
    return {"input_length", "session_id"} <= keys and "chat_id" not in keys and ("delay" in keys or not is_timed)


AIPERF_TRACE = Reader(
    name="aiperf-trace",
    meaning="AIPerf mooncake_trace JSONL with sessions: session_id, input_length, output_length, delay (ms)",
    layouts=FLAT_OBJECTS,
    columns=COLUMNS,
    time="ms from the trace's start; a turn without a timestamp waits for the one before it, and its delay",
    tokens="the author of the trace",
    matches=_matches,
    units={"timestamp": "ms", "delay": "ms"},
    arrivals="optional",
    carries_arrivals=True,
    block_tokens=BLOCK_TOKENS,
    id_blocks="all",
    finish=with_sequence,
)
