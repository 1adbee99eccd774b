"""Traffic without a rate: requests in order, or sessions, that begin as soon as a user is free."""

import dataclasses
import math

import numpy as np
import polars as pl

from planner.errors import UsageError
from planner.traces.shaping.session_start import session_numbers
from planner.traces.table import Trace

SINCE_START = "since_start_s"  # when a request comes after the first of its session [s]


def in_turn(trace: Trace, of: str) -> Trace:
    """Return the trace with users in turn, one a second, so that it can be repeated and resampled user by user.

    Parameters
    ----------
    of : "concurrency" (each request is a user's), or "sessions".

    Raises
    ------
    UsageError : the trace has no sessions, or fewer than two users.
    """
    if of == "sessions" and "session_id" not in trace.requests.columns:
        raise UsageError(f"--of sessions: {trace.source} has no session_id, so no request belongs to a session; "
                         f"--of concurrency asks for the requests in flight")
    user = np.arange(trace.num_requests) if of == "concurrency" else session_numbers(trace)
    if user.max(initial=-1) < 1:
        raise UsageError(f"{trace.source}: one {'request' if of == 'concurrency' else 'session'} has no number to "
                         f"find; must have two or more")
    first_s = trace.requests["arrival_s"].to_numpy()[np.unique(user, return_index=True)[1]]
    since_s = np.zeros(len(user)) if of == "concurrency" else trace.requests["arrival_s"].to_numpy() - first_s[user]
    return _sorted(trace, user.astype(np.float64), pl.Series(SINCE_START, since_s))


def at_once(trace: Trace) -> Trace:
    """Return users in turn as a load for a closed loop: each could begin at 0 and waits only for a user to be free."""
    since_s = trace.requests[SINCE_START]
    return _sorted(dataclasses.replace(trace, requests=trace.requests.drop(SINCE_START)), since_s.to_numpy())


def load_of(turns: Trace, of: str, users: int, think_time_s: float | None) -> Trace:
    """Return the requests of a number of users.

    Parameters
    ----------
    turns : as `in_turn`.
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
    if not 0 <= think_time_s < math.inf:
        raise UsageError(f"--think-time {think_time_s}: must be a number of at least 0 [s]")
    if of == "concurrency" and {"session_id", "parent_id"} & set(columns):
        raise UsageError(f"--think-time {think_time_s:g}: the requests of {trace.source} follow each other by "
                         f"themselves; count sessions (--of sessions, --max-sessions)")
    if of == "concurrency" or "session_id" not in columns:
        return trace
    first = pl.col("session_id").is_null() | pl.col("session_id").is_first_distinct()
    pause = pl.when(~first).then(think_time_s)
    return dataclasses.replace(trace, requests=trace.requests.with_columns(think_time_s=pause))


def _sorted(trace: Trace, arrival_s: np.ndarray, more: pl.Series | None = None) -> Trace:
    """Return a trace with other arrivals, in their order, and one more column."""
    table = trace.requests.with_columns(pl.Series("arrival_s", arrival_s), *([] if more is None else [more]))
    changed = dataclasses.replace(trace, requests=table, arrivals="recorded", zero_at_s=None)
    return changed.take(np.argsort(arrival_s, kind="stable"))


def pausing(trace: Trace, factor: float) -> Trace:
    """Return users in turn whose pauses, between turns or since the start of a session, are multiplied by a factor."""
    names = [name for name in (SINCE_START, "think_time_s") if name in trace.requests.columns]
    return dataclasses.replace(trace, requests=trace.requests.with_columns(pl.col(name) * factor for name in names))


def taking_turns(trace: Trace, users: int, pause_s: float) -> Trace:
    """Return requests in turn as requests of `users` users; each pauses after an answer, and they begin one by one."""
    place = np.arange(trace.num_requests)
    table = trace.requests.drop(SINCE_START).with_columns(
        arrival_s=pl.Series(pause_s * np.minimum(place, users) / users),
        session_id=pl.Series(place % users).cast(pl.String),
        think_time_s=pl.when(pl.Series(place) >= users).then(pause_s))
    return dataclasses.replace(trace, requests=table, arrivals="recorded", zero_at_s=None)
