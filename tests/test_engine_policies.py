"""The schedulers of SGLang and TensorRT-LLM, rule by rule, on cases worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import EVERYTHING, Rows, batches, play, scenario_of, trace_of
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.results.notes import SWITCHES, notes
from planner.run import replay
from planner.settings.scenario import OPTION_DEFAULTS, Scenario

EVEN = "linear:0.01,0"  # step k runs from 0.01 k to 0.01 (k + 1)
BOTH = pytest.mark.parametrize("recording", [EVERYTHING, Recording()], ids=["recorded", "plain"])


# SGLang: which step comes next, and what is in it


def test_sglang_takes_prompts_whenever_it_can_and_decodes_otherwise() -> None:
    result = play([(0.0, 32, 3), (0.0, 16, 2), (0.015, 16, 2)], policy="sglang", step_time=EVEN)
    assert batches(result) == [{"0": 32, "1": 16}, {"0": 1, "1": 1}, {"2": 16}, {"0": 1, "2": 1}]


def test_sglang_goes_on_with_its_one_cut_prompt_first_and_cuts_after_whole_blocks() -> None:
    """In step 2 the second prompt gets 16 of the 28 tokens left; no decode runs until all prompts are through."""
    rows = [(0.0, 16, 3), (0.001, 100, 1), (0.001, 40, 1)]
    result = play(rows, policy="sglang", step_time=EVEN, max_num_batched_tokens=64)
    assert batches(result) == [{"0": 16}, {"1": 64}, {"1": 36, "2": 16}, {"2": 24}, {"0": 1}, {"0": 1}]


def test_max_prefill_tokens_of_sglang_ends_admissions_and_cuts_nothing() -> None:
    """The last prompt to enter may exceed it, up to the chunk."""
    rows = [(0.0, 40, 1), (0.0, 100, 1), (0.0, 16, 1)]
    result = play(rows, policy="sglang", max_num_batched_tokens=128, max_prefill_tokens=64)
    assert batches(result) == [{"0": 40, "1": 80}, {"1": 20, "2": 16}]


def test_sglang_charges_prompts_in_whole_pages() -> None:
    """Four prompts of 17 tokens are two pages each, so a chunk of 96 takes three."""
    result = play([(0.0, 17, 1)] * 4, policy="sglang", block_size=16, max_num_batched_tokens=96)
    assert [len(batch) for batch in batches(result)] == [3, 1]


def test_a_prompt_waits_where_a_mixed_chunk_has_less_than_a_page() -> None:
    """Of 16 tokens a decode leaves 15, and the prompt's one token is charged as a page of 16."""
    trace = trace_of([(0.0, 1, 2), (0.0, 1, 1)], max_output_tokens=[2, 1])
    options: dict[str, Any] = {"max_num_batched_tokens": 16, "block_size": 16, "num_gpu_blocks": 7,
                               "max_model_len": 80, "enable_mixed_chunk": True}
    assert batches(play(trace, engine="sglang", async_scheduling=False, **options)) == [{"0": 1}, {"0": 1}, {"1": 1}]


def test_sglang_without_chunks_runs_a_prompt_above_max_prefill_tokens_alone() -> None:
    rows = [(0.0, 32, 1), (0.0, 100, 1), (0.0, 16, 1)]
    result = play(rows, policy="sglang", enable_chunked_prefill=False, max_num_batched_tokens=8, max_prefill_tokens=48)
    assert batches(result) == [{"0": 32}, {"1": 100}, {"2": 16}]


def test_sglangs_chunk_size_does_not_limit_decodes() -> None:
    result = play([(0.0, 16, 2)] * 4, policy="sglang", block_size=4, max_num_batched_tokens=16)
    assert [len(batch) for batch in batches(result)] == [1, 1, 1, 1, 4]


# SGLang: memory


@pytest.mark.parametrize(("conservativeness", "second_runs_in"), [(1.0, 1), (2.0, 40)])
def test_sglang_keeps_a_share_of_the_output_to_come_free(conservativeness: float, second_runs_in: int) -> None:
    """In step 1, 90 blocks are free and 39 tokens to come: 0.7 of them leave 62.7 for the 51 needed, all of them 51."""
    trace = trace_of([(0.0, 10, 40), (0.001, 20, 30)], max_output_tokens=[40, 30])
    result = play(trace, policy="sglang", block_size=1, num_gpu_blocks=100, max_model_len=60, step_time=EVEN,
                  schedule_conservativeness=conservativeness)
    assert [step for step, batch in enumerate(batches(result)) if batch.get("1") == 20] == [second_runs_in]


