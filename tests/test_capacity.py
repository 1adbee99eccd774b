"""Capacity: known answers of queueing theory, brackets that say where attainment is not monotone, and horizons."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import H100, fails, planner
from helpers import number, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some
from test_trace_recorded import recorded
from watching import Recorded

from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import shape_load
from planner.errors import UnknownNameError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning import capacity_search
from planner.planning.bracket import UnlimitedError, find_bracket
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.planning.sought import Rates, verdict
from planner.progress import shown_by
from planner.report.plan_tables import capacity_table
from planner.run import replay
from planner.settings.objectives import Objectives, Verdict, judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.settings.statistic import Statistic, statistics_ms
from planner.traces import Trace, read_trace

ONE_SLOT = Scenario(step_time="linear:0.1,1e-9", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False)
POISSON = Search(scaling="poisson", replicates=0, horizon="trace", compare_assumptions=False)
COMPRESS = replace(POISSON, scaling="compress")
CHAT = Scenario(model="llama-3.1-8b", gpu="h100-sxm")


def one_token_requests(count: int) -> Trace:
    return trace_of([(float(k), 1, 1) for k in range(count)])


def waits_at_most(wait_s: float, rate: float, service_s: float) -> float:
    """Return P(W <= w) of M/D/1, by Erlang's formula (Tijms, A First Course in Stochastic Models, 9.6)."""
    terms = [(rate * (k * service_s - wait_s)) ** k / math.factorial(k) * math.exp(-rate * (k * service_s - wait_s))
             for k in range(int(wait_s / service_s) + 1)]
    return (1 - rate * service_s) * sum(terms)


def test_deterministic_service_and_one_slot_have_the_capacity_of_m_d_1() -> None:
    objectives = parse_objectives("ttft:350", 0.9)  # one service of 100 ms, and 250 ms of waiting
    low, high = 1.0, 9.9
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(0.25, middle, 0.1) >= 0.9 else (low, middle)
    found = capacity(one_token_requests(60_000), ONE_SLOT, objectives, POISSON)
    assert found.capacity == pytest.approx(low, rel=0.02)
    assert found.limiting_metric == "ttft"
    assert (found.attainment_at_capacity or 0.0) >= 0.9
    assert number(found.bracket.upper) / found.bracket.lower < 1.0051


def test_an_interval_is_said_to_do_nothing() -> None:
    search = COMPRESS
    found = capacity(read_trace("chat"), replace(CHAT, interval=0.8, limit=200), parse_objectives("ttft:500", 0.9),
                     search)
    assert [note for note in found.notes if "interval" in note] == [
        "--interval has no effect here: the confidence uses the held-out errors without it"]


def test_unlimited_resources_have_no_capacity_to_find() -> None:
    scenario = Scenario(step_time="linear:1e-3,1e-12", num_gpu_blocks=10**7, max_num_seqs=0, max_num_batched_tokens=0)
    with pytest.raises(UnlimitedError, match="the capacity is unlimited; give tighter limits"):
        capacity(one_token_requests(200), scenario, parse_objectives("ttft:1000", 0.99), POISSON)


@pytest.mark.parametrize("scaling", ["thin", "compress", "poisson"])
def test_objectives_that_no_request_can_keep_are_a_result(scaling: str) -> None:
    """A server takes 100 ms for each request, whatever the rate: that is the best TTFT, 100 % above a limit of 50."""
    found = capacity(one_token_requests(50), ONE_SLOT, parse_objectives("ttft:50 p99_e2el:80", 0.9),
                     replace(POISSON, scaling=scaling))
    assert (found.feasible, found.capacity, found.probes) == (False, 0.0, ())
    assert [each.objective for each in found.missed] == ["ttft", "p99_e2el"]
    for each, limit_ms in zip(found.missed, (50, 80), strict=True):
        assert each.best_ms == pytest.approx(100, rel=1e-3)
        assert each.missed_by == pytest.approx(100 / limit_ms - 1, rel=1e-2)
    assert "TTFT of 90 % of the requests is 100 ms at best" in str(capacity_table(found))


