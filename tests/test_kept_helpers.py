"""Helpers that one function was compiled with are kept on disk for others, and make the same results."""

import os
import subprocess
import sys
from pathlib import Path

from planner.loop.compiled.shortcuts import SWITCH

ROOT = Path(__file__).parents[1]
COMPILE = """
import sys
import compiled
from planner.loop.compiled.jit import compile_with_signature, numba

number = numba.float64(numba.float64)
called = compile_with_signature(getattr(compiled, sys.argv[1]), number, shares_helpers=True)
taken = [name for name in ("inner", "nested") if sum(getattr(compiled, name).dispatcher.stats.cache_hits.values())]
print(called(2.0), *taken)
"""


def run(cache: Path, *words: str) -> str:
    """Return what a Python process prints, with this folder as Numba's cache."""
    cache.mkdir(exist_ok=True)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "laws")])
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, check=True, text=True,
                          env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths,
                                            SWITCH: "shortcuts"}).stdout  # the package's own code is not taken


def kept(cache: Path) -> Path:
    """Return the one file of helpers."""
    (path,) = cache.glob("helpers-*")
    return path


def test_a_second_function_takes_the_helpers_of_the_first(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", COMPILE, "outer").split() == ["3.0"]
    written = kept(tmp_path).read_bytes()
    assert run(tmp_path, "-c", COMPILE, "both").split() == ["7.0", "inner"]
    assert kept(tmp_path).read_bytes() == written


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    run(tmp_path, "-c", COMPILE, "outer")
    kept(tmp_path).write_bytes(kept(tmp_path).read_bytes()[:-1])
    assert run(tmp_path, "-c", COMPILE, "both").split() == ["7.0"]
    assert run(tmp_path, "-c", COMPILE, "other").split() == ["4.0", "nested"]
