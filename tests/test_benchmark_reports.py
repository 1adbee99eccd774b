"""Benchmark reports without requests: which are read as runs, with which load, deployment and statistics."""

import contextlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.errors import PlannerError, TraceError, UsageError
from planner.measured.accuracy import predict_file
from planner.measured.recorded import as_means
from planner.measured.reports.reported import Reported, measurement_of
from planner.measured.run_table import Measurement
from planner.measured.runs import read_runs
from planner.settings.scenario import Scenario
from planner.traces import read_trace

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm")

LLMD: dict[str, Any] = {
    "version": "0.2", "run": {"uid": "a"},
    "scenario": {
        "stack": [{"standardized": {
            "kind": "inference_engine", "tool": "vllm", "replicas": 1, "model": {"name": "Qwen/Qwen3-8B"},
            "accelerator": {"model": "NVIDIA-H100-80GB-HBM3", "count": 2, "parallelism": {"tp": 2, "pp": 1}}}}],
        "load": {"standardized": {"tool": "inference-perf", "rate_qps": 4, "concurrency": math.inf}}},
    "results": {"request_performance": {"aggregate": {
        "requests": {"total": 210, "failures": 10, "input_length": {
            "units": "count", "mean": 600, "p1": 100, "p50": 500, "p99": 1500},
                     "output_length": {"units": "count", "mean": 64}},
        "latency": {"time_to_first_token": {"units": "s", "mean": 0.05, "p50": 0.04, "p99": 0.2},
                    "time_per_output_token": {"units": "ms/token", "mean": 7.5}}}}}}
OLDER: dict[str, Any] = {
    "version": "0.1", "scenario": {
        "host": {"accelerator": [{"model": "H100", "count": 1, "parallelism": {"tp": 1}}] * 2},
        "platform": {"engine": [{"name": "vllm", "version": "0.10.0"}]}, "model": {"name": "Qwen/Qwen3-8B"},
        "load": {"name": "guidellm"}},
    "metrics": {"requests": {"total": 100, "input_length": {"units": "count", "mean": 300},
                             "output_length": {"units": "count", "mean": 30}},
                "latency": {"time_to_first_token": {"units": "ms", "mean": 40.0}},
                "throughput": {"requests_per_sec": 6.0}}}


def guidellm(strategy: dict[str, Any], **metrics: Any) -> dict[str, Any]:
    given = {"time_to_first_token_ms": {"mean": 50.0, "median": 45.0, "count": 80, "percentiles": {"p99": 130.0}},
             "prompt_token_count": {"mean": 400.0}, "output_token_count": {"mean": 101.0}, **metrics}
    return {"metadata": {"version": 2}, "benchmarks": [{
        "config": {"strategy": strategy}, "duration": 40.0,
        "metrics": {name: {"successful": table} for name, table in given.items()},
        "requests": {"successful": [], "errored": [], "incomplete": []}}]}


TRTLLM: dict[str, Any] = {
    "engine": {"model": "meta-llama/Llama-3.1-8B", "version": "1.2.0", "quantization": "FP8", "kv_cache_dtype": "FP8"},
    "machine": {"name": "NVIDIA H100 80GB HBM3"},
    "world_info": {"tp_size": 1, "pp_size": 1, "max_batch_size": 256, "max_num_tokens": 4096, "issue_rate": 9000.0,
                   "kv_cache_percentage": 0.9, "scheduling_policy": "GUARANTEED_NO_EVICT"},
    "request_info": {"num_requests": 300, "avg_num_concurrent_requests": 180.0, "avg_input_length": 200.0,
                     "avg_output_length": 50.0},
    "performance": {"total_latency_ms": 3000.0, "request_throughput_req_s": 100.0,
                    "system_output_throughput_tok_s": 5000.0, "avg_request_latency_ms": 1800.0},
    "streaming_metrics": {"avg_ttft_ms": 900.0, "ttft_percentiles": {"p50": 880.0, "average": 900.0}}}
