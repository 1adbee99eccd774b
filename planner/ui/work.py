"""Work beside the server: each job runs in a process of its own, within a bound of memory, until it is told to stop.

A process that has finished a job takes the next one, since loading the compiled loop takes a second or more. It is
ended if a job is stopped, takes too much memory or leaves much behind.
"""

import atexit
import os
import pickle
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

from planner.family import end_family, resident_bytes

MOST_BYTES = 4 * 2**30  # of a job's processes together
KEPT_BYTES = 2**30  # of a process that waits for the next job
MOST_JOBS = max(2, os.cpu_count() or 1)  # at once; others wait
LOOK_S = 0.1  # between two looks at a job
GRACE_S = 1.0  # for a job that is stopped: most end by themselves, and their process stays warm
BROKE_OFF = "The calculation ended without a result; the server's log has details."

Task = Callable[..., Any]


@dataclass(slots=True, kw_only=True)
class JobState:
    """How far a job is; its thread writes it and the page reads it.

    Parameters
    ----------
    num_done, total : parts that are done, of how many; 0 if it has no parts.
    stage : the present work, in words with its parts; empty if it is not known.
    content : the result, pickled, or as much of it as there is; None while there is none.
    is_whole : whether that is all of it.
    error : why there is none, a sentence.
    is_over, stop : set at the end, and to end it.
    """

    num_done: int = 0
    total: int = 0
    stage: str = ""
    content: bytes | None = None
    is_whole: bool = False
    error: str | None = None
    is_over: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Job:
    """A job under way; it stops with the last reference to it, as when its session ends."""

    state: JobState


class Worker:
    """A process that does one job after the other: `planner.ui.worker`."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "planner.ui.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path})
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, content: bytes) -> None:
        """Give it a job, pickled."""
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def answer(self, timeout_s: float) -> Any:
        """Return its next message; raises `queue.Empty` if there is none within the timeout [s]."""
        return self._answers.get(timeout=timeout_s)

    @property
    def num_bytes(self) -> int:
        """Memory of the process and of the processes that it has started [B]."""
        return resident_bytes(self._process.pid)

    def end(self) -> None:
        """End the process and the processes that it has started."""
        end_family(self._process.pid)
        self._process.wait()

    def _listen(self) -> None:
        """Collect the messages of the process, and at last that it has ended."""
        assert self._process.stdout is not None
        while True:
            try:
                self._answers.put(pickle.load(self._process.stdout))
            except (EOFError, OSError, pickle.UnpicklingError, ValueError):
                self._answers.put(("ended", None))
                return


class Workers:
    """The server's processes: idle ones that wait for a job, and busy ones that have one."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_JOBS)
        atexit.register(self.end)

    def warm(self) -> None:
        """Start a process before the first job."""
        with self._lock:
            if not self._idle:
                self._idle.append(Worker())

    def end(self) -> None:
        """End all processes."""
        for worker in (*self._idle, *self._busy):
            worker.end()

    def attend(self, state: JobState, content: bytes) -> None:
        """Have a job done."""
        try:
            while not self._places.acquire(timeout=LOOK_S):
                if state.stop.is_set():
                    return
            try:
                self._attend(state, content)
            finally:
                self._places.release()
        finally:
            state.is_over.set()

    def _attend(self, state: JobState, content: bytes) -> None:
        with self._lock:
            worker = self._idle.pop() if self._idle else Worker()
            self._busy.add(worker)
        is_well = False
        try:
            is_well = _done(worker, state, content) and worker.num_bytes <= KEPT_BYTES
        except OSError:  # it ended while it was given the job
            state.error = BROKE_OFF
        finally:
            with self._lock:
                self._busy.discard(worker)
                if is_well:
                    self._idle.append(worker)
            if not is_well:
                worker.end()
                self.warm()


def _done(worker: Worker, state: JobState, content: bytes) -> bool:
    """See a job through; return whether its process can take another."""
    worker.send(content)
    looks_left = round(GRACE_S / LOOK_S)
    while looks_left > 0:
        looks_left -= state.stop.is_set()
        try:
            kind, said = worker.answer(LOOK_S)
        except queue.Empty:
            if worker.num_bytes > MOST_BYTES:
                state.error = (f"This takes more than {MOST_BYTES // 2**30} GiB of memory; use fewer requests (limit, "
                               f"duration) or replicas, or use the command line.")
                return False
            continue
        if kind == "progress":
            state.num_done, state.total, so_far = said
            state.content = so_far or state.content
        elif kind == "stage":
            state.stage = said
        elif kind in ("so far", "done"):
            state.content, state.is_whole = said, kind == "done"
            if state.is_whole:
                return True
        else:
            state.error = said or BROKE_OFF
            return bool(kind == "failed")
    return False


@st.cache_resource(show_spinner=False)  # type: ignore[untyped-decorator]
def workers() -> Workers:
    """Return the server's processes."""
    return Workers()


def start(task: Task, *args: Any, total: int = 0) -> Job:
    """Start a job.

    Parameters
    ----------
    task : a function of a module, which is called in another process. One that yields tells how many parts are done, of
        how many, and the result so far.
    args : of the call; pickled.
    total : parts that it has; 0 if it has none.
    """
    state = JobState(total=total)
    job = Job(state=state)
    weakref.finalize(job, state.stop.set)
    content = pickle.dumps((task, args), protocol=pickle.HIGHEST_PROTOCOL)
    threading.Thread(target=workers().attend, args=(state, content), daemon=True).start()
    return job
