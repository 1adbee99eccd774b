"""Saturation: queues of known capacity, loads that end before their batches are full, and overload that is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import num_drawn, play, scenario_of, trace_of
from test_trace_recorded import recorded

from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import shape_load
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.replays.fleet.replicas import serve
from planner.results.saturation import CANNOT_TELL, NO, YES, saturation, saturation_sentence
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.client_load import client_load
from planner.traces.shaping.rescaling import at_rate

STEP_S = 0.01
QUEUES = {"M/D/1": (1, 1), "batch service": (8, 1), "M/D/c": (8, 20)}  # seats, and steps of a request
SEEDS = range(10)


def poisson(rate_per_s: float, count: int, seed: int, output_tokens: int) -> Trace:
    """Return Poisson arrivals of one-token prompts."""
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, count))
    return trace_of([(at_s, 1, output_tokens) for at_s in arrival_s.tolist()])


def verdict(kind: str, share: float, count: int, seed: int) -> str:
    """Return the verdict on a queue at a share of its capacity."""
    seats, steps = QUEUES[kind]
    trace = poisson(share * seats / (steps * STEP_S), count, seed, steps)
    scenario = scenario_of(max_num_seqs=seats, step_time=f"linear:{STEP_S},0", num_gpu_blocks=10**6)
    return str(saturation(serve(trace, resolve(scenario, trace))).saturated)


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("share", [0.8, 0.9, 0.95, 1.05, 1.1, 1.2])
def test_queues_below_and_above_their_capacity(kind: str, share: float) -> None:
    """No verdict is wrong, and well away from the capacity none is missing."""
    found = [verdict(kind, share, 4000, seed) for seed in SEEDS]
    right, wrong = (NO, YES) if share < 1 else (YES, NO)
    assert wrong not in found
    if abs(share - 1) >= 0.2:
        assert set(found) == {right}


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("share", [0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2])
@pytest.mark.parametrize("count", [300, 3000])
def test_verdicts_are_right_for_99_in_100_seeds(kind: str, share: float, count: int) -> None:
    """Of 200 with PLANNER_LAWS=all, at most two wrong; else of 40, at most one."""
    wrong, num_seeds = YES if share < 1 else NO, num_drawn(40, 200)
    assert sum(verdict(kind, share, count, seed) == wrong for seed in range(num_seeds)) <= max(1, num_seeds // 100)


def test_a_queue_that_grows_has_its_beginning_and_its_rates() -> None:
    """An M/D/1 queue of 100/s gets 80/s for 50 s and 150/s for 50 s: it keeps up until the rate changes."""
    rng = np.random.default_rng(5)
    gaps_s = np.concatenate((rng.exponential(1 / 80, 4000), rng.exponential(1 / 150, 7500)))
    trace = trace_of([(at_s, 1, 1) for at_s in np.cumsum(gaps_s).tolist()])
    found = saturation(play(trace, max_num_seqs=1, step_time=f"linear:{STEP_S},0"))
    assert found.saturated == YES
    assert found.saturated_since_s == pytest.approx(50, abs=8)
    assert found.offered_request_rate == pytest.approx(150, rel=0.05)
    assert found.served_request_rate == pytest.approx(100, rel=0.01)
    assert (found.saturation_confidence or 0.0) > 0.999
    assert saturation_sentence(found).endswith("; latencies depend on the trace's length")


@pytest.mark.parametrize("count", [1000, 5000, 20_000])
def test_a_load_that_ends_before_its_batches_are_full(count: int) -> None:
    """200 requests/s of 512 and 512 tokens for a 14B model on eight H100.

    1,000 of them end in 5 s, before the first request has left: no queue has come yet, and TTFT is short. They need
    twice as many seats as there are.
    """
    scenario = Scenario(model="qwen3-14b", gpu="h100-sxm", data_parallel_size=8, router="least-outstanding-requests",
                        max_num_seqs=128, num_prompts=count, random_input_len=512, random_output_len=512,
                        request_rate=200.0)
    summary = replay(client_load(scenario), scenario).summary
    assert summary["saturated"] == YES
    assert summary["offered_request_rate"] == pytest.approx(200, rel=0.03)
    assert 80 < summary["served_request_rate"] < 105
    if count == 1000:
        assert summary["p99_ttft_ms"] < 500


def test_enough_replicas_for_the_same_load_keep_up() -> None:
    scenario = Scenario(model="qwen3-14b", gpu="h100-sxm", data_parallel_size=32, router="least-outstanding-requests",
                        num_prompts=20_000, random_input_len=512, random_output_len=512, request_rate=200.0)
    assert replay(client_load(scenario), scenario).summary["saturated"] == NO


@pytest.mark.parametrize("options", [{"max_queued_requests": 5}, {"request_timeout": 0.2}])
def test_a_deployment_that_keeps_up_by_refusing_does_not_keep_up(options: dict[str, float]) -> None:
    """150/s at an M/D/1 queue of 100/s: it stays short, since others are turned away or give up."""
    trace = poisson(150, 4000, 0, 1)
    outcome = replay(trace, scenario_of(max_num_seqs=1, step_time=f"linear:{STEP_S},0", **options))
    assert outcome.summary["max_waiting"] < 100
    assert outcome.summary["saturated"] == YES
    assert outcome.summary["served_request_rate"] < 105


def test_loads_without_a_rate_of_their_own() -> None:
    trace = poisson(150, 1000, 0, 1)
    options: dict[str, Any] = {"max_num_seqs": 1, "step_time": f"linear:{STEP_S},0"}
    closed = saturation(play(trace, max_concurrency=4, **options))
    assert (closed.saturated, closed.saturation_confidence) == (NO, None)
    assert "closed loop: with at most 4 requests in flight" in str(closed.saturation_reason)
    at_once = replace(trace, requests=trace.requests.with_columns(arrival_s=pl.lit(0.0)))
    assert saturation(play(at_once, **options)).saturated == CANNOT_TELL
    few = replace(trace, requests=trace.requests.head(50))
    assert "fewer than" in str(saturation(play(few, **options)).saturation_reason)
    one_able = trace_of([(float(k), 1 if k == 7 else 500, 1) for k in range(20)])
    none_able = trace_of([(float(k), 500, 1) for k in range(20)])
    for load, reason in ((at_once, "the requests have no rate: all arrive at once"),
                         (one_able, "one request has no rate"),
                         (none_able, "every request is rejected, at any load")):
        found = saturation(play(load, max_model_len=400, **options))
        assert (found.saturated, found.saturation_reason) == (CANNOT_TELL, reason)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "slo"), [
    ("azure_llm_2023_conv.csv", "p99_ttft:1000 p99_tpot:50"), ("azure_llm_2023_code.csv", "p99_ttft:1000 p99_tpot:50"),
    ("mooncake_conversation_trace.jsonl.gz", "p90_ttft:5000 p90_tpot:50"),
    ("mooncake_synthetic_trace.jsonl.gz", "p90_ttft:5000 p90_tpot:50")])
def test_recorded_traffic_below_the_capacity_is_no_alarm(name: str, slo: str) -> None:
    trace, scenario = recorded(name), Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=20_000)
    search = Search(replicates=0, horizon="trace", compare_assumptions=False)
    found = capacity(trace, scenario, parse_objectives(slo, None), search)
    for share in (0.3, 0.6, 0.8, 0.9, 1.0):
        load = at_rate(shape_load(scenario, trace), share * found.capacity, "thin", 0)
        assert saturation(serve(load, resolve(scenario, load))).saturated != YES


def test_the_sample_keeps_up_and_twelve_times_its_load_does_not() -> None:
    chat = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
    own, more = (replay(read_trace("chat"), replace(chat, rate_scale=scale)).summary for scale in (1.0, 12.0))
    assert own["saturated"] == NO
    assert own["served_request_rate"] == pytest.approx(own["offered_request_rate"], rel=0.01)
    assert more["saturated"] == YES
    assert more["served_request_rate"] < 0.4 * more["offered_request_rate"]
