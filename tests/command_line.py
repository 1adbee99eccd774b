"""The command line for tests: run here, in the tests' own process, or in one of its own, with what it answers."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from planner.commands.cli import main

H100 = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LINEAR = ("--step-time", "linear:0.01,0.0001", "--num-gpu-blocks", "1000")
HEADER = "arrival_s,input_tokens,output_tokens\n"
WIDE = {"COLUMNS": "200", "NO_COLOR": "1"}  # so that no message is broken into lines

SHELLS = re.compile(r"[|&<>$*#]|^(?!planner )")  # what a shell must read

Run = subprocess.CompletedProcess[str]


def planner(*arguments: object, stdin: str = "") -> Run:
    """Run the command line with its output as wide as it likes."""
    with mock.patch.dict(os.environ, WIDE):
        return run_here(list(map(str, arguments)), Path.cwd(), stdin)


def run_here(arguments: list[str], folder: Path, stdin: str = "") -> Run:
    """Run the command line in this process, which has loaded all that another would load first, as if in a folder."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: Any = 0
    with (contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
          mock.patch.object(sys, "argv", ["planner", *arguments]),
          mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))):
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
    printed, said = (stream.detach().getvalue().decode() for stream in (out, err))
    return Run(["planner", *arguments], code, printed, said)


def run_line(line: str, folder: Path, *, here: bool = True) -> Run:
    """Run a line of a document with this Python's planner; `here`, in this process, unless it takes a shell to read it.

    Commands with && between them run one after the other, up to the first that fails.
    """
    commands = line.split(" && ")
    if not here or any(SHELLS.search(command) for command in commands):
        own = f"{shlex.quote(sys.executable)} -m planner.commands.cli"
        shell = re.sub(r"(^|&& |\| )planner ", rf"\1{own} ", line)
        return subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=False)
    printed = said = ""
    for command in commands:
        done = run_here(shlex.split(command)[1:], folder)
        printed, said = printed + done.stdout, said + done.stderr
        if done.returncode:
            break
    return Run(line, done.returncode, printed, said)


def planner_alone(*arguments: object, num_blocks: int | None = None) -> Run:
    """Run the command line in a process of its own; `num_blocks` caps every file that it writes, as a full disk does.
    """
    command = [sys.executable, "-m", "planner.commands.cli", *map(str, arguments)]
    if num_blocks is not None:
        command = ["sh", "-c", f'ulimit -f {num_blocks}; exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | WIDE, check=False)


def fails(run: Run, code: int, *words: str) -> None:
    """Assert that a run failed with `code` and said `words` in its last line, without a traceback."""
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
    last = run.stderr.strip().splitlines()[-1]
    assert all(word in last for word in words), last
    assert run.stdout == ""
