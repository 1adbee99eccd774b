"""The replicas of a pool that come and go: which serve, which start, and which drain before they end."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.replays.fleet.timers import RunningFleet, Timer, close_replica, open_replica
from planner.replays.initial import start_anew
from planner.replays.scaling_record import ReplicaSpan


class Lifecycle:
    """The replicas of a pool between their start and their end.

    Parameters
    ----------
    replicas : their numbers in the fleet; there are never more.
    num_initial : replicas that serve from the first arrival on.
    startup_s : from a decision until the replica serves [s].
    first_s : the first arrival [s].
    """

    def __init__(self, replicas: range, num_initial: int, startup_s: float, first_s: float) -> None:
        self._replicas, self._startup_s = replicas, startup_s
        initial = replicas[:num_initial]
        self._spans = [ReplicaSpan(k, first_s, first_s, math.nan, math.nan) for k in initial]
        self._ready = list(range(num_initial))  # places in `_spans`, the latest last
        self._starting: list[int] = []
        self._draining: dict[int, NDArray[np.int64]] = {}  # and the requests whose KV they still have
        self._used = {*initial}  # replicas that have served, whose caches are not empty

    @property
    def ready(self) -> list[int]:
        """Numbers of the replicas that serve."""
        return [self._spans[place].replica for place in self._ready]

    @property
    def count(self) -> int:
        """Replicas that serve or start."""
        return len(self._ready) + len(self._starting)

    @property
    def num_draining(self) -> int:
        """Replicas that answer their last requests."""
        return len(self._draining)

    def spans(self, end_s: float) -> tuple[ReplicaSpan, ...]:
        """Return when each replica was there, in a replay whose last request left at `end_s`."""
        return tuple(span if not math.isnan(span.end_s) else span._replace(end_s=max(end_s, span.start_s))
                     for span in self._spans)

    def begin(self, running: RunningFleet) -> None:
        """Close the replicas that are not there yet."""
        for k in self._replicas[len(self._ready):]:
            close_replica(running.memory, k)

    def change(self, running: RunningFleet, num_replicas: int, now_s: float) -> list[Timer]:
        """Start or stop replicas until `num_replicas` serve or start; return the timers of the starts."""
        started = [self._start(now_s) for _ in range(num_replicas - self.count)]
        for _ in range(self.count - num_replicas):
            self._stop(running, now_s)
        return started

    def _start(self, now_s: float) -> Timer:
        """Ask for a replica under the lowest number that is free."""
        taken = {self._spans[place].replica for place in (*self._ready, *self._starting, *self._draining)}
        k = next(k for k in self._replicas if k not in taken)
        place = len(self._spans)
        self._spans.append(ReplicaSpan(k, now_s, math.nan, math.nan, math.nan))
        self._starting.append(place)
        return Timer(now_s + self._startup_s, lambda running: self._serve(running, place))

    def _serve(self, running: RunningFleet, place: int) -> Sequence[Timer]:
        """Let a replica that has started be sent requests, unless it was given up; its cache is empty."""
        if place in self._starting:
            self._starting.remove(place)
            self._ready.append(place)
            k = self._spans[place].replica
            self._spans[place] = self._spans[place]._replace(ready_s=float(running.memory.fleet.now_s))
            if k in self._used:
                start_anew(running.states[k], shares_store=running.shares_store)
            self._used.add(k)
            open_replica(running.memory, k)
        return ()

    def _stop(self, running: RunningFleet, now_s: float) -> None:
        """Give up the replica that started last, or drain the one that has served for the least time."""
        if self._starting:
            place = self._starting.pop()
            self._spans[place] = self._spans[place]._replace(end_s=now_s)
            return
        place, memory = self._ready.pop(), running.memory
        k = self._spans[place].replica
        close_replica(memory, k)
        self._spans[place] = self._spans[place]._replace(drain_s=now_s)
        there = np.flatnonzero(memory.replica_of == k)
        is_served = ~(memory.requests["finished_s"][there] < now_s)
        self._draining[place] = there[is_served | (memory.requests["num_blocks"][there] > 0)]
        self.end_drained(running)

    def end_drained(self, running: RunningFleet) -> None:
        """End the draining replicas that have no request left, when their last one left."""
        for place, requests in list(self._draining.items()):
            span, memory = self._spans[place], running.memory
            is_idle = memory.replicas[span.replica].num_requests == 0
            if is_idle and running.states[span.replica].engine.num_held == 0:
                finished_s = memory.requests["finished_s"][requests]  # NaN of one that is elsewhere by now
                left_s = np.fmax.reduce(finished_s, initial=span.drain_s)
                if memory.fleet.num_prefill > span.replica:  # until its KV was taken
                    taken_s = memory.pulls["loaded_s"][requests + int(memory.fleet.num_requests)]
                    left_s = max(left_s, taken_s.max(initial=span.drain_s))
                self._spans[place] = span._replace(end_s=float(left_s))
                del self._draining[place]
