"""Sensitivity of a sizing: servers of known speed under each changed assumption, the flips, and the tornado."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import trace_of

from planner.planning import sensitivity as changes
from planner.planning.fewest import together
from planner.planning.fleets import Kind
from planner.planning.loads import traffic_of
from planner.planning.search_options import Choices
from planner.planning.sensitivity_answer import Changed, Sensitivity
from planner.planning.sizing import size
from planner.report.figures.answer_figures import tornado
from planner.report.findings import findings
from planner.report.offer_tables import sensitivity_rows
from planner.report.page import to_html
from planner.report.plan_tables import sizing_table
from planner.report.report_source import load_answer
from planner.report.text import Text
from planner.results.saved import to_json
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

# Five steps of 0.1 s a request: a server has two a second, and 9 a second that never wait need five servers in turn.
SERVER = Scenario(step_time="linear:0.1,1e-9", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False,
                  model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
CHOICES = Choices(gpus=("h100-sxm", "l40s"), ranks=(1,), prices={"h100-sxm": 1.0, "l40s": 1.1}, jobs=1,
                  compare_assumptions=False, sensitivity=True, scaling="compress")
OBJECTIVES = parse_objectives("ttft:150", 1.0)


def nine_a_second() -> Trace:
    return trace_of([(k / 9, 1, 5) for k in range(450)])


def found_for(choices: Choices = CHOICES) -> Sensitivity:
    found = size(nine_a_second(), SERVER, OBJECTIVES, choices).sensitivity
    assert found is not None
    return found


def ends_of(found: Sensitivity, name: str) -> tuple[Changed, Changed]:
    (swing,) = [swing for swing in found.swings if swing.assumption == name]
    assert swing.low is not None
    assert swing.high is not None
    return swing.low, swing.high


@pytest.fixture(scope="module")
def found() -> Sensitivity:
    return found_for()


@pytest.mark.parametrize(("name", "low", "high"), [("output lengths", 4, 6), ("request rate", 4, 6)])
def test_servers_of_known_speed(found: Sensitivity, name: str, low: int, high: int) -> None:
    """Outputs of four and six tokens, and rates of 7.2 and 10.8, need 3.6 and 5.4 servers."""
    assert [end.num_gpus for end in ends_of(found, name)] == [low, high]
    assert [end.cost_usd_per_hour for end in ends_of(found, name)] == [low, high]
    assert not any(end.is_flipped for end in ends_of(found, name))


def test_longer_steps_need_more_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has no errors, so these are given: steps a fifth shorter, and a fifth longer."""
    monkeypatch.setattr(changes, "_factor", lambda deployment, end: (0.8, 1.2)[end])
    assert [end.num_gpus for end in ends_of(found_for(), "step times")] == [4, 6]


def test_errors_are_those_of_the_kinds_step_times(found: Sensitivity) -> None:
    assert [end.num_gpus for end in ends_of(found, "step times")] == [5, 5]
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
    deployment = Kind(scenario=scenario, decode=None, divided=together).deployed(nine_a_second())
    short, long = (changes._factor(deployment, end) for end in (0, 1))
    assert 0.5 < short < long < 2
    assert not math.isclose(short, long)


def test_the_price_flips_the_choice_at_its_break_even(found: Sensitivity) -> None:
    """L40S needs as many servers, at a tenth more."""
    low, high = ends_of(found, "GPU price")
    assert (low.cost_usd_per_hour, high.cost_usd_per_hour) == (4.0, 6.0)
    assert (low.is_flipped, high.is_flipped) == (False, True)
    assert high.cheapest_usd_per_hour == pytest.approx(5.5)
    assert "l40s" in high.cheapest
    assert found.break_even == pytest.approx(0.1)
    assert "flips with GPU price +20 % (to 5 × l40s (tp 1, bf16))" in found.sentence
    assert "another GPU is cheaper once h100-sxm costs 10 % more" in found.sentence


def test_a_choice_that_holds_is_said_to(found: Sensitivity) -> None:
    dear = found_for(replace(CHOICES, prices={"h100-sxm": 1.0, "l40s": 1.5}))
    assert "holds under every change that was tried" in dear.sentence
    assert "output lengths +20 % (6)" in dear.sentence
    assert dear.compared == ("5 × l40s (tp 1, bf16)",)
    assert found_for(replace(CHOICES, prices={"h100-sxm": 1.0, "l40s": 2.5})).compared == ()


def test_the_widest_span_is_first(found: Sensitivity) -> None:
    spans = [swing.span_usd_per_hour or 0.0 for swing in found.swings]
    assert spans == sorted(spans, reverse=True)
    assert spans[-1] == 0.0


