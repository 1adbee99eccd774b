"""The pace of a live fleet: each step's tokens are published when the wall clock reaches the step's end."""

import asyncio
import logging
import math
import time
from collections.abc import Callable

import numpy as np

from planner.loop.state import engine_state as st
from planner.twin.live_fleet import Arrival, LiveFleet

LOG = logging.getLogger(__name__)
MOST_S = 0.01  # of the wall clock for steps, before requests are read and tokens are sent [s]
LATE_S = 1.0  # of the wall clock, at which a warning says that steps are late [s]

Observer = Callable[["Stream", int, float], None]


class Stream:
    """The tokens of one request, as its client may see them.

    Parameters
    ----------
    place : of the request in the fleet.
    arrival : as it was sent.
    """

    __slots__ = ("_waiter", "arrival", "first_s", "last_s", "num_cached", "num_sent", "num_tokens", "place", "state")

    def __init__(self, place: int, arrival: Arrival) -> None:
        self.place, self.arrival = place, arrival
        self.num_tokens = self.num_sent = 0  # published, and taken by the client
        self.num_cached = 0
        self.state = st.NOT_ARRIVED  # how it ended, from `st.COMPLETED` on
        self.first_s = self.last_s = math.nan  # when the first and the last tokens came, on the fleet's clock
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.state >= st.COMPLETED

    async def tokens(self) -> int:
        """Wait for tokens or the end; return how many tokens have come since the last call."""
        while self.num_tokens == self.num_sent and not self.has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        new, self.num_sent = self.num_tokens - self.num_sent, self.num_tokens
        return new

    def publish(self, num_tokens: int, state: int) -> None:
        """Let the client see tokens, and the end."""
        self.num_tokens, self.state = num_tokens, state
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Pace:
    """Requests of clients in a fleet whose clock is the wall clock, or faster by a factor.

    Parameters
    ----------
    fleet : without requests.
    speed : seconds of the fleet in a second [1].
    observe : called for tokens of a stream, before it has them: how many have come, and when on the fleet's clock [s].
    ended : called for a stream that has ended.
    """

    def __init__(self, fleet: LiveFleet, speed: float, observe: Observer,
                 ended: Callable[[Stream], None]) -> None:
        self.fleet, self.speed, self._observe, self._ended = fleet, speed, observe, ended
        self._streams: dict[int, Stream] = {}
        self._places = np.empty(0, np.int64)
        self._num_seen = np.zeros(len(fleet.in_use), np.int64)
        self._wake = asyncio.Event()
        self._begin_s = time.monotonic()
        self._interval = int(fleet.deployment.settings.stream_interval)
        self.error: Exception | None = None
        self.is_late = False  # whether a step has ever begun LATE_S after its time

    def now_s(self) -> float:
        """Return the time on the fleet's clock [s]."""
        return (time.monotonic() - self._begin_s) * self.speed  # a loop's own time may be that of its last turn

    def send(self, arrival: Arrival) -> Stream | None:
        """Let a request enter the fleet; None if its memory is full."""
        place = self.fleet.send(arrival)
        if place is None:
            return None
        stream = self._streams[place] = Stream(place, arrival)
        self._num_seen[place] = 0
        self._places = np.fromiter(self._streams, np.int64, len(self._streams))
        self._wake.set()
        return stream

    def hang_up(self, stream: Stream) -> None:
        """Let a client leave before the end of its stream."""
        if not stream.has_ended:
            self.fleet.cancel(stream.place, max(self.now_s(), self.fleet.now_s))
            self._wake.set()

    def scale(self, num_replicas: int) -> None:
        """Change the number of replicas now.

        Raises
        ------
        UsageError : as `LiveFleet.scale`.
        """
        now_s = self.now_s()
        next_s = self._catch_up(now_s)
        self.fleet.advance(max(min(now_s, next_s), self.fleet.now_s))
        self.fleet.scale(num_replicas)
        self._wake.set()

    @property
    def num_streams(self) -> int:
        """Requests under way."""
        return len(self._streams)

    async def run(self) -> None:
        """Keep the fleet at the clock, until the task is cancelled or a policy fails."""
        loop = asyncio.get_running_loop()
        self._begin_s = time.monotonic()
        try:
            while True:
                next_s = self._catch_up(self.now_s())
                self._wake.clear()
                timer = None
                if next_s < math.inf:
                    wait_s = (next_s - self.now_s()) / self.speed
                    if wait_s < -LATE_S and not self.is_late:
                        self.is_late = True
                        LOG.warning("the steps of the replicas are %.1f s late: this machine is too slow for them at "
                                    "speed %g; lower --speed", -wait_s, self.speed)
                    timer = loop.call_later(wait_s, self._wake.set)
                await self._wake.wait()
                if timer is not None:
                    timer.cancel()
        except Exception as error:
            self.error = error
            for stream in self._streams.values():
                stream.publish(stream.num_tokens, st.FAILED)
            raise

    def _catch_up(self, now_s: float) -> float:
        """Take the steps that have begun, one after another, and publish each step's tokens; return the next end [s].

        After `MOST_S` the server's other work comes first, so that it answers also where steps take longer than
        they may.
        """
        fleet, end_s = self.fleet, time.monotonic() + MOST_S
        self._publish(now_s)
        while (next_s := fleet.next_s()) <= now_s and time.monotonic() < end_s:
            fleet.advance(float(np.nextafter(max(next_s, fleet.now_s), math.inf)))
            self._publish(now_s)
        return next_s

    def _publish(self, now_s: float) -> None:
        """Publish the tokens of the steps that have ended."""
        places, fleet = self._places, self.fleet
        if not len(places):
            return
        ends_s = fleet.ends_s()
        cut_off = fleet.is_cut_off(places)
        if len(ends_s) > 1 or cut_off.any():
            places = places[(ends_s[fleet.memory.replica_of[places]] <= now_s) | cut_off]
        elif ends_s[0] > now_s:
            return
        counts, left = fleet.num_output_tokens(places), fleet.has_left(places)
        counts = np.where(fleet.is_cut_off(places), 0, counts)  # the tokens of the step in flight are lost
        if self._interval > 1:
            later = np.maximum(counts - 1, 0)
            counts = np.where(left, counts, np.minimum(counts, 1 + later // self._interval * self._interval))
        seen = self._num_seen[places]
        changed = np.flatnonzero((counts > seen) | left)
        self._num_seen[places] = np.maximum(counts, seen)
        streams, replica_of = self._streams, fleet.memory.replica_of
        for j in changed.tolist():
            place, count, has_left = int(places[j]), int(counts[j]), bool(left[j])
            stream = streams[place]
            if count > stream.num_tokens:
                if stream.num_tokens == 0:
                    stream.num_cached = fleet.num_cached_tokens(place)
                at_s = float(ends_s[replica_of[place]])
                self._observe(stream, count, at_s)
                stream.first_s = at_s if stream.num_tokens == 0 else stream.first_s
                stream.last_s = at_s
            stream.publish(max(count, stream.num_tokens), fleet.state(place) if has_left else stream.state)
            if has_left:
                del streams[place]
                self._ended(stream)
                fleet.free(place)
        if left.any():
            self._places = np.fromiter(streams, np.int64, len(streams))
