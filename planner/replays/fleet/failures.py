"""Failures of replicas: when each fails and is back, read from a line or a file, as timers of the fleet."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import UsageError
from planner.files.finite import number_in
from planner.files.table_file import read_table_file
from planner.replays.fleet.timers import RunningFleet, Timer, close_replica, open_replica
from planner.replays.initial import start_anew

_FAILURE = re.compile(r"(\d+)@([^@+/~]+)(?:\+([^@+/~]+))?(?:/([^@+/~]+))?(?:~([^@+/~]+))?")
_COLUMNS = ("replica", "at_s", "duration_s")
_MORE = ("health_check_s", "notice_s")  # columns that may be left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A replica loses all requests and its cache, and is sent none until it is back.

    Parameters
    ----------
    replica : its number, from 0.
    at_s : when [s], on the clock of the trace's arrivals as replayed.
    duration_s : until it is back [s]; infinite if it never is.
    health_check_s : until the router finds out [s]. Before that the replica is sent requests, and answers none.
    notice_s : time before the failure in which the router sends it nothing, as after a spot instance's notice [s].
    """

    replica: int
    at_s: float
    duration_s: float
    health_check_s: float = 0.0
    notice_s: float = 0.0

    @property
    def text(self) -> str:
        """The failure as an option's value.

        >>> Failure(replica=2, at_s=600.5, duration_s=math.inf, health_check_s=5).text
        '2@600.5/5'
        """
        parts = (("+", self.duration_s, math.inf), ("/", self.health_check_s, 0.0), ("~", self.notice_s, 0.0))
        return f"{self.replica}@{_plain(self.at_s)}" + "".join(
            f"{sign}{_plain(value)}" for sign, value, usual in parts if value != usual)


def _plain(value: float) -> str:
    """Return a number that reads back to the digit, and without an exponent's plus sign."""
    return repr(float(value)).removesuffix(".0").replace("e+", "e")


def read_failures(text: str, option: str = "--fail-replica") -> list[Failure]:
    """Read failures: `REPLICA@AT[+FOR][/HEALTH_CHECK][~NOTICE]` in seconds, commas between, or the path of a .csv.

    >>> read_failures("2@600+120/5")
    [Failure(replica=2, at_s=600.0, duration_s=120.0, health_check_s=5.0, notice_s=0.0)]

    A CSV has a failure a row, with the columns replica, at_s and duration_s, and health_check_s and notice_s if they
    are not 0; an empty duration_s is for good.

    Raises
    ------
    UsageError : a part is none, a number is out of range, or a replica fails while it is down.
    TraceError : the file cannot be read.
    """
    is_file = text.endswith(".csv")
    failures = _of_file(Path(text)) if is_file else [_of_part(part.strip(), option) for part in text.split(",")]
    failures.sort(key=lambda failure: (failure.at_s, failure.replica))
    back_s: dict[int, float] = {}
    for failure in failures:
        begin_s = failure.at_s - failure.notice_s
        if begin_s < back_s.get(failure.replica, -math.inf):
            raise UsageError(f"{option} {text}: replica {failure.replica} fails at {begin_s:g} s, and is "
                             f"already down until {back_s[failure.replica]:g} s; leave one failure out")
        back_s[failure.replica] = failure.at_s + failure.duration_s
    return failures


def _of_part(part: str, option: str) -> Failure:
    match = _FAILURE.fullmatch(part)
    if match is None:
        raise UsageError(f"{option} {part!r}: must be REPLICA@AT, with +FOR, /HEALTH_CHECK and ~NOTICE if they "
                         f"are not 0, in seconds, as in '2@600+120', '2@600+120/5' or '2@600+120~30'")
    return _failure(f"{option} {part!r}", *(match[k] or "" for k in range(1, 6)))


