"""One replay: settings are checked, what can never run is a status, and the summary accounts for every request."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import Rows, batches, number, play, scenario_of, step_tokens, trace_of

from planner import replay
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES


def statuses(rows: Rows, **options: Any) -> list[str]:
    return play(rows, **options).requests_table()["status"].to_list()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpu_blocks": -5}, "num_gpu_blocks = -5: must be at least 1"),
        ({"block_size": 0}, "block_size = 0: must be at least 1"),
        ({"max_model_len": 0}, "max_model_len = 0: must be at least 1"),
        ({"max_num_seqs": -1}, "max_num_seqs = -1: must be at least 0"),
        ({"max_num_batched_tokens": -1}, "max_num_batched_tokens = -1: must be at least 0"),
        ({"long_prefill_token_threshold": -2}, "long_prefill_token_threshold = -2: must be at least 0"),
        ({"watermark": 1.0}, r"watermark = 1.0: must be at least 0 and below 1"),
        ({"watermark": math.nan}, r"watermark = nan: must be at least 0 and below 1"),
        ({"max_concurrency": 0}, "max_concurrency = 0: must be at least 1"),
        ({"max_decode_only_steps": 0}, "max_decode_only_steps = 0: must be at least 1"),
        ({"max_wait_s": -1.0}, "max_wait_s = -1.0: must be at least 0"),
        ({"pipeline_parallel_size": 128}, "pipeline_parallel_size = 128"),
        ({"step_time": "linear:0.02"}, "linear:0.02.*expected linear:BASE_S,PER_TOKEN_S"),
        ({"step_time": "linear:0.02,-1"}, "linear:0.02,-1.*expected linear:BASE_S,PER_TOKEN_S"),
        ({"rate_scale": 2.0, "request_rate": 2.0}, "--rate-scale and --request-rate exclude each other"),
        ({"num_gpu_blocks": None}, "--model and --gpu missing"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        play([(0.0, 1, 1)], **options)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_can_never_run_is_a_status(policy: str) -> None:
    """A prompt as long as the model allows leaves no room for output; one larger than the KV cache never fits.

    ATOM's scheduler looks at the prompt alone, and lets the output go beyond.
    """
    rows = [(0.0, 8, 2), (0.0, 64, 2), (0.0, 80, 2), (0.1, 8, 2)]
    ends = statuses(rows, policy=policy, max_model_len=64, num_gpu_blocks=8, block_size=16)
    longest = "completed" if POLICIES[policy].placeholders else "rejected"
    assert ends == ["completed", longest, "rejected", "completed"]
    if POLICIES[policy].reserve != "model-len":
        ends = statuses(rows, policy=policy, max_model_len=100, num_gpu_blocks=3, block_size=16)
        assert ends == ["completed", "rejected", "rejected", "completed"]


def test_what_can_never_fit_is_rejected_at_once() -> None:
    """Even where its first chunk alone would fit, and without a decode that yields to it."""
    rows = [(0.0, 26, 2)]
    options = {"block_size": 2, "num_gpu_blocks": 2, "max_num_batched_tokens": 4}
    assert statuses(rows, **options, scheduler_reserve_full_isl=False) == ["rejected"]
    result = play([(0.0, 1, 3), (0.0, 4, 1)], block_size=1, num_gpu_blocks=3, max_decode_only_steps=1)
    assert result.requests_table()["status"].to_list() == ["completed", "rejected"]
    assert result.requests_table()["num_preemptions"].to_list() == [0, 0]


def test_what_reserves_more_than_there_is_never_runs() -> None:
    assert statuses([(0.0, 1, 1)], policy="orca", max_model_len=64, num_gpu_blocks=3) == ["rejected"]


def test_whole_prompts_must_fit_the_budget() -> None:
    rows = [(0.0, 20, 1), (0.0, 10, 1)]
    ends = statuses(rows, enable_chunked_prefill=False, max_num_batched_tokens=16)
    assert ends == ["rejected", "completed"]


def test_a_request_that_outgrows_the_memory_fails() -> None:
    """Two blocks of 4 hold a prompt of 6 and two emitted tokens; the third needs a block that will never be there."""
    result = play([(0.0, 6, 8), (0.0, 2, 2)], num_gpu_blocks=2, block_size=4, max_num_seqs=1)
    table = result.requests_table()
    assert table["status"].to_list() == ["failed", "completed"]
    assert table["output_tokens"].to_list() == [3, 2]


def test_output_ends_at_the_models_context_and_at_the_clients_limit() -> None:
    trace = trace_of([(0.0, 60, 10), (0.0, 10, 10)], max_output_tokens=[50, 3])
    outcome = replay(trace, scenario_of(max_model_len=64), slo=None, recording=Recording())
    assert outcome.requests["output_tokens"].to_list() == [4, 3]
    assert outcome.requests["status"].to_list() == ["completed"] * 2
    assert outcome.summary["num_truncated"] == 2
    assert "2 outputs end at max_model_len or at the request's max_output_tokens" in outcome.summary["notes"]


def test_arrivals_are_seen_at_once_or_a_step_late() -> None:
    """Async scheduling composes a step while the last one runs: it sees arrivals up to that one's start."""
    trace = trace_of([(0.0, 10, 5), (0.005, 10, 1)], max_output_tokens=[5, 1])
    assert ["1" in batch for batch in batches(play(trace))] == [False, True, False, False, False]
    late = batches(play(trace, async_scheduling=True))
    assert ["1" in batch for batch in late] == [False, False, True, False, False]