@BOTH
def test_sglang_counts_the_whole_output_of_newcomers_and_then_waits_for_somebody_to_leave(recording: Recording) -> None:
    """In step 1, 68.7 of 96 tokens are left: 31 for the second, not 38 for the third; it waits until step 20 ends."""
    trace = trace_of([(0.0, 4, 40), (0.001, 10, 20), (0.001, 20, 17)], max_output_tokens=[40, 20, 17])
    result = play(trace, policy="sglang", block_size=1, num_gpu_blocks=100, max_model_len=60, step_time=EVEN,
                  recording=recording)
    assert result.requests_table()["first_token_at_s"].to_list() == pytest.approx([0.01, 0.02, 0.22])


@BOTH
def test_a_queue_that_was_shut_by_the_first_batch_of_all_is_open_again(recording: Recording) -> None:
    """Together the two need 51 each of 100. The flag that says so is lost with the batch that nothing ran before."""
    trace = trace_of([(0.0, 10, 40), (0.0, 20, 30)], max_output_tokens=[40, 30])
    result = play(trace, policy="sglang", block_size=1, num_gpu_blocks=100, max_model_len=60, step_time=EVEN,
                  recording=recording)
    assert result.requests_table()["first_token_at_s"].to_list() == pytest.approx([0.01, 0.02])


def test_sglang_refuses_prompts_near_the_context_and_ends_outputs_before_it() -> None:
    trace = trace_of([(0.0, 505, 20), (0.0, 506, 20), (0.0, 480, 40)])
    table = play(trace, policy="sglang", max_model_len=512).requests_table()
    assert table["status"].to_list() == ["completed", "rejected", "completed"]
    assert table["output_tokens"].to_list() == [5, 0, 30]


def test_sglang_considers_4096_tokens_of_output_at_most() -> None:
    """Each needs 16 + 4,096 + a page of 16; what three leave of 16,000 is 3,616."""
    trace = trace_of([(0.0, 16, 1)] * 4, max_output_tokens=[10_000] * 4)
    result = play(trace, policy="sglang", max_model_len=20_000)
    assert [len(batch) for batch in batches(result)] == [3, 1]


RETRACTING: dict[str, Any] = {"policy": "sglang", "block_size": 1, "num_gpu_blocks": 26, "max_model_len": 24,
                              "step_time": EVEN, "schedule_conservativeness": 0.0}


def test_sglang_retracts_who_has_emitted_least_and_of_those_the_longest_prompt() -> None:
    """Steps 2 to 7 fill the memory; both have emitted 7 tokens. The victim returns with what it emitted."""
    trace = trace_of([(0.0, 8, 12), (0.001, 6, 10)], max_output_tokens=[12, 10])
    result = play(trace, **RETRACTING)
    assert result.preemptions_table().rows() == [(8, "0")]
    assert batches(result)[7:12] == [{"0": 1, "1": 1}, {"1": 1}, {"1": 1}, {"1": 1}, {"0": 15}]


def test_sglang_retracts_the_newcomer_though_its_prompt_is_shorter() -> None:
    trace = trace_of([(0.0, 8, 12), (0.025, 6, 10)], max_output_tokens=[12, 10])
    assert play(trace, **RETRACTING | {"num_gpu_blocks": 28}).preemptions_table()["request_id"].to_list() == ["1"]


def test_a_retracted_request_waits_behind_all_others() -> None:
    trace = trace_of([(0.0, 8, 12), (0.001, 6, 10), (0.05, 4, 1)], max_output_tokens=[12, 10, 12])
    result = play(trace, **RETRACTING)
    assert result.preemptions_table().rows() == [(8, "0")]
    assert batches(result)[10:13] == [{"1": 1}, {"2": 4}, {"0": 15}]


@BOTH
def test_the_ratio_follows_from_what_the_survivors_have_emitted(recording: Recording) -> None:
    """After 45 decode steps the survivor has emitted 46 of 80 tokens, and is to have room for 20 steps."""
    trace = trace_of([(0.0, 60, 80), (0.001, 50, 80)], max_output_tokens=[80, 80])
    result = play(trace, **RETRACTING | {"num_gpu_blocks": 200, "max_model_len": 142}, recording=recording)
    engine = result.records.engine
    assert engine.num_preemptions == 1
    assert engine.ratio == pytest.approx((46 + 20) / (80 + 1))
    assert engine.ratio_steps == (80 - 46 - 1) + (80 - 46 - 1)  # decode steps of the survivor, then of the victim


