"""The tally of gaps: each as it was up to a limit, then the mean of those that are alike."""

import numpy as np
import pytest
from numpy.typing import NDArray

from planner.loop.rows import GAP_ROW
from planner.replays.gaps import MANTISSA_BITS, GapTally


def rows_of(*rows: tuple[float, float, int, int]) -> NDArray[np.void]:
    """Return rows of gap, growth, steps and tokens a step."""
    return np.array(list(rows), GAP_ROW)


def test_gaps_are_kept_one_by_one() -> None:
    tally = GapTally()
    tally.add(rows_of((0.5, 0.25, 3, 2), (0.125, 0.0, 1, 7)))
    tally.add(rows_of())
    tally.add(rows_of((2.0, 0.0, 2, 1)))
    gaps = tally.gaps()
    assert gaps.values_s.tolist() == [0.5, 0.75, 1.0, 0.125, 2.0, 2.0]
    assert gaps.counts.tolist() == [2, 2, 2, 7, 1, 1]
    assert gaps.is_exact


def test_nothing_was_collected() -> None:
    gaps = GapTally().gaps()
    assert len(gaps.values_s) == len(gaps.counts) == 0
    assert gaps.is_exact


def test_beyond_the_limit_gaps_that_are_alike_become_their_mean() -> None:
    """1 and 1 + 2⁻¹⁷ share a bin, 1 + 2⁻¹⁶ is in the next one; zero and signs are bins of their own."""
    tally = GapTally(exact_steps=5)
    tally.add(rows_of((1.0, 0.0, 1, 1), (1.0 + 2.0**-17, 0.0, 1, 3), (1.0 + 2.0**-16, 0.0, 1, 1)))
    assert tally.gaps().is_exact
    tally.add(rows_of((0.0, 0.0, 1, 4), (-1.0, 0.0, 1, 5), (0.25, 0.25, 2, 1)))
    gaps = tally.gaps()
    assert not gaps.is_exact
    assert gaps.values_s.tolist() == [-1.0, 0.0, 0.25, 0.5, 1.0 + 0.75 * 2.0**-17, 1.0 + 2.0**-16]
    assert gaps.counts.tolist() == [5, 4, 1, 1, 4, 1]


@pytest.mark.parametrize("seed", range(3))
def test_bins_are_those_of_a_sort(seed: int) -> None:
    """Keys by NumPy's unique, sums in the order of the rows: the same bits, over several merges."""
    rng = np.random.default_rng(seed)
    tally, values, counts = GapTally(exact_steps=500), np.empty(0), np.empty(0, np.int64)
    for _ in range(12):
        rows = np.zeros(100, GAP_ROW)
        rows["gap_s"] = rng.lognormal(-4, 0.001 + seed, 100)
        rows["growth_s"] = 1e-7 * rng.random(100)
        rows["steps"] = rng.integers(1, 5, 100)
        rows["count"] = rng.integers(1, 99, 100)
        tally.add(rows)
        own = np.repeat(rows, rows["steps"])
        within = np.concatenate([np.arange(steps) for steps in rows["steps"]])
        values = np.concatenate([values, own["gap_s"] + own["growth_s"] * within])
        counts = np.concatenate([counts, own["count"]])
        if len(values) > 500:
            bins = np.unique(values.view(np.int64) >> (52 - MANTISSA_BITS), return_inverse=True)[1]
            totals = np.bincount(bins, weights=counts)
            values, counts = np.bincount(bins, weights=values * counts) / totals, totals.astype(np.int64)
    gaps = tally.gaps()
    assert gaps.values_s.tobytes() == values.tobytes()
    assert gaps.counts.tolist() == counts.tolist()
    assert not gaps.is_exact


def test_gaps_of_replicas_are_bounded_together() -> None:
    """As one tally would have them, up to the limit over all replicas."""
    parts = [GapTally(), GapTally()]
    parts[0].add(rows_of((0.5, 0.25, 3, 2)))
    parts[1].add(rows_of((0.5, 0.0, 1, 7)))
    whole, bounded = GapTally(), GapTally(exact_steps=3)
    for part in parts:
        whole.add_gaps(part.gaps())
        bounded.add_gaps(part.gaps())
    assert whole.gaps().values_s.tolist() == [0.5, 0.75, 1.0, 0.5]
    assert whole.gaps().is_exact
    assert bounded.gaps().values_s.tolist() == [0.5, 0.75, 1.0]
    assert bounded.gaps().counts.tolist() == [9, 2, 2]
    assert not bounded.gaps().is_exact
    again = GapTally()
    again.add_gaps(bounded.gaps())
    assert not again.gaps().is_exact
