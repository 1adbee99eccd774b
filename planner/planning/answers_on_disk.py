"""Answers of searches, kept on disk by a hash of all that they depend on: the same question is not searched twice."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from planner.planning.fingerprint import scenario_sha256
from planner.settings.scenario import Scenario

FOLDER = "PLANNER_ANSWERS"  # environment variable: the folder of answers; empty to keep none
KEPT_BYTES = 256 * 2**20  # of all answers; the least recently used answers are removed first

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

_KEEPS: ContextVar[bool] = ContextVar("keeps", default=False)


@contextmanager
def answers_kept(keeps: bool = True) -> Iterator[None]:
    """Keep answers while the block runs, in this thread. Python's own functions keep none."""
    token = _KEEPS.set(keeps)
    try:
        yield
    finally:
        _KEEPS.reset(token)


def keeps_answers(find: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """Let a search take its answer from disk, or keep it there, in a block of `answers_kept`.

    The search takes a trace, a scenario, and values that `joblib.hash` reads. Its answer must not depend on a number of
    processes, the attribute `jobs` of a value. A search that raises an error keeps nothing.
    """

    @functools.wraps(find)
    def answer(*asked: Asked.args, **named: Asked.kwargs) -> Answer:
        folder = _folder() if _KEEPS.get() else None
        if folder is None:
            return find(*asked, **named)
        import joblib  # not at the top: it takes a tenth of a second, which a replay need not wait

        given: list[Any] = [*asked, *named.values()]
        values = [replace(value, jobs=1) if hasattr(value, "jobs") else value for value in given]
        scenario = next(value for value in values if isinstance(value, Scenario))
        key = scenario_sha256(scenario, find.__qualname__, find.__module__, joblib.hash(values))
        memory = joblib.Memory(folder, verbose=0)
        keep = memory.cache(_found, ignore=["search"])
        is_known = keep.check_call_in_cache(key, None)
        kept: Answer = keep(key, lambda: find(*asked, **named))
        if not is_known:
            memory.reduce_size(bytes_limit=KEPT_BYTES)
        return kept

    return answer


def _found(key: str, search: Callable[[], Answer]) -> Answer:
    """Find an answer; `joblib.Memory` keeps it by its key."""
    return search()


def _folder() -> Path | None:
    """Return the folder of answers, or None if none is to be kept or the folder cannot be written."""
    asked = os.environ.get(FOLDER)
    if asked is not None:
        return Path(asked) if asked else None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "planner" / "answers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
