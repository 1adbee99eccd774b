"""How bursty arrivals are: the gaps' coefficient of variation, and the index of dispersion over windows of time."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WINDOWS_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
FEWEST_WINDOWS = 3  # in the record, below which a variance of counts says nothing
MOST_WINDOWS = 50_000_000
FEW = 20  # instants, below which their distances alone show no step of a clock
CLOCKS_S = (1.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 86400.0)  # steps of logs


def gap_cv(arrival_s: Floats) -> float | None:
    """Return the standard deviation of the gaps over their mean; None without two arrivals apart.

    1 is a Poisson process, 0 a regular one.

    >>> gap_cv(np.array([0.0, 1.0, 2.0, 3.0]))
    0.0
    """
    gaps = np.diff(arrival_s)
    mean = gaps.mean() if len(gaps) else 0.0
    return float(gaps.std() / mean) if mean > 0 else None


def dispersion(arrival_s: Floats, window_s: float) -> float | None:
    """Return the variance of the arrivals in windows of a length over their mean; 1 is a Poisson process.

    Parameters
    ----------
    arrival_s : sorted [s].
    window_s : length of the windows, the first one from the first arrival on [s].

    Returns
    -------
    float or None
        None if the record has less than FEWEST_WINDOWS windows, or more than MOST_WINDOWS.

    >>> dispersion(np.repeat(np.arange(20.0), 3), 1.0)
    0.0
    """
    counts = _counts(arrival_s, window_s)
    return None if counts is None else float(counts.var() / counts.mean())


def _counts(arrival_s: Floats, window_s: float) -> NDArray[np.int64] | None:
    """Count the arrivals in windows; the last window counts as it is, though the record ends in it."""
    num = math.floor((arrival_s[-1] - arrival_s[0]) / window_s) + 1
    if not FEWEST_WINDOWS <= num <= MOST_WINDOWS:
        return None
    return np.bincount(((arrival_s - arrival_s[0]) / window_s).astype(np.int64))


def dispersions(arrival_s: Floats, windows_s: Sequence[float] = WINDOWS_S) -> dict[float, float]:
    """Return the index of dispersion by window [s], for the windows that the record has enough of."""
    by_window = {window_s: dispersion(arrival_s, window_s) for window_s in windows_s}
    return {window_s: value for window_s, value in by_window.items() if value is not None}


def peaks(arrival_s: Floats, windows_s: Sequence[float] = WINDOWS_S) -> dict[float, float]:
    """Return the highest rate in windows over the mean rate, by window [s]."""
    counts = {window_s: _counts(arrival_s, window_s) for window_s in windows_s}
    return {window_s: float(num.max() / num.mean()) for window_s, num in counts.items() if num is not None}


def tick_of(arrival_s: Floats) -> float:
    """Return the step of the clock that arrivals were logged by, if it is coarse against the gaps; else 0 [s].

    Coarse is a clock by which a fifth of the requests or more come at the same instant as the one before, and whose
    instants lie at multiples of a step, to within 2 % of it. Fewer than FEW instants show no step of their own: theirs
    is the longest of CLOCKS_S whose multiples they are, if half of FEW requests or more come with the one before.

    >>> tick_of(np.repeat(np.arange(40) * 3.0, 5)), tick_of(np.repeat([0.0, 120.0, 180.0], 7))
    (3.0, 60.0)
    """
    instants = arrival_s[np.concatenate(([True], np.diff(arrival_s) > 0))]
    if len(instants) < 2 or len(instants) > 0.8 * len(arrival_s):
        return 0.0
    steps = np.diff(instants)
    if len(instants) < FEW:
        is_clear = len(arrival_s) >= FEW and 2 * len(instants) <= len(arrival_s)
        return max((clock_s for clock_s in CLOCKS_S if np.all(np.abs(steps - np.rint(steps / clock_s) * clock_s) < 1e-3)
                    ), default=0.0) if is_clear else 0.0
    step = float(np.median(steps[steps < 1.5 * np.quantile(steps, 0.1)]))
    multiples = np.rint(steps / step)
    if np.mean(np.abs(steps / step - multiples) < 0.02 * np.maximum(multiples, 1)) < 0.95:
        return 0.0
    return float(f"{(instants[-1] - instants[0]) / multiples.sum():.4g}")


def share_together(arrival_s: Floats) -> float:
    """Return the share of the gaps between arrivals that are 0 [1].

    >>> share_together(np.array([0.0, 0.0, 1.0]))
    0.5
    """
    return float(np.mean(np.diff(arrival_s) == 0))


def spread_ticks(arrival_s: Floats, tick_s: float, end_s: float, rng: np.random.Generator) -> Floats:
    """Spread arrivals evenly at random over the clock's step, or up to the next instant.

    Without a step, arrivals at the same instant are spread over the shortest time between instants; the last ones up to
    `end_s` at most.
    """
    instants, place, counts = np.unique(arrival_s, return_inverse=True, return_counts=True)
    if counts.max(initial=1) == 1 or (len(instants) == 1 and not tick_s):
        return arrival_s
    steps = np.diff(instants)
    widest = tick_s or float(steps.min())
    room = np.minimum(np.append(steps, end_s - instants[-1]), widest)
    is_spread = (counts[place] > 1) | (tick_s > 0)
    return np.sort(arrival_s + np.where(is_spread, room[place] * rng.random(len(arrival_s)), 0.0))
