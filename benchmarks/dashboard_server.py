"""The dashboard, served by `planner ui`'s own command on a free port for as long as a block runs."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

START_S = 60.0  # the longest that a start may take


@contextmanager
def served(*options: str) -> Iterator[tuple[str, int]]:
    """Yield the address and the process of the server.

    Parameters
    ----------
    options : more of `planner ui`.

    Raises
    ------
    TimeoutError : it does not answer within `START_S`.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    own = subprocess.Popen([sys.executable, "-m", "planner.commands.cli", "ui", "--port", str(port), *options],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://localhost:{port}"
    try:
        _wait(url)
        yield url, own.pid
    finally:
        own.terminate()
        own.wait(timeout=20)


def _wait(url: str) -> None:
    """Wait until the server answers."""
    until_s = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{url}: no answer in {START_S:g} s") from error
            time.sleep(0.2)
