"""What counts of a replay: requests after a warm-up, for a fixed time, of sessions that come again and again."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import number, scenario_of, trace_of
from hypothesis import given
from test_sessions import conversations, most_open

from planner.errors import UsageError
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.run import Outcome, replay
from planner.settings.objectives import parse_objectives
from planner.traces import Trace
from planner.traces.prefix_ids import PrefixIds
from planner.traces.shaping.recycling import recycled

STEADY = trace_of([(0.5 * k, 200, 20) for k in range(100)], tenant=["a", "b"] * 50)
CHAT = trace_of([(0.0, 64, 4)] * 6, session_id=["x"] * 3 + ["y"] * 3, think_time_s=[None, 1.0, 1.0] * 2)


def measured(trace: Trace, **options: Any) -> Outcome:
    return replay(trace, scenario_of(**options), slo="ttft:500 tpot:50")


def test_windows_divide_the_requests_between_them() -> None:
    whole = measured(STEADY).summary
    parts = [measured(STEADY, warmup_s=begin_s, measure_s=20.0).summary for begin_s in (0.0, 20.0, 40.0)]
    assert [part["completed"] for part in parts] == [40, 40, 20]
    assert [part["duration"] for part in parts] == [20.0] * 3
    assert sum(part["total_output_tokens"] for part in parts) == whole["total_output_tokens"]
    assert parts[1]["request_throughput"] == 2.0
    assert parts[1]["tenants"]["a"]["completed"] == 20
    same = ("num_steps", "gpu_busy_fraction", "kv_cache_usage_mean", "cost_usd", "saturated")
    assert all(part[name] == whole[name] for part in parts for name in same)


def test_a_window_over_all_changes_nothing_that_requests_show() -> None:
    whole, all_of_it = measured(STEADY).summary, measured(STEADY, warmup_s=0.0).summary
    unknown = {name for name in whole if name.endswith("itl_ms")} - {"mean_itl_ms"}
    other = {"wall_s", "simulated_requests_per_s", "notes", "workload"}
    assert {name for name in whole if whole[name] != all_of_it[name]} - other - {"mean_itl_ms"} == unknown
    assert all_of_it["mean_itl_ms"] == pytest.approx(whole["mean_itl_ms"])
    assert "100 requests that were sent from 0 s on of the replay" in all_of_it["notes"][-1]


def test_the_rate_without_an_end_is_up_to_the_last_departure() -> None:
    found = measured(STEADY, warmup_s=10.0)
    finished_s = number(found.requests["finished_at_s"].max())
    assert found.summary["duration"] == pytest.approx(finished_s - 10.0)


@given(trace=conversations())
def test_repetitions_are_new_sessions_of_the_same_lengths(trace: Trace) -> None:
    again = recycled(trace, 3).requests
    lengths = ["input_tokens", "output_tokens"]
    assert again.height == 3 * trace.num_requests
    assert again["request_id"].n_unique() == again.height
    assert sorted(again.select(lengths).rows()) == sorted(3 * trace.requests.select(lengths).rows())
    own = pl.coalesce("session_id", "request_id").str.replace(r"@\d+$", "")
    copy = pl.col("request_id").str.extract(r"@(\d+)$").cast(pl.Int64).fill_null(0).alias("copy")
    begins_s = again.group_by(copy, own.alias("own")).agg(pl.col("arrival_s").min())
    first, last = (begins_s.group_by("copy").agg(each).sort("copy")["arrival_s"].to_list()
                   for each in (pl.col("arrival_s").min(), pl.col("arrival_s").max()))
    assert last[0] <= first[1] <= last[1] <= first[2]


def test_repetitions_share_no_prompts() -> None:
    prefix = PrefixIds(values=np.array([0, 1, 0, 2]), offsets=np.array([0, 2, 4]), block_tokens=16)
    trace = trace_of([(0.0, 32, 4)] * 2, session_id=["x", "y"])
    again = recycled(Trace(requests=trace.requests, prefix=prefix, source="", format="", sha256="",
                           account=trace.account), 2).prefix
    assert again is not None
    assert again.values.tolist() == [0, 1, 0, 2, 3, 4, 3, 5]
    assert again.offsets.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("replicas", [1, 2])
def test_sessions_come_again_until_the_measurement_is_over(replicas: int) -> None:
    found = measured(CHAT, max_sessions=1, recycle_sessions=True, warmup_s=5.0, measure_s=60.0,
                     data_parallel_size=replicas)
    sent_s = found.requests["arrival_s"].to_numpy()
    inside = int(((sent_s >= 5.0) & (sent_s < 65.0)).sum())
    assert found.summary["completed"] == inside
    assert 60.0 / 1.5 <= inside <= 90  # three requests with two pauses of 1 s, then the next session
    assert most_open(found.requests) == 1
    begins_s = found.requests.group_by("session_id").agg(pl.col("arrival_s").min())["arrival_s"]
    assert len(begins_s) >= 18
    assert number(begins_s.max()) < 65.0
    assert math.isfinite(found.summary["mean_ttft_ms"])


@pytest.mark.parametrize(("options", "said"), [
    ({"warmup_s": -1.0}, r"--warmup-s -1: must be a finite number of at least 0"),
    ({"measure_s": 0.0}, r"--measure-s 0: must be a finite number above 0"),
    ({"warmup_s": 1000.0}, r"no request is sent from 1000 s on: the replay sends its last request after 49.5 s"),
    ({"warmup_s": 100.0, "measure_s": 5.0}, r"lower --warmup-s, or give --recycle-sessions"),
    ({"recycle_sessions": True, "measure_s": 5.0}, r"needs --max-sessions"),
])
def test_a_wrong_window_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        measured(STEADY, **options)


@pytest.mark.parametrize("options", [{"warmup_s": 1.0}, {"measure_s": 1.0}, {"recycle_sessions": True}])
def test_a_capacity_takes_no_window(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="leave it out"):
        capacity(STEADY, scenario_of(**options), parse_objectives("ttft:500"), Search())
