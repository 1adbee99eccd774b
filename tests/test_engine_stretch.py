"""A stretch of decode steps is the same as its steps one by one, wherever their duration leaves its straight line."""

import numpy as np
import pytest
from helpers import trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of, with_constants

from planner.deployment.deploy import resolve
from planner.loop.state.engine_settings import Recording
from planner.loop.state.terms import StepTime
from planner.replays.driver import ReplayRecords, run
from planner.settings.scenario import Scenario
from planner.steptime.roofline import roofline

MODELS = ("llama-3.1-8b", "gemma-2-9b", "glm-4.7-flash", "qwen3-next-80b-a3b")


def played(step_time: StepTime, rows: list[tuple[float, int, int]], *, stepwise: bool) -> ReplayRecords:
    """Replay rows in stretches, or, because each step is recorded, step by step."""
    trace = trace_of(rows)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=64, num_gpu_blocks=100_000)
    deployment = resolve(scenario, trace)
    return run(trace, deployment.policy, deployment.settings, step_time, Recording(steps=stepwise))


def check(step_time: StepTime, rows: list[tuple[float, int, int]]) -> ReplayRecords:
    """Replay both ways, and compare what clients see."""
    whole, single = (played(step_time, rows, stepwise=stepwise) for stepwise in (False, True))
    assert whole.engine.num_steps == single.engine.num_steps
    for name in ("first_token_s", "finished_s"):
        assert getattr(whole.requests, name) == pytest.approx(getattr(single.requests, name), rel=1e-9)
    for name in ("busy_s", "kv_block_s", "total_hbm_bytes"):
        assert whole.engine[name] == pytest.approx(single.engine[name], rel=1e-9)
    assert sorted_gaps(whole) == pytest.approx(sorted_gaps(single), rel=1e-9)
    return single


def sorted_gaps(records: ReplayRecords) -> np.ndarray:
    return np.sort(np.repeat(records.gaps.values_s, records.gaps.counts))


def together(step_time: StepTime) -> StepTime:
    """Let requests reach the engine as they are sent."""
    for name in ("frontend_s", "frontend_s_per_token", "latency_s", "latency_s_per_token", "latency_s_per_seq"):
        setattr(step_time.terms, name, 0.0)
    return step_time


def durations(records: ReplayRecords) -> np.ndarray:
    steps = records.steps
    return np.asarray(steps["duration_s"][steps["num_prompts"] == 0])


@pytest.mark.slow
@pytest.mark.parametrize("host_s", [1e-5, 5e-3, 6e-3, 2e-2])
@given(rows=some.lists(some.tuples(some.sampled_from([0.0, 0.5, 3.0]), some.integers(1, 8000), some.integers(1, 900)),
                       min_size=1, max_size=8).map(sorted), model=some.sampled_from(MODELS))
def test_stretches_and_single_steps_agree(host_s: float, model: str,
                                          rows: list[tuple[float, int, int]]) -> None:
    check(roofline(with_constants(stack_of(model, "h200-sxm"), host_s=host_s)), rows)


def whole_batches(records: ReplayRecords) -> np.ndarray:
    return np.asarray(durations(records)[records.steps["num_decodes"][records.steps["num_prompts"] == 0] == 32])


@pytest.mark.slow
def test_a_host_bound_stretch_bends_where_the_gpu_takes_over() -> None:
    """The GPU's time grows with the context; the host's stays, and is set between the first and the last."""
    free = together(roofline(with_constants(stack_of(), host_s=1e-5, host_s_per_seq=1e-8)))
    rows = [(0.0, 1000, 4000)] * 32
    first, last = whole_batches(check(free, rows))[[0, -1]]
    middle_s = float(first + last) / 2
    bound = together(roofline(with_constants(stack_of(), host_s=middle_s, host_s_per_seq=1e-8)))
    found = whole_batches(check(bound, rows))
    is_flat = np.isclose(found, found[0], rtol=1e-9)
    assert 0.4 < is_flat.mean() < 0.6
    assert is_flat[: is_flat.sum()].all()
    assert (np.diff(found[is_flat.sum():]) > 0).all()
    assert found[-1] == pytest.approx(last)


def test_a_step_with_too_many_sequences_for_a_graph_waits_for_its_launches() -> None:
    few, many = ([(0.0, 10, 50)] * n for n in (4, 64))
    eager = stack_of()
    launched = together(roofline(with_constants(eager, launch_s_per_layer=1e-3, decode_launch_s_per_layer=1e-3)))
    launched.terms.graph_seqs = 8
    assert durations(check(launched, many)).min() > 32e-3 > durations(check(launched, few)).max()
