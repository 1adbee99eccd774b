"""Tables over counts: values at the integers to 16 and eight to an octave above, linear between."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import jit

EXACT = 16  # counts up to here have a node each
PER_OCTAVE = 8
OCTAVES = 18  # the last node is at 16 · 2^18 tokens; beyond it the last line goes on
NUM_NODES = EXACT + 1 + PER_OCTAVE * OCTAVES


def node_counts() -> NDArray[np.int64]:
    """Return the count of each node, shape [NUM_NODES].

    >>> node_counts()[[0, 1, 16, 17, 24, 25]].tolist()
    [0, 1, 16, 18, 32, 36]
    """
    octave = np.arange(OCTAVES)[:, None]
    beyond = (PER_OCTAVE + 1 + np.arange(PER_OCTAVE)) << (octave + 1)
    return np.concatenate((np.arange(EXACT + 1), beyond.reshape(-1))).astype(np.int64)


@jit
def table_index(count: int) -> tuple[int, float]:
    """Return the node at or before a count, and the fraction of the interval up to the count [1].

    >>> table_index.py_func(17)  # compiled, it has no wrapper for callers from Python
    (16, 0.5)
    """
    if count < EXACT:
        return count, 0.0
    shift = 1
    while count >= EXACT << shift:
        shift += 1
    shift = min(shift, OCTAVES)
    eighth = min((count >> shift) - PER_OCTAVE, PER_OCTAVE - 1)
    k = EXACT + (shift - 1) * PER_OCTAVE + eighth
    start = (PER_OCTAVE + eighth) << shift
    return k, (count - start) / (1 << shift)


@jit
def between(low: float, high: float, fraction: float) -> float:
    """Return the value on the line from one node to the next."""
    return float(low + fraction * (high - low))


@jit
def tokens_s(curve: Any, count: int) -> float:
    """Return the time of the operators that depend on all tokens of a step [s]."""
    k, fraction = table_index(count)
    return between(curve[k].tokens_s, curve[k + 1].tokens_s, fraction)


@jit
def shared_s(curve: Any, count: int) -> float:
    """Return the part of `tokens_s` that ranks of data-parallel attention do for each other [s]."""
    k, fraction = table_index(count)
    return between(curve[k].shared_s, curve[k + 1].shared_s, fraction)


@jit
def tokens_bytes(curve: Any, count: int) -> float:
    """Return the HBM traffic of the same [bytes]."""
    k, fraction = table_index(count)
    return between(curve[k].tokens_bytes, curve[k + 1].tokens_bytes, fraction)
