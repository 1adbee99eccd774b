"""Steps in time bins: totals, time-weighted means and peaks, so that a figure stays small however long the replay."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.replays.scaling_record import counts_over_time
from planner.results.saved import SavedResult

MOST_BINS = 400
MOST_BINS_OF_ALL = 2000  # of all results in a figure together
FEWEST_BINS = 40

Values = NDArray[np.float64]
Span = tuple[float, float]  # of times since the first arrival [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBins:
    """Bins of equal width, the same for all results of a figure; times are since the first arrival.

    Parameters
    ----------
    width_s : of one bin [s]; 0 if there are none.
    count : number of bins.
    start_s : of the first bin [s].
    """

    width_s: float
    count: int
    start_s: float = 0.0

    @property
    def end_s(self) -> float:
        """End of the last bin [s]."""
        return self.start_s + self.count * self.width_s

    @property
    def middle_s(self) -> Values:
        """Middles of the bins, shape [count] [s]."""
        return np.asarray(self.start_s + (np.arange(self.count) + 0.5) * self.width_s, np.float64)

    def __str__(self) -> str:
        return f"{self.count} bins of {self.width_s:.3g}\N{NO-BREAK SPACE}s"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinnedSteps:
    """The steps of one result, cut at the bins' edges; each method returns one number a bin, NaN after the last step.

    Parameters
    ----------
    steps : the result's steps within the bins.
    bins : the steps are cut at their edges.
    row, place : step and bin of each piece, shape [num_pieces].
    piece_s : how long it is [s].
    share : its part of the step, in 0..1.
    covered_s : time of each bin up to the end of the replay, shape [bins.count] [s]; NaN after it.
    replica : of each piece.
    num_replicas : that the result has.
    paid_replicas : in the mean of each bin if replicas came and went, else `num_replicas`.
    """

    steps: pl.DataFrame
    bins: TimeBins
    row: NDArray[np.int64]
    place: NDArray[np.int64]
    piece_s: Values
    share: Values
    covered_s: Values
    replica: NDArray[np.int64]
    num_replicas: int
    paid_replicas: Values | int

    def rate(self, column: str) -> Values:
        """Return the column's sum per second, each step's value spread evenly over the step."""
        return self._sum(self._values(column) * self.share) / self.covered_s

    def mean(self, column: str) -> Values:
        """Return the mean over time of one replica, 0 while no step runs; steps that overlap share their time."""
        cell = self.replica * self.bins.count + self.place
        busy_s = np.bincount(cell, self.piece_s, self.num_replicas * self.bins.count)
        weight = self.piece_s / np.maximum(busy_s[cell], np.nan_to_num(self.covered_s)[self.place])
        return self._after(self._sum(self._values(column) * weight) / self.paid_replicas)

    def mean_of_steps(self, column: str) -> Values:
        """Return the mean over the steps of a bin; NaN if none ran."""
        steps = self._sum(self.share)
        return self._sum(self._values(column) * self.share) / np.where(steps > 0, steps, math.nan)

    def peak(self, column: str, *, idle: float = 0.0) -> Values:
        """Return the largest value of any step that ran in a bin, `idle` if none ran."""
        peaks = np.full(self.bins.count, -math.inf)
        np.maximum.at(peaks, self.place, self._values(column))
        return self._after(np.where(np.isinf(peaks), idle, peaks))

    def _values(self, column: str) -> Values:
        return np.nan_to_num(numbers(self.steps, column))[self.row]

    def _sum(self, values: Values) -> Values:
        return np.asarray(np.bincount(self.place, values, self.bins.count), np.float64)

    def _after(self, values: Values) -> Values:
        return np.where(np.isnan(self.covered_s), math.nan, values)


def numbers(table: pl.DataFrame, column: str) -> Values:
    """Return a column as numbers, NaN for null."""
    return table[column].cast(pl.Float64).fill_null(math.nan).to_numpy()


def time_bins(results: Sequence[SavedResult], span: Span | None = None) -> TimeBins:
    """Return bins over the longest result: at most `MOST_BINS`, fewer with many results, and not more than steps.

    Parameters
    ----------
    span : the time that they cover, as far as the longest result lasts; None for all of it.
    """
    length_s = max((_length_s(result) for result in results), default=0.0)
    start_s, end_s = (0.0, length_s) if span is None else (max(span[0], 0.0), min(span[1], length_s))
    most_steps = max((_num_steps(result, span) for result in results), default=0)
    if most_steps == 0 or end_s <= start_s:
        return TimeBins(width_s=0.0, count=0)
    count = min(MOST_BINS, max(FEWEST_BINS, MOST_BINS_OF_ALL // len(results)), most_steps)
    return TimeBins(width_s=(end_s - start_s) / count, count=count, start_s=start_s)


def within(result: SavedResult, span: Span | None) -> SavedResult:
    """Return a result with the requests that arrive within a time; all of them for None."""
    if span is None:
        return result
    sent_s = pl.col("arrival_s") - origin_s(result)
    return replace(result, requests=result.requests.filter(sent_s.is_between(*span)))


def _num_steps(result: SavedResult, span: Span | None) -> int:
    """Return how many steps begin within a time."""
    if span is None:
        return result.steps.height
    return int(((result.steps["start_s"] - origin_s(result)).is_between(*span)).sum())


def bin_steps(result: SavedResult, bins: TimeBins) -> BinnedSteps:
    """Cut the steps of a result at the edges of the bins.

    Parameters
    ----------
    result : its steps may overlap, as in a pipeline or on several replicas.
    bins : at least one.
    """
    steps = result.steps.drop_nulls(["start_s", "duration_s"])
    duration_s = numbers(steps, "duration_s")
    start_s = numbers(steps, "start_s") - origin_s(result) - bins.start_s
    is_within = ((start_s + duration_s > 0) | (start_s >= 0)) & (start_s <= bins.count * bins.width_s)
    steps, start_s, duration_s = steps.filter(is_within), start_s[is_within], duration_s[is_within]
    end_s = start_s + duration_s
    first = np.clip(start_s // bins.width_s, 0, bins.count - 1).astype(np.int64)
    last = np.clip(end_s // bins.width_s, first, bins.count - 1).astype(np.int64)
    pieces = last - first + 1
    row = np.repeat(np.arange(steps.height), pieces)
    place = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    piece_s = np.minimum(end_s[row], (place + 1) * bins.width_s) - np.maximum(start_s[row], place * bins.width_s)
    kept = (piece_s > 0) | (pieces[row] == 1)
    row, place, piece_s = row[kept], place[kept], np.maximum(piece_s[kept], 0.0)
    whole_s = duration_s[row]
    covered_s = np.minimum(_length_s(result) - bins.start_s - np.arange(bins.count) * bins.width_s, bins.width_s)
    replica = _replicas(steps)
    return BinnedSteps(
        steps=steps,
        bins=bins,
        row=row,
        place=place,
        piece_s=piece_s,
        share=np.divide(piece_s, whole_s, out=np.ones_like(piece_s), where=whole_s > 0),
        covered_s=np.where(covered_s > 1e-9 * bins.width_s, covered_s, math.nan),
        replica=replica[row],
        num_replicas=num_replicas(result),
        paid_replicas=_paid_replicas(result, bins),
    )


def num_replicas(result: SavedResult) -> int:
    """Return how many replicas ran steps or served requests; at least 1."""
    return 1 + max(int(_replicas(table).max(initial=0)) for table in (result.steps, result.requests))


def _paid_replicas(result: SavedResult, bins: TimeBins) -> Values | int:
    """Return how many replicas were paid for, in the mean of each bin if they came and went; at least 1."""
    scaling = result.summary.figures.scaling
    if scaling is None or not scaling.autoscale["replicas"]:
        return num_replicas(result)
    times_s, paid, _ = zip(*counts_over_time(scaling.spans), strict=True)
    total_s = np.concatenate([[0.0], np.cumsum(np.diff(times_s) * paid[:-1])])
    edges_s = origin_s(result) + bins.start_s + np.arange(bins.count + 1) * bins.width_s
    spent_s = np.diff(np.interp(edges_s, times_s, total_s))
    covered_s = np.diff(np.clip(edges_s, times_s[0], times_s[-1]))
    return np.asarray(np.maximum(np.divide(spent_s, covered_s, out=np.ones(bins.count), where=covered_s > 0), 1.0))


def _replicas(table: pl.DataFrame) -> NDArray[np.int64]:
    if "replica" not in table.columns:
        return np.zeros(table.height, np.int64)
    return np.nan_to_num(numbers(table, "replica")).astype(np.int64)


def origin_s(result: SavedResult) -> float:
    """Return the first arrival, or the first step if nothing arrived [s]."""
    instants = (numbers(result.requests, "arrival_s"), numbers(result.steps, "start_s"))
    return next((float(np.nanmin(values)) for values in instants if not np.all(np.isnan(values))), 0.0)


def _length_s(result: SavedResult) -> float:
    """Return the time from the first arrival to the end of the last step [s]."""
    end_s = numbers(result.steps, "start_s") + numbers(result.steps, "duration_s")
    return float(np.nanmax(end_s)) - origin_s(result) if not np.all(np.isnan(end_s)) else 0.0
