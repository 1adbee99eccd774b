"""Vidur's request CSV: arrivals in seconds, prefill and decode tokens; or lengths alone, under any usual names."""

import re

from planner.traces.likely import likeness
from planner.traces.reader import ANY, ENDED, TEXTS, Head, Reader, has_columns, has_statistics

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

# Names of the lengths of prompts and answers, which go together.
PAIRS = (("num_prefill_tokens", "num_decode_tokens"), ("input_tokens", "output_tokens"),
         ("prompt_tokens", "completion_tokens"), ("prompt_tokens", "output_tokens"), ("input_length", "output_length"),
         ("input_len", "output_len"), ("prompt_len", "output_len"), ("prompt_length", "output_length"),
         ("isl", "osl"), ("ContextTokens", "GeneratedTokens"), ("Request tokens", "Response tokens"))
_ARRIVAL = re.compile(r"^(t|ts|time|date|hour|day|week|month|minute|interval|bucket|period|window)$|"
                      r"arriv|timestamp|datetime|start|sent|created|_at(_|$)|offset|conc|ended|finish", re.IGNORECASE)


def _has_lengths_alone(head: Head) -> bool:
    """Tell whether a file has lengths, no column that may say when requests were sent, and is no table of runs."""
    return (any(set(pair) <= set(head.columns) for pair in PAIRS) and not any(map(_ARRIVAL.search, head.columns))
            and likeness(head, ENDED) is None and not has_statistics(head))


LENGTHS = Reader(
    name="lengths",
    meaning="lengths only: num_prefill_tokens and num_decode_tokens (Vidur, Sarathi, Etalon), or input_tokens and "
            "output_tokens, prompt_len and output_len, isl and osl …",
    layouts=ANY,
    columns=_LENGTHS,
    also={name: tuple(dict.fromkeys(pair[k] for pair in PAIRS)) for k, name in enumerate(_LENGTHS)},
    time="when requests were sent is not recorded",
    tokens="the workload's tokenizer",
    matches=_has_lengths_alone,
    arrivals="absent",
)