def test_the_ratio_falls_with_decode_steps_and_an_idle_engine_starts_over() -> None:
    once, twice = (play([(10.0 * k, 4, 5) for k in range(n)], policy="sglang").records for n in (1, 2))
    assert once.engine.ratio_steps == twice.engine.ratio_steps == 4
    settings = once.settings
    assert (settings.first_ratio, settings.least_ratio) == pytest.approx((0.7, 0.098))
    assert settings.ratio_decay == pytest.approx((0.7 - 0.098) / 600)


# TensorRT-LLM


@BOTH
def test_no_evict_admits_what_can_run_to_its_largest_output(recording: Recording) -> None:
    """Five blocks each: two fit into ten, though the third's prompt would fit besides; used are only those filled."""
    trace = trace_of([(0.0, 8, 6)] * 3, max_output_tokens=[12] * 3)
    result = play(trace, policy="trtllm-no-evict", block_size=4, num_gpu_blocks=10, step_time=EVEN, recording=recording)
    assert result.requests_table()["first_token_at_s"].to_list() == pytest.approx([0.01, 0.01, 0.07])
    assert result.records.engine.num_preemptions == 0
    assert result.records.engine.peak_blocks == 8


def test_no_evict_counts_shared_blocks_once() -> None:
    """Each may come to hold five of eight blocks, but their first two are the same."""
    options: dict[str, Any] = {"policy": "trtllm-no-evict", "block_size": 4, "num_gpu_blocks": 8, "max_model_len": 64,
                               "step_time": EVEN}
    rows = [(0.0, 9, 6), (0.005, 9, 6)]
    shared = trace_of(rows, max_output_tokens=[11] * 2, hash_ids=[[0, 1, 2]] * 2, hash_block_tokens=4)
    assert batches(play(shared, **options))[1] == {"0": 1, "1": 1}
    assert batches(play(trace_of(rows, max_output_tokens=[11] * 2), **options))[1] == {"0": 1}


def test_trtllm_serves_generation_first_and_cuts_context_after_whole_blocks() -> None:
    result = play([(0.0, 8, 4), (0.005, 40, 1)], policy="trtllm-max-utilization", block_size=4, step_time=EVEN,
                  max_num_batched_tokens=16)
    assert batches(result) == [{"0": 8}, {"0": 1, "1": 12}, {"0": 1, "1": 12}, {"0": 1, "1": 12}, {"1": 4}]
    assert result.steps_table()["num_used_blocks"][1] == 3 + 10  # all of the prompt's with its first chunk


@pytest.mark.parametrize(("policy", "widest", "most_running"),
                         [("trtllm-no-evict", 2, 4), ("fcfs", 2, 2), ("sglang", 1, 2)])
def test_a_pipelines_batches_have_the_limit_each_or_together(policy: str, widest: int, most_running: int) -> None:
    """Five prompts over two stages: TensorRT-LLM's limit of two is each batch's, SGLang's is halved, vLLM's of both."""
    result = play([(0.0, 16, 4)] * 5, policy=policy, step_time=EVEN, max_num_seqs=2, pipeline_parallel_size=2)
    assert max(map(len, batches(result))) == widest
    assert result.records.engine.max_running == most_running


def test_trtllm_without_chunks_rejects_prompts_above_max_num_tokens() -> None:
    result = play([(0.0, 20, 1), (0.0, 12, 1), (0.0, 12, 1)], policy="trtllm-no-evict", enable_chunked_prefill=False,
                  max_num_batched_tokens=16, max_model_len=32)
    assert result.requests_table()["status"].to_list() == ["rejected", "completed", "completed"]
    assert batches(result) == [{"1": 12}, {"2": 12}]


def test_max_utilization_admits_what_fits_now_and_pauses_the_newest() -> None:
    """Two blocks of prompt each and one more in step 1 fill six; in step 5 both need another. It returns as a whole."""
    trace = trace_of([(0.0, 8, 12)] * 2, max_output_tokens=[12] * 2)
    result = play(trace, policy="trtllm-max-utilization", block_size=4, num_gpu_blocks=6, step_time=EVEN)
    assert result.preemptions_table().rows() == [(5, "1")]
    assert batches(result)[4:6] == [{"0": 1, "1": 1}, {"0": 1}]
    assert batches(result)[12] == {"1": 13}


