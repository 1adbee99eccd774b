"""What clients saw of late: requests sent, first tokens, and those that left, in a window up to an instant."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.engine import state as st
from planner.engine.fleet_state import FleetState
from planner.slo import Slo, meets

COLUMNS = ("arrival_s", "first_token_s", "finished_s", "num_output_tokens", "state")

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Left(NamedTuple):
    """Requests that have left, shape [num_requests] each; NaN where one has none [s]."""

    at_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats


class Recent:
    """What was seen of a fleet's requests in a window that ends now.

    Parameters
    ----------
    memory : of the fleet.
    window_s : the longest that is asked for [s].
    sees_times : whether requests are followed; else their number alone.
    """

    def __init__(self, memory: FleetState, window_s: float, sees_times: bool) -> None:
        self._fleet, self._planned, self._replica_of = memory.fleet, memory.planned, memory.replica_of
        self._requests = {name: np.asarray(memory.requests[name]) for name in COLUMNS}  # views
        self._window_s, self._sees_times = window_s, sees_times
        self._sent = [(-math.inf, 0)]
        self._num_taken = 0
        is_follower = np.ones(len(memory.requests), bool)
        is_follower[memory.planned] = False
        self._followers = np.flatnonzero(is_follower)
        self._awaited = np.empty(0, np.int64)
        self._running = np.empty(0, np.int64)
        self._first: list[tuple[float, Floats, Floats]] = []
        self._left: list[tuple[float, _Left]] = []

    def look(self, now_s: float) -> None:
        """See what has happened before `now_s` since the last time."""
        since_s = now_s - self._window_s
        self._sent.append((now_s, int(self._fleet.num_sent)))
        while len(self._sent) > 1 and self._sent[1][0] <= since_s:
            del self._sent[0]
        if not self._sees_times:
            return
        sent = self._newly_sent()
        self._awaited, self._running = np.concatenate([self._awaited, sent]), np.concatenate([self._running, sent])
        of = self._requests
        first_s, gone_s = of["first_token_s"][self._awaited], of["finished_s"][self._awaited]
        seen = first_s < now_s
        waits_s = first_s[seen] - of["arrival_s"][self._awaited[seen]]
        self._first = [each for each in self._first if each[0] > since_s] + [(now_s, first_s[seen], waits_s)]
        self._awaited = self._awaited[~seen & ~(gone_s < now_s)]
        gone = of["finished_s"][self._running] < now_s
        rows, self._running = self._running[gone], self._running[~gone]
        self._left = [each for each in self._left if each[0] > since_s] + [(now_s, _left(of, rows))]

    def request_rate(self, window_s: float, first_s: float) -> float:
        """Return the requests sent per second since the last look that is a window ago, or the first arrival [1/s]."""
        now_s, count = self._sent[-1]
        since_s, before = next(each for each in reversed(self._sent) if each[0] <= now_s - window_s)
        span_s = now_s - max(since_s, first_s)
        return (count - before) / span_s if span_s > 0 else 0.0

    def attainment(self, slo: Slo, window_s: float) -> float:
        """Return the share of the requests that left in a window that met all objectives; NaN where none left."""
        left = self._recent(window_s)
        return float(meets(slo, left.ttft_s, left.tpot_s, left.e2e_s).mean()) if len(left.at_s) else math.nan

    def slo_use(self, slo: Slo, percentile: float, window_s: float) -> float:
        """Return the percentile over its limit, the largest of the objectives; NaN where nothing was seen.

        TTFT counts from its first token on, the others once a request has left.
        """
        since_s, left = self._sent[-1][0] - window_s, self._recent(window_s)
        first = [waits_s[first_s > since_s] for _, first_s, waits_s in self._first]
        times_s = {"ttft": np.concatenate(first), "tpot": left.tpot_s, "e2el": left.e2e_s}
        uses = [_percentile(times_s[name], percentile) / limit for name, limit in slo.limits_s.items()]
        return max((use for use in uses if not math.isnan(use)), default=math.nan)

    def _recent(self, window_s: float) -> _Left:
        since_s = self._sent[-1][0] - window_s
        columns = zip(*(batch for _, batch in self._left), strict=True)
        joined = _Left(*(np.concatenate(parts) for parts in columns))
        return _Left(*(column[joined.at_s > since_s] for column in joined))

    def _newly_sent(self) -> Rows:
        """Return the requests that were sent since the last time."""
        upto = int(self._fleet.next_planned)
        planned = self._planned[self._num_taken:upto]
        self._num_taken = upto
        if not len(self._followers):
            return np.asarray(planned)
        was_sent = self._replica_of[self._followers] != st.NONE
        followers, self._followers = self._followers[was_sent], self._followers[~was_sent]
        return np.concatenate([planned, followers])


def _percentile(values: Floats, percentile: float) -> float:
    """Return a percentile, linear between order statistics as `np.percentile`'s, in a tenth of its time; NaN of none.

    >>> _percentile(np.array([4.0, 1.0, math.nan, 2.0]), 50)
    2.0
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return math.nan
    place = (len(ordered) - 1) * percentile / 100.0
    low = math.floor(place)
    return float(ordered[low] + (ordered[math.ceil(place)] - ordered[low]) * (place - low))


def _left(requests: Mapping[str, Any], rows: Rows) -> _Left:
    """Return the times of requests that have left; of those that did not complete, none."""
    done = requests["state"][rows] == st.COMPLETED
    arrival_s, first_s, gone_s = (requests[name][rows] for name in ("arrival_s", "first_token_s", "finished_s"))
    gaps = requests["num_output_tokens"][rows] - 1.0
    return _Left(at_s=gone_s, ttft_s=np.where(done, first_s - arrival_s, math.nan),
                 tpot_s=np.where(done & (gaps > 0), (gone_s - first_s) / np.maximum(gaps, 1.0), math.nan),
                 e2e_s=np.where(done, gone_s - arrival_s, math.nan))
