"""Notes on conversations: all start at once, a limit in flight counts requests, or their prompts share no prefix."""

import polars as pl

from planner.settings.scenario import Scenario
from planner.traces import Trace

MOMENT_S = 1.0  # in which many conversations do not start by themselves
LEAST_SESSIONS = LEAST_TURNS = 3
SHARE_OF_SPAN = 0.01  # of the trace: a short trace's sessions start within a moment anyway


def session_notes(scenario: Scenario, trace: Trace) -> list[str]:
    """Return notes on a trace's sessions; none if it has no sessions, or only sessions of one request."""
    if "session_id" not in trace.requests.columns:
        return []
    named = trace.requests.filter(pl.col("session_id").is_not_null())
    sessions = named.group_by("session_id").agg(pl.col("arrival_s").min(), num=pl.len())
    if sessions.is_empty() or int(sessions["num"].max()) < 2:  # type: ignore[arg-type]
        return []
    lines = _starts(trace, sessions["arrival_s"].sort()) if scenario.max_sessions is None else []
    if scenario.max_concurrency is not None:
        lines.append(f"max_concurrency = {scenario.max_concurrency:,} limits requests in flight, not conversations: "
                     f"while one conversation pauses, requests of other conversations run, so more conversations may "
                     f"be open at once and share the KV cache; --max-sessions limits conversations")
    return lines + ([] if trace.prefix is not None or "cached_tokens" in named.columns else _unshared(named))


def _unshared(named: pl.DataFrame) -> list[str]:
    """Say that most turns are as long as if they began with the turn before, but no prefix says so."""
    before = (pl.col("input_tokens") + pl.col("output_tokens")).shift(1).over("session_id")
    in_order = named.sort("arrival_s", maintain_order=True)
    grown = in_order.select(pl.col("input_tokens") >= before).to_series().drop_nulls()
    count = int(grown.sum())
    if len(grown) < LEAST_TURNS or 2 * count < len(grown):
        return []
    return [f"{count:,} of {len(grown):,} later turns have a prompt as long as the turn before with its "
            f"answer, or longer. The trace has no hash_ids, so no turn finds the one before in the prefix cache; on a "
            f"server that caches prefixes TTFT is shorter and more sessions fit"]


def _starts(trace: Trace, starts_s: pl.Series) -> list[str]:
    """Say that most sessions start within a moment."""
    half = -(-len(starts_s) // 2)
    spans_s = starts_s.slice(half - 1) - starts_s.head(len(starts_s) - half + 1)  # of each half of them in a row
    tightest = int(spans_s.arg_min() or 0)
    span_s = float(trace.requests["arrival_s"][-1]) - float(trace.requests["arrival_s"][0])
    moment_s = min(MOMENT_S, SHARE_OF_SPAN * span_s) if span_s > 0 else MOMENT_S
    if len(starts_s) < LEAST_SESSIONS or spans_s[tightest] > moment_s:
        return []
    count = int(starts_s.is_between(starts_s[tightest], starts_s[tightest] + MOMENT_S).sum())
    return [f"{count:,} of {len(starts_s):,} sessions start within {MOMENT_S:g} s, so all these conversations are open "
            f"at once: queues are longer and prefix hits rarer than with sessions that start over time; --max-sessions "
            f"limits the conversations that are open at once"]
