"""Laws of recommendations: each starts by its engine's own checks, and its replay line gives its numbers.

A hundred random deployments stand for the three hundred of PLANNER_LAWS=all.
"""

import json
import math
import random
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import HEADER, planner
from helpers import leave_out_headroom, num_drawn

from planner.catalog.catalog_files import load_gpu
from planner.errors import PlannerError
from planner.launch import read_launch
from planner.loop.state.engine_settings import Recording
from planner.planning.capacity import capacity
from planner.planning.search_options import Choices, Search
from planner.planning.size_answer import Fleet
from planner.planning.sizing import size
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace

MODELS = ("qwen3-32b", "llama-3.1-8b", "llama-3.3-70b", "Qwen/Qwen3-32B-AWQ", "qwen3-30b-a3b", "gpt-oss-20b",
          "gpt-oss-120b", "gemma-3-27b", "gemma-3-12b", "qwen3.5-27b", "qwen3.5-35b-a3b", "mistral-small-24b",
          "qwen2.5-7b", "phi-4-mini", "glm-4.5-air", "nemotron-3-nano-30b-a3b", "deepseek-v2-lite", "command-r-08-2024")
GPUS = ("h100-sxm", "h200-sxm", "a100-sxm", "a100-sxm-40gb", "l40s", "l4", "rtx-4090", "b200-sxm", "mi300x", "a10g")
OBJECTIVES = "ttft:60000 tpot:2000"
NUM_CASES, GROUPS = num_drawn(100, 300), 5
LEAST_ANSWERS = 0.4 * NUM_CASES / GROUPS  # a deployment that cannot start has no answer


class Recommended(NamedTuple):
    """A deployment that an answer recommends, its replay line, and the numbers that the line must give."""

    scenario: Scenario
    line: str | None
    summary: dict[str, float | None]


def drawn(seed: int, folder: Path) -> tuple[Trace, dict[str, Any]]:
    """Return a short log and the options of a random deployment."""
    dice = random.Random(seed)
    longest = dice.choice((500, 4_000, 20_000, 60_000))
    rows = [(0.5 * k, dice.randint(20, longest), dice.randint(2, 30)) for k in range(12)]
    engine = dice.choice(("vllm", "vllm", "vllm", "sglang", "trtllm"))
    options: dict[str, Any] = {"model": dice.choice(MODELS), "gpu": dice.choice(GPUS), "engine": engine,
                               "tensor_parallel_size": dice.choice((1, 1, 2, 4, 8))}
    flags = {"max_num_seqs": (16, 256, 1024), "max_num_batched_tokens": (512, 2048, 16_384, 65_536),
             "enable_chunked_prefill": (True, False), "gpu_memory_utilization": (0.7, 0.8, 0.95),
             "kv_cache_dtype": ("fp8",), "max_model_len": (4096, 32_768, 100_000), "num_speculative_tokens": (2,),
             "engine_version": ("0.10.0", "0.21.0", "0.28.0") if engine == "vllm" else (None,)}
    options |= {name: dice.choice(values) for name, values in flags.items() if dice.random() < 0.2}
    path = folder / f"{seed}.csv"
    path.write_text(HEADER + "".join(f"{at},{prompt},{answer}\n" for at, prompt, answer in rows))
    return read_trace(str(path)), options


def starts(deployment: Mapping[str, Any], policy: Mapping[str, Any]) -> str | None:
    """Return the check of vLLM that a reported deployment fails, None if none.

    The KV cache must hold one request of the longest context (`_check_enough_kv_cache_memory`), with its states and
    windows, and a step must hold the decodes, and whole prompts if they are not cut (`verify_max_model_len`).
    """
    if deployment["engine"] != "vllm":
        return None
    length, memory = deployment["max_model_len"], deployment["memory"]
    blocks = math.ceil(length / deployment["block_size"]) + memory["state_blocks"]
    windows = memory["windows"]
    if windows["window_tokens"]:
        page, seen = windows["window_page_size"], windows["window_tokens"] + windows["window_chunk"]
        pages = min(math.ceil(length / page), (seen - 2 + page) // page + 1)
        block_bytes = math.ceil(windows["block_size"] * windows["bytes_per_token"])
        blocks += math.ceil(pages * windows["window_page_bytes"] / block_bytes)
    tokens = policy["max_num_batched_tokens"]
    if blocks > deployment["num_gpu_blocks"]:
        return f"{blocks} blocks for {length} tokens, of {deployment['num_gpu_blocks']}"
    if tokens and tokens < policy["max_num_seqs"]:
        return f"steps of {tokens} tokens for {policy['max_num_seqs']} sequences"
    if tokens and not policy["enable_chunked_prefill"] and tokens < length:
        return f"steps of {tokens} tokens for prompts of {length}"
    return None


def recommended(trace: Trace, options: Mapping[str, Any], asks_for_size: bool) -> list[Recommended]:
    """Return the deployments that an answer recommends, as their launch commands or resolved options say."""
    gpu, ranks = options["gpu"], options["tensor_parallel_size"]
    objectives = parse_objectives(OBJECTIVES, 0.9)
    if not asks_for_size:
        answer = capacity(trace, Scenario(**options), objectives, Search(replicates=0, compare_assumptions=False,
                                                                          horizon="trace"))
        found = answer.deployment["max_model_len"]
        assert answer.deployment["num_gpu_blocks"] > 0
        return [Recommended(scenario=Scenario(**{**options, "max_model_len": found}), line=answer.replay_command,
                            summary={"slo_attainment": answer.attainment_at_capacity})] if answer.feasible else []
    scenario = Scenario(**{name: value for name, value in options.items() if name != "tensor_parallel_size"})
    sized = size(trace, scenario, objectives, Choices(gpus=[gpu], ranks=[ranks], compare_assumptions=False, jobs=1))
    kept = {name: options[name] for name in ("engine_version",) if name in options}
    return [Recommended(
        scenario=Scenario(**{**read_launch(fleet.command).options, **kept, "gpu": load_gpu(gpu).name}),
        line=fleet.replay_command,
        summary={"slo_attainment": fleet.attainment, "p99_ttft_ms": fleet.p99_ttft_ms,
                 "p99_tpot_ms": fleet.p99_tpot_ms, "request_throughput": fleet.replay_rate})
            for fleet in sized.alternatives if isinstance(fleet, Fleet)]


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_recommended_would_start(group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_headroom(monkeypatch)
    count = 0
    for seed in range(group, NUM_CASES, GROUPS):
        trace, options = drawn(seed, tmp_path)
        try:
            answers = recommended(trace, options, asks_for_size=seed % 20 < 10)
        except PlannerError:  # nothing is recommended
            continue
        for scenario, line, numbers in answers:
            summary = replay(trace, scenario, recording=Recording()).summary
            assert starts(summary["deployment"], summary["policy"]) is None, (seed, options)
            assert summary["would_not_start"] is None, (seed, options)
            assert line is not None, (seed, options)
            run = planner(*shlex.split(line)[1:], "--json", "-")
            replayed = json.loads(run.stdout)
            assert {name: replayed[name] for name in numbers} == numbers, (seed, line, run.stderr)
            count += 1
    assert count >= LEAST_ANSWERS
