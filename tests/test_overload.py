"""Overload by hand: queues that are full, clients that hang up and come again, replicas that fail, quotas and shares.

A step takes 10 ms and 0.1 ms a token: a prompt of 10 tokens 11 ms, a decode step of one request 10.1 ms. A request of
10 tokens in and 5 out is through 51.4 ms after it is admitted to an engine with one seat.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import EVERYTHING, assert_same_requests, number, play, scenario_of, trace_of

from planner.errors import PlannerError, TraceError, UnknownNameError, UsageError
from planner.replays.fleet.failures import Failure, read_failures
from planner.replays.fleet.overload import overload_of
from planner.replays.result_tables import ReplayResult
from planner.results.phases import request_phases
from planner.results.summary import attempt_totals
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.tenants import read_tenants

FOUR = [(0.0, 10, 5), (0.001, 10, 5), (0.002, 10, 5), (0.003, 10, 5)]
LONG_S = 0.0514


def column(result: ReplayResult, name: str) -> list[Any]:
    return result.requests_table()[name].to_list()


def attempts(result: ReplayResult, *names: str) -> list[tuple[Any, ...]]:
    return result.attempts_table().select(names).rows()


def about(*values: float | None) -> Any:
    return [value if value is None else pytest.approx(value, abs=1e-9) for value in values]


def test_an_engine_turns_away_who_finds_its_queue_full() -> None:
    """Requests 1 to 3 come during the first step; at its end one of them may wait."""
    result = play(FOUR, max_num_seqs=1, max_queued_requests=1)
    assert column(result, "status") == ["completed", "completed", "rejected", "rejected"]
    assert column(result, "finished_at_s")[2:] == about(0.011, 0.011)
    assert column(result, "ttft_s") == about(0.011, LONG_S + 0.011 - 0.001, None, None)


def test_rejected_requests_miss_the_objectives() -> None:
    summary = replay(trace_of(FOUR), scenario_of(max_num_seqs=1, max_queued_requests=1), slo="ttft:1000").summary
    assert (summary["completed"], summary["rejected"], summary["slo_attainment"]) == (2, 2, 0.5)


def test_rejected_requests_come_again_after_a_pause() -> None:
    """Both come again at 61 ms, one too many; it comes a third time 100 ms after it was turned away at 62.4 ms."""
    result = play(FOUR, max_num_seqs=1, max_queued_requests=1, max_retries=2, retry_initial_backoff=0.05)
    assert column(result, "status") == ["completed"] * 4
    assert column(result, "num_attempts") == [1, 1, 2, 3]
    assert column(result, "retry_s") == about(0.0, 0.0, 0.061 - 0.002, 0.1624 - 0.003)
    assert column(result, "ttft_s") == about(0.011, 0.0614, 2 * LONG_S + 0.011 - 0.002, 0.1734 - 0.003)
    assert attempts(result, "request_id", "attempt", "status", "reason")[:4] == [
        ("2", 1, "rejected", "queue_full"), ("3", 1, "rejected", "queue_full"), ("0", 1, "completed", None),
        ("3", 2, "rejected", "queue_full")]


def test_attempts_run_out() -> None:
    result = play(FOUR, max_num_seqs=1, max_queued_requests=1, max_retries=1, retry_initial_backoff=0.02,
                  retry_backoff_multiplier=1.0)
    assert column(result, "status") == ["completed", "completed", "rejected", "rejected"]
    assert column(result, "num_attempts") == [1, 1, 2, 2]
    assert column(result, "reason") == [None, None, "queue_full", "queue_full"]


def test_pauses_grow_up_to_the_longest() -> None:
    """An engine that nobody leaves for 5 s turns away what comes; the pauses are 0.1, 0.2, 0.3 and 0.3 s."""
    rows = [(0.0, 10, 500), (0.5, 10, 500), (1.0, 10, 2)]
    result = play(rows, max_num_seqs=1, max_queued_requests=1, max_retries=4, retry_initial_backoff=0.1,
                  retry_max_backoff=0.3)
    own = [row for row in attempts(result, "request_id", "sent_at_s", "ended_at_s") if row[0] == "2"]
    pauses = np.array([row[1] for row in own[1:]]) - np.array([row[2] for row in own[:-1]])
    assert pauses == pytest.approx([0.1, 0.2, 0.3, 0.3])


def test_pauses_are_drawn_by_seed() -> None:
    def sent(seed: int | None) -> list[float]:
        result = play(FOUR, max_num_seqs=1, max_queued_requests=1, max_retries=5, retry_jitter_factor=0.2, seed=seed)
        return [row[0] for row in attempts(result, "sent_at_s")]

    assert sent(1) == sent(1) != sent(2)
    assert sent(None) == sent(0)
    first_pauses = sorted(sent(1))[4:6]
    assert all(0.8 * 0.5 <= sent_s - 0.011 <= 1.2 * 0.5 for sent_s in first_pauses)


def test_a_client_without_a_first_token_hangs_up() -> None:
    """After 30 ms, seen at the end of the step; the first request has its token by then and stays."""
    result = play(FOUR, max_num_seqs=1, ttft_timeout=0.03)
    assert column(result, "status") == ["completed", *["timed_out"] * 3]
    assert column(result, "finished_at_s") == about(LONG_S, 0.0312, 0.0413, 0.0413)
    assert result.attempts is not None
    assert attempt_totals(result.attempts).num_wasted_output_tokens == 0


def test_the_work_of_a_time_out_is_wasted() -> None:
    """Request 2 has emitted two tokens when it hangs up: 10 of its prompt and one more were computed."""
    summary = replay(trace_of(FOUR), scenario_of(max_num_seqs=1, request_timeout=0.12, max_retries=1,
                                                 retry_initial_backoff=0.01)).summary
    assert (summary["completed"], summary["num_retries"], summary["num_attempts_timed_out"]) == (4, 2, 2)
    assert (summary["num_wasted_output_tokens"], summary["num_wasted_computed_tokens"]) == (2, 11)
    assert summary["wasted_work"] == pytest.approx(11 / (4 * 14 + 11))


@pytest.mark.parametrize("timeout", [{"ttft_timeout": 0.0105}, {"request_timeout": 0.05}])
def test_an_answer_that_comes_in_the_step_of_the_time_out_is_too_late(timeout: dict[str, Any]) -> None:
    rows = [(0.0, 10, 1 if "ttft_timeout" in timeout else 5)]
    assert column(play(rows), "status") == ["completed"]
    assert column(play(rows, **timeout), "status") == ["timed_out"]


def test_the_api_server_drops_requests_whose_clients_are_gone() -> None:
    """It takes one at a time; those that it does not come to in time cost it nothing, and end then."""
    trace = trace_of([(0.0, 1000, 2)] * 300)
    options: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "max_num_seqs": 4, "ttft_timeout": 0.5}
    result = replay(trace, Scenario(**options)).result
    requests = result.records.requests
    gone = np.isnan(requests.first_token_s)
    assert 200 < gone.sum() < 300
    assert requests.finished_s[gone].max() < 0.6
    assert np.all(requests.finished_s[gone] >= 0.5)
    again = replay(trace, Scenario(**options, max_retries=3)).result.attempts_table()
    lasted_s = (again["ended_at_s"] - again["sent_at_s"]).filter(again["first_token_at_s"].is_null())
    assert number(lasted_s.max()) < 0.6


def test_a_user_who_hangs_up_does_not_come_again() -> None:
    """As the trace says, counted from the first attempt: while it waits, and in the pause between attempts."""
    options: dict[str, Any] = {"max_num_seqs": 1, "max_queued_requests": 1, "max_retries": 5,
                               "retry_initial_backoff": 0.05}
    result = play(trace_of(FOUR, cancel_after_s=[None, 0.02, 0.04, None]), **options)
    assert column(result, "status") == ["completed", "cancelled", "cancelled", "completed"]
    assert column(result, "finished_at_s")[1:3] == about(0.0211, 0.042)
    assert column(result, "num_attempts") == [1, 1, 1, 2]


def test_a_failed_replica_loses_its_requests_to_others() -> None:
    """Requests 0 and 2 are on replica 0 when it fails at 20 ms, and are sent to the other at once."""
    result = play(FOUR, max_num_seqs=2, data_parallel_size=2, router="least-outstanding-requests",
                  fail_replica="0@0.02+0.1")
    assert column(result, "status") == ["completed"] * 4
    assert column(result, "replica") == [1] * 4
    assert attempts(result, "request_id", "replica", "ended_at_s", "reason", "output_tokens")[:2] == [
        ("0", 0, pytest.approx(0.02), "replica_failed", 2), ("2", 0, pytest.approx(0.02), "replica_failed", 0)]
    assert column(result, "retry_s") == about(0.02, 0.0, 0.018, 0.0)


def test_an_attempt_that_outgrows_the_kv_cache_ends_where_its_next_step_would_begin() -> None:
    """Not at the end of the step that others have then."""
    result = play([(0.0, 1, 2), (0.0, 1, 1)], data_parallel_size=1, block_size=1, num_gpu_blocks=1, policy="fcfs",
                  scheduler_reserve_full_isl=False, max_model_len=60, request_timeout=9.0)
    assert attempts(result, "request_id", "ended_at_s") == [("0", pytest.approx(0.0101)), ("1", pytest.approx(0.0202))]
    assert column(result, "finished_at_s") == about(0.0101, 0.0202)


def test_what_ends_at_the_instant_of_a_failure_has_ended() -> None:
    result = play([(0.0, 10, 1)], step_time="linear:0.5,0", data_parallel_size=2, fail_replica="0@0.5")
    assert column(result, "status") == ["completed"]
    later = play([(0.0, 10, 1)], step_time="linear:0.5,0", data_parallel_size=2, fail_replica="0@0.49")
    assert column(later, "num_attempts") == [2]
    assert column(later, "ttft_s") == about(0.99)


def test_a_request_that_no_replica_is_open_for_is_turned_away() -> None:
    result = play([(0.0, 10, 2), (1.0, 10, 2), (3.0, 10, 2)], fail_replica="0@0.5+1")
    assert column(result, "status") == ["completed", "rejected", "completed"]
    assert column(result, "reason") == [None, "no_replica", None]
    again = play([(0.0, 10, 2), (1.0, 10, 2), (3.0, 10, 2)], fail_replica="0@0.5+1", max_retries=3)
    assert column(again, "status") == ["completed"] * 3
    assert [row[0] for row in attempts(again, "sent_at_s")] == about(0.0, 1.0, 1.5, 3.0)


def test_a_replica_comes_back_without_its_cache() -> None:
    rows = [(float(k), 32, 2) for k in range(4)]
    trace = trace_of(rows, hash_ids=[[0, 1]] * 4, hash_block_tokens=16)
    assert column(play(trace), "num_cached_tokens") == [0, 16, 16, 16]
    assert column(play(trace, fail_replica="0@1.5+0.1"), "num_cached_tokens") == [0, 16, 0, 16]


HALF_A_SECOND_A_BLOCK = 131072 * 16 / 0.5e9  # GB/s
HOST = Scenario(model="llama-3.1-8b", gpu="h100-sxm", step_time="linear:0.1,0", num_gpu_blocks=5,
                async_scheduling=False, kv_offloading_size=1.0, kv_offloading_bandwidth=HALF_A_SECOND_A_BLOCK)


def evicting() -> Trace:
    """Return prompts of four blocks, the third of them as the first, which the second has driven out of the GPU."""
    ids = [[0, 1, 2, 3], [10, 11, 12, 13], [0, 1, 2, 3], [20, 21, 22, 23]]
    return trace_of([(10.0 * k, 64, 1) for k in range(4)], hash_ids=ids, hash_block_tokens=16)


def test_a_replica_comes_back_with_nothing_in_host_memory() -> None:
    assert column(replay(evicting(), HOST).result, "cpu_cached_tokens") == [0, 0, 32, 0]
    failed = replay(evicting(), dataclasses.replace(HOST, fail_replica="0@15+1")).result
    assert column(failed, "cpu_cached_tokens") == [0, 0, 0, 0]
    assert column(failed, "ttft_s") == about(0.1, 0.1, 0.1, 0.1)


def test_a_replica_comes_back_without_adapters() -> None:
    trace = trace_of([(float(k), 4, 2) for k in range(3)], adapter=["a"] * 3)
    assert play(trace, max_loras=1).records.engine.total_adapter_loads == 1
    assert play(trace, max_loras=1, fail_replica="0@1.5+0.1").records.engine.total_adapter_loads == 2


def test_what_loads_when_its_replica_fails_comes_again() -> None:
    """The third request waits for its KV for a second; the replica fails amid it, and has nothing when it is back."""
    assert column(replay(evicting(), HOST).result, "ttft_s")[2] == pytest.approx(1.1)
    result = replay(evicting(), dataclasses.replace(HOST, fail_replica="0@20.5+1", max_retries=3)).result
    assert column(result, "status") == ["completed"] * 4
    assert column(result, "cpu_cached_tokens")[2] == 0
    assert column(result, "ttft_s")[3] == pytest.approx(0.1)
    assert result.records.engine.num_loading == 0


def test_loads_are_those_of_the_last_attempt() -> None:
    """The third request has its KV after a second, hangs up in the step after it, and finds all of it on the GPU."""
    impatient = dataclasses.replace(HOST, request_timeout=1.05, max_retries=1)
    result = replay(evicting(), impatient, recording=EVERYTHING).result
    assert column(result, "num_attempts") == [1, 1, 2, 1]
    assert column(result, "load_s") == about(0.0, 0.0, 0.0, 0.0)
    assert column(result, "cpu_cached_tokens") == [0, 0, 0, 0]
    times = request_phases(result.requests_table())
    assert times.drop("e2e_s").sum_horizontal().to_list() == pytest.approx(times["e2e_s"].to_list())
    assert column(result, "prefill_s")[2] == pytest.approx(0.1)


def test_a_session_moves_when_its_replica_fails() -> None:
    rows = [(float(k), 10, 2) for k in range(4)]
    trace = trace_of(rows, session_id=["a"] * 4)
    result = play(trace, data_parallel_size=2, router="session-affinity", fail_replica="0@0.5+1")
    assert column(result, "replica") == [0, 1, 1, 1]


def test_the_router_keeps_what_replicas_have_no_place_for() -> None:
    """One request at a time: the others wait in the router, one of them for too long for the queue."""
    result = play(FOUR, router_max_concurrent_requests=1, router_queue_size=2)
    assert column(result, "status") == ["completed", "completed", "completed", "rejected"]
    assert column(result, "gateway_s") == about(0.0, LONG_S - 0.001, 2 * LONG_S - 0.002, 0.0)
    assert column(result, "queue_s") == about(0.0, 0.0, 0.0, None)
    patient = play(FOUR, router_max_concurrent_requests=1, router_queue_timeout=0.06)
    assert column(patient, "status") == ["completed", "completed", "rejected", "rejected"]
    assert column(patient, "finished_at_s")[2:] == about(0.062, 0.063)


def test_a_client_hangs_up_in_the_routers_queue() -> None:
    result = play(FOUR, router_max_concurrent_requests=1, ttft_timeout=0.06)
    assert column(result, "status") == ["completed", "timed_out", "timed_out", "timed_out"]
    assert column(result, "finished_at_s")[1:] == about(0.0624, 0.062, 0.0734)


def test_the_tenant_that_was_served_least_goes_first() -> None:
    """a's second and third requests wait for b's, which comes last; with three times the weight, for its own turn."""
    trace = trace_of(FOUR, tenant=["a", "a", "a", "b"])
    assert np.argsort(column(play(trace, router_max_concurrent_requests=1), "finished_at_s")).tolist() == [0, 1, 2, 3]
    fair = play(trace, router_max_concurrent_requests=1, router_queue="fair")
    assert np.argsort(column(fair, "finished_at_s")).tolist() == [0, 3, 1, 2]


def test_weights_share_what_there_is(tmp_path: Path) -> None:
    """Two tenants ask for more than they get; of what is served in a while, a has three parts of four."""
    (tmp_path / "t.toml").write_text("[tenant.a]\nweight = 3\n")
    trace = trace_of([(0.0, 10, 5)] * 80, tenant=["b", "a"] * 40)
    result = play(trace, router_max_concurrent_requests=1, router_queue="fair", tenants=str(tmp_path / "t.toml"))
    first = np.argsort(column(result, "finished_at_s"))[:40]
    assert sum(int(k) % 2 for k in first) == pytest.approx(30, abs=1)


def test_a_quota_of_requests_is_a_bucket(tmp_path: Path) -> None:
    """Two at once, then one every 0.5 s: those at 0.2 and 0.4 s find it empty, or wait for it."""
    rows = [(0.0, 10, 1), (0.0, 10, 1), (0.2, 10, 1), (0.4, 10, 1), (0.6, 10, 1)]
    path = tmp_path / "t.toml"
    path.write_text("[default]\nrequests_per_second = 2\n")
    rejected = play(rows, tenants=str(path))
    assert column(rejected, "status") == ["completed", "completed", "rejected", "rejected", "completed"]
    assert column(rejected, "reason")[2] == "quota"
    path.write_text('[default]\nrequests_per_second = 2\nexcess = "delay"\n')
    delayed = play(rows, tenants=str(path))
    assert column(delayed, "gateway_s") == about(0.0, 0.0, 0.3, 0.6, 0.9)
    assert column(delayed, "ttft_s") == about(0.012, 0.012, 0.311, 0.611, 0.911)


def test_a_quota_of_tokens_counts_output_when_it_ends(tmp_path: Path) -> None:
    """10 of the prompt and 5 of the output are gone at 51.4 ms of a bucket of 20, which fills by one a second."""
    path = tmp_path / "t.toml"
    path.write_text('[tenant.a]\ntokens_per_minute = 60\nburst_tokens = 20\nexcess = "delay"\n')
    trace = trace_of([(0.0, 10, 5), (1.0, 10, 5), (1.0, 10, 5)], tenant=["a", "a", "b"])
    result = play(trace, tenants=str(path))
    level = min(20.0 - 10.0 + LONG_S, 20.0) - 5.0 + (1.0 - LONG_S)
    assert column(result, "gateway_s") == about(0.0, 10.0 - level, 0.0)


def test_a_prompt_that_is_larger_than_the_bucket_passes_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[default]\ntokens_per_minute = 600\nburst_tokens = 20\n")
    result = play([(0.0, 50, 1), (1.0, 50, 1), (8.0, 50, 1)], tenants=str(path))
    assert column(result, "status") == ["completed", "rejected", "completed"]


def test_followers_wait_for_the_last_attempt() -> None:
    """The child of a request that is lost is sent when its second attempt is through."""
    trace = trace_of([(0.0, 10, 5), (0.0, 10, 5)], parent_id=[None, "0"])
    result = play(trace, data_parallel_size=2, fail_replica="0@0.02")
    assert column(result, "num_attempts") == [2, 1]
    assert column(result, "arrival_s") == about(0.0, 0.02 + LONG_S)


def test_a_closed_loop_keeps_the_place_of_a_request_that_comes_again() -> None:
    result = play([(0.0, 10, 5), (0.0, 10, 5)], max_concurrency=1, data_parallel_size=2, fail_replica="0@0.02")
    assert column(result, "arrival_s") == about(0.0, 0.02 + LONG_S)


def test_an_autoscaled_fleet_fails_and_keeps_every_request(tmp_path: Path) -> None:
    """Replicas that start, drain and fail: no request is lost, and a failed one is open again when both allow it."""
    (tmp_path / "a.toml").write_text("""
