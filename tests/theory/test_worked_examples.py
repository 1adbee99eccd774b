"""Hand-worked traces: small numbers that anyone can check on paper.

Throughout, the step that computes the last prompt token emits the first output token, so a request of n output tokens
whose prompt fits one step takes n steps.
"""

from typing import Any

import numpy as np
import pytest
from helpers import batches, play, scenario_of, step_tokens, trace_of

from planner.loop.state.engine_settings import Recording
from planner.results.summary import goodput
from planner.run import replay
from planner.settings.slo import Slo, meets


def at_once(*sizes: tuple[int, int]) -> list[tuple[float, int, int]]:
    """Return rows of (prompt, output) that all arrive at 0."""
    return [(0.0, prompt, output) for prompt, output in sizes]


def test_static_batching_leaves_slots_idle() -> None:
    """Outputs of 10, 50 and 200 tokens hold three slots for 200 steps: of 600 slot-steps 260 are used."""
    steps = batches(play(at_once((1, 10), (1, 50), (1, 200)), policy="static", max_num_seqs=3))
    useful = sum(len(batch) for batch in steps)
    assert (useful, 3 * len(steps) - useful) == (260, 340)


@pytest.mark.parametrize(("policy", "iterations"), [("static", 40 + 30), ("fcfs", 45)])
def test_five_tickets_in_three_slots(policy: str, iterations: int) -> None:
    """Static: max(20, 40, 15) + max(30, 10). Continuous: the fourth enters after 15 steps and runs 30."""
    tickets = at_once((10, 20), (5, 40), (8, 15), (12, 30), (6, 10))
    assert len(batches(play(tickets, policy=policy, max_num_seqs=3))) == iterations


@pytest.mark.parametrize(("max_num_seqs", "num_steps"), [(1, 60), (3, 25)])
def test_one_by_one_against_batched(max_num_seqs: int, num_steps: int) -> None:
    """20 + 15 + 25 steps, or as many as the longest takes."""
    assert len(batches(play(at_once((1, 20), (1, 15), (1, 25)), max_num_seqs=max_num_seqs))) == num_steps


def test_a_long_prompt_in_chunks() -> None:
    """4,000 = 7 × 512 + 416."""
    assert step_tokens(play(at_once((4000, 1)), max_num_batched_tokens=512)) == [512] * 7 + [416]


def test_decodes_leave_the_rest_of_the_budget_to_a_prompt() -> None:
    """1,024 − 96 = 928."""
    rows = [*at_once(*[(1, 10)] * 96), (0.01, 2000, 2)]
    batch = batches(play(rows, max_num_batched_tokens=1024))[1]
    assert batch.pop("96") == 928
    assert list(batch.values()) == [1] * 96


def test_a_long_prompt_under_a_threshold_takes_eight_steps() -> None:
    """8,000 = 7 × 1,024 + 832. Alone, it would not be cut: the threshold protects others."""
    options: dict[str, Any] = {"long_prefill_token_threshold": 1024, "max_num_batched_tokens": 16_384}
    together = batches(play([(0.0, 1, 50), (0.0, 8000, 1)], **options))
    assert [batch["1"] for batch in together if "1" in batch] == [1024] * 7 + [832]
    assert step_tokens(play(at_once((8000, 1)), **options)) == [8000]


def test_partly_filled_blocks_waste_memory() -> None:
    """17, 31, 48 and 65 tokens take 2, 2, 3 and 5 blocks of 16: 192 − 161 = 31 tokens are empty."""
    lengths = (17, 31, 48, 65)
    result = play(at_once(*[(n, 1) for n in lengths]), block_size=16)
    assert result.steps_table()["num_used_blocks"].to_list() == [12]
    assert 12 * 16 - sum(lengths) == 31


def test_a_shared_prefix_is_not_computed_again() -> None:
    """Six shared blocks of 16: the second request begins with num_computed_tokens = 96."""
    ids = [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 7]]
    result = play(trace_of([(0.0, 112, 3), (1.0, 112, 3)], hash_ids=ids, hash_block_tokens=16))
    assert result.requests_table()["num_cached_tokens"].to_list() == [0, 96]
    assert [batch["1"] for batch in batches(result) if "1" in batch] == [112 - 96, 1, 1]


