"""Rollouts: batches of a trace, the pace of steps, closed forms for equal lengths, and laws of caps and lags."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from command_line import planner
from helpers import scenario_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from steps import seconds, stack_of, step

from planner import notebook
from planner.deployment.deploy import resolve
from planner.errors import CapacityError, UsageError
from planner.planning.rollout_batches import Batches
from planner.planning.rollouts import Generators, paced, rollouts
from planner.planning.rollouts_answer import RolloutsAnswer, RolloutStep
from planner.planning.search_options import Choices, Rollouts
from planner.report.rollouts_table import rollouts_table
from planner.settings.scenario import Scenario
from planner.traces import Trace

STEP_S = 0.01  # of every engine step in tests with `CONSTANT`
CONSTANT = scenario_of(step_time="linear:0.01,0", num_gpu_blocks=100_000, max_num_seqs=4, max_num_batched_tokens=4096)
NOTHING = Choices()


def samples(outputs: list[int], inputs: int = 10) -> Trace:
    return trace_of([(0.0, inputs, output) for output in outputs])


def asked(**options: Any) -> Rollouts:
    return Rollouts(**{"prompts": 4, "group_size": 2, "trainer_s": 1.0, "steps": 1, "generators": 1} | options)


def step_of(trace: Trace, scenario: Scenario = CONSTANT, **options: Any) -> RolloutStep:
    question = asked(**options)
    deployment = resolve(replace(scenario, router="round-robin"), Batches(trace, question).whole)
    return Generators(trace, deployment, question, NOTHING).step(question.generators or 1)


def generation_s(trace: Trace, scenario: Scenario = CONSTANT, **options: Any) -> float:
    return step_of(trace, scenario, **options).generation_s


# Closed forms.

@pytest.mark.parametrize(("replicas", "rounds"), [(1, 2), (2, 1), (4, 1)])
def test_a_batch_of_equal_samples_takes_its_rounds_of_seats_times_its_length(replicas: int, rounds: int) -> None:
    """Eight samples of 30 tokens on replicas of four seats: the first step computes the prompts and a token each."""
    assert generation_s(samples([30] * 8), generators=replicas) == pytest.approx(rounds * 30 * STEP_S)


def test_a_batch_of_equal_samples_takes_the_sum_of_its_step_times() -> None:
    """256 samples on 2 H100: a step for all prompts, then a step of 128 decodes for each context."""
    count, inputs, outputs = 256, 32, 2000
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", enable_prefix_caching=False,
                        max_num_batched_tokens=8192, max_num_seqs=512)
    found = generation_s(samples([outputs] * count, inputs), scenario, prompts=count, group_size=1, generators=2)
    prompts = seconds(stack_of(), step(prompt=inputs * count // 2))
    decodes = sum(seconds(stack_of(), step(decodes=count // 2, context=inputs + k)) for k in range(1, outputs))
    assert found == pytest.approx(prompts + decodes, rel=0.02)


@given(some.floats(0.1, 100), some.floats(0, 100), some.floats(0, 10), some.integers(1, 4))
def test_equal_steps_have_the_pace_of_their_longest_part(generation: float, trainer: float, update: float,
                                                         lag: int) -> None:
    assert paced([generation], [trainer], update, 0).step_s == pytest.approx(generation + trainer + update)
    assert paced([generation], [trainer], update, lag).step_s == pytest.approx(max(generation, trainer) + update)


def test_a_batch_waits_for_the_weights_that_its_lag_allows() -> None:
    """By hand: generation of 10 and 30 s in turn, a trainer of 20 s. Two steps ahead, the mean of both is hidden."""
    assert paced([10.0, 30.0], [20.0, 20.0], 0.0, 1).step_s == pytest.approx(25.0)
    assert paced([10.0, 30.0], [20.0, 20.0], 0.0, 2).step_s == pytest.approx(20.0)
    assert paced([10.0, 30.0], [20.0, 20.0], 0.0, 0).lags == (0, 0)
    assert max(paced([40.0], [20.0], 0.0, 3).lags) == 1, "generators that are slow have fresh weights"
    assert set(paced([10.0], [20.0], 0.0, 3).lags) == {3}, "generators that are fast run as far ahead as they may"


# Laws.

@given(some.lists(some.tuples(some.floats(0, 50), some.floats(0, 50)), min_size=1, max_size=5), some.floats(0, 5),
       some.integers(0, 3))
def test_more_lag_never_slows_steps(times: list[tuple[float, float]], update: float, lag: int) -> None:
    generation, trainer = zip(*times, strict=True)
    less, more = (paced(generation, trainer, update, each).step_s for each in (lag, lag + 1))
    assert more <= less + 1e-6
    assert more >= max(np.mean(generation), np.mean(trainer)) + update - 1e-6


@given(some.lists(some.integers(1, 60), min_size=8, max_size=8), some.integers(1, 60), some.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_a_cap_never_lengthens_a_step(outputs: list[int], cap: int, replicas: int) -> None:
    whole, capped = (step_of(samples(outputs), generators=replicas, max_length=limit) for limit in (None, cap))
    assert capped.generation_s <= whole.generation_s + 1e-9
    assert capped.step_s <= whole.step_s + 1e-9


@given(some.lists(some.integers(1, 60), min_size=16, max_size=16))
@settings(max_examples=20, deadline=None)
def test_twice_as_many_generators_never_lengthen_generation(outputs: list[int]) -> None:
    """Samples are dealt in turn, so half of a replica's samples stay, and no step takes longer for the others."""
    times = [generation_s(samples(outputs), prompts=8, generators=count) for count in (1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(STEP_S * max(outputs)), "each sample has a replica"


@given(some.lists(some.integers(1, 60), min_size=8, max_size=24), some.integers(1, 60), some.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_partial_rollouts_compute_each_output_token_once(outputs: list[int], budget: int, staleness: int) -> None:
    """Over as many steps as the batches come round, each sample ends once, and its parts have its length."""
    rows = len(outputs) // 2 * 2
    question = asked(prompts=1, length_budget=budget, max_staleness=staleness, lag=0)
    batches = [Batches(samples(outputs), question).batch(j) for j in range(rows // 2)]
    assert sum(batch.num_trained for batch in batches) == rows
    assert sum(int(batch.load.requests["output_tokens"].sum()) for batch in batches) == sum(outputs[:rows])
    assert sum(batch.output_tokens for batch in batches) == sum(outputs[:rows])
    assert max(int(batch.num_updates.max(initial=0)) for batch in batches) <= staleness
    if staleness == 0:
        assert [batch.load.num_requests for batch in batches] == [2] * len(batches)


# Batches.

def test_samples_of_a_prompt_share_its_blocks_and_nothing_else() -> None:
    """A prompt of 40 tokens has two whole blocks before its last token; a prompt of 32 tokens has one."""
    trace = trace_of([(0.0, 40, 9), (0.0, 40, 5), (0.0, 32, 7), (0.0, 32, 8)])
    prefix = Batches(trace, asked(prompts=2)).batch(0).load.prefix
    assert prefix is not None
    assert prefix.block_tokens == 16
    shared = [prefix.values[first:last].tolist() for first, last in zip(prefix.offsets[:-1], prefix.offsets[1:],
                                                                          strict=True)]
    assert [len(ids) for ids in shared] == [2, 2, 1, 1]
    assert shared[0] == shared[1]
    assert shared[2] == shared[3]
    assert not set(shared[0]) & set(shared[2])


def test_the_prefix_of_a_group_is_computed_once() -> None:
    """Engine steps of 1 ms a token: 16 samples of a prompt of 1,600 tokens take its time once, not 16 times."""
    scenario = replace(CONSTANT, step_time="linear:0.0,0.001", max_num_seqs=16, max_num_batched_tokens=100_000,
                       enable_prefix_caching=True)
    shared = generation_s(samples([1] * 16, 1600), scenario, prompts=1, group_size=16)
    alone = generation_s(samples([1] * 16, 1600), scenario, prompts=16, group_size=1)
    assert alone == pytest.approx(16 * 1.6)
    assert shared == pytest.approx(1.6 + 15 * 0.016, rel=0.02)


def test_a_continued_sample_computes_its_prompt_and_its_tokens_again() -> None:
    batch = Batches(samples([25, 5, 10, 10], inputs=7), asked(prompts=1, length_budget=10)).batch(2)
    rows = batch.load.requests.select("input_tokens", "output_tokens").rows()
    assert sorted(rows) == [(7, 5), (7, 10), (27, 5)], "the sample of 25 tokens began two steps before"
    assert batch.num_trained == 2
    assert batch.output_tokens == 30
    assert batch.num_updates.tolist() == [2]


# The answer.

def test_the_fewest_generators_are_those_of_an_exhaustive_search() -> None:
    rng = np.random.default_rng(3)
    trace = samples(rng.integers(1, 80, 64).tolist())
    question = asked(prompts=8, group_size=4, steps=2, trainer_s=1.2, generators=None)
    answer = rollouts(trace, CONSTANT, question, NOTHING)
    waits = {count: step_of(trace, prompts=8, group_size=4, steps=2, trainer_s=1.2, generators=count).trainer_wait_share
             for count in range(1, 12)}
    assert answer.feasible
    assert answer.step.num_replicas == min(count for count, wait in waits.items() if wait <= 0.05) > 1


def test_no_number_of_generators_is_enough_for_a_sample_that_alone_takes_longer_than_the_trainer() -> None:
    trace = samples([400, *[5] * 63])
    answer = rollouts(trace, CONSTANT, asked(prompts=16, group_size=4, trainer_s=1.0, generators=None), NOTHING)
    assert not answer.feasible
    assert answer.longest_alone_s == pytest.approx(4.0)
    assert answer.step.step_s == pytest.approx(4.0)
    cap = next(row for row in answer.changes if row.option.startswith("--max-length"))
    assert cap.speedup > 1.5
    assert cap.cut_share == 1 / 64
    assert cap.fewest_replicas is not None


def test_the_parts_of_a_step() -> None:
    """By hand, on 2 replicas of 4 seats: seven samples of 10 tokens, and one of 100."""
    trace = samples([100, *[10] * 7])
    answer = rollouts(trace, CONSTANT, asked(trainer_s=0.5, update_s=0.1, lag=0, generators=2), NOTHING)
    found = answer.step
    assert found.generation_s == pytest.approx(1.0)
    assert found.until_90_percent_s == pytest.approx(1.0)
    assert found.step_s == pytest.approx(1.6)
    assert found.trainer_wait_s == pytest.approx(1.0)
    assert found.generator_wait_s == pytest.approx(0.5)
    assert found.stragglers_idle_share == pytest.approx(0.9 / 2), "the second replica is done after 0.1 s"
    assert found.generator_idle_share == pytest.approx(1 - (1.0 + 0.1) / 2 / 1.6)
    assert found.samples_per_s == pytest.approx(8 / 1.6)
    assert found.max_staleness == 0


def test_a_step_costs_the_gpus_for_its_time() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", tensor_parallel_size=2)
    answer = rollouts(samples([20] * 8), scenario, asked(trainer_s=3600.0, trainer_gpus=4, generators=3),
                      Choices(prices={"h100-sxm": 2.0}))
    assert answer.step.num_gpus == 6
    assert answer.step.cost_usd_per_step == pytest.approx((6 + 4) * 2.0, rel=1e-3)


def test_a_trainer_by_its_rate_takes_the_tokens_of_the_batch() -> None:
    answer = rollouts(samples([30] * 8), CONSTANT, asked(trainer_s=None, trainer_rate=80.0), NOTHING)
    assert answer.step.trainer_s == pytest.approx(8 * (10 + 30) / 80.0)


@pytest.mark.parametrize(("options", "words"), [
    ({"trainer_s": None}, "--trainer-time, --trainer-rate"), ({"trainer_rate": 1.0}, "--trainer-time, --trainer-rate"),
    ({"prompts": 0}, "--prompts 0: must be"), ({"lag": -1}, "--lag -1: must be"),
    ({"max_staleness": 1}, "--max-staleness 1: without --length-budget"),
    ({"max_staleness": 1, "lag": 2, "length_budget": 5}, "--max-staleness 1: must be at least --lag 2"),
    ({"group_size": 9}, "--group-size 9: test has 8 rows"), ({"trainer_s": math.inf}, "--trainer-time inf: must be")])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rollouts(samples([5] * 8), CONSTANT, asked(**options), NOTHING)


def test_samples_that_are_not_served_are_an_error() -> None:
    with pytest.raises(CapacityError, match="8 of 8 samples of a batch are not served"):
        rollouts(samples([50] * 8), replace(CONSTANT, max_model_len=8), asked(), NOTHING)


def test_notes_say_what_is_left_out_and_what_differs() -> None:
    trace = trace_of([(0.0, 10 + k % 3, 5) for k in range(9)], session_id=["a"] * 9)
    notes = " ".join(rollouts(trace, CONSTANT, asked(steps=2), NOTHING).notes)
    for words in ("the last 1 of 9 rows make no group of 2", "after the last the first follows again",
                  "prompts of test differ within groups of 2 rows", "session_id of test are left aside",
                  "weight updates take no time"):
        assert words in notes, words


# The command, and published figures.

def test_the_command_prints_the_answer_and_its_exit_code_says_whether_the_trainer_is_busy() -> None:
    line = ("rollouts", "rollouts", "--limit", "512", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--prompts", "16",
            "--steps", "1", "--json", "-")
    busy = planner(*line, "--trainer-time", "2000")
    answer = json.loads(busy.stdout)
    assert busy.returncode == 0
    assert answer["feasible"]
    assert answer["step"]["num_replicas"] == 1
    waiting = planner(*line, "--trainer-time", "1")
    assert waiting.returncode == 1
    assert not json.loads(waiting.stdout)["feasible"]


def test_the_function_takes_the_options_of_the_command() -> None:
    answer = notebook.rollouts(samples([20] * 8), CONSTANT, prompts=4, group_size=2, trainer_time=1.0, generators=2,
                               steps=1, price={})
    assert answer.step.num_replicas == 2
    assert answer.step.trainer_s == 1.0
    assert answer.to_polars()["num_replicas"].to_list() == [1, 2, 4]


def test_the_text_has_the_sentence_the_parts_and_the_changes() -> None:
    answer = rollouts(samples([100, *[10] * 15]), CONSTANT, asked(prompts=8, generators=None), NOTHING)
    text = str(rollouts_table(answer))
    assert answer.sentence in text
    assert "--lag 0" in text
    assert "generators idle" in text


@pytest.mark.slow
def test_the_last_tenth_of_a_batch_takes_about_half_of_its_generation() -> None:
    """Published: up to half, for Moonlight and Qwen2-VL-72B (Seer, arXiv 2511.14617)."""
    answer: RolloutsAnswer = long_tailed("qwen3-8b", "h100-sxm", generators=4)
    assert 0.4 < answer.step.stragglers_s / answer.step.generation_s < 0.75


@pytest.mark.slow
def test_generation_is_of_the_published_order() -> None:
    """Published for Qwen2.5-Math-7B on H20, TP 4, 512 prompts of 16 samples of at most 28,672 tokens (verl,
    docs/advance/fully_async.md): 357, 151 and 178 s on 32, 64 and 128 GPUs. The lengths are not published: the sample's
    are as good as others, and the longest sample alone may not take longer than a batch.
    """
    answer = long_tailed("qwen2.5-7b", "h20", generators=16, tensor_parallel_size=4, max_length=28_672, prompts=512)
    assert [row.num_gpus for row in answer.fleets] == [32, 64, 128]
    for row, published_s in zip(answer.fleets, (357.0, 151.0, 178.0), strict=True):
        assert published_s / 2 < row.generation_s < 2 * published_s
    assert answer.longest_alone_s < 151.0


def long_tailed(model: str, gpu: str, *, generators: int, tensor_parallel_size: int = 1,
                max_length: int | None = None, prompts: int = 64) -> RolloutsAnswer:
    from planner.traces import read_trace

    return rollouts(read_trace("rollouts"), Scenario(model=model, gpu=gpu, tensor_parallel_size=tensor_parallel_size),
                    Rollouts(prompts=prompts, trainer_s=100.0, generators=generators, max_length=max_length, steps=1),
                    NOTHING)