STAGE: dict[str, Any] = {
    "load_summary": {"count": 50, "requested_rate": 5.0, "achieved_rate": 4.9},
    "successes": {"count": 48, "latency": {"time_to_first_token": {"mean": 0.03, "median": 0.02},
                                           "inter_token_latency": {"mean": 0.004, "p99": 0.01}},
                  "prompt_len": {"mean": 200.0, "min": 100.0, "max": 300.0}, "output_len": {"mean": 60.0}},
    "failures": {"count": 2}}
AIPERF: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0}, "request_count": {"unit": "requests", "avg": 40.0},
    "request_latency": {"unit": "ms", "avg": 900.0}, "time_to_first_token": {"unit": "ms", "p50": 60.0},
    "inter_token_latency": {"unit": "ms", "avg": 8.0}, "input_sequence_length": {"unit": "tokens", "avg": 256.0},
    "output_sequence_length": {"unit": "tokens", "avg": 99.0}, "input_config": {"loadgen": {"concurrency": 3}}}
RUN: dict[str, Any] = {
    "hw": "h100-cw", "framework": "trt", "model": "openai/gpt-oss-120b", "precision": "fp4", "isl": 1024, "osl": 256,
    "conc": 8, "tp": 1, "ep": 1, "dp_attention": "false", "spec_decoding": "none", "disagg": False,
    "mean_ttft": 0.09, "median_tpot": 0.006, "p99_tpot": 0.009, "tput_per_gpu": 5000.0}


def runs_of(tmp_path: Path, document: Any, scenario: Scenario = H100, name: str = "report.json") -> list[Measurement]:
    text = json.dumps(document) if name.endswith(".json") else yaml.safe_dump(document)
    (tmp_path / name).write_text(text)
    return read_runs(tmp_path / name, scenario, client=None)


def tokens(run: Measurement, side: str) -> np.ndarray[Any, Any]:
    assert run.load is not None
    found: np.ndarray[Any, Any] = run.load.requests[f"{side}_tokens"].to_numpy()
    return found


@pytest.mark.parametrize("name", ["report.yaml", "report.yml", "report.json"])
def test_an_llmd_report_is_a_run_of_the_deployment_that_it_names(tmp_path: Path, name: str) -> None:
    run = runs_of(tmp_path, LLMD, Scenario(), name)[0]
    assert run.scenario is not None
    assert (run.scenario.gpu, run.scenario.model, run.scenario.tensor_parallel_size) == ("h100-sxm", "Qwen/Qwen3-8B", 2)
    assert run.measured == {"mean_ttft_ms": 50.0, "median_ttft_ms": 40.0, "p99_ttft_ms": 200.0, "mean_tpot_ms": 7.5}
    assert (run.groups["client"], run.groups["model"], run.groups["layout"]) == (
        "inference-perf", "qwen3-8b", "tp2-dp1-ep1")
    assert run.load is not None
    assert run.load.num_requests == 200
    assert tokens(run, "input").mean() == pytest.approx(600, rel=0.01)
    assert tokens(run, "input").min() < 300 < 1200 < tokens(run, "input").max()
    assert set(tokens(run, "output")) == {64}
    assert run.load.requests["arrival_s"].max() == pytest.approx(50.0)


def test_the_older_report_divides_its_load_over_its_hosts(tmp_path: Path) -> None:
    run = runs_of(tmp_path, OLDER, Scenario())[0]
    assert run.load is not None
    assert run.load.num_requests == 50
    assert run.load.requests["arrival_s"].max() == pytest.approx(50 / 3.0)
    assert "2 engines shared the load" in run.notes[0]


def test_pools_of_prefill_and_decode_are_no_run(tmp_path: Path) -> None:
    pools = [{"standardized": {**LLMD["scenario"]["stack"][0]["standardized"], "role": role}}
             for role in ("prefill", "decode")]
    with pytest.raises(TraceError, match="prefill and decode ran in pools of their own"):
        runs_of(tmp_path, {**LLMD, "scenario": {**LLMD["scenario"], "stack": pools}})


