"""Two pools divided by the prompt length: the search against all fleets replayed, the answer, and what it refuses."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import scenario_of, trace_of
from test_pools import fleet_of
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.deployment.deploy import resolve
from planner.errors import FleetError, UsageError
from planner.files.keys import asdict, fromdict
from planner.planning.fewest import divided_into
from planner.planning.missed import UnreachableError
from planner.planning.search_options import Choices, parse_thresholds
from planner.planning.size_answer import SizeAnswer
from planner.planning.sizing import size
from planner.planning.thresholds import QUANTILES, fewest_of_both, thresholds_of
from planner.replays.fleet.replicas import serve
from planner.report.findings import findings
from planner.report.plan_tables import sizing_table
from planner.report.report_source import answer_of
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

OPEN: tuple[dict[str, Any], ...] = ({"name": "short", "gpu": "l40s", "accepts": "input_tokens < threshold"},
                                    {"name": "long", "gpu": "h100-sxm", "accepts": "input_tokens >= threshold"})
CHOICES = Choices(prices={"l40s": 0.6, "h100-sxm": 2.5}, compare_assumptions=False, jobs=1)
OBJECTIVES = parse_objectives("ttft:400 tpot:40", 0.95)


def load() -> Trace:
    """120 requests in six seconds, of 200 to 6,000 tokens."""
    rng = np.random.default_rng(3)
    lengths = np.round(200 * 30 ** rng.random(120)).astype(int)
    return trace_of([(0.05 * k, int(length), 40) for k, length in enumerate(lengths)])


@pytest.mark.parametrize("prices", [(1.0, 2.5), (2.5, 1.0), (1.0, 1.0), (0.4, 3.0)])
@pytest.mark.parametrize(("slo", "attainment"), [("e2el:4500", 0.9), ("e2el:4500", 0.7), ("p50_e2el:4500", None)])
def test_the_search_finds_the_cheapest_of_all_fleets(tmp_path: Path, prices: tuple[float, float], slo: str,
                                                     attainment: float | None) -> None:
    """Forty requests at two a second, of two or four seconds each, one at a time: all fleets of up to 8 + 8 replicas.

    The objectives are of all requests together, so a pool may miss them for its own.
    """
    trace = trace_of([(0.5 * k, 100 if k % 3 else 10, 2) for k in range(40)])
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50", "step_time": "linear:1,0"},
                     {"accepts": "input_tokens >= 50", "step_time": "linear:2,0"})
    deployment = resolve(scenario_of(fleet=fleet, max_num_seqs=1, router="least-outstanding-requests"), trace)
    objectives = parse_objectives(slo, attainment)
    able = [counts for counts in product(range(1, 9), repeat=2)
            if judge(objectives, serve(trace, divided_into(deployment, *counts)).times_s).is_met]
    found = fewest_of_both(trace, deployment, objectives, prices)
    counts = tuple(pool.num_replicas for pool in found.deployment.pools)
    assert counts in able
    assert np.dot(counts, prices) == pytest.approx(min(np.dot(each, prices) for each in able))


def test_a_pool_may_miss_what_all_requests_keep(tmp_path: Path) -> None:
    """One request in ten takes 20 s on any replica, more than its objective; nine in ten are enough."""
    trace = trace_of([(1.0 * k, 10 if k % 10 else 100, 1) for k in range(40)])
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50", "step_time": "linear:1,0"},
                     {"accepts": "input_tokens >= 50", "step_time": "linear:20,0"})
    deployment = resolve(scenario_of(fleet=fleet, max_num_seqs=1, router="least-outstanding-requests"), trace)
    found = fewest_of_both(trace, deployment, parse_objectives("e2el:2500", 0.9), (1.0, 1.0))
    assert [pool.num_replicas for pool in found.deployment.pools] == [1, 1]
    with pytest.raises(UnreachableError):
        fewest_of_both(trace, deployment, parse_objectives("e2el:2500", 0.95), (1.0, 1.0))


def test_thresholds_are_quantiles_that_divide_the_prompts() -> None:
    trace = trace_of([(0.0, length, 1) for length in range(1, 102)])
    assert thresholds_of(trace, Choices()) == [1 + round(100 * share) for share in QUANTILES]
    assert thresholds_of(trace, Choices(thresholds=(70, 30))) == [30, 70]
    assert thresholds_of(trace_of([(0.0, 10, 1), (0.0, 10, 1), (0.0, 20, 1)]), Choices()) == [20]
    assert parse_thresholds("2048, 8192") == (2048, 8192)
    with pytest.raises(UsageError, match="--thresholds '1,1': must be whole numbers above 0, each once"):
        parse_thresholds("1,1")


def test_the_answer_is_the_cheapest_of_all_fleets_and_thresholds(tmp_path: Path) -> None:
    """Beside it: every threshold with up to 7 + 7 replicas, and each single pool as it is sized by itself."""
    trace, thresholds = load(), (600, 2000)
    scenario = Scenario(model="llama-3.1-8b", fleet=fleet_of(tmp_path, *OPEN), router="least-outstanding-requests")
    found = size(trace, scenario, OBJECTIVES, replace(CHOICES, thresholds=thresholds))
    assert found.split is not None
    assert found.split.fleet is not None
    costs: dict[int, float] = {}
    for threshold in thresholds:
        pools = [pool | {"accepts": pool["accepts"].replace("threshold", str(threshold))} for pool in OPEN]
        deployment = resolve(replace(scenario, fleet=fleet_of(tmp_path, *pools)), trace)
        able = [0.6 * first + 2.5 * second for first, second in product(range(1, 8), repeat=2) if judge(
            OBJECTIVES, serve(trace, divided_into(deployment, first, second)).times_s).is_met]
        costs[threshold] = min(able)
    tried = [row.cost_usd_per_hour for row in found.split.thresholds]
    assert tried == pytest.approx([costs[each] for each in thresholds])
    best = found.split.fleet
    assert best.cost_usd_per_hour == pytest.approx(min(costs.values()))
    assert best.threshold_tokens == min(costs, key=lambda each: costs[each])
    assert best.cost_usd_per_hour == sum(pool.cost_usd_per_hour for pool in best.pools)
    assert [pool.accepts for pool in best.pools] == [f"input_tokens < {best.threshold_tokens}",
                                                     f"input_tokens >= {best.threshold_tokens}"]
    assert sum(pool.num_requests for pool in best.pools) == trace.num_requests
    single = size(trace, replace(scenario, fleet=None), OBJECTIVES,
                  replace(CHOICES, gpus=["l40s", "h100-sxm"], ranks=(1,)))
    assert single.cheapest is not None
    assert found.cheapest == single.cheapest
    assert found.split.single_cost_usd_per_hour == single.cheapest.cost_usd_per_hour
    assert found.split.saving == pytest.approx(1 - best.cost_usd_per_hour / single.cheapest.cost_usd_per_hour)
    text = str(sizing_table(found))
    assert text.startswith(f"two pools: threshold {best.threshold_tokens:,} tokens, ")
    assert text.splitlines()[0].endswith("saves 14 % of the best single pool's 5.00 USD/h")
    values = json.loads(json.dumps(asdict(found)))
    assert fromdict(SizeAnswer, values) == found
    page = findings(answer_of(values, "size.json"))
    assert any("Thresholds between two pools" in listing.title for listing in page.listings)


def test_spares_are_of_each_pool(tmp_path: Path) -> None:
    scenario = Scenario(model="llama-3.1-8b", fleet=fleet_of(tmp_path, *OPEN))
    plain, spare = (size(load(), scenario, OBJECTIVES, replace(CHOICES, thresholds=(2000,), num_spare=number)).split
                    for number in (0, 1))
    assert plain is not None
    assert spare is not None
    assert plain.fleet is not None
    assert spare.fleet is not None
    assert [pool.num_replicas for pool in spare.fleet.pools] == [pool.num_replicas + 1 for pool in plain.fleet.pools]
    assert spare.fleet.cost_usd_per_hour == pytest.approx(plain.fleet.cost_usd_per_hour + 3.1)
    assert spare.fleet.num_gpus == plain.fleet.num_gpus + 2


def test_no_threshold_may_meet_the_objectives(tmp_path: Path) -> None:
    """A first token within a millisecond is beyond any fleet, and the answer says so of both."""
    scenario = Scenario(model="llama-3.1-8b", fleet=fleet_of(tmp_path, *OPEN))
    found = size(load(), scenario, parse_objectives("ttft:1", 0.99), replace(CHOICES, thresholds=(2000,)))
    assert not found.feasible
    assert found.split is not None
    assert found.split.fleet is None
    assert found.split.thresholds[0].reason is not None
    assert "no threshold meets the objectives" in str(sizing_table(found))


REFUSED: list[tuple[tuple[dict[str, Any], ...], str]] = [
    (OPEN[:1], "give accepts = 'input_tokens < threshold' in one pool, and 'input_tokens >= threshold' in the other"),
    (({"gpu": "l40s"}, {"name": "b", "gpu": "l40s"}), "finds the threshold between two pools and their replicas"),
    ((OPEN[0] | {"replicas": 2}, OPEN[1]), "pool 'short': replicas = 2: the number of replicas is looked for"),
    ((OPEN[0], {"name": "long", "gpu": "h100-sxm"}), "both pools accept some requests"),
    ((OPEN[0], OPEN[1] | {"accepts": "input_tokens > 5000"}), "no pool accepts request"),
    ((OPEN[0], OPEN[1] | {"gpu": "h100-sx"}), "unknown GPU 'h100-sx'"),
]


@pytest.mark.parametrize(("pools", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_fleets_that_cannot_be_sized(tmp_path: Path, pools: tuple[dict[str, Any], ...], said: str) -> None:
    with pytest.raises((UsageError, FleetError), match=said):
        size(load(), Scenario(model="llama-3.1-8b", fleet=fleet_of(tmp_path, *pools)), OBJECTIVES,
             replace(CHOICES, thresholds=(2000,)))


def test_options_that_do_not_go_with_two_pools(tmp_path: Path) -> None:
    scenario = Scenario(model="llama-3.1-8b", fleet=fleet_of(tmp_path, *OPEN))
    for options, said in (({"ranks": (1,)}, "give tensor_parallel_size in them"), ({"disaggregate": True}, "leave"),
                          ({"thresholds": (9,)}, "with the threshold 9, one pool has all requests")):
        with pytest.raises((UsageError, FleetError), match=said):
            size(load(), scenario, OBJECTIVES, replace(CHOICES, **options))
    with pytest.raises(UsageError, match="--thresholds 9: needs --fleet"):
        size(load(), Scenario(model="llama-3.1-8b"), OBJECTIVES, replace(CHOICES, gpus=["l40s"], thresholds=(9,)))
    run = CliRunner().invoke(app, ["size", "chat", "--model", "llama-3.1-8b", "--fleet", str(scenario.fleet), "--slo",
                                   "ttft:500", "--write", "k8s"])
    assert "--write k8s: writes replicas of one kind" in str(run.exception)
