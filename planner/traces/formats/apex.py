"""APEX+'s traces: JSONL with Azure's names for tokens, and offsets in nanoseconds."""

from planner.traces.reader import FLAT_OBJECTS, Reader, has_columns

_COLUMNS = {"arrival_s": "StartTimeOffset", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}

APEX = Reader(
    name="apex",
    meaning="APEX+ JSONL: StartTimeOffset (ns), ContextTokens, GeneratedTokens, RequestID",
    layouts=FLAT_OBJECTS,
    columns=_COLUMNS | {"request_id": "RequestID"},
    time="ns from the trace's start",
    tokens="the workload's tokenizer",
    matches=has_columns(*_COLUMNS.values()),
    units={"StartTimeOffset": "ns"},
)
