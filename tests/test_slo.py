"""Objectives: the grammar, and who meets them."""

import math

import numpy as np
import pytest

from planner.errors import UnknownNameError, UsageError
from planner.settings.objectives import given_objectives, judge, objectives_text, parse_objectives, request_limits
from planner.settings.slo import Slo, attainment_by_metric, meets


@pytest.mark.parametrize(
    ("text", "limits_s"),
    [
        ("ttft:500", {"ttft": 0.5}),
        ("ttft:500 tpot:50 e2el:5000", {"ttft": 0.5, "tpot": 0.05, "e2el": 5.0}),
        ("tpot:0.5,ttft:1e3", {"ttft": 1.0, "tpot": 0.0005}),
    ],
)
def test_grammar(text: str, limits_s: dict[str, float]) -> None:
    assert parse_objectives(text).limits_s == pytest.approx(limits_s)


@pytest.mark.parametrize("part", ["ttft", "ttft:", "ttft:fast", "ttft:0", "ttft:-1", "ttft:inf", "ttft:nan"])
def test_a_limit_is_a_number_above_zero(part: str) -> None:
    with pytest.raises(UsageError, match=f"--slo '{part}': .* is not a number of milliseconds above 0"):
        parse_objectives(part)


@pytest.mark.parametrize(("text", "message"), [("", "no objective given"), ("ttft:1 ttft:2", "ttft is given twice")])
def test_objectives_are_given_once(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_objectives(text)


def test_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown SLO metric 'tfft'; did you mean 'ttft'\?"):
        parse_objectives("tfft:500")


NAN = math.nan
TTFT_S = np.array([0.5, 0.51, 0.1, 0.1, NAN])  # the last request never got a token
TPOT_S = np.array([0.05, 0.01, NAN, 0.06, NAN])  # the third has a single token
E2E_S = np.array([1.0, 1.0, 0.1, 1.0, NAN])


def test_a_limit_is_met_at_its_value_and_a_single_token_passes_tpot() -> None:
    slo = Slo(ttft_s=0.5, tpot_s=0.05)
    assert meets(slo, TTFT_S, TPOT_S, E2E_S).tolist() == [True, False, True, False, False]
    by_metric = attainment_by_metric(slo, TTFT_S, TPOT_S, E2E_S)
    assert {name: met.tolist() for name, met in by_metric.items()} == {
        "ttft": [True, False, True, True, False],
        "tpot": [True, True, True, False, False],
    }


def test_without_a_token_or_an_end_a_request_misses_everything() -> None:
    assert not meets(Slo(e2el_s=1e6), np.array([0.1]), np.array([0.1]), np.array([NAN])).any()
    assert not meets(Slo(), np.array([NAN]), np.array([NAN]), np.array([NAN])).any()


@pytest.mark.parametrize(("text", "written"), [
    ("p99_ttft:1000", "p99_ttft:1000"),
    ("p99_ttft_ms:1000 ttft_ms:500", "ttft:500 p99_ttft:1000"),
    ("median_tpot:50,mean_e2el:9000", "p50_tpot:50 mean_e2el:9000"),
    ("p99.90_ttft_ms:12.5", "p99.9_ttft:12.5"),
    ("ttft:1234567.25", "ttft:1234567.25"),
])
def test_a_statistic_has_one_name_with_and_without_its_unit_and_is_written_as_it_is_read(text: str,
                                                                                         written: str) -> None:
    assert objectives_text(parse_objectives(text)) == written
    assert parse_objectives(written) == parse_objectives(text)


@pytest.mark.parametrize(("text", "message"), [
    ("p50_ttft:1 median_ttft_ms:2", "p50_ttft is given twice"),
    ("p0_ttft:1", "p0_ttft: 0 is no percentile"),
    ("p99_itl:1", "unknown SLO metric 'p99_itl'; did you mean 'p99_ttft'"),
    ("max_ttft:1", "unknown SLO metric 'max_ttft'"),
])
def test_statistics_that_there_are_not(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_objectives(text)


def test_a_share_of_requests_needs_objectives_of_each_request() -> None:
    assert given_objectives(" ") is None
    for text in (None, "p99_ttft:1000"):
        with pytest.raises(UsageError, match=r"--attainment 0.9: needs slo with an objective of each request"):
            given_objectives(text, 0.9)
    with pytest.raises(UsageError, match="slo: p99_ttft is a statistic over all requests"):
        request_limits("ttft:500 p99_ttft:1000", "slo")


def times_of(ttft_s: list[float]) -> dict[str, np.ndarray]:
    count = len(ttft_s)
    return {"ttft": np.array(ttft_s), "tpot": np.full(count, 0.01), "e2el": np.array(ttft_s) + 1.0}


def test_a_verdict_says_which_objective_is_missed_and_by_how_much() -> None:
    times = times_of([0.1] * 93 + [1.24] * 7)
    objectives = parse_objectives("ttft:500 tpot:50 p99_ttft:1000 p50_ttft:100", 0.99)
    verdict = judge(objectives, times)
    assert verdict.shortfall == ("93 % of the requests keep TTFT within 500 ms and TPOT within 50 ms, 99 % required; "
                                 "TTFT is missed most; p99 TTFT 1,240 ms of 1,000 ms allowed")
    assert [(each.name, each.is_met) for each in verdict.judged] == [
        ("ttft", False), ("tpot", True), ("attainment", False), ("p99_ttft", False), ("p50_ttft", True)]
    assert judge(parse_objectives("ttft:500 tpot:50"), times).shortfall == ""  # no share of requests is asked for


def test_numbers_of_a_verdict_never_read_alike() -> None:
    times = times_of([0.1] * 98_999 + [9.0] * 1_001)
    assert judge(parse_objectives("ttft:500", 0.99), times).shortfall.startswith("98.999 % of the requests keep")
    assert judge(parse_objectives("mean_ttft:189"), times).shortfall == "mean TTFT 189.1 ms of 189 ms allowed"


def test_a_statistic_counts_requests_without_an_answer_though_they_had_a_first_token() -> None:
    times = times_of([0.1] * 100)
    times["e2el"][:2] = NAN
    assert judge(parse_objectives("p97_ttft:200"), times).is_met
    verdict = judge(parse_objectives("p99_ttft:200"), times)
    assert (verdict.is_met, verdict.judged[0].value) == (False, None)
    assert verdict.shortfall.startswith("p99 TTFT has no end, 200 ms allowed; 2 % of the requests are never answered")


def test_a_limit_by_numpy_is_missed_too() -> None:
    """The confidence of a capacity scales limits by drawn errors, which are NumPy's numbers."""
    objectives = parse_objectives("p99_ttft:1000").scaled(np.float64(0.5))
    times_s = {"ttft": np.array([0.9]), "tpot": np.array([0.01]), "e2el": np.array([1.0])}
    verdict = judge(objectives, times_s)
    assert not verdict.is_met
    assert "p99 TTFT" in verdict.shortfall