def test_a_request_that_ends_by_end_of_sequence_has_one_more_row_under_overlap() -> None:
    """Its token is dropped; the request ends when it would without overlap, and has its seat one step longer."""
    trace = trace_of([(0.0, 10, 5), (0.0, 10, 2)], max_output_tokens=[5, 9])
    steps = play(trace, async_scheduling=True).steps_table()
    assert ["1" in batch for batch in batches(play(trace, async_scheduling=True))] == [True, True, True, False, False]
    assert steps["num_decodes"].to_list() == [0, 2, 2, 1, 1]
    assert steps["num_dropped"].to_list() == [0, 0, 1, 0, 0]
    assert steps["num_sampled"].to_list() == [2, 2, 1, 1, 1]
    assert steps["num_running"].to_list() == [2, 2, 2, 1, 1]
    assert steps["num_ended"].to_list() == [0, 0, 1, 0, 0]


def test_a_cancelled_request_leaves_at_the_steps_end() -> None:
    """The second hangs up at 0.02 s, seen at 0.022 s: after two steps of 12 and 10 ms + tokens."""
    trace = trace_of([(0.0, 10, 5), (0.0, 10, 5), (0.0, 10, 5)], cancel_after_s=[None, 0.02, 9.0])
    result = play(trace, max_num_seqs=2)
    table = result.requests_table()
    assert table["status"].to_list() == ["completed", "cancelled", "completed"]
    assert [batch.get("1", 0) for batch in batches(result)][:3] == [10, 1, 0]
    assert table["output_tokens"][1] == 2


def test_first_fit_passes_over_what_does_not_fit() -> None:
    rows = [(0.0, 16, 8), (0.0, 64, 2), (0.0, 16, 2)]
    first = {admission: list(batches(play(rows, num_gpu_blocks=4, admission=admission))[0])
             for admission in ("head-of-line", "first-fit")}
    assert first == {"head-of-line": ["0"], "first-fit": ["0", "2"]}


def test_a_waiting_prompt_may_force_its_way_in() -> None:
    """One seat, and a long decode in it: after three decode-only steps the head takes the seat, once."""
    result = play([(0.0, 4, 20), (0.001, 4, 2)], max_num_seqs=1, max_decode_only_steps=3)
    assert ["".join(batch) for batch in batches(result)][:7] == ["0", "0", "0", "0", "1", "1", "0"]
    assert result.preemptions_table().rows() == [(4, "0")]


def test_vllm_takes_the_blocks_of_a_sequences_states_from_its_kv_blocks() -> None:
    """Qwen3.5-35B-A3B: three for states, one for each 1,056 tokens. Of nine blocks two short requests have eight."""
    hybrid: dict[str, Any] = {"model": "qwen3.5-35b-a3b", "num_gpu_blocks": 9, "step_time": "linear:0.01,0"}
    result = play([(0.0, 1, 2)] * 3 + [(0.1, 6 * 1056, 1), (0.1, 6 * 1056 + 1, 1)], **hybrid)
    assert batches(result)[:4] == [{"0": 1, "1": 1}, {"0": 1, "1": 1}, {"2": 1}, {"2": 1}]
    assert result.requests_table()["status"].to_list() == ["completed"] * 3 + ["completed", "rejected"]
    assert result.steps_table()["num_used_blocks"].to_list()[:4] == [8, 8, 4, 4]
    assert list(batches(play([(0.0, 1, 2)] * 3, **hybrid, engine="sglang", policy="fcfs"))[0]) == ["0", "1", "2"]


def test_states_are_given_back_by_a_preempted_request_and_taken_again() -> None:
    """Two requests have three blocks for states and one for tokens each; of nine blocks one may have a second."""
    hybrid: dict[str, Any] = {"model": "qwen3.5-35b-a3b", "num_gpu_blocks": 9, "step_time": "linear:0.01,0"}
    result = play([(0.0, 1055, 8), (0.0, 1055, 8)], **hybrid)
    table = result.requests_table()
    assert table["status"].to_list() == ["completed"] * 2
    assert table["num_preemptions"].to_list() == [0, 1]
    assert result.steps_table()["num_used_blocks"].max() == 9


