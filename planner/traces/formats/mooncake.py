"""The Mooncake traces: JSONL with arrivals in milliseconds and one prefix id for every 512 tokens."""

from planner.traces.reader import FLAT_OBJECTS, Head, Reader

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
