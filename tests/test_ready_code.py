"""Code that comes with the package is taken where it fits, and gives the same results; else functions are compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.loop.compiled.jit import ready_file

ROOT = Path(__file__).parents[1]
COMPILE = """
import sys
from contextlib import ExitStack
from pathlib import Path
import compiled
from numba.core import event
from planner.loop.compiled import jit
from planner.loop.compiled.ready_code import code_written

path, made_for, function, writes = Path(sys.argv[1]), sys.argv[2], sys.argv[3], "write" in sys.argv
jit.ready_file = lambda: (path, made_for)
with event.install_recorder("numba:compile") as seen, code_written(path, made_for) if writes else ExitStack():
    called = jit.compile_with_signature(getattr(compiled, function), jit.numba.float64(jit.numba.float64))
print(called(2.0), "compiled" if seen.buffer else "taken")
"""
LOOP = "from planner.replays.driver import compiled_loop; compiled_loop()"
CASES = str(ROOT / "tests" / "laws" / "uncompiled.py")  # of replays and fleets
LOOPS = """
import runpy, sys
from pathlib import Path
from planner.loop.compiled import jit
path, made_for = Path(sys.argv[1]), jit.ready_file()[1]
jit.ready_file = lambda: (path, made_for)
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def run(cache: Path, *words: str, **environment: str) -> str:
    """Return the output of a Python process with this folder as Numba's cache."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "laws")])
    inherited = {name: value for name, value in os.environ.items() if name != "PLANNER_NUMBA"}
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT,
                          env=inherited | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths} | environment).stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the code of one function, written for no CPU in particular."""
    folder = tmp_path_factory.mktemp("written")
    path = folder / "code.zst"
    assert run(folder / "cache", "-c", COMPILE, str(path), "this", "outer", "write",
               NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == "3.0 compiled\n"
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the outcome of every case of replays and fleets; the fleet's loop took the replay loop's helpers."""
    cache = tmp_path_factory.mktemp("compiled")
    run(cache, "-c", LOOP, PLANNER_NUMBA="shortcuts")
    return outcomes(run(cache, CASES, PLANNER_NUMBA="shortcuts"))


def outcomes(printed: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(printed)
    assert len(found) > 100
    return found


def test_ready_code_is_taken_and_kept(written: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(cache, "-c", COMPILE, str(written), "this", "outer") == "3.0 taken\n"
    assert run(cache, "-c", COMPILE, "absent", "this", "outer") == "3.0 taken\n"  # from Numba's cache


def test_a_cache_that_cannot_be_written_does_not_matter(written: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    script = COMPILE.replace("import compiled", "import compiled\nfrom numba.core.caching import IndexDataCacheFile\n"
                             "def full(*_): raise OSError\nIndexDataCacheFile.save = full")
    assert run(cache, "-c", script, str(written), "this", "outer") == "3.0 taken\n"
    assert not list(cache.rglob("*.nb?"))


def test_code_that_does_not_fit_is_compiled(written: Path, tmp_path: Path) -> None:
    """Absent, cut off, changed, of another combination, and without the function; and where a way is asked for."""
    cut, changed = tmp_path / "cut.zst", tmp_path / "changed.zst"
    content = written.read_bytes()
    cut.write_bytes(content[:-1])
    changed.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    for k, (path, made_for, function, result) in enumerate([
        (tmp_path / "absent.zst", "this", "outer", "3.0"), (cut, "this", "outer", "3.0"),
        (changed, "this", "outer", "3.0"), (written, "that", "outer", "3.0"), (written, "this", "other", "4.0"),
    ]):
        assert run(tmp_path / str(k), "-c", COMPILE, str(path), made_for, function) == f"{result} compiled\n"
    asked = run(tmp_path / "asked", "-c", COMPILE, str(written), "this", "outer", PLANNER_NUMBA="shortcuts")
    assert asked == "3.0 compiled\n"


def test_a_changed_source_is_compiled(written: Path, tmp_path: Path) -> None:
    """The hash of the loop leaves out other files with compiled functions."""
    source = (ROOT / "tests" / "compiled.py").read_text()
    (tmp_path / "compiled.py").write_text(source.replace("return inner(value)\n", "return inner(value) + 1.0\n"))
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{COMPILE}"
    assert run(tmp_path / "cache", "-c", script, str(written), "this", "outer") == "4.0 compiled\n"


@pytest.mark.whole
def test_a_fleet_with_the_replay_loops_helpers_has_the_same_bits(compiled: dict[str, str], tmp_path: Path) -> None:
    """Every case of replicas that the fleet's loop replays: with helpers, and compiled as a whole."""
    whole = outcomes(run(tmp_path, CASES, "together", PLANNER_NUMBA="shortcuts"))
    assert whole == {name: compiled[name] for name in whole}


@pytest.mark.whole
def test_the_packages_code_has_the_same_bits(compiled: dict[str, str], tmp_path: Path) -> None:
    """Every case by the package's code, written anew if the source has changed, and compiled."""
    path, made_for = ready_file()
    if not path.exists() or not path.read_bytes().startswith(made_for.encode()):
        run(tmp_path / "written", "-m", "benchmarks.ready_code", str(tmp_path))
        path = tmp_path / path.name
    taken = outcomes(run(tmp_path / "taken", "-c", LOOPS, str(path), CASES))
    assert not list((tmp_path / "taken").rglob("helpers-*"))  # no loop was compiled
    assert len(taken) > 1000
    assert taken == compiled
