"""Jobs that pages run in another process: plain functions, with the figures that they return."""

import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import polars as pl

from planner.deployment.shaped_load import shape_load
from planner.errors import UsageError
from planner.planning.grid import Sweep
from planner.planning.sweeping import SweepGrid
from planner.report.figures.trace_figures import workload_figures
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.reading import BadRows
from planner.traces.shaping.description import describe as describe_traffic
from planner.traces.shaping.description_answer import Description
from planner.ui.uploads import as_file

MOST_CSV_ROWS = 200_000
PART = 32  # configurations of a sweep for each process, at most, between two tellings
TELL_S = 0.5  # between two tellings, if configurations are short


def read_upload(name: str, content: bytes, most_rows: int, on_bad_rows: BadRows) -> Trace:
    """Read uploaded bytes as a trace that is called by the upload's name.

    Raises
    ------
    UsageError : it has too many requests.
    PlannerError : it cannot be read.
    """
    with as_file(name, content) as path:
        read = read_trace(str(path), limit=most_rows + 1, on_bad_rows=on_bad_rows)
    notes = tuple(note.replace(str(path), name) for note in read.account.notes)
    trace = replace(read, source=name, account=replace(read.account, source=name, notes=notes))
    if trace.num_requests > most_rows:
        raise UsageError(f"{name}: has more than {most_rows:,} requests; use the command line for it")
    return trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTraffic:
    """A trace as it is replayed, for a page to show."""

    num_requests: int
    description: Description
    figures: dict[str, Any]
    head: pl.DataFrame


def traffic(trace: Trace, scenario: Scenario) -> ShownTraffic:
    """Describe a trace as it is replayed, and draw it."""
    shaped = shape_load(scenario, trace)
    description = describe_traffic(shaped)
    return ShownTraffic(num_requests=shaped.num_requests, description=description,
                        figures=workload_figures(shaped, description), head=shaped.requests.head(200))


def sweep(plan: Sweep, trace: Trace, part: int) -> Generator[tuple[int, int, pl.DataFrame | None], None, pl.DataFrame]:
    """Replay a grid part after part, and tell after each how far it is.

    Parameters
    ----------
    part : the most configurations for each process, between two tellings; at first there is one.

    Yields
    ------
    tuple
        Configurations that are done, of how many, and the table so far; None while none could be replayed.

    Returns
    -------
    polars.DataFrame
        As `sweeping.sweep`.
    """
    with tempfile.TemporaryDirectory() as folder:
        grid = SweepGrid(plan, Path(folder) / "sweep.parquet", jobs=-1, trace=trace)
        total, jobs = len(grid.points), joblib.effective_n_jobs(-1)
        done, size = 0, jobs
        while done < total:
            began_s, end = time.monotonic(), min(done + size, total)
            grid.replay(range(done, end))
            yield end, total, _so_far(grid)
            done, is_short = end, time.monotonic() - began_s < TELL_S / 2
            size = min(size * 2, part * jobs) if is_short else size
        return grid.write()


def _so_far(grid: SweepGrid) -> pl.DataFrame | None:
    try:
        return grid.write()
    except UsageError:  # none of these can be replayed; later ones may
        return None
