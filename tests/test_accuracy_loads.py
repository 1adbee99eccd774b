"""What the accuracy report and the engines' fits take measured runs to have been: limits, lengths, builds, prompts."""

import doctest
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import throughput
from benchmarks.accuracy.data import BLOCK, MEASURED
from benchmarks.accuracy.mlperf_builds import (
    BUILDS_OF_FILES,
    DISAGGREGATED,
    LEAST_NATIVE_TOKENS,
    NATIVE_SHARE,
    Build,
    apply_build,
    build_of,
    compile_products,
    overlap_reduces,
    token_counts,
)
from benchmarks.accuracy.mlperf_runs import DATASETS, engine_of, lengths_of, runs_of, why_not
from benchmarks.accuracy.throughput import shared_prompts, tuned
from benchmarks.fit_engines import TIMES, is_shown
from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.deploy import deploy
from planner.loop.state.count_table import node_counts
from planner.measured.run_table import Measurement
from planner.settings.scenario import Scenario


def test_examples_hold() -> None:
    failed, attempted = doctest.testmod(throughput)
    assert (failed, attempted > 0) == (0, True)


def test_trtllm_bench_chooses_as_many_sequences_as_memory_holds() -> None:
    """70B in FP8 on two H100: 170.1e9 - 70.6e9 B, 163,840 B a token, 2,000 tokens: 288, and twice as many tokens."""
    model, gpu = load_model("llama-3.1-70b"), load_gpu("h100-sxm")
    assert tuned(model, gpu, 2, 1000, 1000, 1.0, 1.0) == (384, 2048)
    sequences = [tuned(model, gpu, tp, 1000, 1000, 1.0, 1.0)[0] for tp in (1, 2, 4, 8)]
    assert sequences == sorted(sequences)
    tokens = [tuned(model, gpu, 8, isl, 1000, 1.0, 1.0)[1] for isl in (100, 1000)]
    assert tokens == sorted(tokens)


def test_a_runs_outputs_are_as_long_as_it_states() -> None:
    stated = {"base": "llama2-70b", "tokens_per_s": 99_123.04, "samples_per_s": 361.3}
    assert lengths_of(stated).mean_output == pytest.approx(274.35, abs=0.01)
    assert lengths_of(stated | {"tokens_per_s": None}) == DATASETS["llama-2-70b"]


def test_a_hundred_prompts_come_in_turn_and_share_ten_beginnings() -> None:
    """203 tokens are 13 blocks, of which the first 8 are a system prompt's."""
    found = shared_prompts(250, 203)
    rows = found.values.reshape(250, 13)
    assert found.block_tokens == BLOCK == 16
    assert found.offsets.tolist() == list(range(0, 13 * 251, 13))
    assert len(np.unique(rows[:, :8])) == 10 * 8
    assert len(np.unique(rows[:, 8:])) == 100 * 5
    np.testing.assert_array_equal(rows[:150], rows[100:])


def test_a_time_is_fitted_where_runs_show_it_apart() -> None:
    def run(model: str, drafted: int = 0, gpu: str = "b200-sxm", **engine: Any) -> Measurement:
        scenario = Scenario(model=model, gpu=gpu, num_speculative_tokens=drafted,
                            speculative_method="mtp" if drafted else None, **engine)
        return Measurement(id=model, groups={}, measured={}, scenario=scenario)

    experts, dense, drafting = run("gpt-oss-120b"), run("llama-3.1-70b"), run("deepseek-v3", 1)
    shown = {name: [is_shown(name, runs) for runs in ([experts], [experts, dense], [drafting])] for name in TIMES}
    assert shown["layer_s"] == [False, True, False]
    assert shown["host_s_per_seq"] == shown["sampling_s_per_seq"] == [False, False, True]
    flashinfer = "launch_s_per_flashinfer_layer"
    assert shown[flashinfer] == [False, False, False]
    assert is_shown(flashinfer, [experts, run("gpt-oss-120b", gpu="h100-sxm")])
    assert not is_shown(flashinfer, [run("gpt-oss-120b", gpu="h100-sxm")])
    older, newer = (run("deepseek-v3", engine="trtllm", engine_version=version) for version in ("1.1.0", "1.2.0"))
    assert is_shown("older_layer_s", [older, newer])
    assert not is_shown("older_layer_s", [newer, run("gpt-oss-120b", engine="trtllm", engine_version="1.1.0")])
    assert all(all(found) for name, found in shown.items()
               if name not in ("layer_s", flashinfer, "host_s_per_seq", "sampling_s_per_seq", "older_layer_s"))


@pytest.mark.parametrize(("tp", "hides"), [(1, False), (8, True)])
def test_all_reduces_beside_products_take_the_longer_of_both(tp: int, hides: bool) -> None:
    deployment = deploy(Scenario(model="llama-3.1-8b", gpu="h200-sxm", engine="trtllm", tensor_parallel_size=tp))
    curve = deployment.step_time.curve
    before = curve.copy()
    overlap_reduces(deployment)
    hidden_s = before["collectives_s"] - curve["collectives_s"]
    assert bool((hidden_s[1:] > 0).all()) == hides
    assert (curve["collectives_s"] >= -1e-12).all()
    assert (hidden_s <= before["linear_s"] + 1e-12).all()
    np.testing.assert_allclose(before["tokens_s"] - curve["tokens_s"], hidden_s, atol=1e-12)


