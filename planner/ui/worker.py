"""A process that works for the dashboard: it reads jobs from its input, and writes how far they are and their results.

Nothing else may write to its output, which is a stream of pickles.
"""

import inspect
import os
import pickle
import sys
import traceback
from typing import Any, BinaryIO

from planner.errors import PlannerError


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


def _load() -> None:
    """Load what every replay needs, so that the first job need not."""
    from planner.replays.driver import compiled_loop
    from planner.ui import accuracy_tasks, change_tasks, fit_tasks, schedule_tasks, tasks  # noqa: F401

    compiled_loop()


def _done(answers: BinaryIO, task: Any, args: Any) -> tuple[str, Any]:
    """Do a job; return its result, pickled, or why there is none."""
    try:
        answer = task(*args)
        if inspect.isgenerator(answer):
            answer = _each_part(answers, answer)
        return "done", _pickled(answer)
    except PlannerError as error:
        return "failed", str(error)
    except MemoryError:
        return "ended", "This needs more memory than is available; use fewer requests (limit, duration) or replicas."
    except Exception:  # the page says one sentence of any other error, and the server's log has it all
        traceback.print_exc()
        return "failed", None


def _each_part(answers: BinaryIO, parts: Any) -> Any:
    """Run a job that yields, tell each part with the result so far, and return its result."""
    while True:
        try:
            num_done, total, so_far = next(parts)
        except StopIteration as end:
            return end.value
        _say(answers, "progress", (num_done, total, None if so_far is None else _pickled(so_far)))


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _say(answers: BinaryIO, kind: str, said: Any) -> None:
    pickle.dump((kind, said), answers, protocol=pickle.HIGHEST_PROTOCOL)
    answers.flush()


if __name__ == "__main__":
    main()
