"""A distribution as a few points of its quantile function: fitted, stored and drawn from."""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError

Floats = NDArray[np.float64]

TOLERANCE = 0.02  # of a value between two points, relative
MOST_POINTS = 64
NUM_LOOKED_AT = 4000  # order statistics that the points are chosen from


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileCurve:
    """Points of a quantile function, linear between them; a flat piece is a value that many share, such as a cap.

    Parameters
    ----------
    at : probabilities from 0 to 1, not falling [1].
    values : the quantiles there, not falling.
    """

    at: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.at) != len(self.values) or not self.at:
            raise UsageError(f"{len(self.at)} probabilities for {len(self.values)} values; must be as many, 1 or more")
        for name, points in (("at", self.at), ("values", self.values)):
            if not all(isinstance(point, int | float) for point in points) or not np.isfinite(points).all():
                raise UsageError(f"{name} must hold finite numbers")
            if (np.diff(points) < 0).any():
                raise UsageError(f"{name} must not fall")
        if self.at[0] < 0 or self.at[-1] > 1:
            raise UsageError(f"at goes from {self.at[0]} to {self.at[-1]}; must be within 0 and 1")

    def __call__(self, probabilities: Floats) -> Floats:
        """Return the quantiles at some probabilities."""
        return np.interp(probabilities, self.at, self.values)

    def scaled(self, factor: float) -> "QuantileCurve":
        """Return the distribution of `factor` times the variable."""
        return QuantileCurve(at=self.at, values=tuple(factor * value for value in self.values))


def fit_quantiles(values: Any, *, floor: float) -> QuantileCurve:
    """Describe values by as few points as keep every quantile within TOLERANCE, or by MOST_POINTS.

    The point that is worst described is added again and again, as Douglas and Peucker simplify a line.

    Parameters
    ----------
    values : at least one; their order does not matter.
    floor : added to a value's size before its error is taken relative to it, in the values' unit.

    >>> fit_quantiles([7, 7, 7, 7], floor=1.0)
    QuantileCurve(at=(0.0, 1.0), values=(7.0, 7.0))
    """
    ordered = np.sort(np.asarray(values, np.float64))
    rows = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), NUM_LOOKED_AT)).round().astype(np.int64))
    points, at = ordered[rows], rows / max(len(ordered) - 1, 1)
    kept = {0, len(rows) - 1}
    pieces = [_worst(points, at, 0, len(rows) - 1, floor)]
    while len(kept) < MOST_POINTS and -pieces[0][0] > TOLERANCE:
        _, row, first, last = heapq.heappop(pieces)
        kept.add(row)
        for piece in ((first, row), (row, last)):
            heapq.heappush(pieces, _worst(points, at, *piece, floor))
    chosen = sorted(kept)
    probabilities = tuple(float(f"{at[row]:.6g}") for row in chosen)
    knots = tuple(float(f"{points[row]:.6g}") for row in chosen)
    if len(chosen) == 1:
        return QuantileCurve(at=(0.0, 1.0), values=2 * knots)
    return QuantileCurve(at=probabilities, values=knots)


def _worst(points: Floats, at: Floats, first: int, last: int, floor: float) -> tuple[float, int, int, int]:
    """Return minus the largest relative error of a straight piece, the row with that error, and the piece."""
    if last - first < 2:
        return 0.0, first, first, last
    inner = slice(first + 1, last)
    line = np.interp(at[inner], at[[first, last]], points[[first, last]])
    errors = np.abs(points[inner] - line) / (np.abs(points[inner]) + floor)
    worst = int(errors.argmax())
    return -float(errors[worst]), first + 1 + worst, first, last


def spread_evenly(latent: Floats, rng: np.random.Generator) -> Floats:
    """Turn draws into probabilities that fill [0, 1) evenly, in the draws' order: a draw then follows its law exactly.

    Independent draws of a heavy tail miss its mean by a few per cent, and a load with it.
    """
    ranks = np.empty(len(latent))
    ranks[np.argsort(latent, kind="stable")] = np.arange(len(latent))
    return np.asarray((ranks + rng.random(len(latent))) / max(len(latent), 1))
