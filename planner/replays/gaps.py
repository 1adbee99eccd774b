"""The gaps between tokens, over all requests: exact up to some ten million steps, then in bins of 0.002 %."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import compile_with_signature, numba
from planner.loop.rows import GAP_ROW

EXACT_STEPS = 1 << 23  # steps whose gaps are kept one by one
MOST_WAITING = 1 << 18  # rows of a tally that stay as they came [1]
MANTISSA_BITS = 16  # of a bin's key: neighbours differ by 2⁻¹⁶ at most
_MANTISSA = 52  # bits of a float's; above it are exponent and sign
_MAGNITUDES = 1 << 64 - _MANTISSA  # signs and exponents
_KEPT_FROM = _MANTISSA - MANTISSA_BITS
_BINS = 1 << MANTISSA_BITS  # of one sign and exponent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Gaps between consecutive tokens of a request, pooled over all requests.

    Parameters
    ----------
    values_s : distinct or repeated gaps, in no order, shape [n]; the mean of a bin if `is_exact` is False.
    counts : how many tokens came after each, shape [n].
    is_exact : whether every gap was kept as it was.
    """

    values_s: NDArray[np.float64]
    counts: NDArray[np.int64]
    is_exact: bool


class GapTally:
    """Collects gaps in bounded memory. Few rows stay as they came until they are read: most searches never read them.

    Parameters
    ----------
    exact_steps : steps whose gaps are kept one by one; later, equal gaps are counted.
    is_kept : False for a replay that is asked for a verdict alone: its gaps cannot be read.
    """

    def __init__(self, exact_steps: int = EXACT_STEPS, *, is_kept: bool = True) -> None:
        self._exact_steps, self._is_kept = exact_steps, is_kept
        self._parts: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
        self._size = 0
        self._is_exact = True
        self._waiting: list[NDArray[np.void] | Gaps | GapTally] = []
        self._num_waiting = 0

    def add(self, rows: NDArray[np.void]) -> None:
        """Add rows of `loop.rows.GAP_ROW`, each a run of gaps that grow evenly; they are copied."""
        if self._is_kept and len(rows):
            self._waiting.append(rows.copy())
            self._num_waiting += len(rows)
            if self._num_waiting > MOST_WAITING:
                self._expand()

    def add_gaps(self, gaps: "Gaps | GapTally") -> None:
        """Add gaps that were collected before, as the gaps of a replica."""
        self._waiting.append(gaps)

    def _expand(self) -> None:
        """Take in the waiting gaps, in the order in which they came."""
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        for part in waiting:
            if isinstance(part, np.ndarray):
                self._put(*_compiled()[0](part))
                continue
            gaps = part.gaps() if isinstance(part, GapTally) else part
            self._is_exact &= gaps.is_exact
            self._put(gaps.values_s, gaps.counts)

    def _put(self, values_s: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        self._parts.append((values_s, counts))
        self._size += len(values_s)
        if self._size > self._exact_steps:
            self._merge()

    def gaps(self) -> Gaps:
        """Return the collected gaps."""
        assert self._is_kept, "a verdict alone was asked for"
        self._expand()
        if not self._parts:
            return Gaps(values_s=np.empty(0), counts=np.empty(0, np.int64), is_exact=True)
        values, counts = zip(*self._parts, strict=True)
        return Gaps(values_s=np.concatenate(values), counts=np.concatenate(counts), is_exact=self._is_exact)

    def _merge(self) -> None:
        """Replace gaps that agree in sign, exponent and the first bits of the mantissa by their mean."""
        _, see, add = _compiled()
        first = np.full(_MAGNITUDES, -1)
        for values, _ in self._parts:
            see(values.view(np.int64), first)
        seen = np.flatnonzero(first == 0)
        first[seen] = np.arange(len(seen)) * _BINS
        sums, totals = np.zeros(len(seen) * _BINS), np.zeros(len(seen) * _BINS, np.int64)
        for values, counts in self._parts:
            add(values, values.view(np.int64), counts, first, sums, totals)
        filled = np.flatnonzero(totals)
        self._parts = [(sums[filled] / totals[filled], totals[filled])]
        self._size = len(filled)
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
        gap_s, growth_s, count = row.gap_s, row.growth_s, row.count
        for step in range(row.steps):
            values[place] = gap_s + growth_s * step
            counts[place] = count
            place += 1
    return values, counts


def _see(bits: Any, first: Any) -> None:
    """Mark the signs and exponents of values, given as their bits, by 0."""
    for k in range(len(bits)):
        first[(bits[k] >> _MANTISSA) + _MAGNITUDES // 2] = 0


def _add(values: Any, bits: Any, counts: Any, first: Any, sums: Any, totals: Any) -> None:
    """Add values to their bins; the first bin of each sign and exponent is in `first`."""
    for k in range(len(values)):
        place = first[(bits[k] >> _MANTISSA) + _MAGNITUDES // 2] + ((bits[k] >> _KEPT_FROM) & (_BINS - 1))
        sums[place] += values[k] * counts[k]
        totals[place] += counts[k]


@functools.cache
def _compiled() -> tuple[Any, Any, Any]:
    """Return `_expand`, `_see` and `_add`, compiled once and kept between processes."""
    floats, ints, nothing = numba.float64[::1], numba.int64[::1], numba.void
    pair = numba.types.Tuple((floats, ints))
    return (compile_with_signature(_expand, pair(numba.from_dtype(GAP_ROW)[::1])),
            compile_with_signature(_see, nothing(ints, ints)),
            compile_with_signature(_add, nothing(floats, ints, ints, ints, floats, ints)))
