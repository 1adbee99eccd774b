"""A sweep that runs beside the page: a thread of the session, how far it is, and how it is stopped."""

import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import joblib
import polars as pl

from planner.errors import PlannerError, UsageError
from planner.planning.grid import Sweep
from planner.planning.study import Study
from planner.planning.sweeping import Grid
from planner.trace import Trace

PART = 4  # configurations for each process, between two looks at whether to stop


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a sweep is; the thread writes it and the page reads it.

    Parameters
    ----------
    num_done, total : configurations that are replayed, of how many.
    table : results of those that are, once the thread has ended; None where there are none.
    error : why it ended early; None where it did not.
    is_over : whether the thread has ended.
    stop : set to end it.
    """

    total: int
    num_done: int = 0
    table: pl.DataFrame | None = None
    error: str | None = None
    is_over: bool = False
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Running:
    """A sweep under way, with what it is of; when the session forgets it, its thread stops."""

    plan: Sweep
    trace: Trace
    study: Study
    progress: Progress


def start(plan: Sweep, trace: Trace, study: Study) -> Running:
    """Start a sweep in a thread of its own.

    Parameters
    ----------
    study : whose options the sweep varies.
    """
    progress = Progress(total=len(plan.points()))
    running = Running(plan=plan, trace=trace, study=study, progress=progress)
    weakref.finalize(running, progress.stop.set)
    threading.Thread(target=_work, args=(plan, trace, progress), daemon=True).start()
    return running


def _work(plan: Sweep, trace: Trace, progress: Progress) -> None:
    """Replay part after part until all is done or it is stopped, and keep what there is."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            grid = Grid(plan, Path(folder) / "sweep.parquet", jobs=-1, trace=trace)
            size = PART * joblib.effective_n_jobs(-1)
            for first in range(0, progress.total, size):
                if progress.stop.is_set():
                    break
                places = range(first, min(first + size, progress.total))
                grid.replay(places)
                progress.num_done += len(places)
            if progress.num_done:
                progress.table = grid.write()
    except PlannerError as error:
        progress.error = str(error)
    except Exception as error:  # a thread's error is seen nowhere else
        progress.error = f"the sweep broke off: {error!r}"
    finally:
        progress.is_over = True


def finished(running: Running) -> pl.DataFrame:
    """Return the results of a sweep whose thread has ended.

    Raises
    ------
    UsageError : there are none; it says why.
    """
    progress = running.progress
    if progress.table is None:
        raise UsageError(progress.error or "the sweep was stopped before anything was replayed")
    return progress.table