CHUNKED: dict[str, Any] = {"policy": "trtllm-no-evict", "block_size": 8, "max_num_batched_tokens": 20,
                           "max_model_len": 40, "step_time": EVEN}


def test_a_prompt_without_a_whole_block_lets_a_shorter_one_pass() -> None:
    """14 of 20 tokens leave no block of 8 for request 1, and 5 for request 2; a seat and the memory are kept for 1."""
    rows: Rows = [(0.0, 14, 1), (0.0, 16, 1), (0.0, 5, 1)]
    assert batches(play(rows, **CHUNKED))[:2] == [{"0": 14, "2": 5}, {"1": 16}]
    assert batches(play(rows, **CHUNKED, max_num_seqs=2))[:2] == [{"0": 14}, {"1": 16}]
    assert batches(play(rows, **CHUNKED, num_gpu_blocks=14))[:2] == [{"0": 14}, {"1": 16}]
    assert batches(play(rows, **CHUNKED, num_gpu_blocks=15))[0] == {"0": 14, "2": 5}


def test_equal_progress_gives_each_prompt_a_block_in_turn() -> None:
    """Of 20 tokens two blocks each would be 32: 8 and 8, then 4 are left, too few for a block but request 2 needs 3."""
    result = play([(0.0, 24, 1), (0.0, 16, 1), (0.0, 3, 1)], **CHUNKED, context_chunking_policy="EQUAL_PROGRESS")
    assert batches(result) == [{"0": 8, "1": 8, "2": 3}, {"0": 8, "1": 8}, {"0": 8}]


def test_prompts_wait_only_where_the_decodes_leave_them_blocks() -> None:
    """In step 1 both decodes need a block and one is there, so no prompt could run: that step does not count."""
    rows: Rows = [(0.0, 1, 1), (0.0, 1, 2), (0.0, 1, 2), *[(0.0, 1, 1)] * 3, (0.0, 1, 2), (0.0, 1, 1)]
    result = play(trace_of(rows, max_output_tokens=[o for _, _, o in rows]), policy="trtllm-max-utilization",
                  step_time=EVEN, block_size=1, num_gpu_blocks=3, max_num_seqs=3, enable_chunked_prefill=False,
                  max_num_batched_tokens=45, batch_wait_timeout_iters=1, batch_wait_max_tokens_ratio=0.3)
    assert batches(result)[4:] == [{"6": 1}, {"7": 1}]


WAITING: dict[str, Any] = {"policy": "trtllm-max-utilization", "step_time": EVEN, "max_num_batched_tokens": 64}


@pytest.mark.parametrize(
    ("iters", "ratio", "rows", "second_runs_in"),
    [
        (3, 0.5, [], 4),  # 8 + 1 of 32 tokens: three steps go by
        (3, 0.5, [(0.015, 24, 1)], 2),  # with 24 more there are 33
        (3, 0.5, [(0.015, 20, 1)], 4),
        (3, 0.0, [], 1),
        (0, 0.5, [], 1),
        (50, 0.5, [], 20),  # until no decode is left
        (3, 9 / 64, [], 1),
    ],
)
def test_trtllm_holds_prompts_back_until_a_step_is_worth_it(iters: int, ratio: float, rows: Rows,
                                                            second_runs_in: int) -> None:
    result = play([(0.0, 16, 20), (0.005, 8, 1), *rows], **WAITING, batch_wait_timeout_iters=iters,
                  batch_wait_max_tokens_ratio=ratio)
    assert [step for step, batch in enumerate(batches(result)) if "1" in batch] == [second_runs_in]


def test_a_prompt_in_progress_is_held_back_too() -> None:
    """Chunks of 64 and of 63 → 48 tokens fill the step; the last 38 do not, and wait for a step."""
    result = play([(0.0, 16, 20), (0.005, 134, 1)], **WAITING, batch_wait_timeout_iters=1,
                  batch_wait_max_tokens_ratio=0.75)
    assert [batch.get("1") for batch in batches(result)][:6] == [None, 48, 48, None, 38, None]


# What engines have in common


