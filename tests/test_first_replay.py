"""The first replay on a machine shows that it compiles; code of another Python, Numba or CPU does not count."""

import io
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest
from watching import Recorded

from planner.commands.display import DisplayThread, Lines
from planner.loop.compiled import jit
from planner.loop.compiled.cache_locator import PackageCacheLocator
from planner.progress import shown_by, stage

COMPILE = """
import sys, time
from pathlib import Path
from planner.commands import display
from planner.loop.compiled.jit import compile_with_signature, numba
from tests.compiled import outer

display.DELAY_S = 0.0
display.PERIOD_S = 0.02
display.REFRESH_S = 0.02
with display.progress_shown(quiet="--quiet" in sys.argv):
    assert compile_with_signature(outer, numba.float64(numba.float64), what="example")(2.0) == 3.0
"""


def run(cache: Path, *arguments: str, stderr: int = subprocess.PIPE, **environment: str) -> str:
    """Compile a small function in a process of its own, with this folder as Numba's cache; return what stderr has."""
    cache.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", COMPILE, *arguments], stderr=stderr, check=True, text=True,
                          cwd=Path(__file__).parents[1],
                          env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment)
    return done.stderr or ""


def seen_on_a_terminal(cache: Path, *arguments: str) -> str:
    """Return what a terminal shows of it."""
    screen, terminal = pty.openpty()
    run(cache, *arguments, stderr=terminal)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(screen, 4096):
            shown += part
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(screen)
    return shown.decode()


@pytest.mark.parametrize("seen", [run, seen_on_a_terminal], ids=["log", "terminal"])
def test_compiling_is_shown_once(tmp_path: Path, seen: Callable[..., str]) -> None:
    assert "compiling the example, once on this machine" in seen(tmp_path / "own")
    assert "compiling" not in seen(tmp_path / "own")


def test_quiet_shows_nothing(tmp_path: Path) -> None:
    assert seen_on_a_terminal(tmp_path / "own", "--quiet") == ""
    assert run(tmp_path / "other", "--quiet") == ""


def test_one_of_two_processes_compiles(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: run(tmp_path / "own"), range(2))
    assert sorted("compiling" in text for text in (first, second)) == [False, True]


def test_the_cache_is_of_this_python_numba_and_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    own = jit._cache_dir()
    assert own == jit._cache_dir()
    for name, other in (("version", lambda package: "0.0"), ("get_host_cpu_name", lambda: "another")):
        with monkeypatch.context() as patched:
            patched.setattr(jit, name, other)
            assert jit._cache_dir() != own


def test_installations_of_one_source_share_their_code(tmp_path: Path) -> None:
    """A file of the package is named by its place in the package, a user's by its path."""
    named = PackageCacheLocator.get_suitable_cache_subpath
    package = Path(jit.__file__).parents[2]
    assert named(str(package / "loop" / "loop.py")) == "loop.loop"
    users = [named(str(tmp_path / folder / "loop" / "loop.py")) for folder in ("one", "two")]
    assert len({*users, "loop.loop"}) == 3


def test_the_stage_ends_at_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Recorded()
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", str(tmp_path))
    from compiled import other

    with shown_by(watch):
        jit.compile_with_signature(other, jit.numba.float64(jit.numba.float64))
    assert watch.first("compiling the other, once on this machine [%]") == 0
    assert [stage.done for stage in watch.ended] == [100]


def test_the_process_that_waits_says_that_another_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", str(tmp_path))
    assert jit.compiled_elsewhere() == []
    with filelock.FileLock(tmp_path / "replay loop (planner.advance).lock"):
        assert jit.compiled_elsewhere() == ["replay loop"]
        log = io.StringIO()
        with shown_by(DisplayThread(Lines(log), 0.0, 0.01)), stage("sizing fleets", 3):
            deadline_s = time.monotonic() + 60
            while not log.getvalue() and time.monotonic() < deadline_s:
                time.sleep(0.01)
    stages = "sizing fleets: 0 of 3, 0 s so far; compiling the replay loop in another process: 0 s so far"
    assert stages in log.getvalue()
    assert jit.compiled_elsewhere() == []


def test_the_code_has_its_folder_where_numba_was_imported_before(tmp_path: Path) -> None:
    """A notebook may use Numba for something else first."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    script = "import numba\nimport planner.loop.compiled.jit\nprint(numba.config.CACHE_DIR)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path,
                          env=environment | {"XDG_CACHE_HOME": str(tmp_path / "cache"),
                                             "PYTHONPATH": str(Path(__file__).parents[1])})
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "cache" / "planner")