def test_prefix_hits_are_changed_within_the_prompt() -> None:
    trace = trace_of([(float(k), 100, 5) for k in range(4)], hash_ids=[[1]] * 4, hash_block_tokens=100)
    changed = changes._with_hits(trace, np.array([0.0, 40.4, 96.0, 130.0]))
    assert changed.prefix is None
    assert changed.requests["cached_tokens"].to_list() == [0, 40, 96, 99]


def test_hits_of_the_chosen_fleet_are_scaled() -> None:
    """One conversation of a long prompt: with a fifth less of it cached, prompts take longer than the limit allows."""
    trace = trace_of([(2.0 * k, 2000, 5) for k in range(40)], hash_ids=[list(range(125))] * 40)
    scenario = replace(SERVER, step_time="linear:0.01,0.001", enable_prefix_caching=True)
    found = size(trace, scenario, parse_objectives("ttft:150", 0.9), replace(CHOICES, gpus=("h100-sxm",))).sensitivity
    assert found is not None
    low, high = ends_of(found, "prefix hits")
    assert (low.num_gpus, high.num_gpus) == (1, None)
    assert high.is_flipped
    assert high.cheapest == "none"
    (swing,) = [swing for swing in found.swings if swing.assumption == "prefix hits"]
    assert swing.span_usd_per_hour is None
    assert found.swings[0] == swing  # a change that leaves no fleet matters most


def test_kinds_that_were_sized_on_loads_of_other_lengths_have_the_same_hits() -> None:
    trace = trace_of([(2.0 * k, 2000, 5) for k in range(40)], hash_ids=[list(range(125))] * 40)
    traffic = traffic_of(trace, Scenario(rate_scale=1.5), "compress", None)
    scenario = replace(SERVER, step_time="linear:0.01,0.001", enable_prefix_caching=True)
    kind = Kind(scenario=scenario, decode=None, divided=together)
    chosen = size(trace, scenario, parse_objectives("ttft:150", 0.9), replace(CHOICES, gpus=("h100-sxm",))).cheapest
    assert chosen is not None
    found = changes._prefix_changes(traffic, kind, replace(chosen, trace_copies=1))
    assert found is not None
    longer = traffic.load(8)
    for change, cached in zip(found, (1999, 1587), strict=True):  # of the 1,984 tokens of whole blocks before the last
        assert change is not None
        assert change.load(longer, kind.deployed(longer)).requests["cached_tokens"][1:].to_list() == [cached] * 39


def test_the_tornado_has_a_bar_for_each_end_and_marks_the_flips(found: Sensitivity) -> None:
    figure = tornado(found)
    low, high, flips = figure.data
    assert dict(zip(high.y, high.x, strict=True))["GPU price"] == pytest.approx(1.0)
    assert dict(zip(low.y, low.x, strict=True))["GPU price"] == pytest.approx(-1.0)
    assert low.base == found.cost_usd_per_hour
    assert list(flips.y) == ["GPU price"]


def test_the_text_has_a_row_for_each_change() -> None:
    answer = size(nine_a_second(), SERVER, OBJECTIVES, CHOICES)
    text = str(sizing_table(answer))
    assert answer.sensitivity is not None
    assert f"sensitivity: {answer.sensitivity.sentence}" in text
    rows = Text(sensitivity_rows(answer)).lines()
    num_ends = sum((swing.low is not None) + (swing.high is not None) for swing in answer.sensitivity.swings)
    assert len(rows) == 1 + num_ends
    assert sum("(flips)" in row for row in rows) == 1
    assert sensitivity_rows(replace(answer, sensitivity=None)) == []


def test_the_report_has_the_tornado_the_options_and_the_months(tmp_path: Path) -> None:
    """What the command wrote is read again, and the report has all of it."""
    path = tmp_path / "fleet.json"
    path.write_text(to_json(size(nine_a_second(), SERVER, OBJECTIVES, replace(CHOICES, growth="5%/month", months=2))))
    saved = load_answer(path)
    found = findings(saved)
    assert {"fleets", "sensitivity"} <= found.figures.keys()
    listings = {listing.title: listing for listing in found.listings}
    assert len(listings["Options"].rows) == 2
    assert [row[0] for row in listings["Growth"].rows] == [0, 1, 2]
    assert any(word.startswith("sensitivity: the choice of 5 × h100-sxm") for word in found.words)
    assert "Sensitivity of the cheapest fleet" in to_html(saved)
