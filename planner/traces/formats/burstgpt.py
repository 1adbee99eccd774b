"""BurstGPT, versions 1 to 3: CSV with whole seconds, and 0 tokens if a request failed."""

import polars as pl

from planner.traces.reader import TEXTS, Reader, Skip, has_columns
from planner.traces.turns import with_turns

_TOKENS = [pl.col(name).cast(pl.Float64, strict=False) for name in ("input_tokens", "output_tokens")]

BURSTGPT = Reader(
    name="burstgpt",
    meaning="BurstGPT CSV, versions 1 to 3: Timestamp (s), Request tokens, Response tokens, Model, Log Type",
    layouts=TEXTS,
    columns={"arrival_s": "Timestamp", "input_tokens": "Request tokens", "output_tokens": "Response tokens",
             "tenant": "Model", "session_id": "Session ID", "e2e_s": "Elapsed time"},
    time="s from the start of the recording, in whole seconds",
    tokens="the service",
    matches=has_columns("Timestamp", "Request tokens", "Response tokens"),
    skips=(Skip(reason="failed (0 tokens)", where=(_TOKENS[0] == 0) | (_TOKENS[1] == 0)),),
    finish=with_turns,
)
