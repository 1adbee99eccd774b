"""A series of request rates over time: the growth and fall of a trace's traffic, window by window."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.traces.shaping.exported_rates import exported_rates

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSeries:
    """Windows that follow each other, and the mean rate of each.

    Parameters
    ----------
    source : file or option with the series.
    start_s, duration_s, rate_rps : of each window, shape [num_windows] [s, s, 1/s]; the last is as long as the one
        before it if the series has no end.
    notes : how the file was read, a sentence each.
    """

    source: str
    start_s: Floats
    duration_s: Floats
    rate_rps: Floats
    notes: tuple[str, ...] = ()

    @property
    def peak_rps(self) -> float:
        """The highest rate of a window [1/s]."""
        return float(self.rate_rps.max())

    @property
    def mean_rps(self) -> float:
        """The mean rate over time [1/s]."""
        return float((self.rate_rps * self.duration_s).sum() / self.duration_s.sum())


def read_rate_series(path: Path) -> RateSeries:
    """Read a series as `exported_rates` does; a last row without a rate is the end of the series.

    Raises
    ------
    TraceError : the file cannot be read, lacks a column, or a row in it is wrong.
    """
    rates = exported_rates(path)
    table, names = rates.table, rates.names
    if table.height < 2:
        raise TraceError(f"{path}: has {table.height} row{'s' * (table.height != 1)}: must have two or more; a last "
                         f"row with {names[0]} and without {names[1]} ends the series")
    has_end = table["rate"][-1] is None
    start_s = table["start"].to_numpy()
    rate_rps = _checked(path, table.head(table.height - has_end)["rate"], names[1])
    if not (np.diff(start_s) > 0).all():
        row = int(np.flatnonzero(np.diff(start_s) <= 0)[0]) + 1
        raise TraceError(f"{path}: row {row + 2}: {names[0]} = {start_s[row]:g} after {start_s[row - 1]:g}: must "
                         f"increase from row to row; sort the rows, and leave out repeated ones")
    if not (rate_rps > 0).any():
        raise TraceError(f"{path}: {names[1]} is 0 in every row")
    gaps = np.diff(start_s)
    if has_end:
        return RateSeries(source=str(path), start_s=start_s[:-1], rate_rps=rate_rps, duration_s=gaps,
                          notes=rates.notes)
    return RateSeries(source=str(path), start_s=start_s, rate_rps=rate_rps, duration_s=np.append(gaps, gaps[-1]),
                      notes=rates.notes)


def _checked(path: Path, values: pl.Series, name: str) -> Floats:
    """Return rates that are finite and not below 0."""
    rates = values.to_numpy()
    wrong = np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise TraceError(f"{path}: row {row + 2}: {name} = {values[row]!r}: must be a number, 0 or more")
    return np.asarray(rates, np.float64)
