"""Growth: servers of known speed month by month, and what a growth may be."""

from dataclasses import replace

import pytest
from helpers import trace_of

from planner.errors import UsageError
from planner.planning.growth import monthly_factor
from planner.planning.growth_answer import Growth
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.report.plan_tables import sizing_table
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario

# A server has ten requests a second, and 45 a second that never wait need five servers in turn.
SERVER = Scenario(step_time="linear:0.1,1e-9", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False,
                  model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
CHOICES = Choices(gpus=("h100-sxm",), ranks=(1,), prices={"h100-sxm": 2.0}, jobs=1, compare_assumptions=False,
                  scaling="compress", growth="10%/month", months=6)
OBJECTIVES = parse_objectives("ttft:101", 1.0)
TRACE = trace_of([(k / 45, 1, 1) for k in range(450)])


def growth_for(choices: Choices) -> Growth:
    found = size(TRACE, SERVER, OBJECTIVES, choices).growth
    assert found is not None
    return found


def test_servers_of_known_speed_month_by_month() -> None:
    found = growth_for(CHOICES)
    rates = [45 * 1.1**month for month in range(7)]
    assert [month.rate_rps for month in found.months] == pytest.approx(rates, rel=1e-3)
    assert [month.num_replicas for month in found.months] == [5, 5, 6, 6, 7, 8, 8]  # 45, 49.5, 54.5, 59.9, 65.9, ...
    assert [month.month for month in found.months if month.must_grow] == [2, 4, 5]
    assert [month.cost_usd_per_month for month in found.months] == [730 * 2.0 * count for count in
                                                                     (5, 5, 6, 6, 7, 8, 8)]
    assert found.total_usd == pytest.approx(730 * 2.0 * (5 + 6 + 6 + 7 + 8 + 8))
    assert found.sentence.startswith("5 × h100-sxm today must grow to 6 in month 2, to 7 in month 4, to 8 in month 5")


def test_spares_stay_and_less_traffic_needs_fewer() -> None:
    found = growth_for(replace(CHOICES, growth="-20%/month", months=3, num_spare=1))
    assert [month.num_gpus for month in found.months] == [6, 5, 4, 4]  # 36, 28.8 and 23 a second, and a spare
    assert "are enough for 3 months" in found.sentence


def test_the_text_has_the_months() -> None:
    text = sizing_table(size(TRACE, SERVER, OBJECTIVES, replace(CHOICES, months=2)))
    assert "growth of 10%/month: 5 × h100-sxm today must grow to 6 in month 2" in text
    assert text.count("  grows") == 1


@pytest.mark.parametrize(("text", "factor"), [("10%/month", 1.1), ("2x/year", 2 ** (1 / 12)), ("-5%/month", 0.95),
                                              ("33.1%/quarter", 1.1), ("1%/week", 1.01 ** (365 / 84))])
def test_what_a_growth_may_be(text: str, factor: float) -> None:
    assert monthly_factor(text) == pytest.approx(factor)


@pytest.mark.parametrize(("choices", "words"), [
    (replace(CHOICES, growth="10%"), "as in '10%/month'"),
    (replace(CHOICES, growth="-100%/month"), "leaves no traffic"),
    (replace(CHOICES, growth="0x/year"), "leaves no traffic"), (replace(CHOICES, months=0), "--months 0"),
    (replace(CHOICES, growth="100%/month", months=12), "the rate grows 4,096 times")])
def test_bad_growths_are_refused(choices: Choices, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        size(TRACE, SERVER, OBJECTIVES, choices)
