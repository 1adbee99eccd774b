"""Values of one engine do not cross to another: releases, policies, kernels and flags, in all commands."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import planner
from helpers import trace_of

from planner.errors import UsageError
from planner.planning.grid import plan_sweep
from planner.planning.study import read_study
from planner.planning.sweeping import sweep
from planner.settings.crossing import crossed
from planner.settings.scenario import Scenario

LAUNCH = ("docker run vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B --gpu-memory-utilization 0.95 "
          "--max-num-seqs 64 --scheduling-policy priority --long-prefill-token-threshold 512")
NOTE = ("SGLang is replayed without vLLM's policy = priority, engine_version = 0.11.0, gpu_memory_utilization = 0.95, "
        "long_prefill_token_threshold = 512; in their place: policy sglang, the newest release, the default "
        "gpu_memory_utilization, the default long_prefill_token_threshold")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "q.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,5\n")
    return path


def settings(row: dict[str, Any]) -> tuple[Any, ...]:
    deployment, policy = row["deployment"], row["policy"]
    return (deployment["engine"], deployment["engine_version"], policy["name"], policy["max_num_seqs"],
            policy["long_prefill_token_threshold"])


def test_compare_gives_each_engine_its_own_values(log: Path, tmp_path: Path) -> None:
    run = planner("compare", log, "--from-command", LAUNCH, "--engine", "vllm,sglang", "--gpu", "h100-sxm", "--json",
                  tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    first, second = json.loads((tmp_path / "c.json").read_text())
    assert settings(first) == ("vllm", "0.11.0", "priority", 64, 512)
    assert settings(second) == ("sglang", None, "sglang", 64, 0)
    assert second["deployment"]["gpu_memory_utilization"] != 0.95
    assert second["deployment"]["value_sources"]["gpu_memory_utilization"] == "engine"
    assert second["notes"][0] == NOTE
    assert f"note: engine=sglang: {NOTE}\n" in run.stderr
    assert not [note for note in first["notes"] if "replayed without" in note]


def test_a_value_that_is_given_for_the_other_engine_stays(log: Path, tmp_path: Path) -> None:
    run = planner("replay", log, "--from-command", LAUNCH, "--engine", "sglang", "--engine-version", "0.5.9",
                  "--gpu", "h100-sxm", "--json", tmp_path / "r.json")
    assert run.returncode == 0, run.stderr
    assert settings(json.loads((tmp_path / "r.json").read_text())) == ("sglang", "0.5.9", "sglang", 64, 0)
    assert "SGLang is replayed without vLLM's" in run.stderr
    assert "engine_version = 0.11.0" not in run.stderr


def test_single_values_beside_several_engines_are_the_first_ones(log: Path, tmp_path: Path) -> None:
    run = planner("compare", log, "--model", "qwen3-8b", "--gpu", "h100-sxm", "--engine", "sglang,vllm",
                  "--engine-version", "0.5.9", "--max-num-seqs", "32", "--json", tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    first, second = json.loads((tmp_path / "c.json").read_text())
    assert settings(first)[:2] == ("sglang", "0.5.9")
    assert settings(second)[:4] == ("vllm", None, "fcfs", 32)


def test_a_sweep_over_engines_gives_each_its_own_values(tmp_path: Path) -> None:
    fixed = Scenario(model="qwen3-8b", gpu="h100-sxm", engine="sglang", engine_version="0.5.9", schedule_policy="lpm")
    plan = plan_sweep("q", fixed, {"engine": ["vllm", "sglang"]})
    vllm, sglang = plan.points()
    assert (vllm.scenario.engine_version, vllm.scenario.schedule_policy) == (None, "fcfs")
    assert (sglang.scenario.engine_version, sglang.scenario.schedule_policy, sglang.notes) == ("0.5.9", "lpm", ())
    assert vllm.notes == ("vLLM is replayed without SGLang's engine_version = 0.5.9, schedule_policy = lpm; in their "
                          "place: the newest release, the default schedule_policy",)
    table = sweep(plan, tmp_path / "s.parquet", trace=trace_of([(0.0, 100, 5), (1.0, 100, 5)]), jobs=1)
    assert vllm.notes[0] in table.filter(engine="vllm")["notes"][0]


def test_releases_of_several_engines_are_refused(log: Path) -> None:
    run = planner("compare", log, "--model", "qwen3-8b", "--gpu", "h100-sxm", "--engine", "vllm,sglang",
                  "--engine-version", "0.11.0,0.5.9")
    assert run.returncode == 2
    assert "engine_version = 0.11.0, 0.5.9 beside engine = vllm, sglang: a release is of one engine" in run.stderr
    with pytest.raises(UsageError, match="a release is of one engine"):
        plan_sweep("q", Scenario(), {"engine": ["vllm", "sglang"], "engine_version": ["0.11.0", "0.5.9"]}).points()


def test_a_study_with_another_engine_than_its_command(log: Path) -> None:
    path = log.with_name("study.toml")
    path.write_text(f'trace = "{log}"\ngpu = "h100-sxm"\nengine = "sglang"\nfrom_command = "{LAUNCH}"\n')
    study = read_study(path)
    assert (study.scenario.engine, study.scenario.engine_version, study.scenario.policy) == ("sglang", None, None)
    assert any("engine_version = 0.11.0" in note for note in study.notes)


@pytest.mark.parametrize(("options", "owner", "engine", "kept"), [
    ({"policy": "sjf"}, "vllm", "sglang", {"policy": "sjf"}),  # a what-if of the planner, of no engine
    ({"policy": "trtllm-no-evict"}, "trtllm", "vllm", {}),
    ({"cudagraph_mode": "none"}, "vllm", "sglang", {"cudagraph_mode": "none"}),
    ({"cudagraph_mode": "piecewise"}, "vllm", "sglang", {}),
    ({"moe_backend": "marlin", "kv_cache_dtype": "fp8"}, "vllm", "sglang", {"kv_cache_dtype": "fp8"}),
    ({"decode_context_parallel_size": 2}, "vllm", "sglang", {"decode_context_parallel_size": 2}),
    ({"decode_context_parallel_size": 2}, "vllm", "trtllm", {}),
    ({"engine_version": "0.11.0"}, "vllm", "vllm", {"engine_version": "0.11.0"}),
])
def test_what_belongs_to_an_engine(options: dict[str, Any], owner: str, engine: str, kept: dict[str, Any]) -> None:
    found, notes = crossed(options, dict.fromkeys(options, owner), engine)
    assert found == kept
    assert len(notes) == (found != options)