def test_requests_that_come_together_can_keep_no_objective_together() -> None:
    """Ten requests at each second's start, a tenth of a second each: the last waits 0.9 s at every compressed rate."""
    trace = trace_of([(float(k // 10), 1, 1) for k in range(200)])
    found = capacity(trace, ONE_SLOT, parse_objectives("ttft:550", 1.0), COMPRESS)
    assert not found.feasible
    assert found.missed[0].best_ms == pytest.approx(1000, rel=0.01)
    assert number(found.bracket.upper) < 0.01
    thinned = capacity(trace, ONE_SLOT, parse_objectives("ttft:550", 0.9), replace(COMPRESS, scaling="thin"))
    assert thinned.capacity > 1  # fewer users come together less


@pytest.mark.parametrize("policy", ["fcfs", "prefill-first", "decode-first"])
@pytest.mark.parametrize(("source", "slo", "limit"), [
    ("chat", "ttft:500 tpot:50", 4000), ("code", "ttft:1500", 3000), ("long-context", "ttft:6000 tpot:100", 300),
    ("azure_llm_2023_conv.csv", "p95_ttft:400", 4000), ("azure_llm_2023_code.csv", "ttft:2000 tpot:40", 3000),
    ("mooncake_conversation_trace.jsonl.gz", "ttft:15000 tpot:500", 600)])
def test_it_is_within_a_per_cent_of_a_fine_grid(source: str, slo: str, limit: int, policy: str) -> None:
    """Six workloads, three of them recorded, and three policies; where attainment is not monotone it is said."""
    scenario = replace(CHAT, policy=policy, limit=limit)
    trace, search = recorded(source) if "." in source else read_trace(source), COMPRESS
    found = capacity(trace, scenario, parse_objectives(slo, 0.95), search)
    shaped = shape_load(scenario, trace)
    load = Rates(deployment=resolve(scenario, shaped), trace=shaped, objectives=parse_objectives(slo, 0.95),
                 search=search)
    rate = found.capacity
    kept = [x for x in rate * np.geomspace(0.5, 1.6, 120) if verdict(load, float(x)).is_met]
    assert max(kept) == pytest.approx(rate, rel=0.01) or not found.is_monotone
    assert verdict(load, rate).is_met
    assert not verdict(load, number(found.bracket.upper)).is_met


def step_at(rates: dict[tuple[float, float], bool]) -> Any:
    def evaluate(rate: float) -> Verdict:
        met = next(value for (low, high), value in rates.items() if low <= rate < high)
        return Verdict(is_met=met, attainment=float(met), limiting_metric="ttft")
    return evaluate


def test_a_search_says_why_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 prompts of one block, in replays that count as long from 2,000 blocks on."""
    monkeypatch.setattr(capacity_search, "MANY_BLOCKS", 2000)
    scenario = scenario_of(max_num_seqs=1, step_time="linear:0.01,0.0", block_size=1, num_gpu_blocks=100)
    for count, is_long in ((1000, False), (2000, True)):
        watch = Recorded()
        with shown_by(watch):
            capacity(one_token_requests(count), scenario, parse_objectives("ttft:100", 0.9),
                     Search(horizon="trace", scaling="compress", replicates=0, compare_assumptions=False))
        said = "each replay looks up 0 million KV blocks; --limit and --replicates 0 make the search shorter"
        assert (said in [each.what for each in watch.ended]) == is_long


def test_requests_that_are_rejected_are_said() -> None:
    """Within 98 % of the requests, one that is too long may be rejected; the answer names it."""
    trace = trace_of([(0.1 * k, 3000 if k == 50 else 100, 10) for k in range(100)])
    scenario = scenario_of(max_num_seqs=4, step_time="linear:0.01,0", max_model_len=2048)
    for of in ("requests", "concurrency"):
        found = capacity(trace, scenario, parse_objectives("ttft:2000", 0.98), replace(COMPRESS, of=of))
        assert found.feasible
        start = "1 request is rejected: it has prompts of max_model_len = 2,048"
        assert any(note.startswith(start) for note in found.notes), found.notes


def test_a_bracket_that_is_not_monotone_says_so() -> None:
    island = step_at({(0, 10): True, (10, 10.4): False, (10.4, 11): True, (11, 1e99): False})
    found = find_bracket(island, 3.0)
    assert not found.is_monotone
    assert found.kept_above or found.missed_below
    assert island(found.lower).is_met
    hole = step_at({(0, 7): True, (7, 9.2): False, (9.2, 10): True, (10, 1e99): False})
    found = find_bracket(hole, 9.5)
    assert found.lower == pytest.approx(7, rel=0.006)  # all below it hold
    assert found.kept_above == pytest.approx(tuple(r for r, v in found.probes if v.is_met and r > 7))
    assert not found.is_monotone


@given(edge=some.floats(0.1, 1e5), start=some.floats(1e-2, 1e3))
def test_a_monotone_bracket_holds_the_edge(edge: float, start: float) -> None:
    found = find_bracket(lambda rate: Verdict(is_met=rate <= edge, attainment=1.0, limiting_metric="ttft"), start)
    assert found.is_monotone
    assert found.lower <= edge < found.upper <= 1.005 * found.lower
    assert [rate for rate, _ in found.probes] == sorted(rate for rate, _ in found.probes)


def test_a_short_run_makes_an_overload_look_good_and_a_longer_one_does_not() -> None:
    """At 12 requests/s a server of 10/s fails, though of 60 requests the last waits a second only."""
    trace = trace_of([(k / 12, 1, 1) for k in range(60)])
    objectives = parse_objectives("ttft:1200", 0.99)
    short = capacity(trace, ONE_SLOT, objectives, COMPRESS)
    found = capacity(trace, ONE_SLOT, objectives, replace(COMPRESS, horizon="double"))
    assert short.capacity > 11.9
    assert short.stationary is None
    assert found.capacity == pytest.approx(10.0, rel=0.03)
    assert found.stationary
    assert [row.num_requests for row in found.horizon][:3] == [60, 120, 240]


def test_two_hundred_a_second_on_eight_instances_have_one_verdict() -> None:
    """A thousand requests leave before a queue has grown; the capacity is the same whatever length it starts from."""
    eight = replace(CHAT, data_parallel_size=8, max_num_seqs=128)
    objectives = parse_objectives("p99_ttft:500", 0.99)
    p99_ms, rates = [], []
    for count in (1_000, 5_000, 20_000):
        rng = np.random.default_rng(1)
        arrivals = np.cumsum(rng.exponential(1 / 200, count))
        lengths = rng.lognormal(np.log(450), 0.6, (2, count)).clip(10, 4000).astype(int)
        trace = trace_of(list(zip(arrivals.tolist(), *lengths.tolist(), strict=True)))
        p99_ms.append(replay(trace, eight, slo=None, recording=Recording()).summary["p99_ttft_ms"])
        found = capacity(trace, eight, objectives, replace(COMPRESS, horizon="double"))
        assert found.stationary
        assert found.num_gpus == 8
        rates.append(found.capacity)
    assert p99_ms[0] < 500 < 5_000 < p99_ms[1] < p99_ms[2]  # each run by itself says something else
    assert max(rates) < 200
    assert max(rates) / min(rates) < 1.05


def test_confidence_comes_from_windows_and_from_the_step_times_errors() -> None:
    objectives = parse_objectives("ttft:500 tpot:50", 0.95)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=3000)
    found = capacity(read_trace("chat"), scenario, objectives, replace(COMPRESS, replicates=12, jobs=1))
    confidence = found.confidence
    assert confidence is not None
    assert confidence.p10 < confidence.p50 < confidence.p90
    assert 0.6 < confidence.p10 / found.capacity < 1
    again = capacity(read_trace("chat"), scenario, objectives, replace(COMPRESS, replicates=12, jobs=2))
    assert again.confidence == confidence  # the same in however many processes


def test_slower_steps_scale_rates_and_limits_alike() -> None:
    trace, objectives = one_token_requests(5000), parse_objectives("ttft:350", 0.9)
    slow = Scenario(step_time="linear:0.2,2e-9", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False)
    fast = capacity(trace, ONE_SLOT, objectives.scaled(0.5), POISSON).capacity
    assert capacity(trace, slow, objectives, POISSON).capacity == pytest.approx(fast / 2, rel=0.006)


def test_every_tenant_may_have_to_keep_them() -> None:
    nan = math.nan
    times = {"ttft": np.array([0.1, 0.1, 0.1, 0.9]), "tpot": np.full(4, nan), "e2el": np.full(4, 1.0)}
    objectives = parse_objectives("ttft:500", 0.7)
    assert judge(objectives, times).is_met
    split = judge(objectives, times, np.array([0, 0, 1, 1]))
    assert (split.is_met, split.attainment) == (False, 0.5)


def test_percentiles_count_requests_without_an_answer_as_slow() -> None:
    nan = math.nan
    objectives = parse_objectives("p50_ttft:500 p100_tpot:10", 0.99)
    assert objectives.slo.limits_s == {}
    times = {"ttft": np.array([0.1, 0.1, 0.1]), "tpot": np.array([nan, nan, 0.005]), "e2el": np.array([1.0, 1.0, 1.0])}
    assert judge(objectives, times).is_met  # one-token outputs have no TPOT to miss
    lost = {**times, "e2el": np.array([1.0, nan, 1.0])}
    verdict = judge(objectives, lost)
    assert (verdict.is_met, verdict.limiting_metric, verdict.strain) == (False, "p100_tpot", math.inf)
    assert verdict.shortfall.startswith("p100 TPOT has no end, 10 ms allowed; 33.3 % of the requests are never "
                                        "answered")
    assert judge(objectives, times).shortfall == ""


@pytest.mark.parametrize(("text", "attainment", "error", "words"), [
    ("ttft:500", 0.0, UsageError, "--attainment 0.0"),
    ("p101_ttft:500", 0.9, UsageError, "no percentile"),
    ("p99_ttfd:500", 0.9, UnknownNameError, "ttft"),
    ("p99_ttft:5 p99.0_ttft:6", 0.9, UsageError, "p99_ttft is given twice"),
    ("p99_ttft:x", 0.9, UsageError, "milliseconds"),
])
def test_bad_objectives(text: str, attainment: float, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_objectives(text, attainment)


def test_scaled_objectives_scale_every_limit() -> None:
    found = parse_objectives("ttft:500 p99_tpot:40", 0.9).scaled(2.0)
    assert found == Objectives(slo=parse_objectives("ttft:1000", 0.9).slo, attainment=0.9,
                               statistics={Statistic(metric="tpot", percentile=99.0): 0.08}, own_factor=2.0)


@pytest.mark.parametrize(("scenario", "search", "words"), [
    ({"request_rate": 4.0}, {}, "--request-rate 4.0: this command finds the load"),
    ({"max_concurrency": 4}, {}, "--max-concurrency 4"),
    ({}, {"scaling": "squeeze"}, "--scaling squeeze: must be one of thin, compress"),
    ({}, {"horizon": "long"}, "--horizon long"),
    ({}, {"by_tenant": True}, "--by-tenant: .* has no column tenant"),
])
def test_options_that_do_not_fit(scenario: dict[str, Any], search: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capacity(one_token_requests(20), replace(ONE_SLOT, **scenario), parse_objectives("ttft:500", 0.9),
                 Search(**{"replicates": 0, **search}))


def test_a_trace_without_a_rate_is_refused() -> None:
    with pytest.raises(UsageError, match="3 requests over 0 s: no rate to change"):
        capacity(trace_of([(0.0, 1, 1)] * 3), ONE_SLOT, parse_objectives("ttft:500", 0.9), POISSON)


def test_a_seed_of_the_search_goes_with_a_recorded_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k},100,2\n" for k in range(50)))
    options = ("--slo", "ttft:50", "--horizon", "trace", "--replicates", 0, "--scaling", "poisson", "--json", "-")
    found = [json.loads(planner("capacity", trace, *H100, *options, "--seed", seed).stdout) for seed in (1, 2)]
    assert found[0]["workload"]["seed"] == 1
    assert found[0]["capacity_rps"] != found[1]["capacity_rps"]


def test_the_command_prints_and_writes_the_capacity(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    run = planner("capacity", "chat", *H100, "--slo", "ttft:500 tpot:50", "--limit", 2000, "--replicates", 4,
                  "--jobs", 1, "--horizon", "trace", "--json", path)
    assert run.returncode == 0, run.stderr
    result = json.loads(path.read_text())
    assert f"capacity {result['capacity_rps']:.4g} requests/s" in run.stdout
    assert {"capacity_rps", "capacity_rps_per_gpu", "rate_scale", "attainment", "attainment_at_capacity",
            "limiting_metric", "bracket", "confidence", "stationary", "probes"} <= result.keys()
    assert {"p10", "p50", "p90"} == result["confidence"].keys()
    assert {"rate_rps", "attainment", "is_met", "limiting_metric", "statistics_ms"} == result["probes"][0].keys()
    assert {row["scaling"] for row in result["scalings"]} == {"thin", "compress", "resample", "poisson"}
    assert (result["scaling"], result["router"], result["routers"]) == ("thin", None, [])
    assert "requests/s by scaling: thin" in run.stdout
    assert result["slo"] == {"text": "ttft:500 tpot:50", "limits_s": {"ttft": 0.5, "tpot": 0.05}, "attainment": 0.99}
    run = planner("capacity", "chat", *H100, "--slo", "ttft:1 p99_tpot:2000", "--json", path)
    assert run.returncode == 1
    assert "capacity 0 requests/s: no rate meets ttft:1 for 99 % of the requests, p99_tpot:2000" in run.stdout
    result = json.loads(path.read_text())
    assert (result["feasible"], result["capacity_rps"]) == (False, 0)
    (missed,) = result["missed"]
    assert (missed["objective"], missed["limit_ms"]) == ("ttft", 1)
    assert missed["best_ms"] == pytest.approx(1 + missed["missed_by"])
    fails(planner("capacity", "chat", *H100, "--slo", "ttft:500", "--attainment", 2), 2, "--attainment 2.0")


def test_the_capacity_behind_other_routers_is_given_with_it() -> None:
    """Eight replicas that take a tenth of a second a request: by turns they bear more than at random."""
    search = replace(POISSON, compare_assumptions=True, jobs=1)
    found = capacity(one_token_requests(4000), replace(ONE_SLOT, data_parallel_size=8),
                     parse_objectives("ttft:300", 0.99), search)
    rates = {row.router: row.capacity or 0.0 for row in found.routers}
    assert list(rates) == ["random", "round-robin", "least-outstanding-requests"]
    assert found.router == "random"
    assert rates["round-robin"] > 1.1 * rates["random"] == 1.1 * found.capacity
    assert any(f"{rates['round-robin']:.4g} requests/s with round-robin" in note for note in found.notes)
    in_turn = capacity(one_token_requests(4000), replace(ONE_SLOT, data_parallel_size=8, router="round-robin"),
                       parse_objectives("ttft:300", 0.99), POISSON)
    assert in_turn.capacity == pytest.approx(rates["round-robin"], rel=0.03)


def test_the_spread_over_ways_of_scaling_is_stated_with_the_answer() -> None:
    """A batch of 20 at once every minute: thinned batches are smaller, compressed ones as large, Poisson ones gone."""
    trace = trace_of([(60.0 * (k // 20), 1, 1) for k in range(2000)])
    found = capacity(trace, ONE_SLOT, parse_objectives("ttft:1500", 0.99),
                     replace(POISSON, scaling="thin", compare_assumptions=True, jobs=1))
    rates = {row.scaling: row.capacity for row in found.scalings}
    assert number(rates["poisson"]) > 5 * number(rates["thin"])
    assert rates["compress"] is None  # twenty at once take two seconds at any rate
    assert any("depends on how the rate is scaled" in note for note in found.notes)
    text = str(capacity_table(found))
    assert f"poisson {rates['poisson']:.4g}" in text
    assert "compress –" in text


def test_a_tried_load_has_the_statistics_of_its_replay() -> None:
    """By name, of all requests, and the objective's own percentile; one without an end is null."""
    trace, scenario = read_trace("chat"), Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=1000)
    objectives = parse_objectives("p97.5_ttft:300")
    found = capacity(trace, scenario, objectives, Search(replicates=0, horizon="trace", scaling="compress"))
    probe = found.probes[0]
    summary = replay(trace, replace(scenario, request_rate=probe.load), slo=objectives).summary
    assert probe.statistics_ms is not None
    for name in ("mean_ttft", "p90_tpot", "p99_e2el"):
        assert probe.statistics_ms[name] == pytest.approx(summary[f"{name}_ms"], rel=1e-6)
    assert probe.statistics_ms["p97.5_ttft"] == pytest.approx(summary["objectives"][0]["value"], rel=1e-6)
    unanswered = {name: np.array([1.0, math.nan]) for name in ("ttft", "tpot", "e2el")}
    assert statistics_ms(unanswered)["p99_ttft"] is None