minimum = 1
maximum = 3
interval_s = 0.5
startup = { warmup_s = 0.3 }
down = { stabilization_window_s = 0 }
[[metric]]
name = "concurrency"
target = 2
""")
    rows = [(0.03 * k, 20, 10) for k in range(60)] + [(4.0 + 0.5 * k, 20, 10) for k in range(10)]
    result = play(rows, max_num_seqs=2, router="least-outstanding-requests", autoscale=str(tmp_path / "a.toml"),
                  fail_replica="0@1+0.5,1@2+9", max_retries=5, ttft_timeout=2.0)
    assert result.attempts is not None
    counts = attempt_totals(result.attempts)
    assert set(column(result, "status")) == {"completed"}
    assert counts.num_attempts == len(rows) + counts.num_retries
    assert counts.num_attempts_lost > 0


def test_requests_at_a_silent_replica_wait_until_the_router_finds_out() -> None:
    """Steps of 0.5 s. Replica 0 falls silent in its first step, at whose end request 0 has left; requests 2 and 4 are
    sent to it. At 3 s the router finds out, and sends both to replica 1.
    """
    rows = [(0.0, 10, 1), (0.1, 10, 1), (1.0, 10, 1), (1.1, 10, 1), (2.0, 10, 1)]
    result = play(rows, step_time="linear:0.5,0", data_parallel_size=2, router="round-robin", fail_replica="0@0.2/2.8")
    assert column(result, "status") == ["completed"] * 5
    assert column(result, "replica") == [0, 1, 1, 1, 1]
    assert column(result, "finished_at_s") == about(0.5, 0.6, 3.5, 1.6, 3.5)
    assert attempts(result, "request_id", "replica", "status", "sent_at_s", "ended_at_s")[3:5] == [
        ("2", 0, "failed", 1.0, 3.0), ("4", 0, "failed", 2.0, 3.0)]


def test_a_replica_that_is_back_before_the_health_check_has_lost_its_requests() -> None:
    rows = [(0.0, 10, 4), (2.0, 10, 1)]
    result = play(rows, step_time="linear:0.5,0", fail_replica="0@0.7+0.5/30", max_retries=3)
    assert attempts(result, "request_id", "status", "ended_at_s") == [
        ("0", "failed", pytest.approx(1.2)), ("1", "completed", pytest.approx(2.7)),
        ("0", "completed", pytest.approx(3.7))]


def test_a_failure_that_is_found_out_at_once_is_a_failure_without_a_health_check() -> None:
    rows = [(0.1 * k, 30 + 7 * (k % 5), 3 + k % 4) for k in range(60)]
    first, second = (play(rows, data_parallel_size=3, router="least-outstanding-requests", fail_replica=text)
                     for text in ("1@2.05+1", "1@2.05+1/0"))
    assert_same_requests(first.records.requests, second.records.requests)


@pytest.mark.parametrize("router", ["random", "round-robin", "least-outstanding-requests", "prefix-aware"])
def test_a_silent_failure_that_nobody_notices_costs_nothing(router: str) -> None:
    """Nobody is at replica 0 while it is silent: an idle replica, and one after the last request."""
    rows = [(10.0 * (k // 4) + 0.003 * (k % 4), 32, 4) for k in range(16)]
    plain = play(rows, data_parallel_size=2, router=router)
    for text in ("0@5+3/2", "1@15+0.5/9", "0@1000/60"):
        failed = play(rows, data_parallel_size=2, router=router, fail_replica=text)
        assert_same_requests(failed.records.requests, plain.records.requests)


def test_failures_are_read_from_a_line_and_from_a_file(tmp_path: Path) -> None:
    expected = [Failure(replica=2, at_s=600.0, duration_s=120.0),
                Failure(replica=0, at_s=900.0, duration_s=np.inf, health_check_s=5.0)]
    assert read_failures("0@900/5, 2@600+120") == expected
    assert read_failures(",".join(failure.text for failure in expected)) == expected
    path = tmp_path / "failures.csv"
    path.write_text("replica,at_s,duration_s,health_check_s\n0,900,,5\n2,600,120,\n")
    assert read_failures(str(path)) == expected
    path.write_text("replica,at_s,duration_s\n2,600,120\n")
    assert read_failures(str(path)) == expected[:1]


@pytest.mark.parametrize(("text", "words"), [
    ("2", "must be REPLICA@AT"), ("2@", "must be REPLICA@AT"), ("a@3", "must be REPLICA@AT"),
    ("", "must be REPLICA@AT"),
    ("2@-1", "at_s = '-1'"), ("2@nan", "at_s = 'nan'"), ("2@inf", "at_s = 'inf'"), ("2@5+0", "must be above 0"),
    ("2@5+x", "duration_s = 'x'"), ("2@5/x", "health_check_s = 'x'"), ("2@5/-1", "health_check_s = '-1'"),
    ("1@5+10,1@14", "is already down until 15 s"), ("1@5,1@9", "is already down until inf s"),
])
def test_failures_that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("+", r"\+")):
        read_failures(text)


@pytest.mark.parametrize(("text", "words"), [
    ("replica,at\n0,3\n", "has the columns replica, at; must be"), ("replica,at_s,duration_s\n", "has no rows"),
    ("replica,at_s,duration_s\n0,3,1\nx,3,1\n", "row 1: replica = 'x'"),
    ("replica,at_s,duration_s\n0,,1\n", "row 0: at_s = ''"),
])
def test_files_of_failures_that_are_none_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "failures.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_failures(str(path))
    with pytest.raises(TraceError, match="cannot be read"):
        read_failures(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(("options", "words"), [
    ({"ttft_timeout": 0.0}, "ttft_timeout = 0.0: must be above 0"),
    ({"request_timeout": float("nan")}, "request_timeout = nan"),
    ({"max_retries": -1}, "max_retries = -1: must be at least 0"),
    ({"max_retries": 1, "retry_backoff_multiplier": 0.5}, "must be at least 1"),
    ({"max_retries": 1, "retry_jitter_factor": 1.5}, "must be at least 0 and at most 1"),
    ({"retry_initial_backoff": 0.1}, "give --max-retries"),
    ({"router_queue": "fair"}, "give --router-max-concurrent-requests"),
    ({"router_max_concurrent_requests": 3, "router_queue_size": -1}, "router_queue_size = -1"),
])
def test_options_that_are_wrong_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        overload_of(Scenario(**options))


def test_an_engine_refuses_a_negative_queue() -> None:
    with pytest.raises(UsageError, match="max_queued_requests = -1"):
        play(FOUR, max_queued_requests=-1)


def test_a_failure_of_an_unknown_replica_is_refused() -> None:
    with pytest.raises(UsageError, match="there are 2 replicas"):
        play(FOUR, data_parallel_size=2, fail_replica="2@1")


@pytest.mark.parametrize(("text", "error", "words"), [
    ("[tenants.a]\nweight = 1\n", UnknownNameError, "did you mean 'tenant'"),
    ("[tenant.a]\nwieght = 1\n", UnknownNameError, "did you mean 'weight'"),
    ("[tenant.a]\nweight = 0\n", UsageError, r"\[tenant.a\]: weight = 0; must be a number above 0"),
    ("[tenant.a]\nweight = inf\n", UsageError, "must be finite"),
    ("[tenant.a]\nweight = true\n", UsageError, "weight = True"),
    ("[tenant.a]\nburst_requests = 0.5\n", UsageError, "must be at least 1"),
    ("[default]\nexcess = 'drop'\n", UsageError, "must be 'reject' or 'delay'"),
    ("tenant = 3\n", UsageError, "must be tables"), ("default = 3\n", UsageError, "must be a table"),
    ("[tenant.a\n", PlannerError, "cannot be read"),
])
def test_quotas_that_are_wrong_are_refused(tmp_path: Path, text: str, error: type[PlannerError], words: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(error, match=words):
        read_tenants(path)


def test_quotas_of_named_tenants_need_the_column(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[tenant.a]\nweight = 1\n")
    with pytest.raises(UsageError, match="has no column tenant"):
        play(FOUR, tenants=str(path))


def test_there_are_no_attempts_without_rules() -> None:
    with pytest.raises(UsageError, match="attempts are not recorded"):
        play(FOUR).attempts_table()
