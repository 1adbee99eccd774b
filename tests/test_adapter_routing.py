"""Routers that know LoRA adapters: worked cases, what a score is told, and laws."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import play, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.policies.builtin_routers import LORA_WEIGHT, ROUTERS, adapter_and_load
from planner.policies.router import ReplicaLoad
from planner.replays.result_tables import ReplayResult

SECONDS: dict[str, Any] = {"step_time": "linear:1,0", "max_loras": 1, "max_cpu_loras": 4}


def sent(rows: list[tuple[float, int, int]], adapters: Sequence[str | None], **options: Any) -> ReplayResult:
    return play(trace_of(rows, adapter=adapters), **SECONDS | options)


def load(**values: Any) -> ReplicaLoad:
    return ReplicaLoad(**dict.fromkeys(ReplicaLoad._fields, 0) | values)


@pytest.mark.parametrize(("told", "score"), [
    ({"has_adapter": 1, "free_adapters": 0, "outstanding_requests": 3}, 3.0),
    ({"has_adapter": 0, "free_adapters": 2, "adapter_requests": 1}, 0.2 * LORA_WEIGHT),
    ({"has_adapter": 0, "free_adapters": 0, "adapter_requests": 2, "outstanding_requests": 2}, 2 + 0.4 * LORA_WEIGHT),
    ({"has_adapter": 0, "free_adapters": 0}, LORA_WEIGHT),
])
def test_the_scores_of_the_four_cases(told: dict[str, Any], score: float) -> None:
    assert adapter_and_load(load(**told)) == pytest.approx(score)


def test_adapters_stay_where_they_are_loaded() -> None:
    """One after the other, each through before the next: a goes to the first, b to the second, which has room as the
    first has, and waited for longer; from then on each goes to its own. By turns each replica loads both."""
    rows, adapters = [(3.0 * k, 10, 2) for k in range(6)], ["a", "b", "b", "a", "b", "a"]
    affine = sent(rows, adapters, data_parallel_size=2, router="lora-affinity")
    assert affine.replica is not None
    assert affine.replica.tolist() == [0, 1, 1, 0, 1, 0]
    assert int(affine.records.engine.total_adapter_loads) == 2
    by_turns = sent(rows, adapters, data_parallel_size=2)
    assert int(by_turns.records.engine.total_adapter_loads) == 4


def test_a_busy_replica_is_left_for_one_with_room() -> None:
    """a is loaded at the first; that the second has only room for it is worth two requests. One request is there at
    1.5, which is less; at 2.5 there are two."""
    rows, adapters = [(0.0, 10, 9), (1.5, 10, 9), (2.5, 10, 9)], ["a"] * 3
    result = sent(rows, adapters, data_parallel_size=2, router="lora-affinity")
    assert result.replica is not None
    assert result.replica.tolist() == [0, 0, 1]


def test_no_room_sends_elsewhere() -> None:
    """The first's one place is taken by a, so that b is ten requests dearer there: it goes to the second, which has as
    many requests, and room."""
    rows = [(0.0, 10, 9), (0.1, 10, 9), (1.5, 10, 9), (1.6, 10, 9), (2.5, 10, 9)]
    result = sent(rows, ["a", None, None, None, "b"], data_parallel_size=2, router="lora-affinity")
    assert result.replica is not None
    assert result.replica.tolist() == [0, 1, 0, 1, 1]


def test_what_a_score_is_told(tmp_path: Path) -> None:
    """A router of one's own keeps an adapter's requests together while nothing of them is loaded yet, both in the same
    step and at a replica that prefills."""
    path = tmp_path / "mine.py"
    path.write_text("from planner.router import Router\n"
                    "together = Router(name='together', score=lambda load: -float(load.adapter_requests))\n"
                    "unloaded = Router(name='unloaded', score=lambda load: float(load.has_adapter))\n"
                    "room = Router(name='room', score=lambda load: -float(load.free_adapters))\n")
    rows, adapters = [(0.0, 10, 3)] * 4, ["a", "b", "a", "b"]
    for options in ({"data_parallel_size": 2}, {"data_parallel_size": 3, "prefill_replicas": 2}):
        result = sent(rows, adapters, router=f"{path}:together", **options)
        assert result.replica is not None
        assert result.replica.tolist() == [0, 1, 0, 1]
    again = sent([(5.0 * k, 10, 1) for k in range(4)], ["a"] * 4, data_parallel_size=3, router=f"{path}:unloaded")
    assert again.replica is not None
    assert again.replica.tolist() == [0, 1, 2, 0]  # loaded everywhere, the one that was sent nothing for the longest
    room = sent([(0.0, 10, 9), (1.5, 10, 9), (2.5, 10, 9)], ["a", "b", None], data_parallel_size=2,
                router=f"{path}:room")
    assert room.replica is not None
    assert room.replica.tolist() == [0, 1, 0]  # none has room, then in turn


@pytest.mark.slow
@given(draw=some.data())
def test_laws(draw: some.DataObject) -> None:
    """Everybody is served, the same again is the same, and without adapters it is least-outstanding-requests but for
    what that hears late."""
    n = draw.draw(some.integers(1, 14))
    rows = sorted((0.1 * draw.draw(some.integers(0, 30)), draw.draw(some.integers(1, 40)), draw.draw(
        some.integers(1, 9))) for _ in range(n))
    adapters = draw.draw(some.lists(some.sampled_from((None, "a", "b", "c")), min_size=n, max_size=n))
    options = {"step_time": "linear:0.1,0.001", "data_parallel_size": draw.draw(some.integers(1, 4)),
               "max_loras": draw.draw(some.integers(1, 3)), "max_num_seqs": draw.draw(some.sampled_from((1, 3, 0))),
               "ttft_timeout": draw.draw(some.sampled_from((None, 0.4))), "max_retries": 1}
    one, other = (sent(rows, adapters, **options, router="lora-affinity") for _ in range(2))
    assert one.requests_table().equals(other.requests_table())
    assert one.requests_table()["status"].is_in(["completed", "timed_out", "rejected"]).all()
    plain, least = (sent(rows, [None] * n, **options, router=router)
                    for router in ("lora-affinity", "least-outstanding-requests"))
    assert np.array_equal(plain.records.requests.finished_s, least.records.requests.finished_s)


def test_every_router_serves_adapters() -> None:
    for router in ROUTERS:
        result = sent([(0.1 * k, 20, 3) for k in range(12)], ["a", "b", None] * 4, data_parallel_size=3, router=router)
        assert set(result.requests_table()["status"]) == {"completed"}
