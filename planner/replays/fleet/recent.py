"""A pool's recent clients: requests sent, first tokens, and departures, in a window up to an instant."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.loop.state.client_state import GONE
from planner.loop.state.fleet_state import FleetState
from planner.replays.fleet.routes import may_be_sent
from planner.settings.slo import Slo, meets

COLUMNS = ("arrival_s", "first_token_s", "finished_s", "num_output_tokens", "state")

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Left(NamedTuple):
    """Requests that have left, shape [num_requests] each; NaN if one has none [s]."""

    at_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats


class Recent:
    """The requests of a pool in a window that ends now.

    Of a prefill pool these are requests up to their first token, of a decode pool the tokens that follow.
    Requests that were turned away before any replica count for each prefill pool that accepts them.

    Parameters
    ----------
    memory : of the fleet.
    replicas : of the pool, by number.
    window_s : the longest that is asked for [s].
    sees_times : whether requests are followed; else their number alone.
    """

    def __init__(self, memory: FleetState, replicas: range, window_s: float, sees_times: bool) -> None:
        self._fleet, self._planned, self._replica_of = memory.fleet, memory.planned, memory.replica_of
        self._is_reachable = functools.partial(may_be_sent, memory, replicas.start)
        self._replicas, self._is_whole = replicas, len(replicas) == len(memory.replicas)
        self._num_sent = np.asarray(memory.replicas["num_sent"])[replicas.start:replicas.stop]  # a view, too
        self._stages = np.asarray(memory.clients["stage"]) if memory.gateway.is_on else None
        self._decodes = 0 < memory.fleet.num_prefill <= replicas.start
        self._requests = {name: np.asarray(memory.requests[name]) for name in COLUMNS}  # views
        self._window_s, self._sees_times = window_s, sees_times
        self._sent = [(-math.inf, 0)]
        self._num_taken = 0
        is_follower = np.ones(int(memory.fleet.num_requests), bool)
        is_follower[memory.planned] = False
        self._followers = np.flatnonzero(is_follower)
        self._undecided = np.empty(0, np.int64)
        self._awaited = np.empty(0, np.int64)
        self._running = np.empty(0, np.int64)
        self._first: list[tuple[float, Floats, Floats]] = []
        self._left: list[tuple[float, _Left]] = []

    def look(self, now_s: float) -> None:
        """Take note of the events before `now_s` since the last time."""
        since_s = now_s - self._window_s
        self._sent.append((now_s, int(self._num_sent.sum())))
        while len(self._sent) > 1 and self._sent[1][0] <= since_s:
            del self._sent[0]
        if not self._sees_times:
            return
        sent = self._newly_decoded(now_s) if self._decodes else self._newly_sent()
        self._awaited, self._running = np.concatenate([self._awaited, sent]), np.concatenate([self._running, sent])
        of = self._requests
        first_s, gone_s = of["first_token_s"][self._awaited], of["finished_s"][self._awaited]
        seen = first_s < now_s
        mine = seen & self._is_own(self._awaited)
        waits_s = first_s[mine] - of["arrival_s"][self._awaited[mine]]
        self._first = [part for part in self._first if part[0] > since_s] + [(now_s, first_s[mine], waits_s)]
        self._awaited = self._awaited[~seen & ~(gone_s < now_s)]
        gone = of["finished_s"][self._running] < now_s
        rows, self._running = self._running[gone], self._running[~gone]
        rows = rows[self._is_own(rows)]
        self._left = [part for part in self._left if part[0] > since_s] + [(now_s, _left(of, rows))]

    def request_rate(self, window_s: float, first_s: float) -> float:
        """Return the requests sent per second since the last look that is a window ago, or the first arrival [1/s]."""
        now_s, count = self._sent[-1]
        since_s, before = next(sent for sent in reversed(self._sent) if sent[0] <= now_s - window_s)
        span_s = now_s - max(since_s, first_s)
        return (count - before) / span_s if span_s > 0 else 0.0

    def attainment(self, slo: Slo, window_s: float) -> float:
        """Return the share of the requests that left in a window that met all objectives; NaN if none left."""
        left = self._recent(window_s)
        return float(meets(slo, left.ttft_s, left.tpot_s, left.e2e_s).mean()) if len(left.at_s) else math.nan

    def slo_use(self, slo: Slo, percentile: float, window_s: float) -> float:
        """Return the percentile over its limit, the largest of the objectives; NaN without a request.

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

    def _is_own(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which requests the pool had, or no pool; of decoded halves it has all that are followed."""
        if self._is_whole or self._decodes:
            return np.ones(len(rows), bool)
        return np.asarray(self._is_here(rows) | ((self._replica_of[rows] == st.NONE) & self._is_reachable(rows)))

    def _is_here(self, rows: Rows) -> NDArray[np.bool_]:
        replica = self._replica_of[rows]
        return np.asarray((replica >= self._replicas.start) & (replica < self._replicas.stop))

    def _newly_decoded(self, now_s: float) -> Rows:
        """Return the requests sent to the pool since the last time: decodes, and requests that stay here to decode."""
        rows = np.concatenate([self._undecided, self._newly_sent()])
        legs = rows + int(self._fleet.num_requests)
        was_sent, stays = self._replica_of[legs] != st.NONE, self._is_here(rows)
        is_over = self._requests["finished_s"][rows] < now_s
        if self._stages is not None:
            is_over &= self._stages[rows] == GONE
        self._undecided = rows[~(was_sent | stays | is_over)]
        return np.concatenate([legs[was_sent & self._is_here(legs)], rows[stays]])

    def _newly_sent(self) -> Rows:
        """Return the requests that were sent since the last time, to whomever."""
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
    """Return the times of requests that have left; NaN for requests that did not complete."""
    done = requests["state"][rows] == st.COMPLETED
    arrival_s, first_s, gone_s = (requests[name][rows] for name in ("arrival_s", "first_token_s", "finished_s"))
    gaps = requests["num_output_tokens"][rows] - 1.0
    return _Left(at_s=gone_s, ttft_s=np.where(done, first_s - arrival_s, math.nan),
                 tpot_s=np.where(done & (gaps > 0), (gone_s - first_s) / np.maximum(gaps, 1.0), math.nan),
                 e2e_s=np.where(done, gone_s - arrival_s, math.nan))
