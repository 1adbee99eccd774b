"""Agentic runs: a table, its requests and its server's samples, read as sessions and held against a replay."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from planner.errors import TraceError
from planner.measured.accuracy import predict_file
from planner.measured.agentic import WARM
from planner.measured.run_table import Measurement, read_measured
from planner.measured.validate import served
from planner.settings.scenario import Scenario

RUN = {"run": "a", "gpu": "h100_sxm", "engine": "vllm", "engine_version": "0.19.1",
       "checkpoint": "meta-llama/Llama-3.1-8B-Instruct", "tp": 1, "ep": 1, "users": 2, "offload": "off",
       "kv_cache_tokens": 400_000, "client": "python3 tester.py",
       "command": "vllm serve meta-llama/Llama-3.1-8B-Instruct --port 8888 --config /workspace/config.yaml "
                  "--max-model-len 65536"}


def turn(user: str, number: int, start_s: float, known: int, new: int, **cells: Any) -> dict[str, Any]:
    return {"run": "a", "user": user, "session_id": "s", "turn": number, "kind": "streaming", "start_s": start_s,
            "input_tokens": 64 * (known + new), "output_tokens": 100, "known_blocks_64": known, "new_blocks_64": new,
            "ttft_s": 0.5, "e2e_s": 1.5, "itl_s": 0.0101, "delay_before_s": 0, "success": "true"} | cells


TURNS = [turn("u1", 7, 0.0, 90, 10), turn("u1", 8, 4.0, 100, 10), turn("u2", 0, 20.0, 0, 50, ttft_s=9.0, e2e_s=9.001),
         turn("u2", 1, 25.0, 50, 3, success="false", output_tokens=0)]


def sample(time_s: float, prompts: int, hits: int = 0, running: int = 1) -> dict[str, Any]:
    return {"run": "a", "time_s": time_s, "kv_cache_usage_pct": 2.0, "num_requests_running": running,
            "prefix_cache_hits": hits, "prompt_tokens_total": prompts}


SAMPLES = [sample(0.0, 6_400), sample(10.0, 13_440, 6_400), sample(20.0, 13_440, 6_400), sample(30.0, 10**6, running=9)]


def write(folder: Path, turns: Any = TURNS, samples: Any = SAMPLES, **cells: Any) -> Path:
    pl.DataFrame([RUN | cells]).write_csv(folder / "agentic_runs.csv")
    pl.DataFrame(turns).write_csv(folder / "agentic_requests.csv")
    pl.DataFrame(samples).write_csv(folder / "agentic_server_samples.csv")
    return folder / "agentic_runs.csv"


def read(folder: Path, turns: Any = TURNS, samples: Any = SAMPLES, **cells: Any) -> Measurement:
    (found,) = read_measured(write(folder, turns, samples, **cells))
    return found


def lengths(run: Measurement) -> list[int]:
    assert run.load is not None
    return list(run.load.requests["input_tokens"])


def shared(run: Measurement, *, of: int) -> int:
    """Return the blocks that a request has in common with the request before it."""
    assert run.load is not None
    assert run.load.prefix is not None
    offsets, values = run.load.prefix.offsets, run.load.prefix.values
    before, own = (set(values[offsets[k]:offsets[k + 1]].tolist()) for k in (of - 1, of))
    return len(before & own)


def test_turns_wait_for_one_another_and_share_what_they_knew(tmp_path: Path) -> None:
    load = read(tmp_path).load
    assert load is not None
    assert load.prefix is not None
    assert load.requests["request_id"].to_list() == ["u1/s/7", "u1/s/8", "u2/s/0"]
    assert load.requests["parent_id"].to_list() == [None, "u1/s/7", None]
    assert load.requests["think_time_s"].to_list() == [None, 2.5, None]
    offsets, values = load.prefix.offsets, load.prefix.values
    first, second, other = (set(values[offsets[k]:offsets[k + 1]].tolist()) for k in range(3))
    assert np.diff(offsets).tolist() == [100, 110, 50]
    assert (len(first & second), len(first & other)) == (100, 0)


def test_a_turn_is_sent_after_the_answer_before_it_and_a_pause(tmp_path: Path) -> None:
    """The second came 2.5 s after the first's end, and does so in the replay, whose first takes another time."""
    records = served(read(tmp_path))[0].records.requests
    assert records.finished_s[0] != pytest.approx(1.5)
    assert records.arrival_s[1] == pytest.approx(records.finished_s[0] + 2.5)


def test_measured_are_the_times_of_answers_that_were_streamed_and_samples_up_to_the_last(tmp_path: Path) -> None:
    measured = read(tmp_path).measured
    assert measured["mean_ttft_ms"] == measured[WARM] == 500.0
    assert measured["prefix_cache_hit_rate"] == pytest.approx(6_400 / 13_440)
    assert measured["mean_running"] == 1.0


def test_a_replay_predicts_all_that_was_measured(tmp_path: Path) -> None:
    (found,) = predict_file(write(tmp_path), Scenario(), client=None, jobs=1).predictions
    assert found.status == "ok"
    assert set(found.measurement.measured) <= set(found.predicted)
    assert found.predicted["prefix_cache_hit_rate"] == pytest.approx(6_400 / (64 * 260), abs=0.01)
    assert 0 < found.predicted[WARM] < 500
    assert 0 < found.predicted["mean_running"] < 1
    assert found.measurement.groups["layout"] == "tp1-ep1"


TESTER = "python3 /workspace/utils/trace-replay/trace_replay_tester.py --start-users 2"
CONVERSATION = [turn("u1", 0, 0.0, 0, 20, output_tokens=1_000), turn("u1", 1, 5.0, 20, 2, output_tokens=500),
                turn("u1", 2, 10.0, 22, 98, output_tokens=10)]


