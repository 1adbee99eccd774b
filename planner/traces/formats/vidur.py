"""Vidur's request CSV: arrivals in seconds, prefill and decode tokens; or lengths alone, as it and Sarathi ship."""

from planner.traces.reader import TEXTS, Reader, has_columns

_LENGTHS = {"input_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"}

VIDUR = Reader(
    name="vidur",
    meaning="Vidur CSV: arrived_at (s), num_prefill_tokens, num_decode_tokens",
    layouts=TEXTS,
    columns={"arrival_s": "arrived_at"} | _LENGTHS,
    time="s from the trace's start",
    tokens="the workload's tokenizer",
    matches=has_columns("arrived_at", *_LENGTHS.values()),
)

LENGTHS = Reader(
    name="lengths",
    meaning="lengths only, as Vidur's, Sarathi's and Etalon's processed traces: num_prefill_tokens, "
            "num_decode_tokens",
    layouts=TEXTS,
    columns=_LENGTHS,
    time="when requests were sent is not recorded",
    tokens="the workload's tokenizer",
    matches=has_columns(*_LENGTHS.values()),
    arrivals="absent",
)