@pytest.mark.parametrize(("build", "column", "layer_bytes"), [
    (Build(gemm_swiglu=True), "activations_s", 3 * 28672 * 2),
    (Build(norm_quant=True), "linear_s", 2 * 8192 * (2 + 0.5625)),
])
def test_fused_kernels_take_their_time_off_a_step(build: Build, column: str, layer_bytes: float) -> None:
    """2,048 tokens of 70B in NVFP4 on a B200: 80 layers' activations, or what quantizes after norms or activations."""
    deployment = deploy(Scenario(model="llama-3.1-70b", gpu="b200-sxm", engine="trtllm", quantization="nvfp4"))
    curve = deployment.step_time.curve
    before = curve.copy()
    apply_build(deployment, build)
    saved_s = before[column] - curve[column]
    np.testing.assert_allclose(before["tokens_s"] - curve["tokens_s"], saved_s, atol=1e-12)
    assert (saved_s[1:] > 0).all()
    moved_bytes = 80 * layer_bytes
    at_peak_s = 2048 * moved_bytes / 8e12
    assert at_peak_s < float(np.interp(2048, node_counts(), saved_s)) < 2 * at_peak_s + 160 * 5e-6


def test_products_that_tensorrt_compiled_take_their_share_in_large_steps() -> None:
    """All four products of a layer, or the two that are not `gemm_allreduce_plugin`'s."""
    scenario = Scenario(model="llama-3.1-405b", gpu="b200-sxm", engine="trtllm", quantization="nvfp4",
                        tensor_parallel_size=4)
    saved = []
    for products in (("qkv_proj", "gate_up_proj"), ("qkv_proj", "gate_up_proj", "o_proj", "down_proj")):
        deployment = deploy(scenario)
        curve = deployment.step_time.curve
        before = curve.copy()
        compile_products(deployment, *products)
        saved.append(1.0 - curve["linear_s"][1:] / before["linear_s"][1:])
        np.testing.assert_allclose(before["tokens_s"] - curve["tokens_s"], before["linear_s"] - curve["linear_s"],
                                   atol=1e-12)
    is_large = token_counts()[1:] >= LEAST_NATIVE_TOKENS
    for shares in saved:
        assert (shares[~is_large] == 0.0).all()
    assert ((saved[1][is_large] > 0.8 * (1 - NATIVE_SHARE)) & (saved[1][is_large] < 1 - NATIVE_SHARE)).all()
    assert (saved[0][is_large] < saved[1][is_large]).all()


RUN = {"round": "v5.1", "base": "llama3.1-405b", "precision_set": "fp4", "scenario": "Offline", "n_gpus": 8,
       "gpu": "NVIDIA B200-SXM-180GB", "tp": 2, "pp": 2, "moe_ep": None, "scheduler_policy": "max_util",
       "max_batch_size": "128", "max_num_tokens": 5120, "chunked_context": True, "kv_free_mem_frac": 0.95,
       "source_file": "closed/x/Offline/llama3_1-405b.py"}


def test_a_run_is_replayed_with_what_it_was_started_with() -> None:
    """Two replicas of two by two GPUs, 1,536 tokens a step and not the 5,120 that the engine was built with."""
    engine = engine_of(RUN)
    settings = engine.deployment.settings
    assert (engine.replicas, engine.prompt_limit) == (2, None)
    assert (settings.max_num_batched_tokens, settings.max_num_seqs, settings.pipeline_parallel_size) == (1536, 128, 2)


@pytest.mark.parametrize(("changes", "reason"), [
    ({}, None),
    ({"base": "gptj"}, "not covered: gptj"),
    ({"gpu": "AMD Instinct MI325X"}, "not covered: AMD Instinct MI325X"),
    ({"source_file": None}, "settings not known"),
    ({"source_file": DISAGGREGATED}, "not covered: disaggregated, with limits that are not stated"),
])
def test_a_run_that_cannot_be_replayed_says_why(changes: dict[str, Any], reason: str | None) -> None:
    assert why_not(RUN | changes) == reason


@pytest.mark.skipif(not MEASURED.is_dir(), reason="PLANNER_SHARED names the folder above measured/")
def test_runs_without_settings_are_listed_with_the_reason() -> None:
    later = [row for row in runs_of("Server", "Interactive").iter_rows(named=True) if row["round"] == "v6.1"]
    assert len(later) == 5
    assert [why_not(row) for row in later if "RTX PRO 6000" in row["gpu"]] == ["settings not known"]
    assert all(why_not(row) for row in later)


def test_a_run_has_the_build_of_its_group_or_of_its_file() -> None:
    row = {"round": "v5.1", "base": "llama2-70b", "precision_set": "fp8", "scenario": "Server", "source_file": "a.py"}
    assert build_of(row).gemm_swiglu
    assert build_of(row | {"round": "v4.1"}) == build_of(row | {"scenario": "Interactive"}) == Build()
    name, own = next(iter(BUILDS_OF_FILES.items()))
    assert build_of(row | {"source_file": name}) == own
