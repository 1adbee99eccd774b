"""The first replay on a machine says that it compiles; only to somebody who watches, and only then."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from planner import Scenario; from planner.commands import actions; "
           "actions._read('chat', Scenario(limit=3), None, 'error')"]


def seen(cache: Path, **environment: str) -> str:
    """Return what a terminal shows of a command that reads a trace, with this folder as Numba's cache."""
    screen, terminal = pty.openpty()
    subprocess.run(COMMAND, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment, stderr=terminal, check=True)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(screen, 4096):
            shown += part
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(screen)
    return shown.decode()


@pytest.mark.parametrize(("has_code", "environment", "says"), [
    (False, {}, True), (True, {}, False), (False, {"NUMBA_DISABLE_JIT": "1"}, False)])
def test_a_terminal_is_told_once(tmp_path: Path, has_code: bool, environment: dict[str, str], says: bool) -> None:
    if has_code:
        (tmp_path / "fleet.nbi").touch()
    shown = seen(tmp_path, **environment)
    assert "trace chat" in shown
    assert ("compiling the replay loop" in shown) == says


def test_a_log_is_not(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
                          check=True)
    assert "trace chat" in done.stderr
    assert "compiling" not in done.stderr
