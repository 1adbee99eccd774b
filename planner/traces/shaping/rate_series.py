"""A series of request rates over time: what a trace's traffic grows and shrinks to, window by window."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.files.table_file import read_table_file

Floats = NDArray[np.float64]

STARTS = ("start_s", "window_start_s", "time_s", "timestamp")
RATES = ("rate_rps", "rate", "request_rate", "total_rate_req_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSeries:
    """Windows that follow each other, and the mean rate of each.

    Parameters
    ----------
    source : where it is from.
    start_s, duration_s, rate_rps : of each window, shape [num_windows] [s, s, 1/s]; the last is as long as the one
        before it if the series has no end.
    """

    source: str
    start_s: Floats
    duration_s: Floats
    rate_rps: Floats

    @property
    def peak_rps(self) -> float:
        """The highest rate of a window [1/s]."""
        return float(self.rate_rps.max())

    @property
    def mean_rps(self) -> float:
        """The mean rate over time [1/s]."""
        return float((self.rate_rps * self.duration_s).sum() / self.duration_s.sum())


def read_rate_series(path: Path) -> RateSeries:
    """Read a CSV (plain, .gz or .zst) or Parquet with the start of each window in seconds and its rate per second.

    Columns that are read: one of `STARTS` and one of `RATES`. A last row without a rate is the end of the series.

    Raises
    ------
    TraceError : the file cannot be read, lacks a column, or a row in it is wrong.
    """
    table = read_table_file(path, what="rate series")
    names = [next((name for name in known if name in table.columns), None) for known in (STARTS, RATES)]
    for name, known in zip(names, (STARTS, RATES), strict=True):
        if name is None:
            raise TraceError(f"{path}: has columns {', '.join(table.columns)}; a rate series needs one of "
                             f"{', '.join(known)}")
    if table.height < 2:
        raise TraceError(f"{path}: has {table.height} row{'s' * (table.height != 1)}: must have two or more; a last "
                         f"row with {names[0]} and without {names[1]} ends the series")
    has_end = table[str(names[1])][-1] in (None, "")
    start_s = _numbers(path, table, str(names[0]))
    rate_rps = _numbers(path, table.head(table.height - has_end), str(names[1]))
    if not (np.diff(start_s) > 0).all():
        row = int(np.flatnonzero(np.diff(start_s) <= 0)[0]) + 1
        raise TraceError(f"{path}: row {row + 2}: {names[0]} = {start_s[row]:g} after {start_s[row - 1]:g}: must "
                         f"increase from row to row; sort the rows, and leave out repeated ones")
    if not (rate_rps > 0).any():
        raise TraceError(f"{path}: {names[1]} is 0 in every row")
    gaps = np.diff(start_s)
    if has_end:
        return RateSeries(source=str(path), start_s=start_s[:-1], rate_rps=rate_rps, duration_s=gaps)
    return RateSeries(source=str(path), start_s=start_s, rate_rps=rate_rps, duration_s=np.append(gaps, gaps[-1]))


def _numbers(path: Path, table: pl.DataFrame, name: str) -> Floats:
    """Return a column's numbers, which are finite and not below 0."""
    values = table[name].cast(pl.Float64, strict=False).to_numpy()
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise TraceError(f"{path}: row {row + 2}: {name} = {table[name][row]!r}: must be a number, 0 or more")
    return np.asarray(values, np.float64)
