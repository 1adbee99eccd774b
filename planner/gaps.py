"""The gaps between tokens, over all requests: exact up to some ten million steps, then in bins of 0.002 %."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.engine.jit import compile_with_signature, numba
from planner.engine.rows import GAP_ROW

EXACT_STEPS = 1 << 23  # steps whose gaps are kept one by one
MANTISSA_BITS = 16  # of a bin's key: neighbours differ by 2⁻¹⁶ at most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Gaps between consecutive tokens of a request, pooled over all requests.

    Parameters
    ----------
    values_s : distinct or repeated gaps, in no order, shape [n]; the mean of a bin where `is_exact` is False.
    counts : how many tokens came after each, shape [n].
    is_exact : whether every gap was kept as it was.
    """

    values_s: NDArray[np.float64]
    counts: NDArray[np.int64]
    is_exact: bool


class GapTally:
    """Collects gaps in bounded memory.

    Parameters
    ----------
    exact_steps : steps whose gaps are kept one by one; from then on those that are alike are.
    """

    def __init__(self, exact_steps: int = EXACT_STEPS) -> None:
        self._exact_steps = exact_steps
        self._parts: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
        self._size = 0
        self._is_exact = True

    def add(self, rows: NDArray[np.void]) -> None:
        """Add rows of `engine.rows.GAP_ROW`, each a run of gaps that grow evenly."""
        if not len(rows):
            return
        self._parts.append(_compiled()[0](rows))
        self._size += len(self._parts[-1][0])
        if self._size > self._exact_steps:
            self._merge()

    def gaps(self) -> Gaps:
        """Return what was collected."""
        values, counts = self._joined()
        return Gaps(values_s=values, counts=counts, is_exact=self._is_exact)

    def _joined(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if not self._parts:
            return np.empty(0), np.empty(0, np.int64)
        values, counts = zip(*self._parts, strict=True)
        return np.concatenate(values), np.concatenate(counts)

    def _merge(self) -> None:
        """Replace gaps that agree in sign, exponent and the first bits of the mantissa by their mean."""
        values, counts = self._joined()
        self._parts = [_compiled()[1](values, values.view(np.int64) >> (52 - MANTISSA_BITS), counts)]
        self._size = len(self._parts[0][0])
        self._is_exact = False


def _expand(rows: Any) -> Any:
    """Return the gaps of rows, one by one, and how many tokens came after each."""
    size = 0
    for k in range(len(rows)):
        size += rows[k].steps
    values, counts = np.empty(size), np.empty(size, np.int64)
    place = 0
    for k in range(len(rows)):
        row = rows[k]
        for step in range(row.steps):
            values[place] = row.gap_s + row.growth_s * step
            counts[place] = row.count
            place += 1
    return values, counts


def _mean_of_equal(values: Any, keys: Any, counts: Any) -> Any:
    """Return the mean of the values of each key, in the order of keys, and how many tokens came after these."""
    bins = 1 << MANTISSA_BITS  # of one sign and exponent, for all of which there is room once one is seen
    first = np.full(1 << 12, -1)
    for k in range(len(keys)):
        first[(keys[k] >> MANTISSA_BITS) + (1 << 11)] = 0
    num_bins = 0
    for k in range(len(first)):
        if first[k] == 0:
            first[k] = num_bins
            num_bins += bins
    sums, totals = np.zeros(num_bins), np.zeros(num_bins, np.int64)
    for k in range(len(keys)):
        place = first[(keys[k] >> MANTISSA_BITS) + (1 << 11)] + (keys[k] & (bins - 1))
        sums[place] += values[k] * counts[k]
        totals[place] += counts[k]
    filled = np.flatnonzero(totals)
    return sums[filled] / totals[filled], totals[filled]


@functools.cache
def _compiled() -> tuple[Any, Any]:
    """Return `_expand` and `_mean_of_equal`, compiled once and kept between processes."""
    floats, ints = numba.float64[::1], numba.int64[::1]
    found = numba.types.Tuple((floats, ints))
    return (compile_with_signature(_expand, found(numba.from_dtype(GAP_ROW)[::1])),
            compile_with_signature(_mean_of_equal, found(floats, ints, ints)))