def test_our_own_report_is_read_back(tmp_path: Path) -> None:
    """The replay of a report's like load is near the replay that the report is of."""
    run = CliRunner().invoke(app, ["replay", "chat", "--limit", "60", "--model", "qwen3-0.6b", "--gpu", "l4",
                                   "--max-num-seqs", "64", "--save", str(tmp_path / "saved"), "--quiet"])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(app, ["report", str(tmp_path / "saved"), "-o", str(tmp_path / "r.html"),
                                   "--llmd", str(tmp_path / "rep.yaml")])
    assert run.exit_code == 0, run.output
    found = predict_file(tmp_path / "rep.yaml", Scenario(), client=None, jobs=1)
    scenario = found.predictions[0].measurement.scenario
    assert scenario is not None
    assert (scenario.model, scenario.gpu, scenario.max_num_seqs) == ("qwen3-0.6b", "l4", 64)
    assert found.predictions[0].predicted["mean_tpot_ms"] == pytest.approx(
        found.predictions[0].measurement.measured["mean_tpot_ms"], rel=0.1)
    assert any("predicted, not measured" in note for note in found.notes)


@pytest.mark.parametrize(("strategy", "in_flight", "last_s"), [
    ({"type_": "constant", "rate": 4.0}, None, 20.0), ({"type_": "poisson", "rate": 4.0}, None, 20.0),
    ({"type_": "concurrent", "streams": 6}, 6, 0.0), ({"type_": "synchronous"}, 1, 0.0),
    ({"type_": "throughput"}, None, 0.0), ({"type_": "throughput", "max_concurrency": 64}, 64, 0.0),
])
def test_guidellms_summary_is_a_run(tmp_path: Path, strategy: dict[str, Any], in_flight: int | None,
                                    last_s: float) -> None:
    run = runs_of(tmp_path, guidellm(strategy, inter_token_latency_ms={"mean": 8.0, "median": 7.9}))[0]
    assert run.scenario is not None
    assert run.load is not None
    assert run.measured == {"mean_ttft_ms": 50.0, "median_ttft_ms": 45.0, "p99_ttft_ms": 130.0, "mean_tpot_ms": 8.0,
                            "median_tpot_ms": 7.9, "makespan_s": 40.0}
    assert (run.load.num_requests, run.scenario.max_concurrency) == (80, in_flight)
    arrivals = run.load.requests["arrival_s"].to_numpy()
    assert arrivals.max() == pytest.approx(last_s)
    gaps = np.diff(arrivals)
    assert (gaps.std() < 0.01 * gaps.mean()) == (strategy["type_"] == "constant")


def test_guidellms_yaml_is_read_by_its_statistics(tmp_path: Path) -> None:
    report = guidellm({"type_": "concurrent", "streams": 3}, inter_token_latency_ms={"mean": 8.0})
    report["benchmarks"][0]["requests"] = {"successful": [{"request_id": "a", "output_tokens": 3}]}
    run = runs_of(tmp_path, report, name="benchmarks.yaml")[0]
    assert run.measured["mean_tpot_ms"] == 8.0
    (tmp_path / "benchmarks.csv").write_text("Run Info,Run Info,Request Counts\nModel,Backend,Successful\n,,\na,b,3\n")
    with pytest.raises(TraceError, match="GuideLLM's summary"):
        read_trace(str(tmp_path / "benchmarks.csv"))


def test_guidellms_time_per_token_has_the_first_token_in_it(tmp_path: Path) -> None:
    """101 tokens of 10 ms each are 1,010 ms, of which 50 are the TTFT: 9.6 ms for each of the other 100."""
    run = runs_of(tmp_path, guidellm({"type_": "synchronous"}, time_per_output_token_ms={"mean": 10.0}))[0]
    assert run.measured["mean_tpot_ms"] == pytest.approx(9.6)


