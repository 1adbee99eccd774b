"""A dashboard that is served, and a browser without a window, once for all tests that need them."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import CHROMIUM


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The dashboard, served by `planner ui`'s own command on a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "planner.cli", "ui", "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://localhost:{port}"
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    yield url
    server.terminate()
    server.wait(timeout=20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, with software to draw WebGL, which parallel axes need."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"])
        yield found
        found.close()
