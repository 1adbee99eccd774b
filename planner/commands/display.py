"""How a command shows progress: bars on a terminal, a line every ten seconds in a log, nothing with --quiet."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from planner.progress import Stage, shown_by

DELAY_S = 2.0  # before a terminal shows anything; most work is done by then
REFRESH_S = 0.2  # of a terminal
PERIOD_S = 10.0  # from line to line of a log
PERIOD = "PLANNER_PROGRESS_S"  # environment variable: another period


@contextmanager
def progress_shown(*, quiet: bool, stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress of the block on a stream, by default stderr; with `quiet` show nothing."""
    if quiet:
        yield
        return
    stream = sys.stderr if stream is None else stream
    period_s = float(os.environ.get(PERIOD) or PERIOD_S)
    watch = (DisplayThread(Bars(stream), DELAY_S, REFRESH_S) if stream.isatty() else
             DisplayThread(Lines(stream), period_s, period_s))
    try:
        with shown_by(watch):
            yield
    finally:
        watch.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningStage:
    """A stage and when it began, on the clock of `time.monotonic` [s]."""

    stage: Stage
    begun_at_s: float

    @property
    def done(self) -> float:
        """Units of work that are through."""
        done = self.stage.done
        return done() if callable(done) else done

    @property
    def times(self) -> str:
        """Time so far, and about how long the rest takes at the pace until the last unit was counted, in words.

        The time left falls from unit to unit; a unit that takes longer than those before leaves it out.
        """
        now_s, done, total, moved_at_s = time.monotonic(), self.done, self.stage.total, self.stage.moved_at_s
        counted_at_s = now_s if moved_at_s is None or callable(self.stage.done) else moved_at_s
        left = ""
        if total and 0 < done <= total:
            left_s = counted_at_s - now_s + (counted_at_s - self.begun_at_s) * (total / done - 1)
            left = f", about {left_s:.0f} s left" if left_s >= 0 else ""
        elapsed_s = now_s - self.begun_at_s
        return f"{elapsed_s:.0f} s so far{left}"


def _begun(stage: Stage) -> RunningStage:
    return RunningStage(stage=stage, begun_at_s=time.monotonic())


class Painter(Protocol):
    """Puts stages on a screen or into a log."""

    def paint(self, stages: Sequence[RunningStage]) -> None:
        """Show how far each is."""

    def clear(self) -> None:
        """Leave the screen as it was."""


class DisplayThread:
    """A display that paints every so often while a stage is under way, from a thread of its own.

    Parameters
    ----------
    delay_s, period_s : until the first painting, and from one to the next [s].
    """

    def __init__(self, painter: Painter, delay_s: float, period_s: float) -> None:
        self._painter, self._delay_s, self._period_s = painter, delay_s, period_s
        self._stages: list[RunningStage] = []
        self._others: dict[str, RunningStage] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, stage: Stage) -> None:
        """Watch a stage; the first starts the clock."""
        self._stages.append(_begun(stage))
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._paint, daemon=True)
            self._thread.start()

    def end(self, stage: Stage) -> None:
        """Watch a stage no more; with the last one all is cleared, so that a result stands alone."""
        self._stages = [shown for shown in self._stages if shown.stage is not stage]
        if not self._stages and self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Watch nothing more, and end the stages that an error has left open."""
        for shown in list(self._stages):
            self.end(shown.stage)

    def _paint(self) -> None:
        wait_s = self._delay_s
        while not self._over.wait(wait_s):
            self._painter.paint([*self._stages, *self._elsewhere()])
            wait_s = self._period_s
        self._painter.clear()

    def _elsewhere(self) -> list[RunningStage]:
        """Return a stage for each function that a process of ours, or of another command, compiles now."""
        jit = sys.modules.get("planner.loop.compiled.jit")  # if it is not loaded, no process of ours compiles
        names = [] if jit is None or self._compiles() else jit.compiled_elsewhere()
        self._others = {name: self._others.get(name) or _begun(Stage(what=f"compiling the {name} in another process",
                                                                     total=None)) for name in names}
        return list(self._others.values())

    def _compiles(self) -> bool:
        return any(shown.stage.what.startswith("compiling") for shown in self._stages)


class Bars:
    """Progress bars, one a stage, that leave the terminal with the last of them."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[times]}"),
            console=Console(file=stream), auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=False)
        self._tasks: dict[RunningStage, TaskID] = {}

    def paint(self, stages: Sequence[RunningStage]) -> None:
        """Draw a bar for each stage."""
        for gone in [shown for shown in self._tasks if shown not in stages]:
            self._progress.remove_task(self._tasks.pop(gone))
        for shown in stages:
            if shown not in self._tasks:
                self._tasks[shown] = self._progress.add_task(shown.stage.what, total=shown.stage.total, times="")
            self._progress.update(self._tasks[shown], total=shown.stage.total, completed=shown.done, times=shown.times)
        self._progress.start()
        self._progress.refresh()

    def clear(self) -> None:
        """Remove the bars."""
        for shown in list(self._tasks):
            self._progress.remove_task(self._tasks.pop(shown))
        self._progress.stop()


class Lines:
    """A line of a log that has all stages, the outermost first."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def paint(self, stages: Sequence[RunningStage]) -> None:
        """Write the line."""
        print("; ".join(f"{shown.stage.what}: {_counted(shown)}{shown.times}" for shown in stages), file=self._stream,
              flush=True)

    def clear(self) -> None:
        """Leave the written lines."""


def _counted(shown: RunningStage) -> str:
    done, total = shown.done, shown.stage.total
    return f"{done:,.0f} of {total:,.0f}, " if total else f"{done:,.0f}, " if done else ""
