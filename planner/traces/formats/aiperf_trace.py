"""AIPerf's mooncake_trace with sessions: later turns have no timestamps, and wait for the turn before and a delay."""

from planner.traces.formats.mooncake import BLOCK_TOKENS, COLUMNS
from planner.traces.reader import FLAT_OBJECTS, Head, Reader
from planner.traces.turns import with_sequence


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
