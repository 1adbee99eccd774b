"""The memory model: measured block counts, weights under every format and layout, and what does not fit."""

import dataclasses
import doctest

import pytest

from planner import memory
from planner.architecture import num_parameters
from planner.catalog import load_gpu, load_model
from planner.errors import CapacityError, UnknownNameError, UsageError
from planner.memory import MemoryPlan, activation_bytes, plan_memory, weight_bytes


def plan(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", **changes: object) -> MemoryPlan:
    settings: dict[str, object] = {
        "quantization": None, "kv_bytes_per_element": 2.0, "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
        "expert_parallel": False, "gpu_memory_utilization": 0.9, "max_num_batched_tokens": 2048, "max_num_seqs": 256,
        "block_size": 16}
    return plan_memory(load_model(model), load_gpu(gpu), **{**settings, **changes})  # type: ignore[arg-type]


def test_doctests_hold() -> None:
    assert doctest.testmod(memory).failed == 0


@pytest.mark.parametrize(("gpu", "utilization", "measured"), [
    ("rtx-4090", 0.90, 2588),  # vLLM 0.19, start-up log
    ("h100-sxm", 0.90, 28124),  # vLLM 0.6, 54.93 GiB
    ("a100-sxm", 0.92, 28781),  # vLLM 0.2x, 460,496 tokens
])
def test_blocks_of_llama_3_1_8b_are_those_that_vllm_found(gpu: str, utilization: float, measured: int) -> None:
    assert plan(gpu=gpu, gpu_memory_utilization=utilization).num_gpu_blocks == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "gemma-2-9b"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_parts_add_up(model: str, tp: int) -> None:
    got = plan(model, tensor_parallel_size=tp)
    parts = got.weight_bytes + got.activation_bytes + got.communication_bytes + got.runtime_bytes + got.kv_bytes
    assert parts == pytest.approx(got.usable_bytes, rel=1e-12)
    assert got.usable_bytes == 0.9 * got.capacity_bytes
    block = got.kv_bytes_per_token * got.block_size
    assert 0 <= got.kv_bytes - got.num_gpu_blocks * block < block
    assert got.num_kv_tokens == got.num_gpu_blocks * 16
    assert all(field.name.removesuffix("_bytes") in str(got) for field in dataclasses.fields(got)
               if field.name.endswith("_bytes"))


def test_blocks_move_the_right_way() -> None:
    base = plan().num_gpu_blocks
    assert plan(gpu_memory_utilization=0.95).num_gpu_blocks > base
    assert plan(quantization="fp8").num_gpu_blocks > base
    assert plan(kv_bytes_per_element=1.0).num_gpu_blocks in (2 * base, 2 * base + 1)
    assert plan(max_num_seqs=512).num_gpu_blocks < base
    assert plan(max_num_batched_tokens=65536).num_gpu_blocks < base
    assert plan(block_size=32).num_gpu_blocks == base // 2


def test_16_bit_weights_are_two_bytes_a_parameter() -> None:
    for name in ("llama-3.1-8b", "llama-3.2-3b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"):
        arch = load_model(name)
        assert weight_bytes(arch, "bf16", 1, 1, 1) == pytest.approx(2 * num_parameters(arch))


@pytest.mark.parametrize(("name", "quantization", "published"), [
    ("deepseek-v3", None, 672e9),  # fp8, checkpoint without the multi-token-prediction layer
    ("gpt-oss-120b", None, 65.2e9), ("gpt-oss-20b", None, 13.76e9),  # mxfp4 experts
    ("llama-3.1-70b", "fp8", 72.7e9), ("llama-3.1-70b", "awq", 39.8e9), ("llama-3.1-8b", "int4", 5.73e9),
    ("nvidia/Llama-3.3-70B-Instruct-FP4", None, 42.7e9), ("moonshotai/Kimi-K2.5", None, 594e9),
])
def test_quantized_checkpoints_have_their_published_size(name: str, quantization: str | None, published: float) -> None:
    assert weight_bytes(load_model(name), quantization, 1, 1, 1) == pytest.approx(published, rel=0.02)


def test_sharding_splits_what_can_be_split() -> None:
    llama = load_model("llama-3.1-70b")
    whole = weight_bytes(llama, "bf16", 1, 1, 1)
    assert weight_bytes(llama, "bf16", 4, 1, 1) == pytest.approx(whole / 4)
    assert whole / 16 < weight_bytes(llama, "bf16", 16, 1, 1) < 1.1 * whole / 16  # KV heads are replicated
    assert whole / 2 < weight_bytes(llama, "bf16", 1, 2, 1) + 1 < 1.02 * whole / 2
    qwen = load_model("qwen3-235b-a22b")
    sliced, spread = weight_bytes(qwen, "fp8", 8, 1, 1), weight_bytes(qwen, "fp8", 8, 1, 8)
    assert spread == pytest.approx(sliced)
    assert weight_bytes(qwen, "fp8", 8, 1, 12) > weight_bytes(qwen, "fp8", 8, 1, 16)  # 128 / 12: 11 experts on some


def test_data_parallel_attention_shares_the_experts() -> None:
    shared = plan("deepseek-v3", "b200-sxm", expert_parallel=True, expert_data_parallel_size=8)
    sliced = plan("deepseek-v3", "b200-sxm", tensor_parallel_size=8)
    assert shared.weight_bytes > sliced.weight_bytes  # attention is whole on every rank
    assert shared.weight_bytes < 1.3 * sliced.weight_bytes


def test_activations_are_the_larger_of_layer_and_sampler() -> None:
    arch = load_model("llama-3.1-8b")
    assert activation_bytes(arch, 2048, 256, 1) == 2 * 2048 * 4096 * 2 + 256 * 128256 * 36
    assert activation_bytes(arch, 65536, 1, 1) == 2 * 65536 * 4096 * 2 + 3 * 65536 * 14336 * 2
    assert activation_bytes(arch, 16, 256, 1) == activation_bytes(arch, 16, 16, 1)  # no more sequences than tokens


@pytest.mark.parametrize(("changes", "remedy"), [
    ({"model": "llama-3.1-70b"}, "one h100-sxm: weights 131.4 GiB.* is usable; raise tensor_parallel_size"),
    ({"model": "llama-3.1-70b", "quantization": "fp8", "max_num_seqs": 4096, "max_num_batched_tokens": 8192},
     "lower max_num_seqs"),
])
def test_what_does_not_fit_says_why(changes: dict[str, object], remedy: str) -> None:
    with pytest.raises(CapacityError, match=remedy):
        plan(**changes)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="gpu_memory_utilization = 90; must be > 0 and <= 1"):
        plan(gpu_memory_utilization=90)
    with pytest.raises(UsageError, match="max_num_seqs = 0; must be >= 1"):
        plan(max_num_seqs=0)
    with pytest.raises(UnknownNameError, match="unknown quantization 'fp9'; did you mean 'fp"):
        plan(quantization="fp9")
