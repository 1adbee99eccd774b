"""splitwise-sim's request CSV: arrivals in seconds, prompt and token sizes."""

from planner.traces.reader import TEXTS, Reader, has_columns

_COLUMNS = {"arrival_s": "arrival_timestamp", "input_tokens": "prompt_size", "output_tokens": "token_size"}

SPLITWISE = Reader(
    name="splitwise-sim",
    meaning="splitwise-sim CSV: arrival_timestamp (s), prompt_size, token_size",
    layouts=TEXTS,
    columns=_COLUMNS | {"request_id": "request_id", "tenant": "application_id"},
    time="s from the trace's start",
    tokens="the traces that it was made from",
    matches=has_columns(*_COLUMNS.values()),
)
