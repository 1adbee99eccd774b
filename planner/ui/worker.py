"""A process that works for the dashboard: it reads jobs from its input, and writes how far they are and their results.

Nothing else may write to its output, which is a stream of pickles.
"""

import inspect
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import joblib

from planner.errors import PlannerError
from planner.progress import Stage, shown_by

TELL_S = 0.25  # between two looks at the stages
IDLE_S = 60  # without work, after which a process that a search starts ends; joblib's own is five minutes
SAYING = threading.Lock()  # of the output, which two threads write to


def main() -> None:
    """Do jobs until the input ends."""
    jobs = sys.stdin.buffer
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _load()
        while True:
            try:
                task, args = pickle.load(jobs)
            except EOFError:
                return
            _say(answers, *_done(answers, task, args))


@contextmanager
def short_lived() -> Iterator[None]:
    """Let processes that this thread starts meanwhile end after `IDLE_S` without work."""
    with joblib.parallel_config(backend="loky", idle_worker_timeout=IDLE_S):
        yield


class Told:
    """Tells how far a job is while it runs: the outermost of its stages that counts its parts."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._stages: list[Stage] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> "Told":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def begin(self, stage: Stage) -> None:
        """Add a stage to the stages that are told, and tell its answer so far."""
        self._stages.append(stage)
        if stage.so_far is not None:
            _say(self._answers, "so far", _pickled(stage.so_far))

    def end(self, stage: Stage) -> None:
        """Leave a stage out from now on."""
        self._stages.remove(stage)

    def _tell(self) -> None:
        before = ""
        while not self._is_over.wait(TELL_S):
            text = next((_words(stage) for stage in list(self._stages) if stage.total), "")
            if text != before:
                _say(self._answers, "stage", text)
            before = text


def _words(stage: Stage) -> str:
    done = stage.done() if callable(stage.done) else stage.done
    return f"{stage.what}: {done:,.0f} of {stage.total:,.0f}"


def _load() -> None:
    """Load the modules and the loop that every replay needs, so that the first job need not."""
    from planner.replays.driver import compiled_loop
    from planner.ui import accuracy_tasks, change_tasks, fit_tasks, schedule_tasks, tasks  # noqa: F401

    compiled_loop()


def _done(answers: BinaryIO, task: Any, args: Any) -> tuple[str, Any]:
    """Do a job; return its result, pickled, or why there is none."""
    try:
        with Told(answers) as told, shown_by(told), short_lived():
            return "done", _pickled(_result(answers, task(*args)))
    except PlannerError as error:
        return "failed", str(error)
    except MemoryError:
        return "ended", "This needs more memory than is available; use fewer requests (limit, duration) or replicas."
    except Exception:  # the page says one sentence of any other error, and the server's log has it all
        traceback.print_exc()
        return "failed", None


def _result(answers: BinaryIO, parts: Any) -> Any:
    """Return the result of a job; one that yields is run, and each part is told with the result so far."""
    if not inspect.isgenerator(parts):
        return parts
    while True:
        try:
            part: Any = next(parts)
        except StopIteration as end:
            return end.value
        num_done, total, so_far = part
        _say(answers, "progress", (num_done, total, None if so_far is None else _pickled(so_far)))


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _say(answers: BinaryIO, kind: str, said: Any) -> None:
    content = _pickled((kind, said))
    with SAYING:
        answers.write(content)
        answers.flush()


if __name__ == "__main__":
    main()
