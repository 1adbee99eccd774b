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
    minimum, maximum : bounds of an input value, inclusive; None for no bound.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    minimum: float | None = None
    maximum: float | None = None


class Term(NamedTuple):
    """Unit ("1" for counts, shares and names) and meaning of a key or a column."""

    unit: str
    meaning: str


MAX_TOKENS = 2**30  # far above any context window, and far below the limit of 32-bit counters
PARENT_SEPARATOR = ";"  # between several request ids of a parent_id
MAX_SECONDS = 1e9  # 32 years: a later instant is a unit mistake (milli- or nanoseconds read as seconds)

TRACE_COLUMNS = (
    Column(name="arrival_s", dtype="float", unit="s", meaning="Send time of the request, from the trace's start",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="input_tokens", dtype="int", unit="tokens", meaning="Prompt length", minimum=1, maximum=MAX_TOKENS),
    Column(name="output_tokens", dtype="int", unit="tokens", meaning="Generated tokens, including the first token",
           minimum=1, maximum=MAX_TOKENS),
    Column(name="request_id", dtype="str", unit="1", meaning="Identifier; the row number from 0 if absent"),
    Column(name="priority", dtype="float", unit="1", meaning="Scheduling priority. A smaller value is more urgent"),
    Column(name="session_id", dtype="str", unit="1", meaning="Conversation that the request belongs to"),
    Column(name="parent_id", dtype="str", unit="1", meaning="Request that must end before this one; several: a;b"),
    Column(name="think_time_s", dtype="float", unit="s", meaning="Pause between the parent's end and this request",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="deadline_s", dtype="float", unit="s", meaning="Deadline of the last token, from arrival",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="tenant", dtype="str", unit="1", meaning="Customer or class of the request"),
    Column(name="adapter", dtype="str", unit="1", meaning="LoRA adapter of the request; empty for none"),
    Column(name="cached_tokens", dtype="int", unit="tokens", meaning="Prompt tokens that were cached, by the log",
           minimum=0, maximum=MAX_TOKENS),
    Column(name="image_tokens", dtype="int", unit="tokens", meaning="Prompt tokens that are of images; part of "
           "input_tokens", minimum=0, maximum=MAX_TOKENS),
    Column(name="num_images", dtype="int", unit="1", meaning="Images in the prompt; 1 if absent and there are "
           "image_tokens", minimum=0, maximum=MAX_TOKENS),
    Column(name="max_output_tokens", dtype="int", unit="tokens", meaning="Client's limit on output tokens", minimum=1,
           maximum=MAX_TOKENS),
    Column(name="predicted_output_tokens", dtype="int", unit="tokens", meaning="Output length by a predictor",
           minimum=0, maximum=MAX_TOKENS),
    Column(name="cancel_after_s", dtype="float", unit="s", meaning="Time from arrival to the client's cancellation",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="ttft_s", dtype="float", unit="s", meaning="Measured time to first token", minimum=0.0,
           maximum=MAX_SECONDS),
    Column(name="tpot_s", dtype="float", unit="s", meaning="Measured time per output token after the first",
           minimum=0.0, maximum=MAX_SECONDS),
    Column(name="e2e_s", dtype="float", unit="s", meaning="Measured end-to-end latency", minimum=0.0,
           maximum=MAX_SECONDS),
)

REQUIRED_TRACE_COLUMNS = ("arrival_s", "input_tokens", "output_tokens")