@pytest.mark.parametrize("seed", range(6))
def test_states_and_kv_never_exceed_the_pool_and_everybody_is_served(seed: int) -> None:
    """With prefix caching and without, while blocks run out and requests are preempted or hang up."""
    rng = np.random.default_rng(seed)
    rows = sorted((float(rng.uniform(0, 20)), int(rng.integers(1, 4000)), int(rng.integers(1, 300))) for _ in range(60))
    hash_ids = [rng.integers(0, 6, -(-row[1] // 512)).tolist() for row in rows] if seed % 2 else None
    patience: dict[str, Any] = {} if seed % 3 else {"cancel_after_s": rng.exponential(20, len(rows)).tolist()}
    trace = trace_of(rows, hash_ids=hash_ids, hash_block_tokens=512, **patience)
    result = play(trace, model="qwen3.5-35b-a3b", num_gpu_blocks=10 + 4 * seed, max_num_seqs=20,
                  max_num_batched_tokens=2048, step_time="linear:0.01,0.00001", enable_prefix_caching=bool(seed % 2))
    assert 4 <= number(result.steps_table()["num_used_blocks"].max()) <= 10 + 4 * seed
    assert set(result.requests_table()["status"]) == {"completed"} | ({"cancelled"} if patience else set())


def test_a_pipeline_keeps_as_many_batches_in_flight_as_it_has_stages() -> None:
    """Two stages of 5 ms, two prompts that a batch cannot hold together: they follow each other through the stages."""
    result = play([(0.0, 4, 4)] * 2, pipeline_parallel_size=2, step_time="linear:0.01,0", max_num_batched_tokens=4)
    assert ["".join(batch) for batch in batches(result)] == ["0", "1"] * 4
    table = result.requests_table()
    assert table["first_token_at_s"].to_list() == pytest.approx([0.010, 0.015])
    assert table["finished_at_s"].to_list() == pytest.approx([0.040, 0.045])


def test_a_closed_loop_sends_when_a_request_leaves() -> None:
    result = play([(0.0, 5, 3)] * 5, max_concurrency=2, step_time="linear:0.01,0")
    assert result.requests_table()["arrival_s"].to_list() == pytest.approx([0.0, 0.0, 0.03, 0.03, 0.06])


def test_the_context_term_counts_what_was_computed_before() -> None:
    """b + p × tokens + c × tokens computed before, of a prompt of 10 in chunks of 6 and two decodes."""
    result = play([(0.0, 10, 3)], max_num_batched_tokens=6, step_time="linear:0.01,0.001,0.0001")
    assert step_tokens(result) == [6, 4, 1, 1]
    durations = [0.01 + 0.006, 0.01 + 0.004 + 6e-4, 0.01 + 0.001 + 10e-4, 0.01 + 0.001 + 11e-4]
    assert result.steps_table()["duration_s"].to_list() == pytest.approx(durations)


def test_the_terms_of_a_step_add_up_to_its_time() -> None:
    steps = play([(0.0, 10, 3), (0.01, 20, 4)], step_time="linear:0.01,0.001,0.0001").steps_table()
    terms = ("linear_s", "experts_s", "activations_s", "attention_prompt_s", "attention_decode_s", "lm_head_s",
             "collectives_s", "overhead_s", "swap_s")
    assert steps.select(terms).sum_horizontal().to_list() == pytest.approx(steps["duration_s"].to_list())


def test_the_summary_counts_every_request_and_never_says_zero_for_unknown() -> None:
    trace = trace_of([(0.0, 10, 1), (0.0, 90, 1), (0.0, 10, 1)], cancel_after_s=[None, None, 0.0])
    summary = replay(trace, scenario_of(max_model_len=64), slo="ttft:500", recording=Recording()).summary
    counts = {name: summary[name] for name in ("completed", "failed", "rejected", "unfinished", "num_cancelled")}
    assert counts == {"completed": 1, "failed": 1, "rejected": 1, "unfinished": 0, "num_cancelled": 1}
    assert summary["mean_tpot_ms"] is None
    assert summary["mean_itl_ms"] is None
    assert summary["prefix_cache_hit_rate"] is None
    assert summary["slo_attainment"] == pytest.approx(1 / 3)


def test_nothing_completed_has_no_latency() -> None:
    summary = replay(trace_of([(0.0, 90, 1)]), scenario_of(max_model_len=64), slo=None, recording=Recording()).summary
    assert summary["completed"] == 0
    assert summary["p99_ttft_ms"] is None
    assert summary["request_throughput"] is None
    assert summary["request_goodput"] is None