@BOTH
def test_a_busy_engine_looks_for_requests_every_so_many_decode_steps(recording: Recording) -> None:
    """After a step with prompts it looks at once (steps 1 and 2), then after four decode steps."""
    result = play([(0.0, 4, 12), (0.005, 4, 9), (0.025, 4, 2)], policy="sglang", step_time=EVEN,
                  scheduler_recv_interval=4, recording=recording)
    assert result.requests_table()["first_scheduled_at_s"].to_list() == pytest.approx([0.0, 0.01, 0.06])


def test_an_idle_engine_sees_requests_at_once_however_rarely_it_looks() -> None:
    result = play([(0.0, 4, 3), (0.07, 4, 1)], policy="sglang", step_time=EVEN, scheduler_recv_interval=1000)
    assert result.requests_table()["queue_s"].to_list() == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("depth", [1, 2])
@BOTH
def test_clients_see_groups_of_tokens(recording: Recording, depth: int) -> None:
    """Tokens 1, 4, 7 and the last, 8; when it finishes does not change."""
    result = play([(0.0, 4, 8)], step_time=EVEN, stream_interval=3, recording=recording, pipeline_parallel_size=depth)
    gaps, row = result.records.gaps, result.requests_table().row(0, named=True)
    assert sorted(round(gap, 9) for gap in gaps.values_s.repeat(gaps.counts)) == [0.01, 0.03, 0.03]
    assert (row["ttft_s"], row["e2e_s"], row["tpot_s"]) == pytest.approx((0.01, 0.08, 0.01))


@pytest.mark.parametrize("name", ["scheduler_recv_interval", "stream_interval"])
def test_intervals_are_at_least_one(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError, match=rf"{name} = 0: must be at least 1"):
        play([(0.0, 4, 1)], **options)


@pytest.mark.parametrize("name", ["schedule_conservativeness", "batch_wait_max_tokens_ratio", "max_prefill_tokens"])
def test_shares_and_limits_are_not_negative(name: str) -> None:
    options: dict[str, Any] = {name: -1}
    with pytest.raises(UsageError, match=rf"{name} = -1: must be at least 0"):
        play([(0.0, 4, 1)], **options)


# What an engine starts with


@pytest.mark.parametrize(
    ("options", "policy", "limits"),
    [
        ({}, "fcfs", (128, 2048, 0, True)),
        ({"gpu": "h200-sxm"}, "fcfs", (1024, 8192, 0, True)),
        ({"gpu": "a100-sxm"}, "fcfs", (256, 2048, 0, True)),
        ({"gpu": "b200-sxm"}, "fcfs", (1024, 16384, 0, True)),
        ({"gpu": "mi300x", "engine_version": "0.27.1"}, "fcfs", (1024, 8192, 0, True)),
        ({"gpu": "gb10"}, "fcfs", (256, 2048, 0, True)),
        ({"gpu": "gb10", "engine_version": "0.32.0"}, "fcfs", (1024, 8192, 0, True)),
        ({"gpu": "h200-sxm", "data_parallel_size": 2, "data_parallel_attention": True, "expert_parallel": True,
          "all2all_backend": "deepep_low_latency"}, "fcfs", (256, 256, 0, True)),  # use_batched_dp_moe
        ({"gpu": "h200-sxm", "max_num_batched_tokens": 300}, "fcfs", (300, 300, 0, True)),
        ({"engine": "sglang"}, "sglang", (2048, 8192, 16384, True)),
        ({"engine": "sglang", "gpu": "l4"}, "sglang", (2048, 2048, 16384, True)),
        ({"engine": "sglang", "gpu": "l40s"}, "sglang", (2048, 4096, 16384, True)),
        ({"engine": "sglang", "gpu": "h200-sxm"}, "sglang", (2048, 8192, 16384, True)),
        ({"engine": "sglang", "gpu": "b200-sxm"}, "sglang", (2048, 16384, 16384, True)),
        ({"engine": "sglang", "data_parallel_size": 4, "data_parallel_attention": True}, "sglang",
         (2048, 2048, 16384, True)),  # each rank has its part of the chunk
        ({"engine": "trtllm"}, "trtllm-no-evict", (2048, 8192, 0, False)),
        ({"engine": "trtllm", "policy": "static"}, "trtllm-static", (2048, 8192, 0, False)),
        ({"engine": "vllm", "policy": "static"}, "static", (128, 2048, 0, True)),
        ({"engine": "trtllm", "policy": "fcfs", "max_num_seqs": 0, "enable_chunked_prefill": True}, "fcfs",
         (0, 8192, 0, True)),
    ],
)
def test_engines_have_their_own_defaults_and_the_user_the_last_word(options: dict[str, Any], policy: str,
                                                                    limits: tuple[int, int, int, bool]) -> None:
    deployment = deploy(Scenario(step_time=EVEN, num_gpu_blocks=100, **options))
    settings = deployment.settings
    assert deployment.policy.name == policy
    assert (settings.max_num_seqs, settings.max_num_batched_tokens, settings.max_prefill_tokens,
            settings.enable_chunked_prefill) == limits
    assert settings.async_scheduling


