"""The changes of a rate or a mix: the division into stretches that penalised likelihood prefers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CELLS = 20_000  # of a rate; more arrivals are taken several together
MOST_MIX_CELLS = 400


def rate_windows(arrival_s: Floats, duration_s: float) -> Ints:
    """Return the arrivals at which the rate changes, the first and the end included.

    The windows form the piecewise steady Poisson process with the smallest Bayesian information criterion;
    each costs its two numbers (Scargle et al. 2013, Astrophysical Journal 764, with that penalty). Candidates that can
    never come back are dropped (Killick et al. 2012, JASA 107), so that steady stretches stay cheap.

    Parameters
    ----------
    arrival_s : sorted, apart from each other, from 0 on [s].
    duration_s : at least the last arrival [s].
    """
    n = len(arrival_s)
    cells = np.unique(np.linspace(0, n, min(n, MOST_CELLS) + 1).astype(np.int64))
    edges_s = edges_of(arrival_s, duration_s)[cells]

    def fit_of(first: Ints, last: int) -> Floats:
        counts, widths = (cells[last] - cells[first]).astype(float), edges_s[last] - edges_s[first]
        return np.asarray(counts * np.log(counts / np.maximum(widths, 1e-12)))

    return cells[_divide(len(cells) - 1, fit_of, np.log(n))]


def edges_of(arrival_s: Floats, duration_s: float) -> Floats:
    """Return the edges between arrivals, with 0 and the end: each arrival's own stretch of time [n + 1]."""
    return np.concatenate(([0.0], (arrival_s[1:] + arrival_s[:-1]) / 2, [duration_s]))


def mix_windows(classes: Ints) -> Ints:
    """Return the requests at which the mix changes, the first and the end included.

    Every request has one class in each of several ways of sorting them (by prompt length, by output length, by
    kind); a stretch is described by the shares of all classes, and costs one number for each.

    Parameters
    ----------
    classes : in order of arrival, shape [num_requests, num_ways], counted from 0 in each way.
    """
    n, ways = classes.shape
    cells = np.unique(np.linspace(0, n, min(max(n // 32, 1), MOST_MIX_CELLS) + 1).astype(np.int64))
    place = np.searchsorted(cells, np.arange(n), side="right") - 1
    sizes = classes.max(axis=0, initial=0) + 1
    counts = np.zeros((len(cells) - 1, int(sizes.sum())))
    for way, shift in enumerate(np.cumsum(sizes) - sizes):
        np.add.at(counts, (place, classes[:, way] + shift), 1.0)
    summed = np.concatenate((np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)))

    def fit_of(first: Ints, last: int) -> Floats:
        counted = summed[last] - summed[first]
        total = (cells[last] - cells[first]).astype(float)
        return np.asarray((counted * np.log(np.maximum(counted, 1.0))).sum(axis=1) - ways * total * np.log(total))

    return cells[_divide(len(cells) - 1, fit_of, 0.5 * (int(sizes.sum()) - ways + 1) * np.log(n))]


def _divide(num_cells: int, fit_of: Callable[[Ints, int], Floats], penalty: float) -> Ints:
    """Return the edges of the division of cells with the highest likelihood less penalties, by dynamic programming."""
    best, before = np.zeros(num_cells + 1), np.zeros(num_cells + 1, np.int64)
    starts = np.empty(0, np.int64)
    for last in range(1, num_cells + 1):
        starts = np.append(starts, last - 1)
        values = best[starts] + fit_of(starts, last)
        chosen = int(values.argmax())
        best[last], before[last] = values[chosen] - penalty, starts[chosen]
        starts = starts[values >= best[last]]
    edges = [num_cells]
    while edges[-1]:
        edges.append(int(before[edges[-1]]))
    return np.array(edges[::-1])
