"""SIGTERM ends a command and its processes, with one line and exit code 143."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import H100

COMMAND = [sys.executable, "-m", "planner.commands.cli"]
WORKERS = """
import joblib, numba
from planner.commands.termination import stops_on_sigterm

@numba.njit("float64(int64)", nogil=True)
def spin(n):
    total = 0.0
    for k in range(n):
        total += k % 7
    return total

with stops_on_sigterm():
    joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(k) for k in range(4))
    print("ready", flush=True)
    spin(100_000_000_000)
"""


def members(session: int) -> list[str]:
    """Return the processes of a session that still run."""
    table = subprocess.run(["ps", "-eo", "sid=,stat=,pid="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return [pid for sid, state, pid in rows if int(sid) == session and not state.startswith("Z")]


def terminated(process: subprocess.Popen[str], *, whole_group: bool) -> str:
    """Send SIGTERM to a command or to all its processes, wait until all have ended, and return stderr."""
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGTERM)
    process.wait(30)
    deadline_s = time.monotonic() + 10
    while members(process.pid) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert members(process.pid) == []
    return process.communicate(timeout=30)[1]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command in a session of its own; none of its processes outlasts the block."""
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_sweep_of_several_processes_stops_quietly(whole_group: bool, tmp_path: Path) -> None:
    seats = ",".join(map(str, range(16, 300)))
    command = [*COMMAND, "sweep", "chat", *H100, "--axis", f"max_num_seqs={seats}", "--jobs", "2", "--quiet"]
    with started(command, tmp_path) as process:
        deadline_s = time.monotonic() + 60
        while len(members(process.pid)) < 4 and time.monotonic() < deadline_s:  # with a tracker and two workers
            time.sleep(0.1)
        time.sleep(1)
        assert terminated(process, whole_group=whole_group) == "stopped by SIGTERM\n"
        assert process.returncode == 143
    assert {path.name for path in tmp_path.iterdir()} <= {"sweep.parquet.journal"}


def test_compiled_code_of_the_main_thread_delays_the_end_by_a_grace_period_only(tmp_path: Path) -> None:
    with started([sys.executable, "-c", WORKERS], tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin_s = time.monotonic()
        assert terminated(process, whole_group=False) == "stopped by SIGTERM\n"
        assert process.returncode == 143
        assert time.monotonic() - begin_s < 20


def test_the_handler_is_put_back() -> None:
    from planner.commands.termination import stops_on_sigterm

    before = signal.getsignal(signal.SIGTERM)
    with stops_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
