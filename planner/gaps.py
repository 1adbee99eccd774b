"""The gaps between tokens, over all requests: exact up to some ten million steps, then in bins of 0.002 %."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """Collects gaps in bounded memory."""

    def __init__(self) -> None:
        self._values: list[NDArray[np.float64]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._size = 0
        self._is_exact = True

    def add(self, rows: NDArray[np.void]) -> None:
        """Add rows of `engine.rows.GAP_ROW`, each a run of gaps that grow evenly."""
        steps = rows["steps"]
        first = np.repeat(np.cumsum(steps) - steps, steps)
        within = np.arange(len(first)) - first
        self._values.append(np.repeat(rows["gap_s"], steps) + np.repeat(rows["growth_s"], steps) * within)
        self._counts.append(np.repeat(rows["count"], steps))
        self._size += len(first)
        if self._size > EXACT_STEPS:
            self._merge()

    def gaps(self) -> Gaps:
        """Return what was collected."""
        values, counts = self._joined()
        return Gaps(values_s=values, counts=counts, is_exact=self._is_exact)

    def _joined(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if not self._values:
            return np.empty(0), np.empty(0, np.int64)
        return np.concatenate(self._values), np.concatenate(self._counts)

    def _merge(self) -> None:
        """Replace gaps that agree in sign, exponent and the first bits of the mantissa by their mean."""
        values, counts = self._joined()
        keys = values.view(np.int64) >> (52 - MANTISSA_BITS)
        _, bins = np.unique(keys, return_inverse=True)
        totals = np.bincount(bins, weights=counts)
        means = np.bincount(bins, weights=values * counts) / totals
        self._values, self._counts = [means], [totals.astype(np.int64)]
        self._size = len(means)
        self._is_exact = False
