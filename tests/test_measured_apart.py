"""Published runs with prefill and decode apart: pools by recipe, predictions, and errors in a row."""

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import EVERYTHING, play

from planner.catalog.catalog_files import load_gpu
from planner.measured.accuracy import predict_file
from planner.measured.run_table import Measurement, read_measured
from planner.settings.scenario import Scenario

MEASURED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "measured"
ROW: dict[str, Any] = {
    "id": "a", "gpu": "h100-sxm", "engine": "vllm", "model": "llama-3.1-8b", "precision": "bf16",
    "spec_decoding": "none", "isl": 256, "osl": 64, "concurrency": 4, "prefill_num_workers": 1, "prefill_tp": 1,
    "prefill_ep": 1, "prefill_dp_attention": False, "prefill_gpus": 1, "decode_num_workers": 2, "decode_tp": 1,
    "decode_ep": 1, "decode_dp_attention": False, "decode_gpus": 2, "measured_mean_ttft_ms": 40.0,
    "measured_mean_tpot_ms": 7.0, "measured_output_tput_per_gpu": 250.0, "measured_tput_per_gpu": 800.0}
DEEPSEEK = {"gpu": "gb200", "engine": "sglang", "model": "deepseek-ai/DeepSeek-R1", "precision": "fp4",
            "isl": 1024, "osl": 1024}


def read(tmp_path: Path, **cells: Any) -> Measurement:
    pl.DataFrame([ROW | cells]).write_csv(tmp_path / "runs.csv")
    (found,) = read_measured(tmp_path / "runs.csv")
    return found


def test_a_run_is_predicted_over_all_its_gpus(tmp_path: Path) -> None:
    """Output tokens are counted by GPU that decodes, all tokens by GPU of either side."""
    pl.DataFrame([ROW]).write_csv(tmp_path / "runs.csv")
    (found,) = predict_file(tmp_path / "runs.csv", Scenario(), client=None, jobs=1).predictions
    predicted = found.predicted
    assert found.status == "ok"
    assert predicted["mean_ttft_ms"] > predicted["mean_tpot_ms"] > 3
    rate = predicted["output_tput_per_gpu"] * 2
    lengths = found.measurement.load.requests.sum() if found.measurement.load is not None else None
    assert lengths is not None
    inputs, outputs = lengths["input_tokens"][0], lengths["output_tokens"][0]
    assert predicted["tput_per_gpu"] == pytest.approx(rate * (inputs + outputs) / outputs / 3, rel=1e-6)


def test_power_is_predicted_beside_what_was_measured(tmp_path: Path) -> None:
    """Power is per GPU. Energy is the sum over all GPUs per output token."""
    cells = {"measured_avg_power_w": 400.0, "measured_joules_per_output_token": 2.0, "framework": "dynamo-vllm",
             "date": "2026-03-01"}
    pl.DataFrame([ROW | cells]).write_csv(tmp_path / "runs.csv")
    (found,) = predict_file(tmp_path / "runs.csv", Scenario(), client=None, jobs=1).predictions
    predicted = found.predicted
    assert load_gpu("h100-sxm").idle_w < predicted["avg_power_w"] < 700
    assert predicted["joules_per_output_token"] == pytest.approx(
        predicted["avg_power_w"] * 3 / 2 / predicted["output_tput_per_gpu"], rel=1e-6)


