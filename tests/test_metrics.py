"""The summary's statistics: percentiles are numpy's, also of values that stand for many; what is unknown is None."""

import math

import numpy as np
import pytest
from helpers import play, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner import replay
from planner.files.keys import asdict
from planner.loop.state.engine_settings import Recording
from planner.results.summary import describe, describe_weighted, summarize

KEYS = ("mean", "median", "std", "p90", "p95", "p99")
seconds = some.floats(0, 1e4)


@given(some.lists(some.tuples(seconds | some.floats(0.01, 0.0101), some.integers(0, 50)), min_size=1, max_size=60))
def test_weighted_statistics_are_those_of_the_repeated_values(pairs: list[tuple[float, int]]) -> None:
    values, counts = np.array([v for v, _ in pairs]), np.array([n for _, n in pairs])
    found = asdict(describe_weighted(values, counts))
    if counts.sum() == 0:
        assert set(found.values()) == {None}
    else:
        expanded = asdict(describe(np.repeat(values, counts)))
        assert list(found) == list(expanded)
        assert list(found.values()) == pytest.approx(list(expanded.values()), rel=1e-9, abs=1e-6)


@given(some.lists(seconds, min_size=1, max_size=40))
def test_statistics_are_numpys(values: list[float]) -> None:
    found = asdict(describe(np.array([*values, math.nan])))
    wanted = [np.mean(values), np.median(values), np.std(values), *np.percentile(values, (90, 95, 99))]
    assert found == pytest.approx({k: 1e3 * v for k, v in zip(KEYS, wanted, strict=True)}, abs=1e-6)


def test_no_values_have_no_statistics() -> None:
    assert asdict(describe(np.array([math.nan]))) == dict.fromkeys(KEYS)


def test_one_request_by_hand() -> None:
    """Arrives at 1 s; a step of 10 ms + 10 × 1 ms, then two of 11 ms: TTFT 20, TPOT 11, E2E 42 ms."""
    summary = replay(trace_of([(1.0, 10, 3)]), scenario_of(step_time="linear:0.01,0.001"), slo="ttft:20",
                     recording=Recording()).summary
    for name, value in (("ttft", 20), ("tpot", 11), ("itl", 11), ("e2el", 42), ("queue", 0)):
        assert summary[f"p99_{name}_ms"] == pytest.approx(value, abs=1e-9)
    assert summary["duration"] == pytest.approx(0.042)
    assert summary["request_throughput"] == pytest.approx(1 / 0.042)
    assert summary["output_throughput"] == pytest.approx(3 / 0.042)
    assert summary["total_token_throughput"] == pytest.approx(13 / 0.042)
    assert summary["gpu_busy_fraction"] == pytest.approx(1)
    assert (summary["num_steps"], summary["max_running"], summary["num_preemptions"]) == (3, 1, 0)


def test_kv_cache_usage_is_over_busy_time() -> None:
    """Blocks of 4 out of 10: two while 8 tokens are known, then three; steps of equal length, and an idle second."""
    summary = replay(trace_of([(0.0, 7, 3), (1.0, 7, 3)]),
                     scenario_of(step_time="linear:0.01,0", num_gpu_blocks=10, block_size=4), slo=None,
                     recording=Recording()).summary
    assert summary["kv_cache_usage_mean"] == pytest.approx((2 + 2 + 3) / 3 / 10)
    assert summary["kv_cache_usage_peak"] == pytest.approx(3 / 10)
    assert summary["gpu_busy_fraction"] == pytest.approx(0.06 / 1.03)


def test_gaps_include_the_wait_of_a_stalled_decode() -> None:
    """vllm-v0 pauses decodes for a prompt: one gap of the stream is both steps long."""
    result = play([(0.0, 1, 4), (0.005, 100, 1)], policy="vllm-v0", step_time="linear:0.01,0.001")
    gaps_s = np.repeat(result.records.gaps.values_s, result.records.gaps.counts)
    assert sorted(gaps_s) == pytest.approx([0.011, 0.011, 0.11 + 0.011])
    assert result.requests_table()["stalled_s"].to_list() == pytest.approx([0.11, 0.0])


def test_the_longest_gap_is_the_percentile_of_all_gaps() -> None:
    itl = summarize(play([(0.0, 1, 4), (0.005, 100, 1)], policy="vllm-v0", step_time="linear:0.01,0.001"), None).itl
    assert itl is not None
    assert itl.median == pytest.approx(11)
    assert itl.mean == pytest.approx((11 + 11 + 121) / 3)


def test_hit_rate_counts_prompt_tokens() -> None:
    trace = trace_of([(0.0, 32, 1), (1.0, 32, 1)], hash_ids=[[0, 1], [0, 2]], hash_block_tokens=16)
    summary = replay(trace, scenario_of(), slo=None, recording=Recording()).summary
    assert summary["prefix_cache_hit_rate"] == pytest.approx(16 / 64)
    assert summary["num_computed_prompt_tokens"] == 48
    assert summary["total_input_tokens"] == 64
