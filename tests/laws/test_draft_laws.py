"""Laws of speculative decoding, on random small cases under every policy."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from cases import Case, cases
from helpers import EVERYTHING, batches, number, play
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from test_laws import (
    check_batches,
    check_closed_loop,
    check_memory,
    check_phases,
    check_requests,
    check_time,
    every_policy,
    num_rows_after_the_end,
    undivided,
)

from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.replays.result_tables import ReplayResult

ACCEPTANCE = some.lists(some.sampled_from((0.0, 0.3, 0.7, 1.0)), min_size=3, max_size=3).map(
    lambda rates: ",".join(map(str, sorted(rates, reverse=True))))
BURSTS = some.lists(some.tuples(some.integers(1, 30), some.integers(1, 40)), min_size=1, max_size=6).map(
    lambda sizes: [(0.0, *size) for size in sizes])
METHODS = some.sampled_from(("ngram", "mtp"))


@pytest.mark.slow
@every_policy
@settings(max_examples=15)
@given(case=cases(), tokens=some.integers(1, 3), acceptance=ACCEPTANCE, method=METHODS)
def test_conservation(policy: str, case: Case, tokens: int, acceptance: str, method: str) -> None:
    """Requests, tokens and memory are conserved, and time goes forward; recording changes nothing."""
    case.options.update(num_speculative_tokens=tokens, speculative_acceptance=acceptance, speculative_method=method)
    assume(case.options["max_num_batched_tokens"] not in range(1, tokens + 1))  # below the tokens of one decode
    result, plain = case.play(policy, EVERYTHING), case.play(policy, Recording())
    check_requests(result)
    check_memory(case, result)
    check_time(case, result)
    check_batches(case, policy, result)
    check_closed_loop(case, result)
    check_phases(case, result)
    check_drafts(result, tokens)
    check_budget(case, policy, result)
    assert undivided(plain).equals(undivided(result), null_equal=True)


def check_drafts(result: ReplayResult, tokens: int) -> None:
    """What is emitted is one token a decode and what was accepted, no more than was drafted."""
    steps, engine, table = result.steps_table(), result.records.engine, result.requests_table()
    dropped = num_rows_after_the_end(result)
    assert (steps["num_accepted_tokens"] <= tokens * (steps["num_decodes"] + steps["num_prompts"])).all()
    assert engine.total_accepted_tokens == steps["num_accepted_tokens"].sum()
    assert number(steps["num_dropped"].sum()) == engine.total_dropped == dropped
    emitted = number(steps["num_accepted_tokens"].sum()) + number(steps["num_decodes"].sum()) - dropped
    assert engine.total_decode_tokens == emitted
    if not table["status"].is_in(["cancelled"]).any():  # what is in flight in a pipeline then is lost
        assert steps["num_sampled"].sum() == table["output_tokens"].sum()
    assert result.records.gaps.counts.sum() <= max(int(steps["num_sampled"].sum()), 0)
    if (table["status"] == "completed").all():
        total_s = (table["finished_at_s"] - table["first_token_at_s"]).sum()
        assert (result.records.gaps.values_s * result.records.gaps.counts).sum() == pytest.approx(total_s)


def check_budget(case: Case, policy: str, result: ReplayResult) -> None:
    """Checked tokens are in the step's budget."""
    budget = case.options["max_num_batched_tokens"]
    if budget and POLICIES[policy].budget == "step":
        assert all(sum(batch.values()) <= budget for batch in batches(result))


@pytest.mark.slow
@every_policy
@settings(max_examples=15)
@given(case=cases(), tokens=some.integers(1, 3))
def test_a_draft_that_is_never_accepted_and_costs_nothing_is_none(policy: str, case: Case, tokens: int) -> None:
    """One by one, decodes do what counters do for all of them, bit for bit; a prompt of one token may be padded."""
    case.options.update(max_num_batched_tokens=0, max_num_scheduled_tokens=0, num_gpu_blocks=1000,
                        step_time="linear:0.02,0", batch_wait_timeout_iters=0)
    plain = case.play(policy, EVERYTHING)
    case.options.update(num_speculative_tokens=tokens, speculative_acceptance="0", speculative_method="ngram")
    drafted = case.play(policy, EVERYTHING)
    same = pl.exclude("num_used_blocks", "draft_s", "num_drafted_tokens", "num_prompt_tokens", "prompt_pairs",
                      "window_pairs")
    assert drafted.requests_table().equals(plain.requests_table(), null_equal=True)
    assert drafted.steps_table().select(same).equals(plain.steps_table().select(same), null_equal=True)
    ours, theirs = (np.sort(np.repeat(each.records.gaps.values_s, each.records.gaps.counts))
                    for each in (drafted, plain))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def finished_s(rows: list[tuple[float, int, int]], **options: Any) -> Any:
    unlimited = play(rows, recording=Recording(), max_num_batched_tokens=0, max_num_seqs=0, **options)
    return unlimited.records.requests.finished_s


@given(rows=BURSTS, tokens=some.integers(1, 4), chances=some.tuples(some.floats(0, 1), some.floats(0, 1)),
       seed=some.integers(0, 99))
def test_nobody_is_later_where_more_is_accepted(rows: list[tuple[float, int, int]], tokens: int,
                                                chances: tuple[float, float], seed: int) -> None:
    """Of a burst whose steps all take the same, request by request: the draws are the same."""
    common: Any = {"num_speculative_tokens": tokens, "step_time": "linear:0.01,0", "seed": seed}
    fewer, more = (finished_s(rows, speculative_acceptance=str(chance), **common) for chance in sorted(chances))
    assert (more <= fewer).all()


@given(rows=BURSTS, tokens=some.integers(1, 4))
def test_drafts_that_are_never_accepted_are_never_faster(rows: list[tuple[float, int, int]], tokens: int) -> None:
    plain = finished_s(rows)
    drafted = finished_s(rows, num_speculative_tokens=tokens, speculative_acceptance="0")
    assert (drafted >= plain).all()


@given(output=some.integers(1, 60), tokens=some.integers(1, 4))
def test_drafts_that_are_always_accepted_come_k_plus_one_at_a_time(output: int, tokens: int) -> None:
    result = play([(0.0, 5, output)], num_speculative_tokens=tokens, speculative_acceptance="1")
    assert result.records.engine.num_steps == 1 + -(-(output - 1) // (tokens + 1))
