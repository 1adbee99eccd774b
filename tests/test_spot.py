"""Spot replicas: drawn evictions, drained replicas, and the cheapest mix against an exhaustive search."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import cheapest, trace_of

from planner.deployment.deploy import resolve
from planner.errors import UsageError
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.planning.spot import DRAWS, evictions, running_share
from planner.planning.spot_answer import SpotAnswer
from planner.replays.fleet.failures import Failure, read_failures
from planner.replays.fleet.replicas import serve
from planner.report.plan_tables import sizing_table
from planner.run import replay
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.rescaling import compressed
from planner.traces.shaping.window_and_rate import limit

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
PLAIN = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1, prices={"h100-sxm": 3.0},
                spot_prices={"h100-sxm": 1.0}, evictions_per_h=200.0, notice_s=2.0, away_s=8.0)
OBJECTIVES = parse_objectives("ttft:1000 tpot:60", 0.95)


@pytest.fixture(scope="module")
def chat() -> Trace:
    return compressed(limit(read_trace("chat"), 700), 40.0, 0)


def spot_of(trace: Trace, choices: Choices) -> SpotAnswer:
    answer = size(trace, H100, OBJECTIVES, choices).spot
    assert answer is not None
    return answer


def holds(trace: Trace, steady: int, spot: int, choices: Choices) -> bool:
    """Tell whether a mix meets the objectives in every draw, by replays of its own."""
    deployment, times = resolve(H100, trace), trace.requests["arrival_s"]
    verdicts = []
    for draw in range(DRAWS):
        failures = evictions(steady, spot, float(times[0]), float(times[-1]), choices, draw)
        scenario = replace(deployment.scenario, fail_replica=",".join(one.text for one in failures) or None)
        served = serve(trace, replace(deployment, scenario=scenario), steady + spot)
        verdicts.append(judge(OBJECTIVES, served.times_s).is_met)
    return all(verdicts)


def test_the_cheapest_mix_is_that_of_an_exhaustive_search(chat: Trace) -> None:
    found, count = spot_of(chat, PLAIN), cheapest(size(chat, H100, OBJECTIVES, PLAIN)).num_replicas
    share = running_share(PLAIN)
    costs = {(steady, spot): 730 * (3.0 * steady + 1.0 * share * spot)
             for steady, spot in itertools.product(range(count + 1), range(4 * count))
             if steady + spot >= count and ((steady, spot) == (count, 0) or holds(chat, steady, spot, PLAIN))}
    assert found.best.cost_usd_per_month == pytest.approx(min(costs.values()))
    assert (found.best.num_steady, found.best.num_spot) in costs
    assert found.mixes[0].num_spot == 0
    assert found.mixes[0].cost_usd_per_month == pytest.approx(730 * 3.0 * count)


def test_the_replay_line_gives_the_attainment_of_the_worst_draw(chat: Trace) -> None:
    found = spot_of(chat, PLAIN)
    assert found.best.num_spot > 0
    assert found.replay_command is not None
    failures = found.replay_command.split("--fail-replica '")[1].split("'")[0]
    scenario = replace(H100, data_parallel_size=found.best.num_steady + found.best.num_spot, fail_replica=failures)
    summary = replay(chat, scenario, slo=OBJECTIVES).summary
    assert summary["slo_attainment"] == found.best.attainment
    assert found.num_evictions >= len(read_failures(failures))
    text = str(sizing_table(size(chat, H100, OBJECTIVES, PLAIN)))
    assert found.sentence in text
    assert "to check the worst draw: planner replay" in text


def test_a_spot_price_that_is_no_bargain_buys_no_spot_replica(chat: Trace) -> None:
    found = spot_of(chat, replace(PLAIN, spot_prices={"h100-sxm": 4.0}))
    assert (found.best.num_spot, found.replay_command, found.num_evictions) == (0, None, 0)


def test_replicas_that_are_reserved_stay_for_their_price(chat: Trace) -> None:
    found = spot_of(chat, replace(PLAIN, reserved_prices={"h100-sxm": 2.0}))
    assert (found.steady_term, found.steady_usd_per_gpu_hour, found.spot_usd_per_gpu_hour) == ("reserved", 2.0, 1.0)


def test_more_replicas_have_the_same_evictions_and_one_more() -> None:
    few, more = (evictions(2, spot, 0.0, 3600.0, PLAIN, 1) for spot in (3, 4))
    assert more[:len(few)] == few
    assert {failure.replica for failure in more} == {2, 3, 4, 5}
    for before, after in itertools.pairwise(failure for failure in more if failure.replica == 2):
        assert after.at_s - after.notice_s >= before.at_s + before.duration_s


def test_a_spot_replica_runs_as_long_as_its_draws_say() -> None:
    """The share of time without it, over a year of draws, against the closed form."""
    year_s = 3600.0 * 8760
    choices = replace(PLAIN, evictions_per_h=0.5, notice_s=60.0, away_s=1800.0)
    gone = evictions(0, 1, 0.0, year_s, choices, 0)
    down = sum(failure.duration_s for failure in gone) / year_s
    assert down == pytest.approx(1 - running_share(choices), abs=3 * math.sqrt(2 / len(gone)) * down)
    assert np.mean([failure.notice_s for failure in gone]) == 60.0


def test_a_drained_replica_finishes_what_it_can_and_is_sent_nothing() -> None:
    """Requests at 0, 1, 2 s, two steps of 0.5 s each. Replica 0 has its notice at 0.25 s and is gone at 2.25 s."""
    rows = [(0.0, 10, 2), (1.0, 10, 2), (2.0, 10, 2)]
    scenario = Scenario(step_time="linear:0.5,0", num_gpu_blocks=100, data_parallel_size=2,
                        router="least-outstanding-requests")
    table = replay(trace_of(rows), replace(scenario, fail_replica="0@2.25+1~2")).result.requests_table()
    assert table["status"].to_list() == ["completed"] * 3
    assert table["num_attempts"].to_list() == [1] * 3
    assert table["replica"].to_list() == [0, 1, 1]
    lost = replay(trace_of(rows), replace(scenario, fail_replica="0@0.75+1~0.5")).result.requests_table()
    assert lost["num_attempts"].to_list() == [2, 1, 1]
    assert lost["replica"].to_list()[0] == 1


def test_a_failure_with_a_notice_reads_back() -> None:
    failure = Failure(replica=2, at_s=600.0, duration_s=120.0, notice_s=30.0)
    assert failure.text == "2@600+120~30"
    assert read_failures(failure.text) == [failure]
    with pytest.raises(UsageError, match="leave one of them out"):
        read_failures("2@600+120/5~30")
    with pytest.raises(UsageError, match="already down"):
        read_failures("2@600+120,2@730~30")


@pytest.mark.parametrize(("options", "words"), [
    ({"evictions_per_h": 0.0}, "--evictions 0: must be above 0 and finite"),
    ({"evictions_per_h": None}, "nothing is evicted; give --evictions"),
    ({"away_s": 0.0}, "--away 0: must be above 0"), ({"survive": "gpu"}, "not modelled"),
    ({"spot_prices": {}}, "no spot price of h100-sxm is stated")])
def test_what_does_not_go_with_evictions_is_refused(options: dict[str, Any], words: str, chat: Trace) -> None:
    with pytest.raises(UsageError, match=words):
        size(chat, H100, OBJECTIVES, replace(PLAIN, **options))
