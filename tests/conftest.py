"""How the tests run: Hypothesis without deadlines (the first example may compile), and the same examples every time.

HYPOTHESIS_PROFILE=explore draws new and more examples, for looking for bugs. A dashboard and a browser without a window
are there once for all tests that need them.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from planner.traces import Trace, read_trace

settings.register_profile("fixed", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, database=None, max_examples=2000, print_blob=True,
                          suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Files whose tests take the longest: at the end of a run they would leave all processes but one idle.
FIRST = ("test_packaging.py", "test_gate_integrations.py", "test_documents.py", "test_looks.py", "test_browser.py",
         "test_uncompiled.py", "test_notebook.py", "test_fuzz.py", "test_calibrate.py")

# Files whose tests take more than some seconds, and prove what others do not look at in passing.
SLOW = FIRST


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow, without which the tests run that take about a minute together."""
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless they are asked for, and put the longest files first."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.path.name in SLOW or item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Read a text as a file named t."""
    monkeypatch.chdir(tmp_path)

    def read_text(text: str, **options: Any) -> Trace:
        Path("t").write_text(text)
        return read_trace("t", **options)

    return read_text


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The dashboard, served by `planner ui`'s own command on a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "planner.commands.cli", "ui", "--port", str(port)],
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
    from browsing import CHROMIUM

    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"])
        yield found
        found.close()
