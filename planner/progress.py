"""Progress of long computations: the library announces stages, and the caller's display shows them."""

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(slots=True, kw_only=True, eq=False)
class Stage:
    """A part of a computation that is under way.

    Parameters
    ----------
    what : the stage in words, such as "trying rates".
    total : units of work; None if not known.
    done : units that are through; a function if the compiled loop counts them in memory that others may read.
    so_far : the answer without the results of this stage and later ones; None without one.
    moved_at_s : when units were last counted, on the clock of `time.monotonic` [s]; None before.
    """

    what: str
    total: float | None
    done: float | Callable[[], float] = 0.0
    so_far: Any = None
    moved_at_s: float | None = None

    def move(self, done: float, total: float | None = None) -> None:
        """Say how much is through, and how much there is now known to be."""
        self.done, self.moved_at_s = done, time.monotonic()
        self.total = self.total if total is None else total


class Display(Protocol):
    """Shows the stages that are under way; the innermost began last."""

    def begin(self, stage: Stage) -> None:
        """Show a stage from now on."""

    def end(self, stage: Stage) -> None:
        """Take a stage away."""


_DISPLAY: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Show stages on a display while the block runs, in this thread."""
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextmanager
def stage(what: str, total: float | None = None, done: float | Callable[[], float] = 0.0,
          so_far: Any = None) -> Iterator[Stage]:
    """Announce a stage for as long as the block runs; without `shown_by` around it there is no display.

    Parameters
    ----------
    what, total, done, so_far : as of `Stage`.

    Examples
    --------
    >>> with stage("adding", 3) as adding:
    ...     for k in range(3):
    ...         adding.move(k + 1)
    """
    display, begun = _DISPLAY.get(), Stage(what=what, total=total, done=done, so_far=so_far)
    if display is None:
        yield begun
        return
    display.begin(begun)
    try:
        yield begun
    finally:
        display.end(begun)


def counted(what: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yield items, and count the finished ones in a stage.

    >>> [item * 2 for item in counted("doubling", [1, 2])]
    [2, 4]
    """
    with stage(what, len(items)) as counting:
        for number, item in enumerate(items, 1):
            yield item
            counting.move(number)


@contextmanager
def workers_may_stop() -> Iterator[None]:
    """Let joblib replace processes that stop, since they have grown or had nothing to do, without its warning.

    The warning comes in the thread that hands the calls out. If warnings are errors, it ends that thread, and the
    calls that are left are never made.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield


def later(function: Callable[..., Any]) -> Callable[..., Call]:
    """Return a function that takes the arguments of a call for `in_parallel`, as joblib's `delayed` does.

    >>> later(max)(1, 2) == (max, (1, 2), {})
    True
    """
    return lambda *arguments, **named: (function, arguments, named)


def in_parallel(what: str, calls: Iterable[Call], num_calls: int, jobs: int, *,
                in_processes: bool = False) -> list[Any]:
    """Return the results of calls, made by several threads or processes, in order; a stage counts them.

    The compiled loop runs beside other threads, and threads need neither a start nor a copy of the trace. Many short
    replays spend most of their time in Python, which processes alone share.

    Parameters
    ----------
    what : as of `Stage`.
    num_calls : how many there are; a generator of them is read as they are made [1].
    jobs : threads or processes; -1 for one a core.
    in_processes : whether calls go to processes. Large arrays are mapped into these, which may write to them: the
        compiled loop takes no others.
    """
    results = []
    with stage(what, num_calls) as calling:
        for result in (_from_processes if in_processes else _from_threads)(calls, jobs):
            results.append(result)
            calling.move(len(results))
    return results


def _from_processes(calls: Iterable[Call], jobs: int) -> Iterator[Any]:
    import joblib  # not at start: threads do without, and it takes a tenth of a search to load

    with workers_may_stop():
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator", mmap_mode="c", backend="loky")(calls)


def _from_threads(calls: Iterable[Call], jobs: int) -> Iterator[Any]:
    """Yield the results of calls in order; not more of them are read ahead than twice the threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = jobs if jobs > 0 else max(cores + 1 + jobs, 1)
    if threads == 1:
        yield from (function(*arguments, **named) for function, arguments, named in calls)
        return
    waiting: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for function, arguments, named in calls:
            waiting.append(pool.submit(function, *arguments, **named))
            if len(waiting) == 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
