"""A layout: the sizes that follow from its own, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.memory import layers_bytes
from planner.engines import ENGINES
from planner.errors import CatalogError, UsageError
from planner.model.layout import Layout
from planner.model.spread import check_heads, layout_of
from planner.settings.scenario import Scenario


def test_sizes_follow() -> None:
    layout = Layout(tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=2, expert_parallel_size=4)
    assert (layout.num_gpus, layout.num_expert_gpus, layout.expert_tensor_parallel_size) == (16, 8, 2)
    assert (Layout().num_gpus, Layout().expert_tensor_parallel_size) == (1, 1)


@pytest.mark.parametrize("name", [name for name in Layout.__slots__ if name.endswith("_size")])
def test_sizes_are_at_least_one(name: str) -> None:
    sizes: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError, match=f"{name} = 0; must be at least 1"):
        Layout(**sizes)


@pytest.mark.parametrize(("engine", "gpu", "ranks", "options", "exchange"), [
    ("trtllm", "gb200", 16, {}, "nvlink_one_sided"), ("trtllm", "gb300", 32, {}, "nvlink_one_sided"),
    ("trtllm", "gb200", 8, {}, "allgather_reducescatter"), ("trtllm", "b200-sxm", 16, {}, "allgather_reducescatter"),
    ("vllm", "gb200", 16, {}, "allgather_reducescatter"),
    ("trtllm", "gb200", 16, {"all2all_backend": "allgather_reducescatter"}, "allgather_reducescatter"),
    ("trtllm", "gb200", 16, {"expert_tensor_parallel_size": 2}, "allgather_reducescatter")])
def test_tensorrt_llm_sends_tokens_over_the_nvlink_of_a_rack(engine: str, gpu: str, ranks: int, options: dict[str, Any],
                                                             exchange: str) -> None:
    """If more GPUs share the experts than a token visits, eight of DeepSeek's; an explicit choice is kept."""
    scenario = Scenario(model="deepseek-v3", engine=engine, gpu=gpu, data_parallel_attention=True,
                        data_parallel_size=ranks, expert_parallel=True, **options)
    assert layout_of(scenario, load_model("deepseek-v3"), load_gpu(gpu)).exchange == exchange


def test_a_wait_is_not_negative() -> None:
    with pytest.raises(UsageError, match="attention_dp_timeout_iters = -1; must be at least 0"):
        Layout(attention_dp_timeout_iters=-1)


@pytest.mark.parametrize("size", [3, 16])
def test_experts_are_spread_evenly_over_the_gpus_there_are(size: int) -> None:
    with pytest.raises(UsageError, match=f"expert_parallel_size = {size}; must divide the 8 GPUs"):
        Layout(tensor_parallel_size=4, data_parallel_size=2, expert_parallel_size=size)


@pytest.mark.parametrize(("model", "ranks"), [("qwen2.5-0.5b", 4), ("llama-3.1-8b", 3), ("llama-3.1-8b", 64),
                                              ("phi-4", 4), ("qwen3.5-27b", 16), ("deepseek-v4-flash", 16)])
def test_heads_that_ranks_do_not_divide_are_refused(model: str, ranks: int) -> None:
    with pytest.raises(CatalogError, match=f"tensor_parallel_size = {ranks}: {model} has .* give a divisor of"):
        check_heads(load_model(model), Layout(tensor_parallel_size=ranks), ENGINES["vllm"])
    check_heads(load_model(model), Layout(tensor_parallel_size=2), ENGINES["vllm"])


@pytest.mark.parametrize("sizes", [{"tensor_parallel_size": 8, "expert_parallel_size": 8}, {"data_parallel_size": 8}])
def test_tokens_are_sent_where_ranks_have_their_own_and_experts_are_whole(sizes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--all2all-backend deepep: .* and --expert-parallel"):
        Layout(**sizes, exchange="deepep")


def test_experts_are_spread_over_some_of_the_gpus_and_sliced_over_the_others() -> None:
    """A GPU's experts take the same memory, however they are divided."""
    arch = load_model("qwen3-30b-a3b")
    scenario = Scenario(tensor_parallel_size=8, expert_parallel=True)
    layouts = [layout_of(replace(scenario, expert_tensor_parallel_size=size), arch, None) for size in (1, 2, 8)]
    assert [(layout.expert_parallel_size, layout.expert_tensor_parallel_size) for layout in layouts] == [
        (8, 1), (4, 2), (1, 8)]
    assert len({layers_bytes(arch, "bf16", layout) for layout in layouts}) == 1
    with pytest.raises(UsageError, match="expert_tensor_parallel_size = 3; must divide the 8 GPUs"):
        layout_of(replace(scenario, expert_tensor_parallel_size=3), arch, None)
    with pytest.raises(UsageError, match="expert_tensor_parallel_size = 2: every GPU holds a slice"):
        layout_of(Scenario(tensor_parallel_size=8, expert_tensor_parallel_size=2), arch, None)
