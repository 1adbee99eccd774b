"""Conversations that are converted are read back, and replayed in the same order, whatever their reader dropped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import scenario_of

from planner import replay
from planner.replays.dependencies import dependencies
from planner.traces import Trace, read_trace
from planner.traces.export import convert


def turn(t: float, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0,
            "think_time": 3.0, **more}


LOCAL = {"block_size": 64, "hash_id_scope": "local"}
AGENT = {"t": 12.0, "type": "subagent", "duration_ms": 9000, "requests": [turn(0.0), turn(5.0, out=0), turn(6.0)]}
CHAT = {"input_length": 20, "output_length": 3, "type": "text", "hash_ids": [1, 2]}
SAMPLES = {  # of each, which rows are dropped: those without output
    "weka, whole": [{"id": "a", **LOCAL, "requests": [turn(0.0), turn(9.0), turn(20.0)]}],
    "weka, the first turn dropped": [{"id": "a", **LOCAL, "requests": [turn(0.0, out=0), turn(9.0), turn(20.0)]},
                                     {"id": "b", **LOCAL, "requests": [turn(0.0), turn(2.0)]}],
    "weka, a sub-agent's turn dropped": [{"id": "a", **LOCAL, "requests": [turn(0.0), AGENT, turn(15.0)]}],
    "weka, the turn before a sub-agent dropped": [{"id": "a", **LOCAL, "requests": [turn(0.0, out=0), AGENT,
                                                                                  turn(15.0)]}],
    "bailian": [{"chat_id": 55, "parent_chat_id": -1, "timestamp": 1.5, "turn": 1, **CHAT},
                {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "turn": 2, **CHAT}],
    "llmservingsim": [{"session_id": "s", "arrival_time_ns": 2_000_000_000, "sub_requests": [
        {"input_toks": 10, "output_toks": 2, "tool_duration_ns": 500_000_000}, {"input_toks": 20, "output_toks": 3}]}],
    "native, with a parent that is dropped": [
        {"request_id": "a", "arrival_s": 0.0, "input_tokens": 9, "output_tokens": -1},
        {"request_id": "b", "arrival_s": 1.0, "input_tokens": 9, "output_tokens": 2, "parent_id": "a"},
        {"request_id": "c", "arrival_s": 2.0, "input_tokens": 9, "output_tokens": 2, "parent_id": "a;b"}],
}


def read_back(trace: Trace, path: Path) -> tuple[Trace, tuple[str, ...]]:
    account = convert(trace, path, lossy=True)
    return read_trace(str(path)), account.notes


def assert_same_order(one: Trace, two: Trace) -> None:
    columns = ["arrival_s", "input_tokens", "output_tokens"]
    assert two.requests.select(columns).equals(one.requests.select(columns))
    first, second = dependencies(one), dependencies(two)
    assert (first is None) == (second is None)
    if first is None or second is None:
        return
    for name in ("first_child", "children", "num_parents"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
    waits = first.num_parents > 0
    assert np.array_equal(first.think_s[waits], second.think_s[waits])


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_written_is_read_back_and_waits_for_the_same(name: str, ending: str, tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    source.write_text("\n".join(map(json.dumps, SAMPLES[name])))
    trace = read_trace(str(source), on_bad_rows="drop")
    found, notes = read_back(trace, tmp_path / f"copy.{ending}")
    assert_same_order(trace, found)
    assert bool(notes) == ("dropped" in name)
    if ending == "csv":  # which has no prefix ids
        return
    one, two = (replay(each, scenario_of()).requests["finished_at_s"] for each in (trace, found))
    assert one.equals(two)


def test_a_requests_own_parents_stay_when_others_were_dropped(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    source.write_text("\n".join(map(json.dumps, SAMPLES["native, with a parent that is dropped"])))
    found, notes = read_back(read_trace(str(source), on_bad_rows="drop"), tmp_path / "copy.jsonl")
    assert found.requests["parent_id"].to_list() == [None, "b"]
    assert notes == ("2 parents are missing because their rows were dropped; 1 requests that waited only for them are "
                     "written without parent_id and arrive as recorded",)


def test_a_child_of_a_dropped_turn_does_not_wait_for_another_of_its_session(tmp_path: Path) -> None:
    """With its think time left, it would wait for the request before it, which a replay of the source does not do."""
    source = tmp_path / "source.jsonl"
    source.write_text("\n".join(map(json.dumps, SAMPLES["weka, a sub-agent's turn dropped"])))
    trace = read_trace(str(source))
    assert trace.requests.filter(pl.col("request_id") == "a/1/2")["parent_id"].to_list() == ["a/1/1"]
    found, _ = read_back(trace, tmp_path / "copy.jsonl")
    assert found.requests.filter(pl.col("request_id") == "a/1/2").select("parent_id", "think_time_s").row(0) == (
        None, None)