def test_workers_become_pools(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [(pool.name, pool.role, pool.num_replicas) for pool in found.pools] == [
        ("prefill", "prefill", 1), ("decode", "decode", 2)]
    assert found.groups["layout"] == "p1x1-d2x2"


def test_a_recipe_says_what_labels_do_not(tmp_path: Path) -> None:
    """Two workers of four GPUs share their attention, whatever the label; 32 GPUs are ranks behind DeepEP."""
    small = read(tmp_path, **DEEPSEEK, prefill_gpus=4, decode_gpus=8, prefill_dp_attention=True,
                 decode_dp_attention=True).pools[1].scenario
    assert (small.tensor_parallel_size, small.data_parallel_attention, small.scheduler_recv_interval) == (4, False, 10)
    wide = read(tmp_path, **DEEPSEEK, prefill_num_workers=4, prefill_gpus=16, decode_num_workers=1, decode_gpus=32,
                prefill_dp_attention=True, decode_dp_attention=True).pools
    assert [(pool.num_replicas, pool.scenario.data_parallel_size, pool.scenario.all2all_backend) for pool in wide] == [
        (16, 4, "auto"), (32, 32, "deepep_low_latency")]


def test_drafts_are_those_of_the_recipe(tmp_path: Path) -> None:
    decode = read(tmp_path, **DEEPSEEK | {"gpu": "mi355x", "precision": "fp8"}, prefill_gpus=8, decode_gpus=16,
                  spec_decoding="mtp", decode_ep=8).pools[1].scenario
    assert (decode.num_speculative_tokens, decode.speculative_method) == (2, "mtp")


APART = DEEPSEEK | {"gpu": "gb300", "engine": "trtllm", "precision": "fp8", "date": "2026-02-20"}


def test_a_run_has_the_settings_of_its_gpu_precision_and_load(tmp_path: Path) -> None:
    """Two workers that prefill on 4 GB300 each, and one with attention ranks on 16 that decodes, with one draft."""
    found = read(tmp_path, **APART, concurrency=2253, prefill_num_workers=2, prefill_gpus=8, prefill_dp_attention=True,
                 decode_num_workers=1, decode_gpus=16, decode_dp_attention=True, spec_decoding="mtp", decode_ep=16)
    prefill, decode = (pool.scenario for pool in found.pools)
    assert (prefill.max_num_seqs, prefill.max_num_batched_tokens, prefill.moe_backend) == (16, 16384, "deep_gemm")
    assert (decode.max_num_seqs, decode.num_speculative_tokens) == (128, 1)


def test_without_a_recipe_of_its_load_a_run_takes_the_nearest_with_seats_for_all(tmp_path: Path) -> None:
    """The note names the difference."""
    found = read(tmp_path, **APART | {"gpu": "b300-sxm"}, concurrency=9000, prefill_gpus=8, prefill_dp_attention=True,
                 decode_num_workers=1, decode_gpus=16, decode_dp_attention=True, decode_ep=16)
    assert (found.pools[1].scenario.max_num_seqs or 0) >= 9000 / 16
    assert "9000 in flight: the nearest recipe applies, of " in found.notes[0]


def test_without_numbers_of_workers_a_run_has_those_of_a_recipe_with_as_many_gpus(tmp_path: Path) -> None:
    """Both sides are labelled with all GPUs then."""
    cells = APART | {"gpu": "gb200", "precision": "fp4", "isl": 8192, "date": "2025-12-05", "concurrency": 1075,
                     "prefill_num_workers": 0, "decode_num_workers": 0, "prefill_gpus": 48, "decode_gpus": 48}
    found = read(tmp_path, **cells)
    assert [(pool.num_replicas, pool.scenario.data_parallel_size) for pool in found.pools] == [(32, 4), (16, 16)]
    assert "prefill_num_workers = 0, and no recipe has 51 GPUs" in read(
        tmp_path, **cells | {"prefill_gpus": 51, "decode_gpus": 51}).status


def test_only_attention_ranks_send_tokens_to_their_experts(tmp_path: Path) -> None:
    """A worker that prefills with tensor parallelism computes its experts in place."""
    prefill, decode = (pool.scenario for pool in read(
        tmp_path, **DEEPSEEK | {"gpu": "mi355x", "precision": "fp8", "date": "2026-02-23"}, prefill_gpus=8,
        decode_num_workers=2, decode_gpus=16, decode_dp_attention=True, spec_decoding="mtp", decode_ep=8).pools)
    assert (prefill.all2all_backend, decode.all2all_backend) == ("auto", "mori")
    assert (decode.num_speculative_tokens, decode.async_scheduling) == (1, False)


@pytest.mark.skipif(not MEASURED.is_dir(), reason="needs the measured runs")
def test_every_published_run_is_read() -> None:
    """ATOM is left out: the planner has no model of it."""
    for name in ("closed_loop", "closed_loop_history", "disaggregated", "disaggregated_history"):
        runs = read_measured(MEASURED / f"inferencex_api_{name}.csv")
        assert [run.id for run in runs if run.status != "ok" and run.groups["engine"] != "atom"] == []


@pytest.mark.parametrize(("model", "isl", "budget", "drafts"), [
    ("openai/gpt-oss-120b", 1024, 20_000, 0), ("openai/gpt-oss-120b", 8192, 20_000, 0),
    ("deepseek-ai/DeepSeek-R1", 1024, 4608, 3), ("deepseek-ai/DeepSeek-R1", 8192, 8448, 3)])
def test_a_layout_that_no_recipe_has_takes_what_all_layouts_have(tmp_path: Path, model: str, isl: int, budget: int,
                                                                 drafts: int) -> None:
    """One worker of 64 GPUs decodes; all listed layouts have these settings in common."""
    prefill, decode = (pool.scenario for pool in read(
        tmp_path, **DEEPSEEK | {"engine": "trtllm", "model": model, "isl": isl}, prefill_gpus=4, decode_gpus=64,
        decode_num_workers=1, decode_dp_attention=True, spec_decoding="mtp" if drafts else "none").pools)
    assert (prefill.max_num_batched_tokens, prefill.kv_cache_dtype, prefill.async_scheduling) == (budget, "fp8", False)
    assert (decode.kv_cache_dtype, decode.num_speculative_tokens, decode.stream_interval) == ("fp8", drafts, 20)


@pytest.mark.parametrize(("cells", "said"), [
    ({"prefill_gpus": 3, "prefill_num_workers": 2}, "prefill_gpus = 3 beside prefill_num_workers = 2; must be a multi"),
    ({"decode_num_workers": None}, "decode_num_workers = empty: must be a whole number from 1 on"),
    ({"decode_gpus": "two"}, "decode_gpus = two: must be a whole number from 1 on"),
    ({"gpu": "h999"}, "h999"),
])
def test_a_row_that_cannot_be_read_says_why(cells: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in read(tmp_path, **cells).status


def test_a_request_whose_kv_is_there_runs_as_a_decode() -> None:
    """Its last prompt token is computed in a step without prompts, which CUDA graphs have."""
    result = play([(0.0, 512, 4)], model="llama-3.1-8b", gpu="h100-sxm", data_parallel_size=2, prefill_replicas=1,
                  recording=EVERYTHING)
    steps = result.steps_table().filter(pl.col("replica") == 1)
    assert steps["num_prompts"].to_list() == [0, 0, 0]
    assert steps["num_decodes"].to_list() == [1, 1, 1]
    assert steps["decode_context_tokens"].to_list() == [512, 513, 514]
    assert steps["duration_s"].max() < 1.05 * steps["duration_s"].min()  # type: ignore[operator]


def test_weights_that_need_more_memory_than_the_recipe_gives_have_the_largest_published_share(tmp_path: Path) -> None:
    """DeepSeek-R1 in FP8 has 157 GiB on each of four B200, and recipes for eight give 0.85 of 178 GiB."""
    found = read(tmp_path, **DEEPSEEK | {"gpu": "b200-sxm", "precision": "fp8", "date": "2026-02-05"}, prefill_gpus=4,
                 decode_num_workers=1, decode_gpus=8, decode_ep=8, spec_decoding="mtp")
    assert found.pools[0].scenario.gpu_memory_utilization == 0.95
    assert any(note.startswith("prefill: gpu_memory_utilization = 0.85 leaves no room") for note in found.notes)
