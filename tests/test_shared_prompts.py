"""Prefill context parallelism: laws, a published pair of runs, and what is asked, refused and read."""

from dataclasses import replace
from typing import Any

import pytest
from helpers import trace_of
from steps import seconds, stack_of, step, terms_of

from planner.deployment.deploy import Deployment, deploy
from planner.errors import UsageError
from planner.launch.read_command import read_launch
from planner.launch.write_command import launch_command
from planner.model.layout import Layout
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.step_context import StepContext

SHARED: dict[str, Any] = {
    "model": "deepseek-v4-pro", "gpu": "mi355x", "engine": "sglang", "max_num_batched_tokens": 8192,
    "max_num_seqs": 256, "gpu_memory_utilization": 0.85, "max_cudagraph_capture_size": 64}
READ = ("tensor_parallel_size", "prefill_context_parallel_size", "data_parallel_size", "expert_parallel",
        "all2all_backend")


def shared(shares: int, *, model: str = "deepseek-v3.2", ranks: int = 1, **changes: Any) -> StepContext:
    layout = Layout(tensor_parallel_size=8 // shares // ranks, prefill_context_parallel_size=shares,
                    data_parallel_size=ranks, expert_parallel_size=8, **changes)
    return stack_of(model, "h200-sxm", "sglang", layout)


def deployed(**options: Any) -> Deployment:
    return deploy(Scenario(**SHARED | options))


def stack_with(**options: Any) -> StepContext:
    stack = deployed(**options).stack
    assert stack is not None
    return stack


def test_a_published_pair_of_runs() -> None:
    """DeepSeek-V4-Pro on eight MI355X, prompts of 8,192 tokens one at a time (sgl-project/sglang#34200).

    TTFT is 331 ms with tensor parallelism and 235 ms with shared prompts; TPOT is 2 to 37 % longer, for 1 to 48 users.
    """
    def ttft_ms(**options: Any) -> float:
        found = replay(trace_of([(10.0 * k, 8192, 2) for k in range(3)]), Scenario(**SHARED | options))
        return float(found.summary["mean_ttft_ms"])

    assert ttft_ms(prefill_context_parallel_size=8) == pytest.approx(235, rel=0.1)
    assert ttft_ms(prefill_context_parallel_size=8) < 0.75 * ttft_ms(tensor_parallel_size=8)
    apart, together = stack_with(tensor_parallel_size=8), stack_with(prefill_context_parallel_size=8)
    for decodes in (1, 16, 48):
        assert 1.02 < seconds(together, step(0, decodes, 8700)) / seconds(apart, step(0, decodes, 8700)) < 1.37


