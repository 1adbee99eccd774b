"""Lanes: a table of coding-agent sessions that are live at once, its generated load and its replay."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from planner.errors import TraceError
from planner.measured.accuracy import predict_file
from planner.measured.lanes_load import counted_window
from planner.measured.run_table import Measurement, read_measured
from planner.measured.validate import served
from planner.settings.scenario import Scenario

ROW = {"id": "a", "model": "llama-3.1-8b", "gpu": "h100_sxm", "engine": "vllm", "engine_version": "0.19.1 2cf0a69",
       "tp": 1, "lanes": 4, "measured_duration_s": 240.0, "measured_requests": 80, "mean_input_tokens": 12_000,
       "mean_output_tokens": 100, "theoretical_hit_rate": 0.9, "measured_mean_e2el_ms": 2_000.0,
       "measured_median_e2el_ms": 1_300.0, "measured_mean_ttft_ms": 500.0, "measured_median_ttft_ms": 300.0,
       "measured_mean_itl_ms": 8.0, "measured_output_tokens_per_s": 30.0, "measured_gpu_hit_rate": 0.88,
       "measured_cpu_hit_rate": "", "measured_kv_usage": 0.4}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    pl.DataFrame([ROW | {name: str(value) for name, value in row.items()} for row in rows or ({},)],
                 strict=False, infer_schema_length=None).write_csv(folder / "lanes.csv")
    return folder / "lanes.csv"


def read(folder: Path, **cells: Any) -> Measurement:
    (run,) = read_measured(write(folder, cells))
    assert run.status == "ok"
    return run


def grid(run: Measurement, name: str) -> Any:
    """Return a column of the load [turn, lane], openings first."""
    assert run.load is not None
    return run.load.requests[name].to_numpy().reshape(-1, run.num_opening)


def test_the_load_has_the_rows_means_and_hit_rate(tmp_path: Path) -> None:
    run = read(tmp_path)
    prompts, outputs = grid(run, "input_tokens"), grid(run, "output_tokens")
    assert prompts.shape == (21, 4)  # 80 requests of 4 lanes, and the openings
    assert prompts[1:].mean() == pytest.approx(12_000, rel=1e-3)
    assert outputs[1:].mean() == pytest.approx(100, rel=0.01)
    assert np.median(outputs[1:]) / outputs[1:].mean() == pytest.approx(1_000 / 1_500, rel=0.03)
    grows = prompts[1:] > prompts[:-1]
    new = np.where(grows, prompts[1:] - prompts[:-1], prompts[1:])
    assert 1 - new.sum() / prompts[1:].sum() == pytest.approx(0.9, abs=1e-3)
    assert (new >= outputs[:-1])[grows].all()  # a prompt holds the answer before it
    assert not grows.all()  # long sessions start anew


def test_turns_share_the_blocks_of_their_session_alone(tmp_path: Path) -> None:
    run = read(tmp_path)
    assert run.load is not None
    assert run.load.prefix is not None
    offsets, values, lanes = run.load.prefix.offsets, run.load.prefix.values, run.num_opening
    ids = [set(values[offsets[k]:offsets[k + 1]].tolist()) for k in range(run.load.num_requests)]
    prompts = grid(run, "input_tokens").ravel()
    for k in range(lanes, run.load.num_requests):
        shared = prompts[k - lanes] // 64 if prompts[k] > prompts[k - lanes] else 0
        assert len(ids[k] & ids[k - lanes]) == shared
    assert not ids[0] & ids[1]


def test_a_turn_pauses_for_the_rest_of_the_lanes_time(tmp_path: Path) -> None:
    pauses = grid(read(tmp_path), "think_time_s")
    assert np.isnan(pauses[0]).all()
    assert pauses[1:] == pytest.approx(4 * 240 / 80 - 2.0)
    assert (grid(read(tmp_path, measured_mean_e2el_ms=13_000), "think_time_s")[1:] == 0).all()


def test_openings_fill_the_cache_and_do_not_count(tmp_path: Path) -> None:
    run = read(tmp_path)
    (found,) = predict_file(write(tmp_path), Scenario(), client=None, jobs=1).predictions
    assert found.status == "ok"
    assert set(run.measured) <= set(found.predicted)
    result, num_gpus = served(run)
    requests = result.records.requests
    counts, span_s = counted_window(requests, run.num_opening)
    assert (requests.num_cached_tokens[:4] <= 0).all()
    assert not counts[:4].any()
    assert requests.arrival_s[counts].min() >= requests.finished_s[:4].max()
    assert requests.arrival_s[counts].max() < requests.finished_s[-4:].min()
    assert found.predicted["gpu_hit_rate"] == pytest.approx(0.9, abs=0.02)
    outputs = requests.num_output_tokens[counts].sum()
    assert found.predicted["output_tput_per_gpu"] == pytest.approx(outputs / span_s)
    assert num_gpus == (1, 1)


def test_a_turn_waits_for_the_turn_before(tmp_path: Path) -> None:
    requests = served(read(tmp_path))[0].records.requests
    ended, sent = (values.reshape(-1, 4) for values in (requests.finished_s, requests.arrival_s))
    assert sent[1:] == pytest.approx(ended[:-1] + 10.0)


def test_the_deployment_is_the_rows(tmp_path: Path) -> None:
    run = read(tmp_path, model="deepseek-r1", checkpoint="nvidia/DeepSeek-R1-0528-FP4", gpu="b200_sxm", attention_dp=8,
               ep=8, lanes=16, speculation="mtp 3", acceptance_length=2.49, kv_offload="dram", kv_offload_gb=1099.5)
    assert run.scenario is not None
    s = run.scenario
    assert (s.model, s.engine_version, s.data_parallel_size, s.data_parallel_attention, s.expert_parallel,
            s.router) == ("nvidia/DeepSeek-R1-0528-FP4", "0.19.1", 8, True, True, "session-affinity")
    assert (s.num_speculative_tokens, s.speculative_method, s.speculative_acceptance) == (3, "mtp", "length:2.49")
    assert s.kv_offloading_size == pytest.approx(128, rel=1e-3)  # of 1,024 GiB, for each rank
    assert run.groups["layout"] == "tp1-dp8-ep8-lanes16-offload"


def test_sglangs_eagle_is_the_checkpoints_own_and_its_tier_has_a_default(tmp_path: Path) -> None:
    run = read(tmp_path, model="nvidia/GLM-5.2-NVFP4", engine="sglang", engine_version="older nightly",
               gpu="b200_sxm", tp=8, speculation="eagle 3", kv_offload="dram", kv_offload_gb="",
               kv_cache_pool_tokens=1_704_256)
    assert run.scenario is not None
    assert (run.scenario.speculative_method, run.scenario.kv_offloading_ratio) == ("mtp", 2.0)
    assert run.scenario.engine_version is None
    assert run.scenario.num_gpu_blocks is not None
    assert run.scenario.num_gpu_blocks * 16 == pytest.approx(1_704_256, abs=64)
    assert any("names no release" in note for note in run.notes)


def test_a_hit_rate_that_is_not_there_is_the_measured_one_or_the_models(tmp_path: Path) -> None:
    none = {"theoretical_hit_rate": "", "measured_gpu_hit_rate": ""}
    first, second = read_measured(write(tmp_path, {"theoretical_hit_rate": ""}, none | {"id": "b"}))
    assert any("the row's measured hit rate" in note for note in first.notes)
    assert any("the mean of the other rows" in note for note in second.notes)
    (alone,) = read_measured(write(tmp_path, none))
    assert "no row of this model has a hit rate" in alone.status


@pytest.mark.parametrize(("cells", "message"), [
    ({"lanes": 0}, r"lanes.csv row 0: lanes = 0; must be a whole number above 0; correct it, or leave the row out"),
    ({"lanes": 2.5}, r"lanes = 2.5; must be a whole number above 0"),
    ({"mean_input_tokens": ""}, r"mean_input_tokens = empty; must be a number above 0"),
    ({"theoretical_hit_rate": 1}, r"theoretical_hit_rate = 1; must be a number from 0 to below 1"),
    ({"measured_mean_ttft_ms": "fast"}, r"measured_mean_ttft_ms = fast; must be a number of at least 0"),
    ({"max_num_seqs": 7}, r"column max_num_seqs: is no column of a table of lanes; rename it to note_max_num_seqs"),
])
def test_bad_cells_are_named(tmp_path: Path, cells: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_measured(write(tmp_path, cells))


@pytest.mark.parametrize(("cells", "status"), [
    ({"speculation": "three drafts of mtp"}, "speculation = three drafts of mtp: must be a method and its number"),
    ({"engine": "vlm"}, "vlm"),
    ({"kv_offload": "tape"}, "kv_offload = tape: must be dram or none"),
    ({"kv_offload": "dram"}, "give the size of the tier"),
    ({"theoretical_hit_rate": 0.995}, "no growing sessions with answers of 100 tokens"),
])
def test_what_cannot_be_replayed_says_why(tmp_path: Path, cells: dict[str, Any], status: str) -> None:
    (run,) = read_measured(write(tmp_path, cells))
    assert status in run.status


def test_a_missing_column_is_named_and_unread_ones_are_noted(tmp_path: Path) -> None:
    table = pl.read_csv(write(tmp_path)).drop("measured_requests")
    table.write_csv(tmp_path / "lanes.csv")
    with pytest.raises(TraceError, match="lacks the column measured_requests"):
        read_measured(tmp_path / "lanes.csv")
    notes = predict_file(write(tmp_path), Scenario(), client=None, jobs=1).notes
    assert any("do not use the columns measured_kv_usage" in note for note in notes)
