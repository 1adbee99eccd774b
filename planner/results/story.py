"""One request's story: its events with their times, and one sentence, from the tables."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from planner.errors import UnknownNameError
from planner.results.phases import PHASES, request_phases
from planner.results.short_times import time_text
from planner.results.spans import spans

KINDS = {  # of `spans`, in words
    "waiting": "waits in the queue",
    "loading": "loads its KV from the host or a remote store",
    "prompt chunk": "a chunk of its prompt is computed",
    "decode": "generates tokens",
    "decode beside prompts": "generates tokens in steps with other requests' prompts",
    "recompute": "recomputes its tokens after preemption",
    "left out": "is left out of the steps",
}
SHOWN_SHARE = 0.005  # of its time; a phase below that is not named


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The history of one request.

    Parameters
    ----------
    sentence : it in words.
    events : one row a span of time: `at_ms` since it arrived, `what`, `lasts_ms`, `num_tokens`.
    """

    sentence: str
    events: pl.DataFrame


def tell(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame, request_id: str) -> Story:
    """Return a request's story.

    Parameters
    ----------
    requests, steps, schedule : as the tables of `ReplayResult`.

    Raises
    ------
    UnknownNameError : there is no such request.
    """
    request = requests.filter(request_id=request_id).head(1)
    if request.is_empty():
        raise UnknownNameError("request", request_id, requests["request_id"].head(20).to_list())
    row = request.row(0, named=True)
    rows = spans(request, steps, schedule)
    events = rows.select(
        at_ms=1e3 * (pl.col("start_s") - row["arrival_s"]), what=pl.col("kind").replace_strict(KINDS),
        lasts_ms=1e3 * (pl.col("end_s") - pl.col("start_s")), num_tokens="num_tokens")
    return Story(sentence=_sentence(row, rows, _phases(request)), events=events)


def _phases(request: pl.DataFrame) -> dict[str, float]:
    """Return its time by phase [s]; empty if it was not completed."""
    times = request_phases(request)
    return {} if times.is_empty() else {phase: times[phase][0] or 0.0 for phase in PHASES}


def _sentence(row: dict[str, Any], rows: pl.DataFrame, times_s: dict[str, float]) -> str:
    parts = [f"{row['input_tokens']:,} prompt tokens, {row['output_tokens']:,} output tokens, {row['status']}"]
    if row["num_cached_tokens"]:
        below = ", ".join(f"{row[key]:,} {where}" for key, where in (
            ("cpu_cached_tokens", "in host memory"), ("remote_cached_tokens", "in the remote store")) if row.get(key))
        parts.append(f"{row['num_cached_tokens']:,} prompt tokens were cached{below and f' ({below})'}")
    chunks = rows.filter(kind="prompt chunk")["num_tokens"].to_list()
    if chunks:
        most = f" of at most {max(chunks):,} tokens" if len(chunks) > 1 else ""
        parts.append(f"its prompt ran in {len(chunks)} {'chunk' if len(chunks) == 1 else 'chunks'}{most}")
    parts += [f"{text} {time_text(1e3 * row[key])}" for key, text in (("ttft_s", "TTFT"),
              ("tpot_s", "TPOT"), ("e2e_s", "end to end")) if row[key] is not None]
    if row["num_preemptions"]:
        parts.append(f"preempted {row['num_preemptions']:,} times, {row['num_recomputed_tokens']:,} tokens recomputed")
    total = sum(times_s.values())
    shares = sorted(((value / total, PHASES[name]) for name, value in times_s.items() if value > SHOWN_SHARE * total),
                    reverse=True) if total else []
    if shares:
        parts.append("its time: " + ", ".join(f"{100 * share:.0f} % {name}" for share, name in shares))
    return "; ".join(parts)