@pytest.mark.parametrize("shares", [2, 4, 8])
@pytest.mark.parametrize("exchange", ["allgather_reducescatter", "deepep_high_throughput"])
def test_prompts_are_shared_and_decodes_are_not(shares: int, exchange: str) -> None:
    """Against the same groups as ranks with whole prompts: a share of the time, and the reads of the context."""
    together = shared(shares, exchange=exchange)
    alone = replace(together, layout=Layout(tensor_parallel_size=8 // shares))
    whole, part = terms_of(alone, step(16384, cached=16384)), terms_of(together, step(16384, cached=16384))
    assert whole["attention_prompt_s"] / shares < part["attention_prompt_s"] < whole["attention_prompt_s"]
    assert whole["linear_s"] / shares <= part["linear_s"] * (1 + 1e-9) < whole["linear_s"]
    assert terms_of(together, step(0, 64, 4000))["attention_decode_s"] == terms_of(
        alone, step(0, 64, 4000))["attention_decode_s"]
    assert part["collectives_s"] > 0.0


def test_more_groups_share_prompts_faster() -> None:
    times = [seconds(shared(shares), step(32768)) for shares in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)


def test_a_group_has_all_of_the_cache_and_its_own_weights_of_attention() -> None:
    apart, together = deployed(tensor_parallel_size=8), deployed(prefill_context_parallel_size=8)
    assert together.layout.num_gpus == apart.layout.num_gpus == 8
    assert together.memory is not None
    assert apart.memory is not None
    assert together.memory.kv_bytes_per_token == apart.memory.kv_bytes_per_token  # MLA's latent is on all GPUs
    assert together.memory.weight_bytes > apart.memory.weight_bytes


@pytest.mark.parametrize("shares", [2, 4])
def test_groups_of_vllm_divide_the_cache_of_any_number_of_kv_heads(shares: int) -> None:
    """They are other GPUs, so no KV head is on several: that is asked for by decode context parallelism."""
    two = {"model": "llama-3.1-8b", "engine": "vllm", "tensor_parallel_size": 2}
    whole, part = deployed(**two).memory, deployed(**two, prefill_context_parallel_size=shares).memory
    assert whole is not None
    assert part is not None
    assert part.kv_bytes_per_token * shares == whole.kv_bytes_per_token


@pytest.mark.parametrize(("options", "message"), [
    ({"engine": "trtllm"}, "TensorRT-LLM has it in a form that is not modelled"),
    ({"engine": "vllm"}, "attend to all of the context"),
    ({"model": "qwen3-next-80b-a3b", "gpu": "h200-sxm"}, "linear attention take a prompt's tokens one after the other"),
    ({"prefill_context_parallel_size": 0}, "must be at least 1"),
])
def test_shares_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        deployed(**{"prefill_context_parallel_size": 8} | options)


@pytest.mark.parametrize(("flags", "expected"), [
    ("--tp 8 --enable-prefill-cp --cp-strategy interleave --attn-cp-size 8",
     {"tensor_parallel_size": 1, "prefill_context_parallel_size": 8}),
    ("--tp 8 --attn-cp-size 2", {"tensor_parallel_size": 4, "prefill_context_parallel_size": 2}),
    ("--tp 8 --moe-a2a-backend deepep --enable-nsa-prefill-context-parallel --nsa-prefill-cp-mode round-robin-split",
     {"tensor_parallel_size": 1, "prefill_context_parallel_size": 8, "expert_parallel": True,
      "all2all_backend": "deepep"}),
    ("--tp 8 --dp 2 --enable-dp-attention --ep 8 --enable-prefill-cp",
     {"tensor_parallel_size": 1, "prefill_context_parallel_size": 4, "data_parallel_size": 2, "expert_parallel": True}),
    ("--tp 8 --attn-cp-size 1", {"tensor_parallel_size": 8, "prefill_context_parallel_size": 1}),
])
def test_launch_commands_are_read_and_read_back(flags: str, expected: dict[str, Any]) -> None:
    found = read_launch(f"python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 {flags}")
    assert found.unmodelled == ()
    assert {name: found.options[name] for name in READ if name in found.options} == expected
    written, lacking = launch_command(Scenario(**found.options))
    assert lacking == ()
    again = read_launch(written).options
    assert Scenario(**again) == Scenario(**found.options)


def test_groups_that_do_not_divide_the_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="1 x 3 groups of GPUs"):
        read_launch("sglang serve --model m/m --tp 8 --attn-cp-size 3")


def test_vllms_groups_add_gpus_and_hold_a_part_of_each_context() -> None:
    found = read_launch("vllm serve deepseek-ai/DeepSeek-R1 -tp 8 -pcp 2 -dcp 8")
    assert found.unmodelled == ()
    scenario = Scenario(**found.options, gpu="h200-sxm", inter_node_bandwidth=50.0)
    groups, one = deploy(scenario), deploy(replace(scenario, prefill_context_parallel_size=1))
    assert (groups.layout.num_gpus, one.layout.num_gpus) == (16, 8)
    assert groups.memory is not None
    assert one.memory is not None
    assert groups.memory.kv_bytes_per_token == one.memory.kv_bytes_per_token / 2
    assert Scenario(**read_launch(launch_command(scenario)[0]).options) == Scenario(**found.options)


def test_vllms_groups_read_long_contexts_faster_and_pay_for_the_sums() -> None:
    def decode_s(context: int, shares: int) -> float:
        layout = Layout(tensor_parallel_size=4, prefill_context_parallel_size=shares, splits_cache=True)
        return terms_of(stack_of("deepseek-r1", "h200-sxm", "vllm", layout), step(0, 8, context))["attention_decode_s"]

    assert decode_s(100_000, 2) < decode_s(100_000, 1)
    assert decode_s(200, 2) > decode_s(200, 1)