def test_trtllm_benchs_report_is_a_run_of_the_engine_in_it(tmp_path: Path) -> None:
    run = runs_of(tmp_path, TRTLLM, Scenario())[0]
    assert run.scenario is not None
    assert run.load is not None
    asked = {name: getattr(run.scenario, name) for name in (
        "engine", "engine_version", "gpu", "quantization", "kv_cache_dtype", "max_num_seqs", "max_num_batched_tokens",
        "gpu_memory_utilization", "policy", "max_concurrency")}
    assert asked == {"engine": "trtllm", "engine_version": "1.2.0", "gpu": "h100-sxm", "quantization": "fp8",
                     "kv_cache_dtype": "fp8", "max_num_seqs": 256, "max_num_batched_tokens": 4096,
                     "gpu_memory_utilization": 0.9, "policy": "trtllm-no-evict", "max_concurrency": None}
    assert run.measured == {"mean_e2el_ms": 1800.0, "mean_ttft_ms": 900.0, "median_ttft_ms": 880.0,
                            "output_tput_per_gpu": 5000.0, "makespan_s": 3.0}
    assert run.load.requests["arrival_s"].max() == 0
    slow = {**TRTLLM, "world_info": {**TRTLLM["world_info"], "issue_rate": 110.0}}
    run = runs_of(tmp_path, slow, Scenario())[0]
    assert run.scenario is not None
    assert run.scenario.max_concurrency == 180


def test_given_options_go_before_a_reports_except_what_ran(tmp_path: Path) -> None:
    run = runs_of(tmp_path, TRTLLM, Scenario(gpu="a100-sxm", model="llama-3.1-8b", max_num_seqs=64))[0]
    assert run.scenario is not None
    assert (run.groups["gpu"], run.scenario.model, run.scenario.max_num_seqs) == ("h100-sxm", "llama-3.1-8b", 64)
    assert "the options give way: gpu = NVIDIA H100 80GB HBM3 (not a100-sxm)" in run.notes[0]
    unnamed = {**TRTLLM, "engine": {**TRTLLM["engine"], "model": "/data/own"}}
    assert runs_of(tmp_path, unnamed, H100)[0].groups["model"] == "llama-3.1-8b"
    with pytest.raises(TraceError, match="names the model '/data/own', which is not in the catalog; give --model"):
        runs_of(tmp_path, unnamed, Scenario(gpu="h100-sxm"))


def test_a_stage_of_inference_perf_is_a_run(tmp_path: Path) -> None:
    run = runs_of(tmp_path, STAGE)[0]
    assert run.load is not None
    assert run.measured == {"mean_ttft_ms": 30.0, "median_ttft_ms": 20.0, "mean_itl_ms": 4.0, "p99_itl_ms": 10.0}
    assert run.load.num_requests == 48
    assert run.load.requests["arrival_s"].max() == pytest.approx(48 / 5)
    assert (tokens(run, "input").min(), tokens(run, "input").max()) == (102, 298)


def test_aiperfs_summary_is_a_run(tmp_path: Path) -> None:
    run = runs_of(tmp_path, AIPERF)[0]
    assert run.scenario is not None
    assert (run.measured, run.scenario.max_concurrency) == (
        {"median_ttft_ms": 60.0, "mean_tpot_ms": 8.0, "mean_e2el_ms": 900.0}, 3)


@pytest.mark.parametrize(("phase", "concurrency", "last_s"), [
    ({"type": "constant", "rate": 4.0}, None, 10.0), ({"type": "concurrency", "concurrency": 5}, 5, 0.0)])
