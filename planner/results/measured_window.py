"""The part of a replay that is measured: the requests sent after a warm-up, for a fixed time."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.replays.result_tables import ReplayResult
from planner.results.summary_answer import Figures
from planner.settings.scenario import Scenario

OUTCOMES = ("completed", "failed", "rejected", "unfinished", "num_cancelled")  # each request has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When requests must be sent to count, from the first request on.

    Parameters
    ----------
    warmup_s : before it [s].
    measure_s : its length; inf for all of the rest [s].
    """

    warmup_s: float
    measure_s: float

    def __str__(self) -> str:
        if math.isinf(self.measure_s):
            return f"from {self.warmup_s:g} s on"
        return f"from {self.warmup_s:g} s to {self.warmup_s + self.measure_s:g} s"

    def is_sent(self, result: ReplayResult) -> NDArray[np.bool_]:
        """Tell which requests of a replay were sent within it, shape [num_requests]."""
        sent_s = np.asarray(result.records.requests.arrival_s)
        since_s = sent_s - np.nanmin(sent_s)
        return np.asarray((since_s >= self.warmup_s) & (since_s < self.warmup_s + self.measure_s))


def window_of(scenario: Scenario) -> Window | None:
    """Return the window of `--warmup-s` and `--measure-s`; None if they are not given.

    Raises
    ------
    UsageError : one of them is out of range.
    """
    warmup_s, measure_s = scenario.warmup_s, scenario.measure_s
    if warmup_s is None and measure_s is None:
        return None
    if warmup_s is not None and not 0 <= warmup_s < math.inf:
        raise UsageError(f"--warmup-s {warmup_s:g}: must be a finite number of at least 0 [s]")
    if measure_s is not None and not 0 < measure_s < math.inf:
        raise UsageError(f"--measure-s {measure_s:g}: must be a finite number above 0 [s]")
    return Window(warmup_s=warmup_s or 0.0, measure_s=math.inf if measure_s is None else measure_s)


def window_note(figures: Figures, window: Window, whole_s: float) -> str:
    """Return the sentence on the requests that count."""
    requests = sum(getattr(figures, name) for name in OUTCOMES)
    return (f"counts, latencies, rates, tenants and attainment cover the {requests:,} requests that were sent "
            f"{window} of the replay; steps, KV use, saturation, GPU figures and cost cover the whole replay of "
            f"{whole_s:.6g} s, and ITL has a mean alone")


def counted(result: ReplayResult, window: Window) -> ReplayResult:
    """Return a replay with the requests that were sent in a window alone; its engines' totals are still of the whole.

    Raises
    ------
    UsageError : no request was sent in it.
    """
    rows = np.flatnonzero(window.is_sent(result))
    if len(rows) == 0:
        sent_s = np.asarray(result.records.requests.arrival_s)
        raise UsageError(f"no request is sent {window}: the replay sends its last request after "
                         f"{np.nanmax(sent_s) - np.nanmin(sent_s):.6g} s; lower --warmup-s"
                         + ("" if math.isinf(window.measure_s) else ", or give --recycle-sessions"))
    records = result.records
    return dataclasses.replace(
        result, trace=result.trace.take(rows),
        records=dataclasses.replace(records, requests=records.requests[rows],
                                    fetches=records.fetches[rows] if result.has_tiers else records.fetches),
        replica=None if result.replica is None else result.replica[rows])


def duration_of(part: ReplayResult, window: Window) -> float:
    """Return the time for rates: the window, or from its begin to the last departure if it has no end [s].

    Parameters
    ----------
    part : the requests that count.
    """
    if math.isfinite(window.measure_s):
        return window.measure_s
    return part.duration_s
