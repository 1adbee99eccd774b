"""Timers of a fleet: actions on it from outside its compiled loop, at instants of its own clock.

The loop pauses at the next timer's instant, when all that happens before has happened; then the timer acts on the
fleet's memory and may name timers that follow. Of equal instants the one that was named first acts first.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from planner.loop.state.engine_state import State
from planner.loop.state.fleet_state import FleetState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFleet:
    """A fleet at an instant of its replay.

    Parameters
    ----------
    memory : of the fleet's loop; `memory.replicas` has the router's knowledge of each replica. All that happens
        before `memory.fleet.now_s` has happened.
    states : of the replicas. A replica whose state is not read may be behind the fleet's clock by some decode steps,
        and one in a step is ahead of it, up to its end.
    shares_store : whether replicas share a remote KV store.
    """

    memory: FleetState
    states: Sequence[State]
    shares_store: bool


class Timer(NamedTuple):
    """An instant [s], and its action: a function of the fleet that returns the timers that follow."""

    at_s: float
    act: Callable[[RunningFleet], Iterable["Timer"]]


class Timers:
    """The timers that are still to come."""

    def __init__(self, timers: Iterable[Timer]) -> None:
        self._numbers = count()
        self._heap: list[tuple[float, int, Timer]] = []
        self.add(timers)

    def add(self, timers: Iterable[Timer]) -> None:
        """Put timers beside the others."""
        for timer in timers:
            heapq.heappush(self._heap, (timer.at_s, next(self._numbers), timer))

    @property
    def next_s(self) -> float:
        """When the next one acts [s]; inf if none is left."""
        return self._heap[0][0] if self._heap else math.inf

    def act(self, running: RunningFleet) -> None:
        """Let the next one act."""
        _, _, timer = heapq.heappop(self._heap)
        self.add(timer.act(running))


def close_replica(memory: FleetState, k: int) -> None:
    """Send nothing more to replica `k`, for one more reason; it finishes its requests."""
    memory.replicas[k].num_closures += 1
    memory.fleet.is_rearranged = 1


def open_replica(memory: FleetState, k: int) -> None:
    """Take back one reason of `close_replica`; replica `k` is sent requests when none is left."""
    memory.replicas[k].num_closures -= 1
    memory.fleet.is_rearranged = 1