def test_a_newer_aiperf_lists_its_load_as_phases(tmp_path: Path, phase: dict[str, Any], concurrency: int | None,
                                                 last_s: float) -> None:
    phases = [{"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
              {"name": "profiling", "kind": "profiling", "requests": 40} | phase]
    run = runs_of(tmp_path, AIPERF | {"schema_version": "1.4", "input_config": {"phases": phases}})[0]
    assert run.scenario is not None
    assert run.scenario.max_concurrency == concurrency
    assert run.load is not None
    assert run.load.requests["arrival_s"].max() == pytest.approx(last_s, abs=0.3)


def test_an_older_genai_perf_has_its_load_beside_its_other_options(tmp_path: Path) -> None:
    run = runs_of(tmp_path, AIPERF | {"input_config": {"model": ["llama"], "concurrency": 4}})[0]
    assert run.scenario is not None
    assert run.scenario.max_concurrency == 4


@pytest.mark.parametrize(("unit", "per_s"), [("s", 1.0), ("ms", 1000.0)])
def test_genai_benchs_result_is_a_run(tmp_path: Path, unit: str, per_s: float) -> None:
    stats = {"ttft": {"mean": 0.06 * per_s, "p50": 0.05 * per_s, "p99": 0.2 * per_s}, "tpot": {"mean": 0.008 * per_s},
             "e2e_latency": {"mean": 0.5 * per_s}, "num_input_tokens": {"mean": 306.0, "p50": 306.0},
             "num_output_tokens": {"mean": 60.0, "p50": 60.0}}
    document = {"aggregated_metrics": {"scenario": "D(300,60)", "num_concurrency": 8, "batch_size": 1,
                                       "iteration_type": "num_concurrency", "run_duration": 7.5, "num_requests": 66,
                                       "num_completed_requests": 65, "stats": stats},
                "individual_request_metrics": [{"ttft": 0.06 * per_s, "num_input_tokens": 306}], "_time_unit": unit}
    run = runs_of(tmp_path, document)[0]
    assert run.scenario is not None
    assert run.load is not None
    assert (run.scenario.max_concurrency, run.load.num_requests, run.groups["client"]) == (8, 65, "genai-bench")
    assert run.measured == pytest.approx({
        "mean_ttft_ms": 60.0, "median_ttft_ms": 50.0, "p99_ttft_ms": 200.0, "mean_tpot_ms": 8.0, "mean_e2el_ms": 500.0,
        "makespan_s": 7.5})
    with pytest.raises(TraceError, match=r"genai-bench's result, .*give it to planner validate"):
        read_trace(str(tmp_path / "report.json"))
    document["_time_unit"] = "h"
    with pytest.raises(TraceError, match="_time_unit = 'h'; must be s or ms"):
        runs_of(tmp_path, document)


def test_evalscopes_summary_is_a_run(tmp_path: Path) -> None:
    run = runs_of(tmp_path, {
        "Time taken for tests (s)": 20.0, "Number of concurrency": 8, "Total requests": 40, "Succeed requests": 40,
        "Failed requests": 0, "Average latency (s)": 1.0, "Average time to first token (s)": 0.06,
        "Average time per output token (s)": 0.009, "Average input tokens per request": 1000.0,
        "Average output tokens per request": 100.0})[0]
    assert run.scenario is not None
    assert run.scenario.max_concurrency == 8
    assert (set(tokens(run, "input")), set(tokens(run, "output")), len(tokens(run, "input"))) == ({1000}, {100}, 40)
    assert {name: run.measured[name] for name in ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms")} == {
        "mean_ttft_ms": 60.0, "mean_tpot_ms": 9.0, "mean_e2el_ms": 1000.0}


@pytest.mark.parametrize(("added", "said"), [
    ({"model_id": "Qwen/Qwen3-8B"}, "was measured on model = Qwen/Qwen3-8B, and --model llama-3.1-8b would be"),
    ({"model_id": "meta-llama/Llama-3.1-8B-Instruct"}, None), ({"model_id": "served-name"}, None),
    ({"server_info": {"model_path": "/models/Qwen3-8B"}}, "give --model /models/Qwen3-8B"),
    ({"server_info": {"tp_size": 2}}, "its server ran with tp_size = 2, and 1 would be predicted"),
])
def test_a_result_of_another_deployment_is_refused(tmp_path: Path, added: dict[str, Any], said: str | None) -> None:
    result = {"completed": 4, "duration": 2.0, "total_input_tokens": 400, "total_output_tokens": 40,
              "max_concurrency": 2, "mean_ttft_ms": 50.0, "mean_tpot_ms": 9.0}
    with contextlib.nullcontext() if said is None else pytest.raises(UsageError, match=re.escape(said)):
        assert runs_of(tmp_path, result | added)[0].notes == ()


def test_inferencexs_runs_name_their_deployment(tmp_path: Path) -> None:
    first, second = runs_of(tmp_path, [RUN, RUN | {"framework": "vllm", "hw": "h200"}], Scenario())
    assert [run.groups for run in (first, second)] == [
        {"gpu": gpu, "engine": engine, "model": "openai/gpt-oss-120b", "precision": "fp4", "client": "inferencex",
         "layout": "tp1-dp1-ep1"} for gpu, engine in (("h100-sxm", "trtllm"), ("h200-sxm", "vllm"))]
    assert first.measured == {"mean_ttft_ms": 90.0, "median_tpot_ms": 6.0, "p99_tpot_ms": 9.0, "tput_per_gpu": 5000.0}
    assert second.scenario is not None
    assert (second.scenario.max_concurrency, second.status) == (8, "ok")
    given = runs_of(tmp_path, RUN | {"framework": "vllm"}, H100)[0]
    assert "these options give way: --model llama-3.1-8b, --gpu h100-sxm" in given.notes[0]


@pytest.mark.parametrize(("document", "scenario", "message"), [
    (RUN | {"disagg": True}, H100, "prefill and decode ran apart"),
    (RUN | {"hw": "abacus"}, H100, "hw = 'abacus' is no GPU of the catalog"),
    ({name: value for name, value in RUN.items() if name != "isl"}, Scenario(), "isl is empty; must be a number"),
    (AIPERF | {"time_to_first_token": {"unit": "weeks", "avg": 1.0}}, H100, "time_to_first_token.unit = 'weeks'; must"),
    (AIPERF | {"input_config": {}}, H100, "AIPerf's summary without a request rate or a concurrency; give --max-conc"),
    (AIPERF | {"input_sequence_length": {}, "input_config": {}}, H100,
     "without a request rate or a concurrency, input lengths; give --max-concurrency, --random-input-len"),
    (AIPERF | {"inter_token_latency": {"unit": "ms", "avg": -1}}, H100, "avg = '-1'; must be a number of at least 0"),
    (AIPERF | {"input_sequence_length": {"avg": 0.0}}, H100, "the input length of requests is 0 on average; must be 1"),
    ({**STAGE, "successes": {"count": 1}}, H100, "without times of requests"),
])
def test_a_report_that_lacks_something_says_what(tmp_path: Path, document: dict[str, Any], scenario: Scenario,
                                                 message: str) -> None:
    with pytest.raises(PlannerError, match=message):
        runs_of(tmp_path, document, scenario)


def test_options_stand_in_for_what_a_report_lacks(tmp_path: Path) -> None:
    bare = {name: value for name, value in AIPERF.items() if name not in ("input_sequence_length", "input_config")}
    asked = replace(H100, max_concurrency=5, random_input_len=70)
    run = runs_of(tmp_path, bare, asked)[0]
    assert run.scenario is not None
    assert (run.scenario.max_concurrency, set(tokens(run, "input")), set(tokens(run, "output"))) == (5, {70}, {99})


@pytest.mark.parametrize(("text", "message"), [
    ("alpha: 1\nbeta: {gamma: 2}\n", "is YAML of no known kind, with the keys alpha, beta; must be a benchmark's"),
    ("- 1\n- 2\n", "is YAML without keys"), ("a: [1\n", "cannot be read as YAML"),
])
def test_yaml_of_another_kind_is_told_by_its_keys(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(TraceError, match=message):
        read_runs(tmp_path / "a.yaml", H100, client=None)


def test_medians_do_where_there_are_no_means(tmp_path: Path) -> None:
    """Of a summary of vllm bench serve, and for a calibration, which fits means otherwise."""
    summary = {"completed": 20, "duration": 10.0, "total_input_tokens": 2000, "total_output_tokens": 400,
               "request_rate": 2.0, "median_ttft_ms": 30.0, "median_tpot_ms": 8.0}
    run = runs_of(tmp_path, summary)[0]
    assert run.measured == {"median_ttft_ms": 30.0, "median_tpot_ms": 8.0, "makespan_s": 10.0}
    assert as_means(run).measured == {"median_ttft_ms": 30.0, "median_tpot_ms": 8.0}


def test_a_load_too_long_to_replay_is_cut() -> None:
    run = Reported(tool="t", client="c", lengths={"input": {"mean": 8}, "output": {"mean": 2}}, rate_per_s=5.0,
                   measured={"mean_ttft_ms": 1.0}, num_requests=1e6, duration_s=1e5)
    found = measurement_of("f", "f", run, H100)
    assert found.load is not None
    assert found.load.num_requests == 100_000
    assert "makespan_s" not in found.measured