def test_the_summary_shows_the_defaults_and_the_help_names_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n")
    arguments = ["replay", str(path), "--engine", "trtllm", "--step-time", EVEN, "--num-gpu-blocks", "1000",
                 "--json", str(tmp_path / "summary.json")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    chosen = json.loads((tmp_path / "summary.json").read_text())["policy"]
    names = ("policy", "max_num_seqs", "max_num_batched_tokens")
    assert [chosen[name] for name in names] == ["trtllm-no-evict", 2048, 8192]
    shown = " ".join(CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "300"}).output.split())
    assert ("[engine's: vllm 1024 (A100, and below 70 GiB: 256; no GPU: 128), sglang 2048, trtllm 2048, "
            "atom 512, tei 0]") in shown


def test_a_note_says_what_stands_for_a_limit_that_the_trace_lacks() -> None:
    trace = trace_of([(0.0, 8, 6)])
    scenario = scenario_of(policy="trtllm-no-evict", max_model_len=64)
    outcome = replay(trace, scenario, slo=None, recording=Recording())
    found = notes(outcome.result.deployment, trace)
    assert any("no max_output_tokens" in note and "64 tokens" in note for note in found)


@pytest.mark.parametrize(("options", "said"), [
    ({"kv_transfer_latency": 0.1}, ["kv_transfer_latency = 0.1: no effect without --prefill-replicas"]),
    ({"kv_transfer_latency": 0.1, "prefill_replicas": 1, "data_parallel_size": 2}, []),
    ({"batch_wait_timeout_iters": 4, "max_lora_rank": 8, "max_cpu_loras": 2},
     ["max_cpu_loras = 2, max_lora_rank = 8: no effect without --max-loras",
      "batch_wait_timeout_iters = 4: no effect without --batch-wait-max-tokens-ratio"]),
])
def test_a_note_says_which_options_wait_for_another(options: dict[str, Any], said: list[str]) -> None:
    assert set(SWITCHES) | {name for names in SWITCHES.values() for name in names} <= set(OPTION_DEFAULTS)
    found = replay(trace_of([(0.0, 8, 6)]), scenario_of(**options), slo=None, recording=Recording()).summary["notes"]
    assert [note for note in found if "no effect without" in note] == said


def test_the_summary_says_where_each_value_comes_from() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=64)
    found = replay(trace_of([(0.0, 8, 6)]), scenario, slo=None, recording=Recording()).summary["deployment"]
    sources = {name: found["value_sources"][name] for name in (
        "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "max_model_len", "num_gpu_blocks",
        "watermark")}
    assert sources == {"max_num_seqs": "given", "max_num_batched_tokens": "engine", "gpu_memory_utilization": "engine",
                       "max_model_len": "derived", "num_gpu_blocks": "derived", "watermark": "engine"}


@pytest.mark.parametrize(("engine", "caching", "seats"), [("sglang", False, 8), ("sglang", None, 1),
                                                          ("vllm", None, None)])
def test_a_note_says_how_many_sequences_sglang_has_states_for(engine: str, caching: bool | None,
                                                              seats: int | None) -> None:
    """Weights of 65 GiB leave half a GiB for the states of 8 of 2,048 sequences, of one with those of prefixes."""
    outcome = replay(trace_of([(0.0, 8, 6)]), Scenario(model="qwen3.5-35b-a3b", gpu="h100-sxm", engine=engine,
                                                       enable_prefix_caching=caching, language_model_only=True,
                                                       max_num_seqs=None if seats else 128,
                                                       gpu_memory_utilization=None if seats else 0.95),
                     slo=None, recording=Recording())
    assert any(f"recurrent states for {seats} sequences" in note for note in outcome.summary["notes"]) == bool(seats)
    assert any("(5 states a sequence" in note for note in outcome.summary["notes"]) == (seats == 1)
    assert outcome.result.deployment.settings.max_num_seqs == (seats or 128)
