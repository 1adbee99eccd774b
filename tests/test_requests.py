"""The loop's memory of requests: laid out as their time comes, given back once they have left, and nothing changes."""

import mmap
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_requests, play, trace_of

from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import Recording
from planner.replays import request_columns as requests_module
from planner.replays.request_columns import COLUMNS, Limits, RequestMemory, no_requests
from planner.replays.result_tables import ReplayResult
from planner.traces import Trace

FEW = 512  # requests of a chunk here: whole pages of 4 KiB, since a record is a multiple of 8 bytes
PAGES_FIT = FEW * st.REQUEST.itemsize % mmap.PAGESIZE == 0
COUNT = 2000

OPTIONS: dict[str, dict[str, Any]] = {
    "idle": {"max_num_seqs": 64},
    "asynchronous": {"async_scheduling": True},
    "overload": {"max_num_seqs": 2},
    "queue": {"max_num_seqs": 2, "max_queued_requests": 5},
    "recompute": {"num_gpu_blocks": 24},
    "swap": {"num_gpu_blocks": 24, "preemption": "swap", "num_cpu_blocks": 40},
    "keyed": {"policy": "priority", "num_gpu_blocks": 24},
    "cached": {"enable_prefix_caching": True, "num_gpu_blocks": 40},
    "pipeline": {"pipeline_parallel_size": 2},
    "drafts": {"num_speculative_tokens": 2},
    "closed": {"max_concurrency": 3},
    "at once": {"request_rate": float("inf")},
    "polling": {"engine": "sglang", "scheduler_recv_interval": 7, "max_num_batched_tokens": 64},
    "too long": {"max_model_len": 60},
    "dealt": {"data_parallel_size": 2},
    "routed": {"data_parallel_size": 2, "router": "least-outstanding-requests"},
    "split": {"data_parallel_size": 2, "prefill_replicas": 1},
}


def trace(seed: int = 0) -> Trace:
    """Return requests of which some come in bursts, some take long, and some are cancelled."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(np.where(rng.random(COUNT) < 0.3, rng.integers(0, 60, COUNT), 60 * rng.random(COUNT)))
    rows = list(zip(arrival_s.tolist(), rng.integers(1, 80, COUNT).tolist(), rng.integers(1, 40, COUNT).tolist(),
                    strict=True))
    return trace_of(rows, hash_ids=[[k % 7, 10 + k] if rows[k][1] > 16 else [k % 7] for k in range(COUNT)],
                    priority=rng.integers(0, 3, COUNT).tolist(),
                    cancel_after_s=[float(after) if after < 3 else None for after in rng.exponential(20, COUNT)])


def served(options: dict[str, Any]) -> ReplayResult:
    plain: dict[str, Any] = {"step_time": "linear:0.004,0.00001", "enable_prefix_caching": False}
    return play(trace(), recording=Recording(), **plain | options)


@pytest.mark.parametrize("name", OPTIONS)
def test_chunks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = served(OPTIONS[name])
    monkeypatch.setattr(requests_module, "CHUNK", FEW)
    parts = served(OPTIONS[name])
    assert_same_requests(whole.records.requests, parts.records.requests)
    assert whole.records.engine.tobytes() == parts.records.engine.tobytes()
    assert np.array_equal(whole.records.gaps.values_s, parts.records.gaps.values_s)
    assert np.array_equal(whole.records.gaps.counts, parts.records.gaps.counts)


@pytest.mark.skipif(not (PAGES_FIT and hasattr(mmap, "MADV_DONTNEED")), reason="memory cannot be given back so")
def test_memory_of_requests_that_have_left_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "CHUNK", FEW)
    memory = RequestMemory(trace_of([(float(k), 10, 2) for k in range(COUNT)]), limits=[Limits(100)])
    engine: Any = st.records(1, st.ENGINE)[0]
    assert memory.lay_out(engine)
    assert engine.laid_out_until_s == FEW - 1
    assert memory.records.input_tokens[:FEW].tolist() == [10] * FEW
    assert memory.records.input_tokens[FEW] == 0  # its time has not come
    assert not memory.lay_out(engine)
    memory.records.state[:FEW] = st.COMPLETED
    memory.records.state[7] = st.DECODE
    memory.records.num_output_tokens[:FEW] = 2
    engine.now_s, engine.next_request = FEW + 3.5, FEW
    assert memory.lay_out(engine)
    assert engine.laid_out_until_s == 2 * FEW - 1
    assert memory.records.num_output_tokens[:FEW].tolist() == [2] * FEW  # one of them has not left
    memory.records.state[7] = st.CANCELLED
    engine.now_s, engine.next_request = 2.5 * FEW, 2 * FEW  # the second chunk's have come, but not left
    assert memory.lay_out(engine)
    assert engine.laid_out_until_s == 3 * FEW - 1
    assert not memory.records.view(np.uint8).reshape(COUNT, -1)[:FEW].any()
    assert memory.records.next[FEW] == FEW + 1
    kept = memory.columns()
    assert kept.num_output_tokens[:FEW].tolist() == [2] * FEW
    assert kept.state[:FEW].tolist() == [st.CANCELLED if k == 7 else st.COMPLETED for k in range(FEW)]
    assert not memory.records.view(np.uint8).any()


def test_who_arrives_at_one_instant_is_laid_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "CHUNK", FEW)
    memory = RequestMemory(trace_of([(0.0, 10, 2)] * 1300 + [(1.0, 10, 2)] * 700), limits=[Limits(100)])
    engine: Any = st.records(1, st.ENGINE)[0]
    assert memory.lay_out(engine)
    assert engine.laid_out_until_s == 1.0  # of request 1535
    engine.now_s, engine.next_request = 1.0, 1300
    assert memory.lay_out(engine)
    assert engine.laid_out_until_s == float("inf")
    assert memory.records.next[-2:].tolist() == [1999, st.NONE]
    assert not memory.lay_out(engine)


def test_columns_take_over_rows() -> None:
    ours = no_requests(4)
    theirs = play([(0.0, 10, 2), (0.5, 10, 3)]).records.requests
    ours.put(np.array([3, 1]), theirs)
    assert ours.num_output_tokens.tolist() == [0, 3, 0, 2]
    assert ours[np.array([3, 1])].arrival_s.tolist() == [0.0, 0.5]
    assert len(ours[1:]) == 3
    assert [getattr(ours, name).dtype for name in COLUMNS] == [st.REQUEST[name] for name in COLUMNS]
