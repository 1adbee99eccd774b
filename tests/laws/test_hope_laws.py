"""A replay that ends once its objectives are lost has the verdict of the whole replay."""

from collections.abc import Iterator
from typing import Any

import pytest
from cases import Case, cases
from helpers import scenario_of
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.deployment.deploy import resolve
from planner.policies.builtin_policies import POLICIES
from planner.replays import hope
from planner.replays.fleet.replicas import serve
from planner.settings.objectives import Objectives, judge, parse_objectives

AFTER_THE_END = ("num_cancel_entries",)  # the clock may go on after the last request
LIMITS_MS = (5, 20, 60, 150, 400, 1500)
NAMES = ("ttft", "tpot", "e2el", "p50_ttft", "p90_tpot", "p99_e2el", "mean_ttft", "mean_tpot", "mean_e2el", "p100_ttft")


@pytest.fixture(autouse=True, scope="module")
def small_replays() -> Iterator[None]:
    """Look at replays of any size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hope, "BETWEEN", 1)
        yield


@some.composite
def objectives(draw: Any) -> Objectives:
    names = draw(some.lists(some.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    text = " ".join(f"{name}:{draw(some.sampled_from(LIMITS_MS))}" for name in names)
    has_limits = any(name in ("ttft", "tpot", "e2el") for name in names)
    share = draw(some.sampled_from((0.3, 0.5, 0.9, 0.99, 1.0))) if has_limits else None
    return parse_objectives(text, share)


@settings(max_examples=300, deadline=None)
@given(case=cases(with_more=True), asked=objectives(), policy=some.sampled_from(sorted(POLICIES)),
       count=some.integers(1, 3))
def test_a_replay_without_hope_would_have_missed(case: Case, asked: Objectives, policy: str, count: int) -> None:
    trace = case.trace()
    options = case.options | {"data_parallel_size": count, "router": "random" if count > 1 else None}
    deployment = resolve(scenario_of(policy=policy, **options), trace)
    whole = serve(trace, deployment)
    try:
        looked_at = serve(trace, deployment, objectives=asked)
    except hope.LostError:
        assert not judge(asked, whole.times_s).is_met
        return
    for name in ("arrival_s", "first_token_s", "finished_s", "num_output_tokens", "state"):
        before, after = getattr(whole.records.requests, name), getattr(looked_at.records.requests, name)
        assert before.tobytes() == after.tobytes(), name
    before, after = whole.records.engine, looked_at.records.engine
    counts = [name for name in before.dtype.names if name.startswith("num_") and name not in AFTER_THE_END]
    assert [name for name in counts if before[name] != after[name]] == []
