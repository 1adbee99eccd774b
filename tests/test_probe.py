"""Benchmarks that test a capacity: their loads, their commands, and the verdict on what they measured."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import H100, Run, fails, planner

SLO = ("--slo", "ttft:500 tpot:50")
ASKED = ("chat", "--limit", "1500", *H100, *SLO)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("probe")
    run = planner("probe", *ASKED, "--json", folder / "answer.json", "--script", folder / "probe.sh")
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    script = (folder / "probe.sh").read_text().splitlines()
    assert script[0] == "#!/usr/bin/env bash"
    assert [line for line in script if not line.startswith(("#", "set"))] == [
        each["command"] for each in found["benchmarks"]]
    return found


def verdict(answer: dict[str, Any], folder: Path, factor: float) -> dict[str, Any]:
    """Return what `planner validate` says of results that are so many times the expected ones."""
    results = []
    for each in answer["benchmarks"]:
        expected, count = each["expected"], each["num_prompts"]
        results.append(json.dumps({
            "duration": count / expected["request_throughput"] * factor, "completed": count, "num_prompts": count,
            "total_input_tokens": count * each["random_input_len"], "max_concurrency": each["max_concurrency"],
            "total_output_tokens": count * each["random_output_len"], "request_rate": "inf",
            "mean_ttft_ms": expected["mean_ttft_ms"] * factor,
            "mean_tpot_ms": expected.get("mean_tpot_ms", 0.0) * factor}))
    (folder / "probe.json").write_text("\n".join(results))
    words = [str(folder / word) if word == "probe.json" else word for word in shlex.split(answer["verdict"])[1:]]
    run: Run = planner(*words, "--json", folder / "verdict.json")
    found: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    assert run.returncode == (0 if found["met"] else 1), run.stderr
    assert ("refuted: " in run.stdout) != found["met"]
    return found


def test_one_request_prompts_alone_and_the_capacity_are_tested(answer: dict[str, Any]) -> None:
    alone, prompts, capacity = answer["benchmarks"]
    assert [each["name"] for each in answer["benchmarks"]] == ["alone", "prompts", "capacity"]
    assert (alone["max_concurrency"], alone["num_prompts"], prompts["random_output_len"]) == (1, 10, 1)
    assert prompts["max_concurrency"] == capacity["max_concurrency"] == round(answer["in_flight"])
    assert capacity["random_input_len"] == alone["random_input_len"] == prompts["random_input_len"]
    assert "mean_tpot_ms" not in prompts["expected"]
    assert alone["expected"]["mean_tpot_ms"] < capacity["expected"]["mean_tpot_ms"] < 50
    for each in answer["benchmarks"]:
        for name, (low, high) in each["intervals"].items():
            assert 0 < low < high, name


def test_in_flight_is_littles_law(answer: dict[str, Any]) -> None:
    """The capacity's loop has as many requests, so with mean lengths it serves about the capacity, and no less."""
    rate = answer["benchmarks"][2]["expected"]["request_throughput"]
    assert answer["capacity_rps"] < rate < 1.5 * answer["capacity_rps"]


def test_the_commands_are_the_clients(answer: dict[str, Any]) -> None:
    words = shlex.split(answer["benchmarks"][2]["command"])
    assert words[:3] == ["vllm", "bench", "serve"]
    options = dict(itertools.pairwise(words[3:]))
    assert options["--max-concurrency"] == str(answer["benchmarks"][2]["max_concurrency"])
    assert options["--model"] == "meta-llama/Llama-3.1-8B"
    assert answer["verdict"] == "planner validate probe.json --model llama-3.1-8b --gpu h100-sxm --interval 0.8"
    assert answer["launch"] == "vllm serve meta-llama/Llama-3.1-8B"


def test_results_as_expected_confirm_and_others_refute(answer: dict[str, Any], tmp_path: Path) -> None:
    confirmed, refuted = (verdict(answer, tmp_path, factor) for factor in (1.0, 1.6))
    assert confirmed["interval"]["coverage"]["mean_ttft_ms"] == confirmed["interval"]["coverage"]["mean_tpot_ms"] == 1.0
    assert refuted["interval"]["coverage"]["mean_ttft_ms"] == refuted["interval"]["coverage"]["mean_tpot_ms"] == 0.0
    assert confirmed["met"]
    assert not any(row["outside"] for row in confirmed["rows"])
    assert not refuted["met"]
    assert all({"mean_ttft_ms"} <= set(row["outside"]) for row in refuted["rows"])


def test_other_engines_take_the_same_client() -> None:
    run = planner("probe", *ASKED, "--engine", "sglang", "--interval", "0.5", "--results", "r.json")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("vllm bench serve --backend openai") == 3
    assert "(50 %)" in run.stdout
    assert run.stdout.rstrip().endswith("--engine sglang --interval 0.5")


def test_the_answer_does_not_go_where_the_benchmarks_write() -> None:
    fails(planner("probe", *ASKED, "--json", "probe.json"), 2, "the benchmarks append their results to this file")


def test_what_has_no_capacity_is_not_tested() -> None:
    fails(planner("probe", "chat", "--limit", "50", *H100, "--slo", "ttft:1"), 2, "no rate meets the objectives")
    fails(planner("probe", "chat", "--step-time", "linear:0.01,0.0001", "--num-gpu-blocks", "1000", *SLO), 2,
          "--model and --gpu must be given")
