"""Growth: servers of known speed month by month, and what a growth may be."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers import cheapest, trace_of

from planner.errors import UsageError
from planner.planning.growth import _cheapest_path, monthly_factor
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
    alone = size(trace_of([(k, 1, 1) for k in range(20)]), SERVER, OBJECTIVES, replace(CHOICES, months=2)).growth
    assert alone is not None
    assert alone.sentence.startswith("1 × h100-sxm today is enough for 2 months")


def test_the_text_has_the_months() -> None:
    text = str(sizing_table(size(TRACE, SERVER, OBJECTIVES, replace(CHOICES, months=2))))
    assert "growth of 10%/month: 5 × h100-sxm today must grow to 6 in month 2" in text
    assert text.count("  grows") == 1
    assert "16,060 USD over 2 months (1 to 2, without today)" in text
    rows = [re.split(r"  +", line.strip()) for line in text.partition("month  requests/s")[2].splitlines()[1:5]]
    assert [row[0] for row in rows] == ["today", "1", "2", "1 to 2"]
    prices = [float(row[4 if k < 3 else 1].replace(",", "")) for k, row in enumerate(rows)]
    assert prices[3] == sum(prices[1:3]) == 730 * 2.0 * (5 + 6)


@pytest.mark.parametrize(("text", "factor"), [("10%/month", 1.1), ("2x/year", 2 ** (1 / 12)), ("-5%/month", 0.95),
                                              ("33.1%/quarter", 1.1), ("1%/week", 1.01 ** (365 / 84))])
def test_what_a_growth_may_be(text: str, factor: float) -> None:
    assert monthly_factor(text) == pytest.approx(factor)


@pytest.mark.parametrize(("choices", "words"), [
    (replace(CHOICES, growth="10%"), "as in '10%/month'"),
    (replace(CHOICES, growth="-100%/month"), "leaves no traffic"),
    (replace(CHOICES, growth="0x/year"), "leaves no traffic"), (replace(CHOICES, months=0), "--months 0"),
    (replace(CHOICES, change_cost=-1.0), "--change-cost -1"),
    (replace(CHOICES, growth=None, change_cost=5.0), "--change-cost 5: needs --growth"),
    (replace(CHOICES, growth="100%/month", months=12), "the rate grows 4,096 times")])
def test_bad_growths_are_refused(choices: Choices, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        size(TRACE, SERVER, OBJECTIVES, choices)


@pytest.mark.parametrize("seed", range(20))
def test_no_path_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs, change_cost = rng.integers(1, 9, (3, 5)).astype(float), float(rng.integers(0, 6))
    costs[rng.random((3, 5)) < 0.1] = np.inf

    def price(path: Sequence[int]) -> tuple[int, float]:
        months = [costs[kind, month] for month, kind in enumerate(path)]
        changes = sum(one != other for one, other in itertools.pairwise(path))
        return sum(map(np.isinf, months)), sum(cost for cost in months if np.isfinite(cost)) + changes * change_cost

    best = min(map(price, itertools.product(range(3), repeat=5)))
    assert price(_cheapest_path(costs.tolist(), change_cost)) == best


def test_the_kind_changes_once_another_is_cheaper() -> None:
    """One L40S serves 1.6 requests/s, one H100 over ten: it is cheaper than two L40S."""
    trace = trace_of([(k / 0.7, 1000, 200) for k in range(200)])
    choices = Choices(gpus=("l40s", "h100-sxm"), ranks=(1,), prices={"l40s": 1.0, "h100-sxm": 1.5}, jobs=1,
                      compare_assumptions=False, scaling="compress", growth="2x/month", months=4)
    scenario = Scenario(model="llama-3.1-8b", router="round-robin")

    def grown(change_cost: float) -> Growth:
        found = size(trace, scenario, parse_objectives("p99_ttft:1000 p99_tpot:40"),
                     replace(choices, change_cost=change_cost))
        assert cheapest(found).kind.gpu == "l40s"
        assert found.growth is not None
        return found.growth

    free, dear = grown(0.0), grown(1e6)
    month = free.cheaper_from_month
    assert month is not None
    assert [row.gpu for row in free.months] == ["l40s"] * month + ["h100-sxm"] * (5 - month)
    assert [row.is_change for row in free.months] == [k == month for k in range(5)]
    assert free.total_usd == pytest.approx(730 * (1.0 * (month - 1) + 1.5 * (5 - month)))
    assert f"must change to 1 × h100-sxm (tp 1) in month {month}" in free.sentence
    assert free.kept_total_usd is not None
    assert free.total_usd is not None
    assert free.kept_total_usd > free.total_usd
    assert not any(row.is_change for row in dear.months)
    assert dear.total_usd == pytest.approx(min(730 * 1.5 * 4, free.kept_total_usd))
