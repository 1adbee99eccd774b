"""Vidur's request CSV: arrivals in seconds, prefill and decode tokens."""

from planner.trace.reader import Head, Reader, as_it_is

_COLUMNS = {"arrival_s": "arrived_at", "input_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"}


def _matches(head: Head) -> bool:
    return head.layout == "csv" and set(_COLUMNS.values()) <= set(head.columns)


VIDUR = Reader(
    name="vidur",
    meaning="Vidur CSV: arrived_at (s), num_prefill_tokens, num_decode_tokens",
    layout="csv",
    columns=_COLUMNS,
    matches=_matches,
    native=as_it_is,
    block_tokens=None,
    exact_ids=False,
)
