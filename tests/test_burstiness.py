"""Burstiness: known processes have the values that theory gives them, and coarse clocks are found out."""

import numpy as np
import pytest

from planner.traces.shaping.burstiness import dispersion, dispersions, gap_cv, peaks, spread_ticks, tick_of

RNG = np.random.default_rng(3)
POISSON = np.cumsum(RNG.exponential(0.5, 40_000))


def test_a_poisson_process_has_one_everywhere() -> None:
    assert gap_cv(POISSON) == pytest.approx(1.0, abs=0.02)
    assert dispersions(POISSON, (1.0, 10.0)) == pytest.approx({1.0: 1.0, 10.0: 1.0}, abs=0.1)


def test_gamma_gaps_of_shape_k_have_a_variation_of_one_over_its_root() -> None:
    gaps = RNG.gamma(0.25, 4.0, 100_000)
    assert gap_cv(np.cumsum(gaps)) == pytest.approx(2.0, rel=0.02)
    assert dispersion(np.cumsum(gaps), 500.0) == pytest.approx(4.0, rel=0.2)  # the limit is the squared variation


def test_counts_by_hand() -> None:
    arrivals = np.array([0.0, 0.1, 0.2, 1.5, 2.5])  # 3, 1, 1 in windows of a second
    assert dispersion(arrivals, 1.0) == pytest.approx(np.var([3, 1, 1]) / (5 / 3))
    assert peaks(arrivals, (1.0,)) == {1.0: pytest.approx(3 / (5 / 3))}


@pytest.mark.parametrize("arrivals", [[0.0], [0.0, 0.0], [0.0, 1.0]])
def test_what_does_not_exist_is_none(arrivals: list[float]) -> None:
    found = np.array(arrivals)
    assert dispersion(found, 10.0) is None
    assert gap_cv(found) in (None, 0.0)
    assert tick_of(found) == 0.0


def test_a_coarse_clock_is_found_and_a_fine_one_is_none() -> None:
    assert tick_of(np.floor(POISSON / 3.0) * 3.0) == 3.0
    assert tick_of(np.floor(POISSON / 0.25) * 0.25) == pytest.approx(0.25)
    assert tick_of(POISSON) == 0.0
    assert tick_of(np.floor(POISSON[POISSON < 60 * 8] / 60) * 60) == 60.0  # eight minutes of a clock of minutes
    assert tick_of(np.repeat([0.0, 3600.0], 10)) == 3600.0
    assert tick_of(np.repeat([0.0, 7.3, 11.9], 10)) == tick_of(np.repeat([0.0, 60.0], [2, 3])) == 0.0
    assert tick_of(POISSON.round(3)) == 0.0


def test_spread_arrivals_stay_in_their_tick() -> None:
    ticked = np.floor(POISSON / 3.0) * 3.0
    apart = spread_ticks(ticked, 3.0, 30_000.0, np.random.default_rng(0))
    assert (np.diff(apart) >= 0).all()
    assert np.array_equal(np.floor(apart / 3.0) * 3.0, ticked)
    assert gap_cv(apart) == pytest.approx(1.0, abs=0.03)
    assert spread_ticks(POISSON, 0.0, 30_000.0, np.random.default_rng(0)) is POISSON
