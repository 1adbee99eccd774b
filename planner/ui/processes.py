"""The processes that a search of a page starts: they end soon after it, and give their memory back."""

from collections.abc import Iterator
from contextlib import contextmanager

import joblib

IDLE_S = 60  # without work, after which a process ends; joblib's own is five minutes


@contextmanager
def short_lived() -> Iterator[None]:
    """Let processes that this thread starts meanwhile end after `IDLE_S` without work."""
    with joblib.parallel_config(backend="loky", idle_worker_timeout=IDLE_S):
        yield
