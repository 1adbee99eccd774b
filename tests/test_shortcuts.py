"""The loop is compiled by Numba's own way where a Numba has other inner parts, with the same results."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from watching import Recorded

from planner.loop.compiled import jit, shortcuts
from planner.progress import shown_by

ROOT = Path(__file__).parents[1]
NEWER = f"{shortcuts.TESTED[0]}.{shortcuts.TESTED[1] + 1}.0"
PLAYED = """
import json
from laws.uncompiled import CASES, COMMON, ROWS, outcome
from helpers import play, trace_of
from planner.loop.compiled.jit import PLAIN

played = {name: outcome(play(trace_of(ROWS), policy="fcfs", **COMMON | CASES[name]))
          for name in ("plain", "recompute", "drafts")}
print(json.dumps([PLAIN, played]))
"""
BROKEN = """
import sys
from numba.core.codegen import JITCodeLibrary
del JITCodeLibrary.finalize
import planner.loop.compiled.trial
"""


@pytest.fixture(autouse=True)
def not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shortcuts.SWITCH, raising=False)


def test_tested_releases_need_no_trial(tmp_path: Path) -> None:
    assert shortcuts.why_plain("{}.{}.1".format(*shortcuts.TESTED), tmp_path / "kept") == ""
    assert not (tmp_path / "kept").exists()


def test_a_newer_numba_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    assert shortcuts.why_plain(NEWER, kept) == ""
    assert kept.read_text() == ""
    monkeypatch.setattr(shortcuts, "_TRIAL", "raise AttributeError")
    assert shortcuts.why_plain(NEWER, kept) == ""
    kept.unlink()
    reason = f"Numba {NEWER} is newer than the tested ones and has other inner parts"
    assert shortcuts.why_plain(NEWER, kept) == kept.read_text() == reason


def test_the_trial_fails_without_a_replaced_part() -> None:
    failed = subprocess.run([sys.executable, "-c", BROKEN], env=os.environ | {shortcuts.SWITCH: "shortcuts"},
                            capture_output=True, text=True, check=False)
    assert failed.returncode
    assert "finalize" in failed.stderr


def test_the_installed_numba_is_a_tested_one() -> None:
    import numba

    assert tuple(map(int, numba.__version__.split(".")[:2])) <= shortcuts.TESTED


@pytest.mark.whole
def test_numbas_own_way_has_the_same_bits(tmp_path: Path) -> None:
    """LLVM optimises nothing in the plain one, since a minute would pass."""
    plain, by_numba = played(shortcuts.SWITCH, "plain", NUMBA_OPT="0", NUMBA_CACHE_DIR=str(tmp_path))
    shortened, by_shortcuts = played(shortcuts.SWITCH, "shortcuts")
    assert (plain, shortened) == ("PLANNER_NUMBA=plain", "")
    assert len(by_numba) == 3
    assert by_numba == by_shortcuts


def played(switch: str, value: str, **environment: str) -> Any:
    """Return why another process compiles by Numba's own way, and the digests of its replays."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run([sys.executable, "-c", PLAYED], stdout=subprocess.PIPE, check=True, text=True,
                          env=os.environ | {"PYTHONPATH": paths, switch: value} | environment)
    return json.loads(done.stdout)


def test_the_stage_says_why_it_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    from compiled import other

    watch = Recorded()
    monkeypatch.setattr(jit, "PLAIN", "PLANNER_NUMBA=plain")
    with shown_by(watch):
        jit.compile_with_signature(other, jit.numba.float64(jit.numba.float64), cache=False)
    assert watch.first("compiling the other, by Numba's own way (PLANNER_NUMBA=plain), once on this machine [%]") == 0
