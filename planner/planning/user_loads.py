"""Loads of users: a number of a trace's requests or sessions at once, with their pauses."""

from dataclasses import replace
from typing import Any

import numpy as np

from planner.replays.dependencies import dependencies
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.session_start import session_numbers


def limited(scenario: Scenario, of: str, users: int, think_time_s: float | None) -> Scenario:
    """Return a scenario with at most `users` requests in flight or sessions open; no limit on users with think time."""
    if of == "sessions":
        return replace(scenario, max_sessions=users)
    return replace(scenario, max_concurrency=users if think_time_s is None else None)


def of_users(scenario: Scenario, of: str, users: int, think_time_s: float | None, times: int) -> Scenario:
    """Return a scenario that replays `users` users on the trace, repeated `times` times."""
    limits: dict[str, Any] = {"max_sessions" if of == "sessions" else "max_concurrency": users}
    return replace(scenario, **limits, ready_at_start=True, think_time=think_time_s, trace_copies=times)


def beginning(of: str) -> str:
    """Return in words how a load of users begins."""
    return f"all {'requests' if of == 'concurrency' else 'sessions'} are ready at the start, and caches are empty"


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