def test_the_tester_keeps_answers_in_its_prompts_and_the_servers_count_says_how_much(tmp_path: Path) -> None:
    first = round(1.05 * 1_280)
    steps = (0.8 * 1_000, 0.8 * 98 * 64)  # the answer is longer than the first step, and shorter than the second
    prompts = [first, round(first + steps[0]), round(first + sum(steps))]
    counted = [sample(10.0 * k, round(sum(prompts))) for k in range(1, 3)]
    run = read(tmp_path, CONVERSATION, counted, client=TESTER)
    assert lengths(run) == pytest.approx(prompts, abs=1)
    assert shared(run, of=1) == first // 64
    assert shared(run, of=2) == prompts[1] // 64
    assert run.reading < 1.0
    assert any("by 0.80 for the tokens that a turn adds" in note for note in run.notes)
    assert lengths(read(tmp_path, CONVERSATION, counted)) == [1_280, 1_408, 7_680]  # of another client


def test_few_turns_do_not_tell_what_they_add(tmp_path: Path) -> None:
    turns = [turn("u1", 0, 0.0, 0, 1_000), turn("u1", 1, 5.0, 1_000, 2)]
    run = read(tmp_path, turns, [sample(10.0, 10**6)], client=TESTER)
    assert lengths(run) == [67_200, 67_200 + 96]


def test_a_shortened_conversation_keeps_what_the_client_knows_of_it(tmp_path: Path) -> None:
    turns = [turn("u1", 0, 0.0, 0, 1_000), turn("u1", 1, 5.0, 100, 50)]
    run = read(tmp_path, turns, [sample(10.0, 10**6)], client=TESTER)
    assert lengths(run) == [67_200, 6_720 + 2_400]
    assert shared(run, of=1) == 105


def test_times_count_until_the_sampler_falls_silent(tmp_path: Path) -> None:
    turns = [turn("u1", 0, 0.0, 0, 100), turn("u2", 0, 12.0, 0, 100, e2e_s=30.0), turn("u3", 0, 35.0, 0, 100)]
    silent = [sample(0.0, 0), sample(10.0, 6_400), sample(50.0, 10**5)]
    run = read(tmp_path, turns, silent)
    assert run.load is not None
    assert run.load.requests["request_id"].to_list() == ["u1/s/0", "u2/s/0"]  # the third was sent in the silence
    assert run.load.requests["e2e_s"].to_list() == [1.5, None]  # the second was answered in it
    assert any(note.startswith("run a: 2 of 3 requests do not count") for note in run.notes)
    whole = read(tmp_path, turns, [sample(10.0 * k, 6_400) for k in range(6)])
    assert whole.load is not None
    assert whole.load.requests["e2e_s"].to_list() == [1.5, 30.0, 1.5]


def test_the_logged_cache_tells_its_type(tmp_path: Path) -> None:
    plain, small = read(tmp_path), read(tmp_path, kv_cache_tokens=800_000)
    assert plain.scenario is not None
    assert small.scenario is not None
    assert (plain.scenario.kv_cache_dtype, small.scenario.kv_cache_dtype) == ("auto", "fp8")
    assert (plain.scenario.num_gpu_blocks, small.scenario.num_gpu_blocks) == (25_000, 50_000)
    assert any("800,000 tokens was logged" in note for note in small.notes)


@pytest.mark.parametrize(("turns", "cells", "said"), [
    ([turn("u1", 0, 0.0, 0, 5, run="b")], {}, "the file of requests has no request of this run"),
    ([turn("u1", 0, 0.0, 0, 5, success="false")], {}, "none of the 1 requests of this run was answered"),
    (TURNS, {"kv_cache_tokens": "many"}, "kv_cache_tokens = many: must be a whole number above 0"),
    (TURNS, {"gpu": "h999"}, "h999"),
    (TURNS, {"command": "python3 -m http.server"}, "launches no engine that is known"),
])
def test_a_run_that_cannot_be_replayed_says_why(turns: Any, cells: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in read(tmp_path, turns, **cells).status


@pytest.mark.parametrize(("cells", "said"), [
    ({"input_tokens": "long"}, r"agentic_requests\.csv row 0: input_tokens = long; must be a number of at least 0"),
    ({"ttft_s": -1.0}, r"row 0: ttft_s = -1.0; must be a number of at least 0"),
    ({"e2e_s": None}, r"row 0: e2e_s = empty; must be a number of at least 0"),
])
def test_a_cell_that_is_no_number_is_named(cells: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=said):
        read(tmp_path, [turn("u1", 0, 0.0, 0, 5, **cells)])


def test_tables_may_be_parquet(tmp_path: Path) -> None:
    path = write(tmp_path)
    pl.read_csv(path).write_parquet(tmp_path / "agentic_runs.parquet")
    for part in ("requests", "server_samples"):
        pl.read_csv(tmp_path / f"agentic_{part}.csv").write_parquet(tmp_path / f"agentic_{part}.parquet")
    (found,), (same,) = read_measured(tmp_path / "agentic_runs.parquet"), read_measured(path)
    assert found.measured == same.measured


def test_a_missing_or_incomplete_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    pl.DataFrame(SAMPLES).drop("prefix_cache_hits").write_csv(tmp_path / "agentic_server_samples.csv")
    with pytest.raises(TraceError, match=r"agentic_server_samples\.csv: lacks the column prefix_cache_hits"):
        read_measured(path)
    (tmp_path / "agentic_requests.csv").unlink()
    with pytest.raises(TraceError, match=r"agentic_requests\.csv or agentic_requests\.csv\.gz is not beside it"):
        read_measured(path)
