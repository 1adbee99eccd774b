"""Traffic at another rate: what each way of scaling keeps, and what longer and resampled traces are made of."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from helpers import trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.errors import UsageError
from planner.schema import MAX_SECONDS
from planner.traces import Trace, read_trace
from planner.traces.shaping.rescaling import (
    MOST_REQUESTS,
    SCALINGS,
    at_rate,
    lasting,
    rate_of,
    rates_of,
    repeated,
    windows,
)

RNG = np.random.default_rng(5)
GAPS = np.concatenate((RNG.exponential(0.1, 2000), RNG.exponential(1.0, 1000)))
TRACE = trace_of([(float(at), int(k % 50) + 1, int(k % 7) + 1) for k, at in enumerate(np.cumsum(GAPS))])


def arrivals(trace: Trace) -> np.ndarray:
    return trace.requests["arrival_s"].to_numpy()


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("factor", [0.3, 1.0, 2.7])
def test_every_scaling_has_about_the_rate_and_the_lengths(scaling: str, factor: float) -> None:
    rate = factor * rate_of(TRACE)
    found = SCALINGS[scaling](TRACE, rate, 3)
    assert rate_of(found) == pytest.approx(rate, rel=0.08)
    assert (np.diff(arrivals(found)) >= 0).all()
    assert found.requests["input_tokens"].mean() == pytest.approx(TRACE.requests["input_tokens"].mean(), rel=0.05)
    assert found.requests["request_id"].n_unique() == found.num_requests


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_lowest_rate_makes_a_trace_that_can_be_replayed(scaling: str) -> None:
    lowest, _ = rates_of(TRACE, scaling)
    found = at_rate(TRACE, lowest, scaling, 3)
    assert found.num_requests >= 2
    assert arrivals(found)[-1] < MAX_SECONDS


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_seed_gives_the_same_traffic_again(scaling: str) -> None:
    one, two, other = (SCALINGS[scaling](TRACE, 5.0, seed) for seed in (1, 1, 2))
    assert one.requests.equals(two.requests)
    assert scaling == "compress" or not one.requests.equals(other.requests)


def test_compressing_keeps_bursts_in_proportion_and_thinning_in_time() -> None:
    gaps = np.diff(arrivals(TRACE))
    compressed = np.diff(arrivals(SCALINGS["compress"](TRACE, 2 * rate_of(TRACE), 0)))
    assert compressed == pytest.approx(gaps / 2)
    span = arrivals(TRACE)[-1] - arrivals(TRACE)[0]
    for factor in (0.5, 3.0):
        thinned = arrivals(SCALINGS["thin"](TRACE, factor * rate_of(TRACE), 0))
        assert thinned[-1] == pytest.approx(span, rel=0.01)
    at_own_rate = SCALINGS["thin"](TRACE, rate_of(TRACE), 0)
    assert arrivals(at_own_rate) == pytest.approx(arrivals(TRACE) - arrivals(TRACE)[0])


def test_a_poisson_process_has_exponential_gaps() -> None:
    gaps = np.diff(arrivals(SCALINGS["poisson"](TRACE, 4.0, 0)))
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.08)
    own = np.diff(arrivals(TRACE))
    assert own.std() / own.mean() > 1.5


def test_a_repeated_trace_goes_on_with_itself() -> None:
    found = repeated(TRACE, 3)
    assert found.num_requests == 3 * TRACE.num_requests
    assert rate_of(found) == pytest.approx(rate_of(TRACE))
    n = TRACE.num_requests
    assert np.diff(arrivals(found))[n : 2 * n - 1] == pytest.approx(np.diff(arrivals(TRACE)))
    assert found.requests["request_id"][n] == f"{TRACE.requests['request_id'][0]}#2"
    assert repeated(TRACE, 1) is TRACE


@given(count=some.integers(2, 40), seed=some.integers(0, 5))
def test_windows_are_parts_of_the_trace(count: int, seed: int) -> None:
    found = windows(TRACE, count, seed)
    assert (np.diff(arrivals(found)) >= 0).all()
    assert arrivals(found)[-1] <= arrivals(TRACE)[-1] - arrivals(TRACE)[0] + 1 / rate_of(TRACE)
    lengths = set(TRACE.requests.select("input_tokens", "output_tokens").rows())
    assert set(found.requests.select("input_tokens", "output_tokens").rows()) <= lengths


def test_copies_share_prefixes_among_themselves_and_not_with_the_first(tmp_path: object) -> None:
    trace = read_trace("long-context")
    if trace.prefix is None:
        pytest.skip("the sample has no prefix ids")
    twice = repeated(trace, 2)
    assert twice.prefix is not None
    half = twice.prefix.offsets[trace.num_requests]
    first, second = twice.prefix.values[:half], twice.prefix.values[half:]
    assert not set(first.tolist()) & set(second.tolist())
    assert (second - second.min()).tolist() == (first - first.min()).tolist()


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="must have two or more"):
        rate_of(trace_of([(1.0, 1, 1)]))
    with pytest.raises(UsageError, match=r"of its requests are left; .* --scaling compress or poisson keep"):
        SCALINGS["thin"](trace_of([(0.0, 1, 1), (1.0, 1, 1)]), 1e-9, 0)


def test_lengths_stay_with_their_requests() -> None:
    table = SCALINGS["poisson"](TRACE, 3.0, 0).requests
    assert table.select(pl.col("input_tokens", "output_tokens")).equals(
        TRACE.requests.select("input_tokens", "output_tokens"))


def sessions_trace() -> Trace:
    """Two hundred sessions of three turns a second apart, each turn after the one before it."""
    rows = sorted((10.0 * k + turn, k, turn) for k in range(200) for turn in range(3))
    trace = trace_of([(at, 10 + k, 5) for at, k, _ in rows])
    return replace(trace, requests=trace.requests.with_columns(
        pl.Series("session_id", [f"s{k}" for _, k, _ in rows]), pl.lit(1.0).alias("think_time_s")))


@given(seed=some.integers(0, 5), factors=some.tuples(some.floats(0.05, 3.5), some.floats(0.05, 3.5)))
def test_thinned_requests_are_among_those_of_every_higher_rate(seed: int, factors: tuple[float, float]) -> None:
    low, high = (SCALINGS["thin"](TRACE, factor * rate_of(TRACE), seed).requests for factor in sorted(factors))
    assert set(low["request_id"]) <= set(high["request_id"])
    there = high.filter(pl.col("request_id").is_in(low["request_id"].implode()))
    shift = np.diff(low["arrival_s"].to_numpy()) - np.diff(there["arrival_s"].to_numpy())
    assert np.abs(shift).max() < 1e-6  # at the same times, counted from the first
    for factor, table in zip(sorted(factors), (low, high), strict=True):
        assert abs(table.height - factor * TRACE.num_requests) <= np.ceil(factor)


@pytest.mark.parametrize("factor", [0.3, 2.5])
def test_thinning_keeps_or_leaves_out_whole_sessions(factor: float) -> None:
    trace = sessions_trace()
    found = SCALINGS["thin"](trace, factor * rate_of(trace), 1).requests
    turns = found.group_by("session_id").agg(pl.len(), pl.col("arrival_s").sort().diff().max().alias("gap"))
    whole = turns.filter(pl.col("len") == 3)
    assert whole.height >= turns.height - 2 * np.ceil(factor)  # a copy's end cuts one in two
    assert whole["gap"].to_numpy() == pytest.approx(1.0)  # turns of one copy, never of two
    assert found.height == pytest.approx(factor * trace.num_requests, abs=3 * np.ceil(factor))


def test_thinning_keeps_requests_with_their_parents() -> None:
    rows = [(float(k), 10, 5) for k in range(300)]
    trace = trace_of(rows)
    parents = [None if k % 3 == 0 else str(k - 1) for k in range(300)]
    trace = replace(trace, requests=trace.requests.with_columns(pl.Series("parent_id", parents, dtype=pl.String)))
    for factor in (0.4, 1.6):
        found = SCALINGS["thin"](trace, factor * rate_of(trace), 0).requests
        ids = set(found["request_id"])
        named = found.filter(pl.col("parent_id").is_not_null() & (pl.col("parent_id") != ""))
        assert set(named["parent_id"]) <= ids
        assert named.height >= 2 * found.height / 3 - 2 * np.ceil(factor)


def test_copies_on_top_keep_the_hours_of_a_day() -> None:
    """A day with one busy hour keeps it: copies that were moved about the day would spread it over all hours."""
    rng = np.random.default_rng(0)
    busy, quiet = rng.uniform(12 * 3600, 13 * 3600, 4000), rng.uniform(0, 86400, 2000)
    trace = trace_of([(float(at), 10, 5) for at in np.sort(np.concatenate((busy, quiet)))])
    found = arrivals(SCALINGS["thin"](trace, 4 * rate_of(trace), 0))
    hours = np.histogram(found, bins=24, range=(0, 86400))[0]
    assert hours[12:14].sum() > 0.65 * found.size


def test_more_copies_than_can_be_replayed_end_sooner() -> None:
    found = SCALINGS["thin"](TRACE, 500 * rate_of(TRACE), 0)
    assert found.num_requests == pytest.approx(MOST_REQUESTS, rel=0.05)
    assert rate_of(found) == pytest.approx(500 * rate_of(TRACE), rel=0.05)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_traffic_lasts_as_long_as_is_asked_for(scaling: str) -> None:
    rate = 3 * rate_of(TRACE)
    span = arrivals(TRACE)[-1]
    assert arrivals(lasting(TRACE, rate, 2 * span, scaling))[-1] >= 1.9 * span
