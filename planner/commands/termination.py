"""SIGTERM: a command stops its processes, and exits with one line and code 143."""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

EXIT_CODE = 128 + signal.SIGTERM
GRACE_S = 2.0  # for the main thread to stop, which it does between two calls of compiled code


class Terminated(BaseException):
    """The command got SIGTERM; no Exception, since it is no error of a replay."""


@contextmanager
def stops_on_sigterm() -> Iterator[None]:
    """Let SIGTERM stop the block and the processes that it started, and exit with code 143.

    The main thread leaves the block by an exception, so that files and the terminal are left in order. If it is in
    compiled code for longer than `GRACE_S`, another thread ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, (wakes, woken), stopped = signal.signal(signal.SIGTERM, _stop), os.pipe(), threading.Event()
    os.set_blocking(woken, False)
    previous = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    threading.Thread(target=_exit_after_grace, args=(wakes, stopped), daemon=True).start()
    try:
        yield
    except Terminated:
        _say()
        sys.exit(EXIT_CODE)
    finally:
        stopped.set()
        signal.set_wakeup_fd(previous)
        signal.signal(signal.SIGTERM, before)
        os.close(woken)


def _stop(*_: object) -> NoReturn:
    raise Terminated


def _exit_after_grace(wakes: int, stopped: threading.Event) -> None:
    """End the process a while after SIGTERM, unless the block is left; signals' numbers come from the pipe `wakes`."""
    with open(wakes, "rb", buffering=0) as signals:
        while signals.read(1) not in (b"", bytes([signal.SIGTERM])):
            pass
    if stopped.wait(GRACE_S):
        return
    _say()
    for process in multiprocessing.active_children():
        process.terminate()
    atexit._run_exitfuncs()  # joblib removes its semaphores and folders
    os._exit(EXIT_CODE)


def _say() -> None:
    print("stopped by SIGTERM", file=sys.stderr)
