"""Tenants' own objectives, deadlines of a trace, and the figures of each tenant."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import HEADER, LINEAR, planner
from helpers import number, scenario_of, trace_of

from planner.errors import UsageError
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.replays.fleet.replicas import serve
from planner.run import replay
from planner.settings.objectives import judge, parse_objectives
from planner.traces.shaping.tenants import read_tenants

ROWS = [(float(k), 10, 1 if k % 4 else 21) for k in range(12)]  # a step is 0.1 s: 0.1 s, and 2.1 s of each fourth
SLOW = {"step_time": "linear:0.1,1e-9", "max_num_seqs": 1, "num_gpu_blocks": 1000, "async_scheduling": False}


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    return str(path)


def test_a_request_that_ends_after_its_deadline_misses_though_its_first_token_was_in_time() -> None:
    trace = trace_of([(0.0, 10, 1), (10.0, 10, 21), (20.0, 10, 21), (30.0, 10, 21)], deadline_s=[1.0, 1.0, 3.0, None])
    summary = replay(trace, scenario_of(**SLOW), slo="ttft:500").summary
    assert summary["slo_attainment"] == 0.75  # the second ends after 2.1 s
    assert summary["slo_attainment_by_metric"] == {"ttft": 1.0, "deadline": 0.75}
    assert summary["request_goodput"] == pytest.approx(3 / summary["duration"])
    alone = replay(trace, scenario_of(**SLOW)).summary
    assert (alone["slo_attainment"], alone["slo"]) == (0.75, None)
    assert replay(trace, scenario_of(**SLOW)).requests["deadline_s"].to_list() == [1.0, 1.0, 3.0, None]


def test_deadlines_count_in_a_search_and_scale_with_the_draws_of_step_times() -> None:
    trace = trace_of([(0.0, 10, 21)] * 4, deadline_s=[2.0, 2.2, 2.2, 9.0])
    result = serve(trace, replay(trace, scenario_of(**SLOW | {"max_num_seqs": 4})).result.deployment)
    objectives = parse_objectives("ttft:500", 0.99)
    assert judge(objectives, result.times_s).attainment == 0.75
    assert judge(objectives.scaled(1.1), result.times_s).attainment == 1.0


def test_each_tenant_is_held_to_its_own_objectives(tmp_path: Path) -> None:
    tenants = own(tmp_path, '[tenant.a]\nslo = "e2el:500"\nattainment = 0.9\n[tenant.b]\nslo = "p99_e2el:3000"\n')
    trace = trace_of([(10.0 * k, 10, 21) for k in range(6)], tenant=["a", "b", "c"] * 2)
    summary = replay(trace, scenario_of(**SLOW, tenants=tenants), slo="ttft:50").summary
    by_tenant = summary["tenants"]
    assert {name: found["slo_attainment"] for name, found in by_tenant.items()} == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert summary["slo_attainment"] == pytest.approx(1 / 3)  # a misses its e2el, b has no limits, c the shared ttft
    assert [(each["name"], each["is_met"]) for each in by_tenant["a"]["objectives"]] == [
        ("e2el", False), ("attainment", False)]
    assert [(each["name"], each["is_met"]) for each in by_tenant["b"]["objectives"]] == [("p99_e2el", True)]
    assert "objectives" not in by_tenant["c"]


def test_figures_of_a_tenant_are_those_of_its_requests_alone() -> None:
    trace = trace_of(ROWS, tenant=["a", None, "b", "a"] * 3)
    outcome = replay(trace, scenario_of(**SLOW), slo="e2el:3000")
    table, summary = outcome.requests, outcome.summary
    assert list(summary["tenants"]) == ["a", "", "b"]  # most requests first
    for name, found in summary["tenants"].items():
        rows = table.filter(pl.col("tenant").fill_null("") == name)
        assert found["num_requests"] == found["completed"] == rows.height
        assert found["p99_ttft_ms"] == pytest.approx(1e3 * np.percentile(rows["ttft_s"], 99))
        assert found["median_e2el_ms"] == pytest.approx(1e3 * number(rows["e2e_s"].median()))
        tpot_s = rows["tpot_s"].drop_nulls()
        assert found["mean_tpot_ms"] == (None if tpot_s.is_empty() else pytest.approx(1e3 * number(tpot_s.mean())))
        assert found["slo_attainment"] == (rows["e2e_s"] <= 3.0).mean()
        assert found["output_throughput"] == pytest.approx(rows["output_tokens"].sum() / summary["duration"])
    assert sum(found["request_goodput"] for found in summary["tenants"].values()) == pytest.approx(
        summary["request_goodput"])
    assert "tenants" not in replay(trace_of(ROWS), scenario_of(**SLOW)).summary


def test_the_command_line_tells_tenants_apart(tmp_path: Path) -> None:
    trace, tenants = tmp_path / "trace.csv", own(tmp_path, '[tenant.t1]\nslo = "ttft:1"\nattainment = 0.5\n')
    rows = "".join(f"{k},100,10,t{k % 30}\n" for k in range(60))
    trace.write_text(HEADER.strip() + ",tenant\n" + rows)
    run = planner("replay", trace, *LINEAR, "--tenants", tenants, "--json", tmp_path / "out.json")
    assert run.returncode == 1
    assert "missed: tenant t1: 0 % of the requests keep TTFT within 1 ms, 50 % required" in run.stderr
    assert "… 18 more tenants; --json has all" in run.stdout
    assert len(json.loads((tmp_path / "out.json").read_text())["tenants"]) == 30


@pytest.mark.parametrize(("text", "words"), [
    ('[tenant.a]\nslo = "tfft:5"\n', "did you mean 'ttft'"),
    ("[tenant.a]\nslo = 5\n", "slo = 5; must be text in quotes"),
    ("[tenant.a]\nattainment = 0.9\n", "needs slo with an objective of each request"),
    ('[default]\nslo = "ttft:5"\nattainment = 2\n', "must be a share in"),
])
def test_bad_objectives_of_a_tenant(tmp_path: Path, text: str, words: str) -> None:
    path = Path(own(tmp_path, text))
    with pytest.raises(UsageError, match=words) as caught:
        read_tenants(path)
    assert str(path) in str(caught.value)


def test_a_search_refuses_thresholds_of_single_tenants(tmp_path: Path) -> None:
    trace = trace_of(ROWS, tenant=["a", "b"] * 6)
    refused: dict[str, Any] = {**SLOW, "tenants": own(tmp_path, '[tenant.a]\nslo = "p99_ttft:500"\n')}
    with pytest.raises(UsageError, match=r"a: slo = 'p99_ttft:500'.* judges all requests together"):
        capacity(trace, scenario_of(**refused), parse_objectives("ttft:500", 0.9), Search(replicates=0))
    limits = scenario_of(**{**SLOW, "tenants": own(tmp_path, '[tenant.a]\nslo = "e2el:50"\n')})
    verdict = judge(parse_objectives("ttft:500", 0.9), replay(trace, limits).result.times_s)
    assert verdict.attainment < 0.9
    assert "TTFT within their tenant's limit and end-to-end latency within" in verdict.shortfall
    assert not math.isnan(verdict.strain)
