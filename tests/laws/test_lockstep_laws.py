"""Laws of ranks that step together: one group has one clock, and the largest and the slowest rank set its pace."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from cases import Case, cases
from helpers import EVERYTHING, assert_same_requests, number, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet import interleaved
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.by_term import TERMS

policies = some.sampled_from(list(POLICIES))
STEPS = Recording(steps=True)


@some.composite
def groups(draw: Any) -> dict[str, Any]:
    """Draw the options of a group of ranks."""
    return {"data_parallel_size": draw(some.integers(2, 4)), "data_parallel_attention": True,
            "pipeline_parallel_size": 1, "router": draw(some.sampled_from(list(ROUTERS))),
            "router_report_interval": draw(some.sampled_from((0.0, 0.0, 0.05, 1.0))),
            "seed": draw(some.integers(0, 3)),
            "num_speculative_tokens": draw(some.sampled_from((0, 0, 0, 2)))}


def played(case: Case, policy: str, options: dict[str, Any], recording: Recording = EVERYTHING) -> ReplayResult:
    return replay(case.trace(), scenario_of(policy=policy, **case.options | options), recording=recording).result


def scheduled_tokens(result: ReplayResult) -> Any:
    """Return the tokens of each row of the steps, drafts included as far as they were not cut."""
    tokens: Counter[tuple[int, int]] = Counter()
    for row in result.records.schedule:
        tokens[int(row["replica"]), int(row["step"])] += int(row["num_scheduled_tokens"])
    numbers: Counter[int] = Counter()
    found = []
    for replica in result.records.steps["replica"].tolist():
        found.append(tokens[replica, numbers[replica]])
        numbers[replica] += 1
    return np.array(found)


@given(case=cases(), options=groups(), policy=policies)
def test_ranks_step_together(case: Case, options: dict[str, Any], policy: str) -> None:
    """Steps of two ranks are one step or do not overlap; the largest and the slowest rank say what it takes."""
    result = played(case, policy, options)
    steps, t = result.records.steps, result.deployment.step_time.terms
    spans = sorted({(row["start_s"], row["duration_s"]) for row in steps})
    assert all(start_s + duration_s <= next_s + 1e-12 for (start_s, duration_s), (next_s, _) in pairwise(spans))
    tokens = scheduled_tokens(result)
    context = t.per_context_token_s * (steps["prompt_context_tokens"] + steps["decode_context_tokens"])
    rest_s = context + steps["num_swapped_tokens"] * result.deployment.settings.swap_s_per_token
    for start_s, duration_s in spans:
        own = steps["start_s"] == start_s
        assert len(set(steps["replica"][own].tolist())) == own.sum() <= result.num_replicas
        padded_s = t.base_s + t.per_token_s * tokens[own].max() + rest_s[own].max()
        assert duration_s == pytest.approx(padded_s, rel=1e-12)
        alone_s = t.base_s + t.per_token_s * tokens[own] + rest_s[own]
        assert steps["rank_wait_s"][own] == pytest.approx(duration_s - alone_s, abs=1e-12)
        assert (steps["rank_wait_s"][own] >= 0.0).all()


@given(case=cases(), options=groups(), policy=policies)
def test_stretches_are_the_steps_one_by_one(case: Case, options: dict[str, Any], policy: str) -> None:
    """Decodes that are run in stretches, step by step, and composed at every step come out alike."""
    whole, steps, stretched = (played(case, policy, options, each) for each in (EVERYTHING, STEPS, Recording()))
    assert whole.replica is not None
    assert steps.replica is not None
    assert np.array_equal(whole.replica, steps.replica)
    for other in (steps, stretched):
        for field in ("state", "num_output_tokens", "num_preemptions", "num_cached_tokens", "num_recomputed_tokens"):
            assert np.array_equal(getattr(whole.records.requests, field), getattr(other.records.requests, field)), field
        for field in ("arrival_s", "first_scheduled_s", "first_token_s", "finished_s", "stalled_s", "preempted_s"):
            ours, theirs = getattr(whole.records.requests, field), getattr(other.records.requests, field)
            assert ours == pytest.approx(theirs, abs=1e-9, nan_ok=True), field
        for field in ("num_steps", "total_prompt_tokens", "total_decode_tokens", "total_context_tokens", "peak_blocks"):
            assert whole.records.engine[field] == other.records.engine[field], field
        for field in ("busy_s", "total_wait_s", "kv_block_s", "now_s"):
            assert whole.records.engine[field] == pytest.approx(other.records.engine[field], abs=1e-9), field
        ours, theirs = whole.records.gaps, other.records.gaps
        assert (ours.values_s * ours.counts).sum() == pytest.approx((theirs.values_s * theirs.counts).sum(), abs=1e-9)


@given(case=cases(), options=groups(), policy=policies, count=some.integers(1, 3),
       recording=some.sampled_from((EVERYTHING, STEPS, Recording())))
def test_a_group_of_one_rank_is_a_replica(case: Case, options: dict[str, Any], policy: str, count: int,
                                          recording: Recording) -> None:
    """Bit for bit, whatever the router."""
    alone = options | {"data_parallel_size": count, "data_parallel_attention": False,
                       "max_concurrency": case.options["max_concurrency"] or 10**6}
    plain = played(case, policy, alone, recording)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleaved.RoutedFleet, "ranks",
                      property(lambda fleet: [(k, 1) for k in range(fleet.num_replicas)]))
        ranked = played(case, policy, alone, recording)
    if plain.replica is None or ranked.replica is None:
        assert plain.replica is ranked.replica
    else:
        assert np.array_equal(plain.replica, ranked.replica)
    assert_same_requests(plain.records.requests, ranked.records.requests)
    for name in ("steps", "schedule", "preemptions"):
        assert getattr(plain.records, name).tobytes() == getattr(ranked.records, name).tobytes(), name
    for field in ("busy_s", "kv_block_s", "num_steps", "peak_blocks", "max_running", "total_prompt_pairs",
                  "total_hbm_bytes", "num_preemptions", "num_hit_tokens", "total_wait_s"):
        assert plain.records.engine[field] == ranked.records.engine[field], field


@given(case=cases(), policy=policies, count=some.integers(2, 4), is_recorded=some.booleans())
def test_equal_ranks_are_as_one(case: Case, policy: str, count: int, is_recorded: bool) -> None:
    """Ranks that are sent the same do what one of them does alone, and nobody waits for another."""
    rows = [row for row in case.rows for _ in range(count)]
    columns: dict[str, Any] = {
        name: values if name == "hash_block_tokens" else [value for value in values for _ in range(count)]
        for name, values in case.columns.items()}
    options = case.options | {"pipeline_parallel_size": 1, "max_concurrency": None, "policy": policy}
    recording = EVERYTHING if is_recorded else Recording()
    ids = [f"{k:02}" for k in range(len(case.rows))]  # ties are decided by them
    columns["request_id"] = [f"{name}-{k}" for name in ids for k in range(count)]
    many = replay(trace_of(rows, **columns), scenario_of(
        **options, data_parallel_size=count, data_parallel_attention=True), recording=recording).result
    one = replay(trace_of(case.rows, **case.columns, request_id=ids), scenario_of(**options),
                 recording=recording).result
    for field in ("arrival_s", "first_scheduled_s", "first_token_s", "finished_s", "state", "num_output_tokens",
                  "num_preemptions", "num_cached_tokens"):
        for k in range(count):
            ours, theirs = getattr(many.records.requests, field)[k::count], getattr(one.records.requests, field)
            assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field
    assert many.records.engine.total_wait_s == 0.0
    assert many.records.engine.busy_s == pytest.approx(count * one.records.engine.busy_s)


@given(rows=some.lists(some.tuples(some.sampled_from((0.0, 0.01, 0.05, 0.2)), some.integers(1, 6000),
                                  some.integers(1, 200)), min_size=1, max_size=12),
       count=some.integers(2, 4), size=some.sampled_from((1, 2)), expert_parallel=some.booleans(),
       num_speculative_tokens=some.sampled_from((0, 0, 2)),
       mode=some.sampled_from((None, "none", "piecewise", "full_decode_only")))
def test_terms_and_waiting_are_a_steps_time(rows: list[tuple[float, int, int]], count: int, size: int,
                                            **options: Any) -> None:
    """With the times of real kernels: a step is its rank's own terms and what that waits for, which is not negative."""
    scenario = Scenario(model="qwen3-30b-a3b", gpu="h100-sxm", data_parallel_size=count, data_parallel_attention=True,
                        tensor_parallel_size=size, cudagraph_mode=options.pop("mode"), max_num_batched_tokens=4096,
                        **options)
    trace = trace_of(sorted(rows))
    steps = replay(trace, scenario, recording=EVERYTHING).result.steps_table()
    terms = steps.select(TERMS).sum_horizontal().to_numpy()
    assert terms == pytest.approx(steps["duration_s"].to_numpy(), rel=1e-9)
    assert number(steps["rank_wait_s"].min()) >= -1e-9
    assert (steps.group_by("start_s").agg(pl.col("duration_s").n_unique())["duration_s"] == 1).all()
    plain = replay(trace, scenario, recording=Recording()).result.records
    assert plain.engine.total_wait_s == pytest.approx(
        plain.engine.busy_s - steps["duration_s"].sum() + steps["rank_wait_s"].sum(), abs=1e-9)


@given(case=cases(), options=groups(), policy=policies)
def test_ranks_conserve_requests_and_tokens(case: Case, options: dict[str, Any], policy: str) -> None:
    """Each request is at one rank, whose steps have its tokens; the same options give the same bits."""
    result = played(case, policy, options)
    again = played(case, policy, options)
    assert result.records.steps.tobytes() == again.records.steps.tobytes()
    requests, steps, schedule = result.records.requests, result.records.steps, result.records.schedule
    assert (requests.state >= st.COMPLETED).all()
    assert result.replica is not None
    for k in range(result.num_replicas):
        own, replica = steps[steps["replica"] == k], result.replicas[k].engine
        assert len(own) == replica.num_steps
        assert replica.busy_s == pytest.approx(result.replicas[0].engine.busy_s, abs=1e-9)
        assert own["num_prompt_tokens"].sum() == replica.total_prompt_tokens
        theirs = schedule[schedule["replica"] == k]
        assert (result.replica[theirs["request"]] == k).all()
        assert replica.total_wait_s == pytest.approx(replica.busy_s - own["duration_s"].sum()
                                                     + own["rank_wait_s"].sum(), abs=1e-9)
