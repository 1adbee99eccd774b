"""Faults that the laws have found, each with its smallest reproduction."""

from typing import Any

import polars as pl
import pytest
from helpers import EVERYTHING, batches, play, trace_of

from planner.loop.state.engine_settings import Recording


@pytest.mark.parametrize("cancel_after_s", [None, 0.2])
def test_host_blocks_come_back(cancel_after_s: float | None) -> None:
    rows = [(0.0, 1, 2)] if cancel_after_s is None else [(0.0, 16, 40), (0.0, 16, 40)]
    trace = trace_of(rows, cancel_after_s=[None, cancel_after_s][-len(rows):])
    result = play(trace, preemption="swap", num_cpu_blocks=10, num_gpu_blocks=len(rows) ** 2,
                  block_size=16 if cancel_after_s else 1)
    assert result.records.engine.num_free_cpu_blocks == 10


def test_a_cancellation_in_a_stretch_is_seen_in_time() -> None:
    trace = trace_of([(0.0, 1, 3), (0.0, 1, 1), (0.02, 1, 1)], cancel_after_s=[None, None, 0.0])
    finished_s = [play(trace, policy="orca", max_model_len=64, num_gpu_blocks=4, recording=recording)
                  .requests_table()["finished_at_s"].to_list() for recording in (EVERYTHING, Recording())]
    assert finished_s[0] == finished_s[1]  # [0.0303, 0.0404, 0.0202] against [0.0303, 0.0404, 0.0303]


def test_a_closed_loop_does_not_depend_on_stretches() -> None:
    rows = [(0.0, 1, 3), (0.0, 1, 1), *[(0.02, 1, 1)] * 5]
    arrival_s = [play(rows, max_num_seqs=1, max_concurrency=3, recording=recording)
                 .requests_table()["arrival_s"].to_list() for recording in (EVERYTHING, Recording())]
    assert arrival_s[0] == arrival_s[1]


def test_a_closed_loop_keeps_its_limit_under_async_scheduling() -> None:
    result = play([(0.0, 1, 2), (0.0, 1, 3), (0.0, 1, 1), (0.0, 1, 1)], max_concurrency=2, async_scheduling=True,
                  step_time="linear:0.01,0")
    assert result.requests_table()["arrival_s"].to_list() == pytest.approx([0, 0, 0.02, 0.03])


def test_stretches_fill_the_cache_of_nano_vllm() -> None:
    rows = [(0.0, 1, 1), (0.0, 1, 5), (0.0, 1, 1), (0.0, 5, 5)]
    finished_s = [play(rows, policy="nano-vllm", block_size=4, num_gpu_blocks=4, enable_prefix_caching=True,
                       recording=recording).requests_table()["finished_at_s"].to_list()
                  for recording in (EVERYTHING, Recording())]
    assert finished_s[0] == finished_s[1]


def test_a_stretchs_durations_are_those_of_single_steps() -> None:
    duration_s = [play([(0.01, 1, 2)], block_size=1, recording=recording, step_time="linear:0.01,0.001").steps_table()
                  ["duration_s"].to_list() for recording in (EVERYTHING, Recording(steps=True))]
    assert duration_s[0] == duration_s[1]


def test_a_guard_with_a_keyed_policy_loses_nobody() -> None:
    rows = [(0.0, 4, 1), (0.0, 4, 30), (0.0, 12, 2)]
    result = play(rows, policy="priority", num_gpu_blocks=4, block_size=4, max_wait_s=0.03)
    assert "completed" in result.requests_table()["status"].to_list()


def test_who_yields_to_a_guarded_head_is_not_in_the_step() -> None:
    result = play([(0.0, 20, 9), (0.0, 2, 9), (0.0, 20, 2)], block_size=1, num_gpu_blocks=30, max_decode_only_steps=1,
                  admission="first-fit")
    steps = batches(result)
    assert not [row for row in result.preemptions_table().rows() if row[1] in steps[row[0]]]


def test_a_guard_knows_when_the_plan_has_no_room_for_prompts() -> None:
    rows = [(0.0, 30, 1), (0.0, 35, 5), (0.0, 22, 1)]
    result = play(rows, policy="simple-chunking", block_size=1, num_gpu_blocks=66, max_wait_s=0.01)
    assert result.requests_table()["status"].to_list() == ["completed"] * 3


def test_a_guard_keeps_the_limit_of_a_batch() -> None:
    rows = [(0.0, 1, 1), (0.0, 6, 1), (0.0, 1, 1)]
    result = play(rows, policy="nano-vllm", max_num_seqs=1, max_num_batched_tokens=5, max_wait_s=0.0)
    assert [len(batch) for batch in batches(result)] == [1] * 4


def test_nobody_yields_to_a_prompt_above_the_budget() -> None:
    result = play([(0.0, 1, 2), (0.0, 6, 1)], max_num_seqs=1, max_num_batched_tokens=5, max_wait_s=0.0,
                  enable_chunked_prefill=False)
    assert result.requests_table()["status"].to_list() == ["completed", "rejected"]
    assert result.requests_table()["num_preemptions"].to_list() == [0, 0]


