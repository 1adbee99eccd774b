"""Objectives: the grammar, and who meets them."""

import math

import numpy as np
import pytest

from planner.errors import UnknownNameError, UsageError
from planner.settings.slo import Slo, attainment_by_metric, meets, parse_slo


@pytest.mark.parametrize(
    ("text", "limits_s"),
    [
        ("ttft:500", {"ttft": 0.5}),
        ("ttft:500 tpot:50 e2el:5000", {"ttft": 0.5, "tpot": 0.05, "e2el": 5.0}),
        ("tpot:0.5,ttft:1e3", {"ttft": 1.0, "tpot": 0.0005}),
    ],
)
def test_grammar(text, limits_s):
    assert parse_slo(text).limits_s == pytest.approx(limits_s)


@pytest.mark.parametrize("part", ["ttft", "ttft:", "ttft:fast", "ttft:0", "ttft:-1", "ttft:inf", "ttft:nan"])
def test_a_limit_is_a_number_above_zero(part):
    with pytest.raises(UsageError, match=f"--slo '{part}': .* is not a number of milliseconds above 0"):
        parse_slo(part)


@pytest.mark.parametrize(("text", "message"), [("", "no objective given"), ("ttft:1 ttft:2", "ttft is given twice")])
def test_objectives_are_given_once(text, message):
    with pytest.raises(UsageError, match=message):
        parse_slo(text)


def test_unknown_metric_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown SLO metric 'tfft'; did you mean 'ttft'\?"):
        parse_slo("tfft:500")


NAN = math.nan
TTFT_S = np.array([0.5, 0.51, 0.1, 0.1, NAN])  # the last request never got a token
TPOT_S = np.array([0.05, 0.01, NAN, 0.06, NAN])  # the third has a single token
E2E_S = np.array([1.0, 1.0, 0.1, 1.0, NAN])


def test_a_limit_is_met_at_its_value_and_a_single_token_passes_tpot():
    slo = Slo(ttft_s=0.5, tpot_s=0.05)
    assert meets(slo, TTFT_S, TPOT_S, E2E_S).tolist() == [True, False, True, False, False]
    by_metric = attainment_by_metric(slo, TTFT_S, TPOT_S, E2E_S)
    assert {name: met.tolist() for name, met in by_metric.items()} == {
        "ttft": [True, False, True, True, False],
        "tpot": [True, True, True, False, False],
    }


def test_without_a_token_or_an_end_a_request_misses_everything():
    assert not meets(Slo(e2el_s=1e6), np.array([0.1]), np.array([0.1]), np.array([NAN])).any()
    assert not meets(Slo(), np.array([NAN]), np.array([NAN]), np.array([NAN])).any()