def _of_file(path: Path) -> list[Failure]:
    table = read_table_file(path, what="table of failures")
    columns = (*_COLUMNS, *(name for name in _MORE if name in table.columns))
    if tuple(table.columns) != columns:
        raise UsageError(f"{path}: has the columns {', '.join(table.columns)}; must be {', '.join(_COLUMNS)}, then "
                         f"health_check_s if the router finds out later, and notice_s if it knows before")
    if table.is_empty():
        raise UsageError(f"{path}: has no rows; must have at least one failure")
    return [_failure(f"{path} row {row}", *(dict(zip(columns, cells, strict=True)).get(name) or ""
                                            for name in (*_COLUMNS, *_MORE)))
            for row, cells in enumerate(table.rows())]


def _failure(where: str, replica: str, at: str, duration: str, health_check: str, notice: str) -> Failure:
    if not replica.strip().isdecimal():
        raise UsageError(f"{where}: replica = {replica!r}; must be a number from 0")
    at_s = _seconds(where, "at_s", at)
    duration_s = _seconds(where, "duration_s", duration) if duration.strip() else math.inf
    if duration_s <= 0:
        raise UsageError(f"{where}: duration_s = {duration!r}; must be above 0 [s]")
    health_check_s = _seconds(where, "health_check_s", health_check) if health_check.strip() else 0.0
    notice_s = _seconds(where, "notice_s", notice) if notice.strip() else 0.0
    if notice_s and health_check_s:
        raise UsageError(f"{where}: notice_s = {notice_s:g} and health_check_s = {health_check_s:g}: the router knows "
                         f"of a failure before it or after it; leave one of them out")
    return Failure(replica=int(replica), at_s=at_s, duration_s=duration_s, health_check_s=health_check_s,
                   notice_s=notice_s)


def _seconds(where: str, name: str, text: str) -> float:
    value = number_in(text)
    if not 0 <= value < math.inf:
        raise UsageError(f"{where}: {name} = {text!r}; must be a finite number of at least 0 [s]")
    return value


def failure_timers(failures: Sequence[Failure], num_replicas: int, option: str = "--fail-replica") -> list[Timer]:
    """Return the timers of failures.

    Raises
    ------
    UsageError : a failure names a replica that the fleet does not have.
    """
    for failure in failures:
        if failure.replica >= num_replicas:
            raise UsageError(f"{option} {failure.replica}@{failure.at_s:g}: there are {num_replicas} replicas, "
                             f"numbered from 0; give one of these numbers")
    return [_timer(failure) for failure in failures]


def _timer(failure: Failure) -> Timer:
    """Return the first timer of a failure: the replica falls silent, the router finds out, and the replica comes back.

    With a notice the replica is closed first, and finishes requests until it fails.

    A replica that is back before the health check has lost its requests too: the router finds out then.
    """
    k, back_s = failure.replica, failure.at_s + failure.duration_s
    noticed_s = min(failure.at_s + failure.health_check_s, back_s)

    def come_back(running: RunningFleet) -> Sequence[Timer]:
        start_anew(running.states[k], shares_store=running.shares_store)
        open_replica(running.memory, k)
        return ()

    def drain(running: RunningFleet) -> Sequence[Timer]:
        close_replica(running.memory, k)
        return [Timer(failure.at_s, fail)]

    def fail(running: RunningFleet) -> Sequence[Timer]:
        if not failure.notice_s:
            close_replica(running.memory, k)
        running.memory.gateway.failing = k
        return [Timer(back_s, come_back)] if back_s < math.inf else []

    def look(running: RunningFleet) -> Sequence[Timer]:
        running.memory.fleet.is_watched = 1  # the replica takes its steps up to now
        return [Timer(failure.at_s, fall_silent)]

    def fall_silent(running: RunningFleet) -> Sequence[Timer]:
        engine = running.states[k].engine
        engine.now_s = max(engine.now_s, noticed_s)  # as in a step until then that emits nothing
        return [Timer(noticed_s, fail)]

    if failure.notice_s:
        return Timer(failure.at_s - failure.notice_s, drain)
    return Timer(failure.at_s, look if noticed_s > failure.at_s else fail)