def test_a_guard_forces_each_request_once() -> None:
    """A head that was forced in again and again, losing its blocks each time, kept the decodes from getting on."""
    rows = [(0.0, 39, 18), (0.02, 23, 5), (0.06, 33, 19), (0.07, 36, 18), (0.08, 39, 16), (0.08, 27, 3)]
    trace = trace_of(rows, priority=[1.0, 2.0, 0.0, 2.0, 1.0, 1.0], cached_tokens=[8, 12, 4, 19, 2, 4])
    result = play(trace, policy="priority", num_gpu_blocks=3, long_prefill_token_threshold=3, admission="first-fit",
                  max_wait_s=0.0, scheduler_reserve_full_isl=False, async_scheduling=True, step_time="linear:0.02,0",
                  max_model_len=60, max_num_seqs=5)
    assert set(result.requests_table()["status"]) <= {"completed", "failed", "rejected"}


def test_kv_that_leaves_in_an_empty_step_crosses_the_link_too() -> None:
    """A lone decode without a spare block swaps itself out, which leaves its step empty, and comes back in the next."""
    result = play([(0.0, 16, 20)], policy="chunked", preemption="swap", num_gpu_blocks=2, max_model_len=64)
    out = sum(range(17, 33))  # it can have 32 tokens in two blocks, and fails as it wants one more
    assert result.records.engine.num_swapped_tokens == out + (out - 32)
    assert result.steps_table()["num_swapped_tokens"].to_list() == [0, 0, *(2 * k for k in range(17, 32))]


def test_a_request_that_loads_from_a_tier_has_a_seat() -> None:
    """Two seats, one of a decode and one of a request whose KV comes from the host: the queue waits for a seat."""
    ids = [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23], [30], [0, 1, 2, 3], [40]]
    rows = [(0.0, 64, 1), (1.0, 64, 1), (2.0, 64, 1), (30.0, 16, 40), (30.15, 64, 1), (30.25, 16, 1)]
    trace = trace_of(rows, hash_ids=ids, hash_block_tokens=16)
    result = play(trace, model="llama-3.1-8b", gpu="h100-sxm", step_time="linear:0.1,0", num_gpu_blocks=10,
                  max_num_seqs=2, kv_offloading_size=1.0, kv_offloading_bandwidth=131072 * 16 / 1e9)
    steps = result.steps_table()
    assert result.records.fetches.waited_s[4] > 1.0
    assert set(steps.filter(pl.col("num_running") == 1)["stopped_by"].drop_nulls()) == {"max_num_seqs"}


def test_who_is_passed_over_for_memory_is_not_kept_out_by_the_policy() -> None:
    """Two that do not fit are looked at in each step; the queue's head is the first of them."""
    result = play([(0.0, 40, 30), (0.0, 40, 5), (0.0, 50, 5)], block_size=1, num_gpu_blocks=75, admission="first-fit")
    assert set(result.steps_table()["stopped_by"].drop_nulls()) == {"kv_cache"}


@pytest.mark.parametrize("options", [
    {"policy": "fcfs", "num_gpu_blocks": 2, "data_parallel_size": 2, "prefill_replicas": 1},
    {"policy": "atom", "num_gpu_blocks": 1}], ids=["prefill apart", "atom"])
def test_a_request_that_ends_too_late_for_its_client_keeps_no_block(options: dict[str, Any]) -> None:
    """Its end is in flight when the client hangs up, and the step that is composed next has no row of it."""
    result = play([(0.0, 1, 2 if options["policy"] == "fcfs" else 1)], step_time="linear:0.01,0.001", block_size=1,
                  async_scheduling=True, enable_chunked_prefill=False, ttft_timeout=0.001, **options)
    assert result.requests_table()["status"].to_list() == ["timed_out"]
    for replica in result.replicas:
        assert replica.engine.num_running == 0
        assert replica.engine.num_free_blocks == options["num_gpu_blocks"]


@pytest.mark.parametrize("drafts", [0, 1])
@pytest.mark.parametrize("overlaps", [False, True])
def test_blocks_of_generated_tokens_are_found_again_if_all_are_reserved(overlaps: bool, drafts: int) -> None:
    """The second request yields to the third, which has waited too long, and finds all that was known of it."""
    result = play([(0.0, 1, 1), (0.0, 1, 6), (0.0, 1, 1), (0.0, 1, 1)], policy="orca", step_time="linear:0.02,0",
                  block_size=1, num_gpu_blocks=1000, max_model_len=60, max_num_seqs=1, max_num_batched_tokens=0,
                  max_wait_s=0.1, enable_prefix_caching=True, async_scheduling=overlaps, num_speculative_tokens=drafts,
                  speculative_method="ngram" if drafts else None, speculative_acceptance="0" if drafts else None)
    table = result.requests_table()
    assert table["num_preemptions"].to_list() == [0, 2 if overlaps else 1, 0, 0]
    assert table["num_recomputed_tokens"].to_list() == [0, int(overlaps), 0, 0]  # was 4 without drafts and overlap


def test_reports_do_not_depend_on_the_events_between_them() -> None:
    """The last request comes at 1 s and the 20th report is due then, so a sum of intervals may be later or earlier."""
    rows = [(0.0, 1, 1), (0.0, 1, 1), (0.4, 1, 11), (0.4, 1, 19), (0.4, 1, 1)]
    chosen = [play(rows, recording=recording, step_time="linear:0.02,0", block_size=1, num_gpu_blocks=19,
                   max_model_len=60, max_concurrency=1, async_scheduling=True, enable_chunked_prefill=False,
                   data_parallel_size=2, data_parallel_attention=True, router="vllm-dp",
                   router_report_interval=0.05).replica for recording in (EVERYTHING, Recording())]
    assert chosen[0] is not None
    assert chosen[1] is not None
    assert chosen[0].tolist() == chosen[1].tolist() == [0, 1, 0, 1, 0]