def test_cached_tokens_of_the_log_save_budget_but_count_as_input() -> None:
    """A prompt of 1,000 with 600 cached needs 400 of the budget; 1,000 prompt tokens are reported, as vLLM does."""
    trace = trace_of([(0.0, 1000, 1)], cached_tokens=[600])
    outcome = replay(trace, scenario_of(max_num_batched_tokens=400), slo=None, recording=Recording(schedule=True))
    assert step_tokens(outcome.result) == [400]
    assert outcome.summary["total_input_tokens"] == 1000
    assert outcome.summary["num_computed_prompt_tokens"] == 400


def test_a_mixed_step() -> None:
    """64 decodes and a chunk of 1,500 tokens are a step of 1,564 tokens."""
    result = play([*at_once(*[(1, 10)] * 64), (0.01, 1500, 1)])
    assert step_tokens(result)[:2] == [64, 1564]
    row = result.steps_table().row(1, named=True)
    assert (row["num_decodes"], row["num_prompts"], row["num_prompt_tokens"]) == (64, 1, 1500)


def test_a_prompt_stalls_a_decode_stream_less_when_it_is_cut() -> None:
    """Whole: a step of 257 tokens. With a threshold of 32: eight steps of 33, which the stream feels less each."""
    rows = [(0.0, 1, 20), (0.01, 256, 2)]
    assert step_tokens(play(rows))[1:5] == [257, 2, 1, 1]
    assert step_tokens(play(rows, long_prefill_token_threshold=32))[1:11] == [33] * 8 + [2, 1]


def test_slots_are_filled_as_they_fall_free() -> None:
    """Prompts of 8, outputs of 3, 1, 2, 2, 1 in three slots: ABC, ACD, ADE, and never more than a block each."""
    result = play(at_once((8, 3), (8, 1), (8, 2), (8, 2), (8, 1)), max_num_seqs=3, block_size=16, num_gpu_blocks=3)
    names = ["".join(sorted("ABCDE"[int(i)] for i in batch)) for batch in batches(result)]
    assert names == ["ABC", "ACD", "ADE"]
    assert result.steps_table()["num_used_blocks"].to_list() == [3, 3, 3]


def test_the_less_urgent_of_two_is_swapped_out_once() -> None:
    """Two blocks of 16, two prompts of 16: the first decode needs a second block. 16 tokens leave and come back."""
    trace = trace_of(at_once((16, 4), (16, 4)), priority=[1.0, 0.0])
    result = play(trace, policy="priority", preemption="swap", num_gpu_blocks=2, block_size=16)
    assert [sorted(batch) for batch in batches(result)] == [["0", "1"], *[["1"]] * 3, *[["0"]] * 3]
    assert result.preemptions_table().rows() == [(1, "0")]
    table = result.requests_table()
    assert table["num_preemptions"].to_list() == [1, 0]
    assert table["num_recomputed_tokens"].to_list() == [0, 0]
    assert result.steps_table()["num_swapped_tokens"].to_list() == [0, 16, 0, 0, 16, 0, 0]


@pytest.mark.parametrize(("max_num_seqs", "max_running"), [(7, 7), (300, 300), (0, 300)])
def test_the_running_set_keeps_its_limit_and_zero_is_none(max_num_seqs: int, max_running: int) -> None:
    outcome = replay(trace_of(at_once(*[(2, 5)] * 300)), scenario_of(max_num_seqs=max_num_seqs), slo=None,
                     recording=Recording())
    assert outcome.summary["max_running"] == max_running


def test_goodput_of_four_requests() -> None:
    """Of 0.40 requests/s, two of four are good: 450 ms miss TTFT ≤ 300 ms, and 42 ms miss TPOT ≤ 30 ms."""
    slo = Slo(ttft_s=0.3, tpot_s=0.03)
    ttft_s, tpot_s = np.array([0.12, 0.45, 0.18, 0.19]), np.array([0.025, 0.022, 0.042, 0.027])
    assert goodput(slo, ttft_s, tpot_s, ttft_s + 9 * tpot_s, 10.0) == pytest.approx(0.2)
    assert meets(slo, ttft_s, tpot_s, ttft_s + 9 * tpot_s).tolist() == [True, False, False, True]
