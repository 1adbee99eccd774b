"""A long time's traffic by strata of its rates: which rates stand for it, what the load holds, and what is sized."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import planner
from helpers import shorten_loads

from planner.errors import UsageError
from planner.planning.loads import StrataTraffic, traffic_of
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.traces.reading import trace_of
from planner.traces.shaping.rate_series import RateSeries
from planner.traces.shaping.rescaling import rate_of
from planner.traces.shaping.strata import at_rates, strata_of

CHAT = read_trace("chat", limit=2_000)
H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="random")


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_loads(monkeypatch, 50_000)


def series(*rates: float) -> RateSeries:
    return RateSeries(source="here", start_s=3600.0 * np.arange(len(rates), dtype=np.float64),
                      rate_rps=np.array(rates, np.float64), duration_s=np.full(len(rates), 3600.0))


def test_each_stratum_stands_for_as_many_requests() -> None:
    assert strata_of(series(3.0, 1.0), 4).tolist() == pytest.approx([1.0, 3.0, 3.0, 3.0])
    assert strata_of(series(0.0, 3.0, 1.0), 2).tolist() == pytest.approx([2.0, 3.0])  # half of the first come at 1/s
    assert strata_of(series(5.0, 5.0, 5.0), 7).tolist() == pytest.approx([5.0] * 7)


def test_strata_keep_the_mean_rate_of_the_requests() -> None:
    rates = np.random.default_rng(3).uniform(0.0, 40.0, 500)
    for count in (2, 9, 64):
        found = strata_of(series(*rates), count)
        assert (np.diff(found) >= 0).all()
        assert found.mean() == pytest.approx((rates**2).sum() / rates.sum())


@pytest.mark.parametrize("scaling", ["thin", "compress", "resample", "poisson"])
def test_a_load_has_each_rate_for_its_requests(scaling: str) -> None:
    rates, counts = (2.0, 6.0, 30.0), (500, 300, 900)
    load = at_rates(CHAT, rates, counts, scaling, 1)
    assert load.num_requests == sum(counts)
    assert load.requests["request_id"].n_unique() == sum(counts)
    arrivals_s = load.requests["arrival_s"].to_numpy()
    assert (np.diff(arrivals_s) >= 0).all()
    edges = np.cumsum((0, *counts))
    for rate, first, end in zip(rates, edges[:-1], edges[1:], strict=True):
        span_s = arrivals_s[end - 1] - arrivals_s[first]
        assert (end - first - 1) / span_s == pytest.approx(rate, rel=0.25)


def test_parts_share_no_session_and_no_content() -> None:
    rows = [{"request_id": f"{user}/{turn}", "arrival_s": 2.0 * user + turn, "input_tokens": 64 * (turn + 1),
             "output_tokens": 8, "session_id": f"user {user}", "parent_id": f"{user}/{turn - 1}" if turn else None,
             "hash_ids": [f"{user}:{k}" for k in range(turn + 1)], "hash_block_tokens": 64}
            for user in range(200) for turn in range(3)]
    load = at_rates(trace_of("turns", rows, format="jsonl"), (2.0, 4.0), (300, 300), "compress", 0)
    assert load.prefix is not None
    cut = load.prefix.offsets[300]
    assert not set(load.prefix.values[:cut].tolist()) & set(load.prefix.values[cut:].tolist())
    sessions, parents = load.requests["session_id"], load.requests["parent_id"]
    assert not set(sessions[:300]) & set(sessions[300:])
    assert set(parents[:300].drop_nulls()) <= set(load.requests["request_id"][:300])
    assert parents[300:].count() > 100


def test_growth_and_other_draws_keep_the_number_of_requests() -> None:
    traffic = traffic_of(CHAT, H100, "poisson", series(2.0, 5.0, 8.0), 8)
    assert isinstance(traffic, StrataTraffic)
    load, grown, again = traffic.load(), traffic.at(2 * traffic.mean_rps), traffic.drawn_again(1)
    assert load.num_requests == grown.num_requests == again.num_requests == traffic.num_requests
    assert rate_of(grown) == pytest.approx(2 * rate_of(load), rel=0.02)
    assert not np.array_equal(load.requests["arrival_s"].to_numpy(), again.requests["arrival_s"].to_numpy())


def test_long_prompts_with_prefixes_make_a_load_of_fewer_requests() -> None:
    agents = read_trace("agents", limit=500)
    assert agents.prefix is not None
    traffic = traffic_of(agents, H100, "thin", series(0.5, 1.0), 4)
    assert isinstance(traffic, StrataTraffic)
    load = traffic.load()
    assert load.prefix is not None
    assert load.num_requests == traffic.num_requests < 40_000
    assert len(load.prefix.values) < 1.5 * 4_000_000


@pytest.mark.usefixtures("_short")
def test_a_constant_rate_is_sized_as_the_rate_itself() -> None:
    objectives = parse_objectives("p99_ttft:500 p99_tpot:30")
    choices = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
    plain = size(CHAT, replace(H100, request_rate=60.0), objectives, choices)
    strata = size(CHAT, H100, objectives, replace(choices, series=series(60.0, 60.0), num_strata=4))
    assert plain.cheapest is not None
    assert strata.cheapest is not None
    assert strata.cheapest.num_replicas == plain.cheapest.num_replicas
    assert "of its 432,000 requests (60/s on average)" in strata.assumptions[0]
    assert any(note.startswith("2 other draws of the 4 strata need") for note in strata.notes)


@pytest.mark.usefixtures("_short")
def test_hours_above_the_fleet_count_by_their_requests() -> None:
    """One hour of a hundred at four times the rate is 3.9 % of the requests: p99 needs a fleet for it, p90 does not."""
    rates = series(*([10.0] * 99), 40.0)
    choices = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1, series=rates, num_strata=50)
    counts = {}
    for slo in ("p99_tpot:20", "p90_tpot:20"):
        found = size(CHAT, H100, parse_objectives(slo), choices).cheapest
        assert found is not None
        counts[slo] = found.num_replicas
    assert counts["p99_tpot:20"] > counts["p90_tpot:20"]


@pytest.mark.parametrize(("choices", "said"), [
    (Choices(num_strata=8), "--strata 8: needs --rate-series"),
    (Choices(num_strata=1, series=series(1.0, 2.0)), "--strata 1: must be from 2 to 1,000"),
])
def test_strata_that_do_not_fit_are_refused(choices: Choices, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        size(CHAT, H100, parse_objectives("ttft:500"), choices)


@pytest.mark.usefixtures("_short")
def test_the_command_sizes_a_year(tmp_path: Path) -> None:
    rates = tmp_path / "year.csv"
    rates.write_text("start_s,rate_rps\n" + "".join(f"{3600 * k},{5 + k % 24}\n" for k in range(8760)))
    done = planner("size", "chat", "--rate-series", str(rates), "--strata", "6", "--model", "llama-3.1-8b", "--gpu",
                   "h100-sxm", "--tensor-parallel-size", "1", "--slo", "p99_ttft:500", "--no-compare-assumptions")
    assert done.returncode == 0, done.stderr
    assert "assumed: 6 rates from" in done.stdout + done.stderr
    assert "520,344,000 requests (16.5/s on average)" in done.stdout + done.stderr
