"""Loads of users: so many at once of a trace's requests or sessions, with their pauses."""

from dataclasses import replace

import numpy as np
import polars as pl

from planner.errors import UsageError
from planner.replays.dependencies import dependencies
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.closed_load import at_once, taking_turns
from planner.traces.shaping.session_start import session_numbers


def limited(scenario: Scenario, of: str, users: int, think_time_s: float | None) -> Scenario:
    """Return a scenario with so many requests in flight, or sessions open; those who take turns need no limit."""
    if of == "sessions":
        return replace(scenario, max_sessions=users)
    return replace(scenario, max_concurrency=users if think_time_s is None else None)


def load_of(turns: Trace, of: str, users: int, think_time_s: float | None) -> Trace:
    """Return the requests of so many users.

    Parameters
    ----------
    turns : as `closed_load.in_turn`.
    think_time_s : pause that is asked for; None for the trace's [s].
    """
    if of == "concurrency" and think_time_s is not None:
        return taking_turns(turns, users, think_time_s)
    return at_once(turns)


def with_pauses(trace: Trace, of: str, think_time_s: float | None) -> Trace:
    """Return a trace whose turns follow each other after the pause that is asked for.

    Raises
    ------
    UsageError : the pause is none, or the requests follow each other by themselves and are not counted by session.
    """
    columns = trace.requests.columns
    if think_time_s is None:
        return trace
    if not 0 <= think_time_s < np.inf:
        raise UsageError(f"--think-time {think_time_s}: must be a number of at least 0 [s]")
    if of == "concurrency" and {"session_id", "parent_id"} & set(columns):
        raise UsageError(f"--think-time {think_time_s:g}: the requests of {trace.source} follow each other by "
                         f"themselves; count sessions (--of sessions, --max-sessions)")
    if of == "concurrency" or "session_id" not in columns:
        return trace
    first = pl.col("session_id").is_null() | pl.col("session_id").is_first_distinct()
    return replace(trace, requests=trace.requests.with_columns(think_time_s=pl.when(~first).then(think_time_s)))


def think_time(trace: Trace, of: str, asked_s: float | None) -> tuple[float | None, str]:
    """Return the median pause, None if the trace's gaps count, and the assumption in words.

    Parameters
    ----------
    trace : as `with_pauses`.
    asked_s : the pause that is asked for; None for the trace's [s].
    """
    if of == "concurrency" and asked_s is not None:
        return asked_s, f"a user pauses for {asked_s:g} s after each answer (--think-time)"
    waits = dependencies(trace)
    if waits is not None:
        median_s = float(np.median(waits.think_s[waits.num_parents > 0]))
        whose = "--think-time" if asked_s is not None else "the trace's, median"
        return median_s, f"a user pauses between an answer and the next request ({whose} {median_s:.4g} s)"
    if of == "concurrency" or session_numbers(trace).max() + 1 == trace.num_requests:
        return 0.0, "a user sends the next request as soon as the one before is answered: no think time"
    return None, ("a user's requests come at the trace's gaps after the first, whether or not the one before is "
                  "answered; --think-time gives a pause")
