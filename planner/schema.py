"""Columns of all tables, declared once: name, type, unit, meaning and bounds."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    name : column name, with its unit as suffix (`_s`, `_tokens`).
    dtype : "float", "int" or "str".
    unit : SI unit or "tokens", "1" for counts and identifiers.
    meaning : one sentence for the glossary.
    minimum, maximum : closed bounds that an input value must keep; None where there is none.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    minimum: float | None = None
    maximum: float | None = None


class Term(NamedTuple):
    """What a name stands for: its unit ("1" for counts, shares and names), and one line about it."""

    unit: str
    meaning: str


MAX_TOKENS = 2**30  # far above any context window, and far below what 32-bit counters hold
PARENT_SEPARATOR = ";"  # between several request ids of a parent_id
MAX_SECONDS = 1e9  # 32 years: a later instant is a unit mistake (milli- or nanoseconds read as seconds)

TRACE_COLUMNS = (
    Column(name="arrival_s", dtype="float", unit="s", meaning="when the client sent it, from the trace's start",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="input_tokens", dtype="int", unit="tokens", meaning="prompt length", minimum=1, maximum=MAX_TOKENS),
    Column(name="output_tokens", dtype="int", unit="tokens", meaning="tokens generated, the first included", minimum=1,
           maximum=MAX_TOKENS),
    Column(name="request_id", dtype="str", unit="1", meaning="identifier; the row number from 0 where absent"),
    Column(name="priority", dtype="float", unit="1", meaning="scheduling priority; a smaller value is more urgent"),
    Column(name="session_id", dtype="str", unit="1", meaning="conversation that the request belongs to"),
    Column(name="parent_id", dtype="str", unit="1", meaning="request whose end this one waits for; several: a;b"),
    Column(name="think_time_s", dtype="float", unit="s", meaning="pause between the parent's end and this request",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="deadline_s", dtype="float", unit="s", meaning="deadline of the last token, counted from arrival",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="tenant", dtype="str", unit="1", meaning="customer or class that the request is accounted to"),
    Column(name="adapter", dtype="str", unit="1", meaning="LoRA adapter that it is run with; none where empty"),
    Column(name="cached_tokens", dtype="int", unit="tokens", meaning="prompt tokens that the log says were cached",
           minimum=0, maximum=MAX_TOKENS),
    Column(name="max_output_tokens", dtype="int", unit="tokens", meaning="the client's limit on output", minimum=1,
           maximum=MAX_TOKENS),
    Column(name="predicted_output_tokens", dtype="int", unit="tokens", meaning="a predictor's guess of the output",
           minimum=0, maximum=MAX_TOKENS),
    Column(name="cancel_after_s", dtype="float", unit="s", meaning="the client hangs up this long after arrival",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="ttft_s", dtype="float", unit="s", meaning="measured time to first token", minimum=0.0,
           maximum=MAX_SECONDS),
    Column(name="tpot_s", dtype="float", unit="s", meaning="measured time per token after the first", minimum=0.0,
           maximum=MAX_SECONDS),
    Column(name="e2e_s", dtype="float", unit="s", meaning="measured end-to-end latency", minimum=0.0,
           maximum=MAX_SECONDS),
)

REQUIRED_TRACE_COLUMNS = ("arrival_s", "input_tokens", "output_tokens")
