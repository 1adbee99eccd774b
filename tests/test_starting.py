"""A deployment that its engine would refuse is no answer: the context limit is lowered, or the reason is said."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import planner
from helpers import trace_of

from planner.deployment.deploy import resolve
from planner.deployment.starting import refusals, startable
from planner.errors import CapacityError
from planner.planning.gate import check
from planner.planning.grid import plan_sweep
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, UnableFleet
from planner.planning.sizing import size
from planner.planning.sweeping import describe, sweep
from planner.report.sweep_tables import sweep_table
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario

QWEN: dict[str, Any] = {"model": "qwen3-32b", "gpu": "h100-sxm"}  # 34,288 tokens of KV cache, a context of 40,960
SHORT = trace_of([(0.5 * k, 1000, 20) for k in range(20)])
CSV = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{0.5 * k},1000,20\n" for k in range(20))
SLO = ("--slo", "ttft:5000 tpot:200")
LOWERED = ("--max-model-len 30720 lowers the context limit so that the engine starts: vLLM's KV cache holds 34,288 "
           "tokens, less than max_model_len = 40,960; no request is longer than 1,020 tokens")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "q.csv"
    path.write_text(CSV)
    return path


def replayed(answer: str) -> Any:
    """Return the run of the replay that an answer prints, which has the lowered limit."""
    line = next(line for line in answer.splitlines() if "planner replay" in line)
    words = shlex.split(line[line.index("planner replay"):])[1:]
    assert words[words.index("--max-model-len") + 1] == "30720"
    return planner(*words)


def reasons(**options: Any) -> list[str]:
    return [found.reason for found in refusals(resolve(Scenario(**QWEN | options), SHORT))]


def test_the_kv_cache_must_hold_the_longest_context() -> None:
    assert reasons() == ["vLLM's KV cache holds 34,288 tokens, less than max_model_len = 40,960"]
    assert reasons(max_model_len=34_288) == reasons(max_model_len=-1) == reasons(engine="sglang") == []
    assert reasons(max_model_len=34_289) == ["vLLM's KV cache holds 34,288 tokens, less than max_model_len = 34,289"]


def test_the_block_that_newer_releases_hold_back_counts() -> None:
    options: dict[str, Any] = {"num_gpu_blocks": 100, "max_model_len": 1600}
    assert reasons(engine_version="0.28.0", **options) == []
    assert reasons(**options) == ["vLLM's KV cache holds 1,584 tokens, less than max_model_len = 1,600"]


def test_states_of_linear_attention_take_their_blocks() -> None:
    options: dict[str, Any] = {"model": "qwen3.5-35b-a3b", "num_gpu_blocks": 100, "max_num_seqs": 16}
    most = (100 - 1 - 3) * 1056
    assert reasons(max_model_len=most, **options) == []
    assert reasons(max_model_len=most + 1, **options) == [
        f"vLLM's KV cache holds {most:,} tokens, less than max_model_len = {most + 1:,}"]


def test_a_step_must_hold_its_decodes_and_prompts_that_are_not_cut() -> None:
    fits: dict[str, Any] = {"max_model_len": 8192, "max_num_batched_tokens": 4096}
    assert reasons(**fits) == []
    assert reasons(**fits, enable_chunked_prefill=False) == [
        "vLLM is without chunked prefill, and max_num_batched_tokens = 4,096 is less than max_model_len = 8,192"]
    assert reasons(**fits | {"max_num_batched_tokens": 512}, max_num_seqs=1024) == [
        "vLLM's max_num_batched_tokens = 512 is less than max_num_seqs = 1,024"]


def test_a_limit_is_lowered_as_far_as_the_requests_allow() -> None:
    found = startable(Scenario(**QWEN), SHORT)
    assert (found.scenario.max_model_len, found.lowered) == (30_720, LOWERED)
    long = startable(Scenario(**QWEN), trace_of([(0.0, 34_000, 100)]))
    assert long.scenario.max_model_len == 34_100  # a tenth of the KV cache is not held back
    beyond = startable(Scenario(**QWEN | {"gpu": "h200-sxm"}), trace_of([(0.0, 50_000, 100)]))
    assert (beyond.scenario.max_model_len, beyond.lowered) == (None, None)


def test_a_limit_that_is_given_stays() -> None:
    with pytest.raises(CapacityError, match="would not start as launched: vLLM's KV cache holds 34,288 tokens, less "
                                            "than max_model_len = 40,000; lower --max-model-len"):
        startable(Scenario(**QWEN, max_model_len=40_000), SHORT)


def test_requests_that_no_limit_holds_are_counted() -> None:
    rows = trace_of([(0.0, 1000, 20), (1.0, 38_000, 100), (2.0, 1000, 20)])
    with pytest.raises(CapacityError, match="the longest request of test has 38,100; with --max-model-len 34288 it "
                                            "starts, and rejects or cuts 1 of 3 requests"):
        startable(Scenario(**QWEN), rows)


def test_size_launches_what_starts_and_leaves_out_what_does_not(log: Path, tmp_path: Path) -> None:
    manifest, answer = tmp_path / "k8s.yaml", tmp_path / "size.json"
    run = planner("size", log, "--model", "qwen3-32b", "--gpu", "h100-sxm", "--tensor-parallel-size", "1", *SLO,
                  "--no-compare-assumptions", "--json", answer, "--write", f"k8s={manifest}")
    assert run.returncode == 0, run.stderr
    assert f"launch: vllm serve Qwen/Qwen3-32B --max-model-len 30720\n{LOWERED}\n" in run.stdout
    assert replayed(run.stdout).returncode == 0
    cheapest = json.loads(answer.read_text())["alternatives"][0]
    assert (cheapest["command"], cheapest["lowered"]) == ("vllm serve Qwen/Qwen3-32B --max-model-len 30720", LOWERED)
    command = yaml.safe_load(manifest.read_text())["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--max-model-len", "30720"]
    given = size(SHORT, Scenario(model="qwen3-32b", max_model_len=40_960), parse_objectives("ttft:5000", 0.99),
                 Choices(gpus=["h100-sxm", "h200-sxm"], ranks=[1], compare_assumptions=False, jobs=1))
    by_gpu = {fleet.kind.gpu: fleet for fleet in given.alternatives}
    assert isinstance(by_gpu["h200-sxm"], Fleet)
    unable = by_gpu["h100-sxm"]
    assert isinstance(unable, UnableFleet)
    assert unable.reason.startswith("would not start as launched: vLLM's KV cache holds 34,288 tokens")


def test_prefill_and_decode_replicas_have_one_limit() -> None:
    found = size(SHORT, Scenario(model="qwen3-32b"), parse_objectives("ttft:5000", 0.99),
                 Choices(gpus=["h200-sxm"], decode_gpus=["h100-sxm"], ranks=[1], decode_ranks=[1], disaggregate=True,
                         compare_assumptions=False, jobs=1))
    fleet = next(each for each in found.alternatives if isinstance(each, Fleet) and each.decode_command)
    assert (fleet.command, fleet.decode_command) == ("vllm serve Qwen/Qwen3-32B --max-model-len 30720",) * 2


def test_share_launches_what_starts(log: Path) -> None:
    cluster = log.with_name("cluster.toml")
    cluster.write_text(f'[gpus]\nh100-sxm = 4\n[deployment.big]\ntrace = "{log}"\nmodel = "qwen3-32b"\n'
                       'slo = "ttft:5000 tpot:200"\nattainment = 0.99\ntensor_parallel_size = 1\n')
    run = planner("share", cluster)
    assert run.returncode == 0, run.stderr
    assert "big: vllm serve Qwen/Qwen3-32B --max-model-len 30720" in run.stdout
    assert f"big: {LOWERED}" in run.stdout
    cluster.write_text(cluster.read_text() + "max_model_len = 40960\n")
    assert "1 × h100-sxm bf16: would not start as launched: vLLM's KV cache holds" in planner("share", cluster).stderr


def test_compare_names_the_candidate_that_would_not_start(log: Path) -> None:
    run = planner("compare", log, "--model", "qwen3-32b", "--gpu", "h100-sxm,h200-sxm", *SLO)
    assert "would not start: h100-sxm\n" in run.stdout
    assert "cheapest" not in run.stdout
    assert "note: h100-sxm: would not start as launched" in run.stderr


def test_capacity_says_the_limit_that_it_rests_on(log: Path, tmp_path: Path) -> None:
    options = ("--model", "qwen3-32b", "--gpu", "h100-sxm", *SLO, "--replicates", "0", "--no-compare-assumptions")
    run = planner("capacity", log, *options, "--json", tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    assert f"\n{LOWERED}\n" in run.stdout
    assert json.loads((tmp_path / "c.json").read_text())["lowered"] == LOWERED
    assert replayed(run.stdout).returncode == 0
    assert json.loads((tmp_path / "c.json").read_text())["deployment"]["max_model_len"] == 30_720
    run = planner("capacity", log, *options, "--max-model-len", "40960")
    assert run.returncode == 3
    assert "would not start as launched" in run.stderr


def test_probe_launches_what_starts(log: Path) -> None:
    run = planner("probe", log, "--model", "qwen3-32b", "--gpu", "h100-sxm", *SLO)
    assert run.returncode == 0, run.stderr
    assert "launch: vllm serve Qwen/Qwen3-32B --max-model-len 30720" in run.stdout
    assert f"note: {LOWERED}" in run.stderr


def test_a_sweep_replays_what_starts(tmp_path: Path) -> None:
    plan = plan_sweep("q", Scenario(**QWEN), {"max_num_seqs": [64, 1024], "max_num_batched_tokens": [512, 2048]})
    table = sweep(plan, tmp_path / "s.parquet", trace=SHORT, jobs=1)
    rows = {(row["max_num_seqs"], row["max_num_batched_tokens"]): row for row in table.iter_rows(named=True)}
    assert "max_num_batched_tokens = 512 is less than max_num_seqs = 1,024" in rows[1024, 512]["status"]
    assert ("1 of 4 (max_num_seqs = 1024, max_num_batched_tokens = 512): would not start" in
            str(sweep_table(describe(plan, tmp_path / "s.parquet", table))))
    assert rows[1024, 2048]["max_model_len"] == 30_720
    assert LOWERED.replace("34,288", "34,768") in rows[1024, 2048]["notes"].replace("34,288", "34,768")


def test_check_misses_the_targets_of_what_does_not_start(log: Path) -> None:
    targets = log.with_name("targets.toml")
    targets.write_text(f'[scenario.a]\ntrace = "{log}"\nmodel = "qwen3-32b"\ngpu = "h100-sxm"\n'
                       '[[scenario.a.target]]\nmetric = "p99_ttft_ms"\nmax = 60000\n')
    found = check(targets)
    assert not found.met
    assert (found.checks[0].reason or "").startswith("would not start as launched: vLLM's KV cache holds 34,288 tokens")
    targets.write_text(targets.read_text().replace('gpu = "h100-sxm"\n', 'gpu = "h100-sxm"\nmax_model_len = 8192\n'))
    assert check(targets).met


def test_a_replay_says_first_that_the_engine_would_not_start(log: Path) -> None:
    options = ("--model", "qwen3-32b", "--gpu", "h100-sxm")
    run = planner("replay", log, *options)
    assert run.returncode == 1
    assert run.stdout.splitlines()[1].startswith("would not start as launched: vLLM's KV cache holds 34,288 tokens")
    told = planner("replay", log, *options, "--ignore-start-refusal")
    assert (told.returncode, told.stdout.splitlines()[1]) == (0, run.stdout.splitlines()[1])
    assert replay(SHORT, Scenario(**QWEN)).summary["would_not_start"] == run.stdout.splitlines()[1]
    assert replay(SHORT, Scenario(**QWEN, max_model_len=8192)).summary["would_not_start"] is None


def test_a_replay_says_first_that_nothing_is_completed(log: Path) -> None:
    run = planner("replay", log, "--model", "qwen3-32b", "--gpu", "h100-sxm", "--max-model-len", "100")
    assert run.returncode == 1
    assert run.stdout.splitlines()[1] == (
        "0 of 20 requests served; 20 rejected: longer than the context of 100 tokens")
    run = planner("compare", log, "--model", "qwen3-32b", "--gpu", "h100-sxm", "--max-model-len", "100,8192")
    assert run.returncode == 0
    assert run.stdout.startswith("max_model_len=100: 0 of 20 requests served")
