"""Laws of cold replicas: never faster than warm ones, and first use is paid once a replica."""

from typing import Any

import numpy as np
import pytest
from cases import Case, cases
from helpers import EVERYTHING, play
from hypothesis import given
from hypothesis import strategies as some

from planner.policies.builtin_policies import POLICIES
from planner.replays.result_tables import ReplayResult

FIRST_USE_S = 0.75
COLD: dict[str, Any] = {"cold": True, "first_use_s": FIRST_USE_S}
PLAIN: dict[str, Any] = {"step_time": "linear:0.01,0.001", "num_gpu_blocks": 400}
rows_at_once = some.lists(some.tuples(some.just(0.0), some.integers(1, 40), some.integers(1, 20)), min_size=1,
                          max_size=12)
rows_over_time = some.lists(some.tuples(some.floats(0.0, 2.0), some.integers(1, 40), some.integers(1, 20)), min_size=1,
                            max_size=12).map(sorted)


def first_uses(result: ReplayResult) -> list[float]:
    """Return what first use added to the steps of a replay, each time that it did."""
    added = np.asarray(result.records.steps["adapter_load_s"])
    return [float(value) for value in added[added > 0]]


def ttft_s(result: ReplayResult) -> Any:
    requests = result.records.requests
    return requests.first_token_s - requests.arrival_s


@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases())
def test_first_use_is_paid_once(policy: str, case: Case) -> None:
    """Whatever the policy and the settings, it is in the first step alone."""
    cold = Case(rows=case.rows, columns=case.columns, options=case.options | COLD).play(policy, EVERYTHING)
    steps = cold.records.steps
    if len(steps):
        assert first_uses(cold) == [FIRST_USE_S]
        assert steps["adapter_load_s"][0] == FIRST_USE_S
        assert steps["duration_s"][0] > FIRST_USE_S
    else:
        assert first_uses(cold) == []


@given(rows=rows_at_once, seats=some.integers(1, 12))
def test_a_burst_is_as_much_later_as_first_use_takes(rows: list[tuple[float, int, int]], seats: int) -> None:
    """All requests wait for the first step, so that the schedule is the same, and each instant later."""
    warm, cold = (play(rows, max_num_seqs=seats, **PLAIN, **more) for more in ({}, COLD))
    for name in ("first_token_s", "finished_s"):
        later = getattr(cold.records.requests, name) - getattr(warm.records.requests, name)
        assert later == pytest.approx(FIRST_USE_S)
    assert np.percentile(ttft_s(warm), 99) < np.percentile(ttft_s(cold), 99)


@given(rows=rows_over_time)
def test_a_cold_replica_is_never_faster(rows: list[tuple[float, int, int]]) -> None:
    """One request at a time, in order of arrival: each has its first token and its end no earlier.

    A replay without first use never has the larger p99 of TTFT. (With several at a time, a request that arrives between
    two steps may be up to a step earlier, since the steps begin at other instants.)
    """
    warm, cold = (play(rows, max_num_seqs=1, policy="fcfs", **PLAIN, **more) for more in ({}, COLD))
    assert (ttft_s(cold) > ttft_s(warm) - 1e-9).all()
    assert (cold.records.requests.finished_s > warm.records.requests.finished_s - 1e-9).all()
    assert np.percentile(ttft_s(warm), 99) <= np.percentile(ttft_s(cold), 99) + 1e-9


@given(rows=rows_over_time, replicas=some.integers(2, 4))
def test_each_replica_of_a_fleet_pays_once(rows: list[tuple[float, int, int]], replicas: int) -> None:
    """A replica that is sent nothing pays nothing."""
    options: dict[str, Any] = {**PLAIN, **COLD, "data_parallel_size": replicas, "router": "least-outstanding-requests"}
    result = play(rows, recording=EVERYTHING, **options)
    assert result.replica is not None
    assert len(first_uses(result)) == len(set(result.replica.tolist()))


@given(rows=rows_over_time, ranks=some.integers(2, 4))
def test_ranks_that_step_together_pay_at_most_once(rows: list[tuple[float, int, int]], ranks: int) -> None:
    """The first rank pays for its group."""
    result = play(rows, recording=EVERYTHING, **PLAIN, **COLD, data_parallel_size=ranks, data_parallel_attention=True)
    assert len(first_uses(result)) <= 1
