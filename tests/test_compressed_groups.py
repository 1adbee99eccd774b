"""vLLM's pool of KV blocks for compressed sparse attention: pages, the check at start-up, and what its log counts."""

import pytest
from helpers import trace_of

from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import deploy, resolve
from planner.deployment.starting import would_not_start
from planner.engines.compressed_groups import CompressedGroups, compressed_groups
from planner.errors import CapacityError
from planner.results.memory_notes import compressed_memory
from planner.settings.scenario import Scenario


def flash(in_flight: int, num_draft_layers: int = 0) -> CompressedGroups:
    return compressed_groups(load_model("deepseek-v4-flash"), 1.0, 1, num_draft_layers, in_flight)


def test_pages_are_those_that_vllm_prints() -> None:
    """vllm-project/vllm#54703 has these sums without the padding of rows: 870,912 and 656,640 B."""
    groups = flash(8192).groups
    assert [(group.page_bytes, group.page_tokens, group.window) for group in groups[:3]] == [
        (1_002_240, 256, 0), (823_680, 64, 128), (786_240, 64, 128)]
    assert [(group.page_tokens, group.window) for group in groups[3:]] == [(4, 8), (8, 128)]
    assert [group.page_bytes for group in groups[3:]] == [21 * (37_440 + 8_640), 20 * 37_440]


def test_a_draft_of_one_layer_has_a_window_in_the_same_groups() -> None:
    assert [group.page_bytes for group in flash(8192, 1).groups[1:3]] == [823_680, 823_680]
    assert flash(8192, 1).block_bytes == flash(8192).block_bytes


@pytest.mark.parametrize(("kv_gib", "length", "in_flight", "tokens", "concurrency"), [
    (7.71, 121_344, 16_384, 150_992, 1.24), (7.01, 912_128, 8_192, 1_009_661, 1.11)])
def test_the_log_of_two_h20_is_reproduced(kv_gib: float, length: int, in_flight: int, tokens: int,
                                          concurrency: float) -> None:
    """vllm-project/vllm#51041: two checkpoints with multi-token prediction; one has twice as much in flight."""
    groups = flash(in_flight, 1)
    num_blocks = int(kv_gib * 2**30) // groups.block_bytes
    assert groups.concurrency(num_blocks, length) == pytest.approx(concurrency, abs=0.005)
    assert groups.concurrency(num_blocks, length) * length == pytest.approx(tokens, rel=0.001)


def scenario(**changes: object) -> Scenario:
    options = {"model": "deepseek-v4-flash", "kv_cache_dtype": "fp8", "expert_parallel": True, "gpu": "gh200-96gb",
               "tensor_parallel_size": 2, "inter_node_bandwidth": 25.0, "max_model_len": 30_000,
               "kv_cache_memory_bytes": 5_841_155_522, "max_num_batched_tokens": 16_384, "engine_version": "0.22.0"}
    return Scenario(**(options | changes))  # type: ignore[arg-type]


def test_vllm_refuses_a_context_that_its_check_has_no_room_for() -> None:
    """vllm-project/vllm#44376: 6.66 GiB are needed, 5.44 available, and 13,528 tokens would fit."""
    trace = trace_of([(0.0, 512, 4)])
    refused = resolve(scenario(), trace)
    assert compressed_memory(refused) == []
    reason = would_not_start(refused)
    assert reason is not None
    assert "max_model_len = 30,000 needs 6.66 GiB of KV cache, and 5.44 GiB are available" in reason
    assert "lower --max-model-len to 13,524" in reason
    started = resolve(scenario(max_model_len=13_524), trace)
    assert would_not_start(started) is None
    [note] = compressed_memory(started)
    assert "counts 15,426 tokens of KV cache, which are 1.14 requests" in note
    [note] = compressed_memory(resolve(scenario(max_num_batched_tokens=8192), trace))
    assert "each with windows and compressor rows of 8,192 tokens in flight" in note
    two_steps = resolve(scenario(max_num_batched_tokens=8192, engine_version="0.26.0"), trace)
    assert would_not_start(two_steps) is not None


def test_the_context_is_fitted_by_the_same_check() -> None:
    fitted = deploy(scenario(max_model_len=-1)).settings.max_model_len
    assert fitted == pytest.approx(13_524, abs=300)  # whole blocks
    with pytest.raises(CapacityError, match="does not hold one token"):
        deploy(scenario(max_model_len=-1, kv_cache_memory_bytes=3_000_000))


def test_eight_b200_hold_about_as_many_contexts_as_the_log_says() -> None:
    """vllm-project/recipes#762 and vllm-project/vllm#51454: 20.43 under 0.25.0, of a KV cache that is not stated."""
    eight = deploy(scenario(gpu="b200-sxm", tensor_parallel_size=8, max_model_len=1_048_576,
                            gpu_memory_utilization=0.95, kv_cache_memory_bytes=None, max_num_batched_tokens=8192,
                            engine_version="0.25.0"))
    assert eight.memory is not None
    assert eight.memory.compressed is not None
    assert eight.memory.compressed.concurrency(eight.memory.num_gpu_blocks, 1_048_576) == pytest.approx(20.43, rel=0.07)


def test_other_models_have_no_such_pool() -> None:
    deployed = deploy(Scenario(model="llama-3.1-8b", gpu="h100-sxm"))
    assert compressed_memory(deployed) == []
