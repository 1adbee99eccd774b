"""How the tests run: Hypothesis without deadlines (the first example may compile), and the same examples every time.

PLANNER_LAWS=all draws twice as many examples, and runs the tests marked `whole`. HYPOTHESIS_PROFILE=explore draws new
and more examples, for looking for bugs. A dashboard and a browser without a window
are there once for all tests that need them.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from helpers import num_drawn
from hypothesis import HealthCheck, settings

from benchmarks.dashboard_server import served
from planner.traces import Trace, read_trace

settings.register_profile("fixed", max_examples=num_drawn(20, 40), deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, database=None, max_examples=2000, print_blob=True,
                          suppress_health_check=list(HealthCheck))
os.environ["PLANNER_ANSWERS"] = ""  # commands of tests search anew, whatever was asked before

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def made_once(make: Callable[[typer.Typer], Any]) -> Callable[[typer.Typer], Any]:
    """Return what makes a command line of its commands, once for all calls: it takes longer than many commands do."""
    made: dict[tuple[int, ...], tuple[typer.Typer, Any]] = {}

    def kept(app: typer.Typer) -> Any:
        parts = tuple(map(id, (*app.registered_commands, *app.registered_groups)))
        if parts not in made:
            made[parts] = app, make(app)  # the parts of an app that is gone may lend their numbers to others
        return made[parts][1]

    return kept


MADE_ONCE = made_once(typer.main.get_command)
for module, name in ((typer.main, "get_command"), (typer.testing, "_get_command")):
    setattr(module, name, MADE_ONCE)

# Files whose tests take the longest: at the end of a run they would leave all processes but one idle.
FIRST = ("test_packaging.py", "test_gate_integrations.py", "test_documents.py", "test_looks.py", "test_browser.py",
         "test_clicks.py", "test_laws.py", "test_uncompiled.py", "test_notebook.py", "test_fuzz.py",
         "test_calibrate.py", "test_sweep.py", "test_tiers.py", "test_tier_pools.py", "test_queueing.py")

# Files that take ten seconds and more; `make quick` leaves them out, as tests of two seconds that are marked so.
SLOW = {*FIRST, "test_fleet_laws.py", "test_overload_laws.py", "test_lockstep_laws.py", "test_rules.py", "test_cli.py",
        "test_cli_trace.py", "test_cli_measured.py", "test_capacity.py", "test_accuracy_published.py",
        "test_first_replay.py", "test_links.py", "test_newcomer.py", "test_pages.py", "test_safety.py",
        "test_settings.py", "test_states.py",
        "test_studies.py", "test_study_store.py", "test_watch_page.py", "test_work.py", "test_made_up_engine.py",
        "test_assistant.py",
        "test_prometheus.py", "test_watch.py"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow. Without it, slow tests of files that the command line does not name are left out."""
    parser.addoption("--slow", action="store_true", help="run slow tests of files that are not named too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless --slow or their file is given, and put the longest files first."""
    for item in items:
        if item.path.name in SLOW:
            item.add_marker("slow")
    if not config.getoption("--slow"):
        named = {Path(argument.partition("::")[0]).name for argument in config.args}
        slow = [item for item in items if item.get_closest_marker("slow") and item.path.name not in named]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    if num_drawn(0, 1) == 0:
        whole = pytest.mark.skip("with PLANNER_LAWS=all only")
        for item in items:
            if item.get_closest_marker("whole"):
                item.add_marker(whole)
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
    """The dashboard on a free port."""
    with served() as (url, _):
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium, with software to draw WebGL, which parallel axes need."""
    from browsing import CHROMIUM

    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"])
        yield started
        started.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Chromium for one test: its pages are closed afterwards, as each open one takes a hundredth of a core."""
    before = chromium.contexts
    yield chromium
    for context in chromium.contexts:
        if context not in before:
            context.close()
