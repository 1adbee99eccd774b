"""ATOM through the front door: launch commands, metrics, tokens that preemption loses, measured runs."""

import json
import os
from pathlib import Path

import polars as pl
import pytest
from command_line import planner
from helpers import play, trace_of

from planner.errors import UsageError
from planner.launch import launch_command, read_launch
from planner.measured.run_table import read_measured
from planner.measured.validate import predict
from planner.settings.scenario import Scenario

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared"))
SERVER = "python -m atom.entrypoints.openai_server --model deepseek-ai/DeepSeek-R1"


@pytest.mark.parametrize(("words", "options"), [
    ("-tp 8 --kv_cache_dtype fp8 --method mtp --num-speculative-tokens 3 --server-port 8000",
     {"tensor_parallel_size": 8, "kv_cache_dtype": "fp8", "speculative_method": "mtp", "num_speculative_tokens": 3}),
    ("--no-enable_prefix_caching --no-enable_chunked_prefill --max-num-seqs 64 --max_num_batched_tokens 8192",
     {"enable_prefix_caching": False, "enable_chunked_prefill": False, "max_num_seqs": 64,
      "max_num_batched_tokens": 8192}),
    ("--scheduler-delay-factor 0.5 --long-prefill-token-threshold 2048 --block-size 64 --enforce-eager",
     {"scheduler_delay_factor": 0.5, "long_prefill_token_threshold": 2048, "block_size": 64,
      "cudagraph_mode": "none"}),
    ("-tp 4 --enable-expert-parallel --cudagraph-capture-sizes [1,2,32] --gpu-memory-utilization 0.8",
     {"tensor_parallel_size": 4, "expert_parallel": True, "max_cudagraph_capture_size": 32,
      "gpu_memory_utilization": 0.8})])
def test_a_launch_is_read_and_written_back(words: str, options: dict[str, object]) -> None:
    found = read_launch(f"{SERVER} {words}").options
    assert found == {"engine": "atom", "model": "deepseek-ai/DeepSeek-R1"} | options
    written, _ = launch_command(Scenario(**found))
    assert written.startswith(SERVER)
    again = read_launch(written).options
    assert {name: again.get(name, Scenario.__dataclass_fields__[name].default) for name in found} == found


def test_flags_are_answered_by_their_effect() -> None:
    found = read_launch(f"docker run rocm/atom:latest {SERVER} --enable-rapidserve --spec-decode-acceptance-rate 0.7")
    effects = dict(found.unmodelled)
    assert "two processes on one GPU" in effects["--enable-rapidserve"]
    assert "--speculative-acceptance" in effects["--spec-decode-acceptance-rate 0.7"]
    with pytest.raises(UsageError, match="is a benchmark, not a server"):
        read_launch("python -m atom.benchmarks.benchmark_serving --backend vllm --random-input-len 1024")


def test_its_defaults_are_in_force(tmp_path: Path) -> None:
    planner("replay", "chat", "--limit", 20, "--engine", "atom", "--model", "llama-3.1-8b", "--gpu", "mi355x", "--json",
            tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    limits = found["deployment"]["memory"]
    assert (limits["max_num_seqs"], found["policy"]["max_num_batched_tokens"]) == (512, 16384)
    assert found["policy"]["name"] == "atom"


@pytest.mark.parametrize(("options", "is_noted"), [
    ((), False), (("--pipeline-parallel-size", 2), True),
    (("--data-parallel-size", 2, "--data-parallel-attention"), True)])
def test_rules_that_are_not_modelled_are_named(options: tuple[object, ...], is_noted: bool) -> None:
    run = planner("replay", "chat", "--limit", 20, "--engine", "atom", "--model", "qwen3-30b-a3b", "--gpu", "mi355x",
                  *options)
    assert run.returncode == 0, run.stderr
    assert ("note: atom: pipelines and the prefill delayer are not modelled" in run.stderr) == is_noted


def test_a_preemption_costs_the_client_a_token() -> None:
    """Two requests of 26 tokens outgrow 15 blocks of 4; the newer yields twice and ends two tokens short."""
    result = play(trace_of([(0.0, 16, 26), (0.0, 12, 26)], max_output_tokens=[26, 26]), engine="atom",
                  step_time="linear:0.02,0.00005", async_scheduling=True, num_gpu_blocks=15, block_size=4,
                  enable_prefix_caching=False)
    table = result.requests_table()
    lost = [26 - tokens for tokens in table["output_tokens"]]
    assert lost == table["num_preemptions"].to_list() == [0, 2]
    assert table["input_tokens"].to_list() == [16, 12]


def test_a_scrape_of_its_metrics_is_compared(tmp_path: Path) -> None:
    (tmp_path / "metrics.prom").write_text("\n".join((
        'atom:time_to_first_token_seconds_bucket{le="0.1",streaming="true"} 40',
        'atom:time_to_first_token_seconds_count{streaming="true"} 40',
        'atom:time_to_first_token_seconds_sum{streaming="true"} 2.0',
        'atom:inter_token_latency_seconds_bucket{le="0.01"} 4000', "atom:inter_token_latency_seconds_count 4000",
        "atom:inter_token_latency_seconds_sum 20", "atom:prompt_tokens_total 32000",
        "atom:generation_tokens_total 4000", "")))
    out = tmp_path / "predicted.csv"
    planner("validate", tmp_path / "metrics.prom", "--engine", "atom", "--model", "llama-3.1-8b", "--gpu", "mi355x",
            "--max-concurrency", 4, "--predictions", out)
    row = pl.read_csv(out).row(0, named=True)
    assert (row["engine"], row["measured_ttft_ms"], row["measured_itl_ms"]) == ("atom", 50.0, 5.0)


@pytest.mark.slow
def test_its_measured_runs_are_predicted(tmp_path: Path) -> None:
    """InferenceX's runs of DeepSeek-R1 on MI355X; no constant of ATOM has seen them."""
    source = SHARED / "measured" / "inferencex_api_closed_loop.csv"
    if not source.exists():
        pytest.skip(f"no {source}; PLANNER_SHARED names the folder above measured/")
    rows = pl.read_csv(source, infer_schema_length=None).filter(pl.col("engine") == "atom")
    rows.write_csv(tmp_path / "runs.csv")
    errors = [abs(predict(run).predicted["mean_tpot_ms"] / run.measured["mean_tpot_ms"] - 1)
              for run in read_measured(tmp_path / "runs.csv")]
    assert len(errors) == 15
    assert sum(errors) / len(errors) < 0.12
