"""The Azure LLM inference traces of 2023, 2024 and 2025: wall-clock arrivals and token counts as CSV."""

from planner.traces.reader import TEXTS, Reader, has_columns

_COLUMNS = {"arrival_s": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}

AZURE = Reader(
    name="azure",
    meaning="Azure LLM inference traces (2023, 2024, 2025): TIMESTAMP,ContextTokens,GeneratedTokens",
    layouts=TEXTS,
    columns=_COLUMNS,
    time="UTC dates to 100 ns; arrivals count from the earliest",
    tokens="the serving system",
    matches=has_columns(*_COLUMNS.values()),
    units={"TIMESTAMP": "date"},
    clock="other",
)
