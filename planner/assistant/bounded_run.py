"""A call: one command in a process of its own, within bounds of folders, requests, memory and seconds."""

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from planner.commands.display import PERIOD
from planner.errors import PlannerError
from planner.family import end_family, resident_bytes
from planner.files.confined import FOLDERS
from planner.traces.reading import MOST_REQUESTS

LOOK_S = 0.2  # between two looks at the memory
GRACE_S = 2.0  # for the last lines of a command that has ended: a process that it started may keep them open
NOTE = "note: "
MOST_LINES = 10_000  # of notes and progress that are kept
MOST_TEXT = 8 * 2**20  # of an answer, and of the text of a command [characters]
ERROR_LINES = 12  # of a command that fails
BOX = "│╭╮╰╯─ "  # around errors of the command line's parser
ERROR = re.compile(r"\w+Error: ")

_RUNNING: set[int] = set()  # numbers of the processes of calls under way

Tell = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a server.

    Parameters
    ----------
    folders : that files must be below.
    most_requests : of a trace [1].
    most_bytes, most_seconds : of a call [B, s].
    most_calls : at once [1].
    """

    folders: Sequence[Path]
    most_requests: int
    most_bytes: int
    most_seconds: float
    most_calls: int


@dataclass(slots=True, kw_only=True)
class Done:
    """A call: its answer, or the bound that it exceeds, the text that the command prints, and its lines on stderr."""

    exit_code: int = 0
    answer: Any = None
    error: str = ""
    text: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """The notes of the command, without repeats."""
        return list(dict.fromkeys(line.removeprefix(NOTE) for line in self.lines if line.startswith(NOTE)))


async def run(words: Sequence[str], bounds: Bounds, tell: Tell) -> Done:
    """Run a command and return its answer. If the call is cancelled, its processes end.

    Parameters
    ----------
    tell : gets each line about progress.

    Raises
    ------
    PlannerError : the command fails, or exceeds a bound.
    """
    done = Done()
    with tempfile.TemporaryDirectory(prefix="planner-") as scratch:
        answer = Path(scratch) / "answer.json"
        argv = [sys.executable, "-P", "-m", "planner.commands.cli", *words, "--json", str(answer)]
        process = await anyio.open_process(argv, stdin=subprocess.DEVNULL, cwd=bounds.folders[0],
                                           env=_environment(bounds, scratch))
        _RUNNING.add(process.pid)
        try:
            with anyio.move_on_after(bounds.most_seconds) as limit:
                await _see_through(process, done, bounds, tell)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    await anyio.to_thread.run_sync(end_family, process.pid)
                _RUNNING.discard(process.pid)
                await process.aclose()
        if limit.cancelled_caught:
            raise PlannerError(f"this takes more than {bounds.most_seconds:g} s; use fewer requests (limit, duration) "
                               f"or a larger --most-seconds of planner mcp")
        done.answer = _answer(answer, done)
    return done


@atexit.register
def end_calls() -> None:
    """End the processes of all calls under way, as the server ends."""
    while _RUNNING:
        end_family(_RUNNING.pop())


def _answer(path: Path, done: Done) -> Any:
    """Return the answer that a command wrote; raise its error if it wrote none."""
    if done.error or done.exit_code not in (0, 1) or not path.exists():
        raise PlannerError(done.error or _error(done.lines) or f"the command ended with exit code {done.exit_code}")
    if path.stat().st_size > MOST_TEXT:
        raise PlannerError(f"the answer has {path.stat().st_size / 2**20:.0f} MiB; must have at most "
                           f"{MOST_TEXT // 2**20} MiB; ask for fewer configurations")
    return json.loads(path.read_text(encoding="utf-8"))


async def _see_through(process: Process, done: Done, bounds: Bounds, tell: Tell) -> None:
    """Collect the output of a command until it ends."""
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, process, done, bounds.most_bytes)
        async with anyio.create_task_group() as readers:
            readers.start_soon(_read, process, done)
            readers.start_soon(_listen, process, done, tell)
            done.exit_code = await process.wait()
            readers.cancel_scope.deadline = anyio.current_time() + GRACE_S
        group.cancel_scope.cancel()


async def _watch(process: Process, done: Done, most_bytes: int) -> None:
    """End the processes of a call when they take too much memory."""
    while True:
        await anyio.sleep(LOOK_S)
        if await anyio.to_thread.run_sync(resident_bytes, process.pid) > most_bytes:
            done.error = (f"this takes more than {most_bytes / 2**30:g} GiB of memory; use fewer requests (limit, "
                          f"duration) or a larger --most-memory of planner mcp")
            await anyio.to_thread.run_sync(end_family, process.pid)
            return


async def _read(process: Process, done: Done) -> None:
    """Keep the text that a command prints."""
    assert process.stdout is not None
    async for text in TextReceiveStream(process.stdout, errors="replace"):
        done.text += text[:MOST_TEXT - len(done.text)]


async def _listen(process: Process, done: Done, tell: Tell) -> None:
    """Keep the lines of stderr, and pass on the lines about progress."""
    assert process.stderr is not None
    rest = ""
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            done.lines = [*done.lines[-MOST_LINES:], line]
            if not line.startswith(NOTE):
                await tell(line)


def _environment(bounds: Bounds, scratch: str) -> dict[str, str]:
    folders = os.pathsep.join(map(str, bounds.folders))
    return os.environ | {FOLDERS: folders, MOST_REQUESTS: str(bounds.most_requests), PERIOD: "1", "TMPDIR": scratch,
                         "NO_COLOR": "1", "COLUMNS": "200"}


def _error(lines: Sequence[str]) -> str:
    """Return the error of a command: its last line, or the last lines if that is no error of ours."""
    said = [text for line in lines if not line.startswith(NOTE) and (text := line.strip(BOX))]
    return said[-1] if said and ERROR.match(said[-1]) else "\n".join(said[-ERROR_LINES:])
