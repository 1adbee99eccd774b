"""MiniMax sparse attention: what it keeps, what it reads, and how long its prompts and its indexer take."""

from dataclasses import replace

import numpy as np
import pytest
from architectures import attention_of
from steps import stack_of

from planner.catalog.attention_reads import readings, window_tokens
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.parameters import attention_gemms, num_parameters
from planner.deployment.memory import pages, weight_bytes
from planner.errors import UsageError
from planner.model.layout import Layout
from planner.model.precision import attention_format, expert_format, weight_format
from planner.model.projections import projections
from planner.steptime.block_sparse import block_index_pair_s, sparse_pair_s
from planner.steptime.dense_time import gemm_kernels, gemms_s
from planner.steptime.expert_time import moe_kernels
from planner.steptime.roofline import priors, roofline
from planner.steptime.step_context import StepContext


def test_minimax_m3_by_hand() -> None:
    """57 of 60 layers choose 16 blocks of 128 keys; four heads and one key of 128 each, of the hidden state."""
    arch = load_model("MiniMaxAI/MiniMax-M3")
    dense, sparse = (sum(gemm.parameters for gemm in group.attention.projections(group, 6144, 1))
                     for group in arch.layers)
    assert sparse - dense == 6144 * 5 * 128
    assert num_parameters(arch) == pytest.approx(427.04e9 - 0.86e9, rel=1e-3)  # published, without the vision tower
    assert window_tokens(arch) == 2048
    assert [reading[:5] for reading in readings(arch)] == [(60, 3, 57, 0, 0)]


def index_s(stack: StepContext) -> float:
    """Return what a layer's indexer takes for one query and one key [s]."""
    group: LayerGroup = stack.arch.layers[-1]
    return block_index_pair_s(stack, group)


def sparse_s(stack: StepContext) -> float:
    """Return what a layer takes for one query and one key that was chosen [s]."""
    return sparse_pair_s(stack, attention_of(stack.arch, Gqa))


@pytest.mark.parametrize(("ranks", "expected"), [(1, 137_472), (2, 76_032), (4, 45_312), (8, 45_312)])
def test_cache_of_a_token_is_what_engines_log(ranks: int, expected: int) -> None:
    """60 layers' keys and values, a head on each of four ranks, and 57 keys of the indexer on every rank, in 16 bit."""
    assert kv_bytes_per_token_per_gpu(load_model("minimax-m3"), 2, ranks, 1) == expected


def test_weights_are_those_of_the_checkpoints() -> None:
    """Of one of eight ranks: 99.4, 52 and 29 GiB, by the checkpoints' lists of tensors."""
    for name, expected in (("MiniMaxAI/MiniMax-M3", 99.4), ("MiniMaxAI/MiniMax-M3-MXFP8", 52.0),
                           ("nvidia/MiniMax-M3-NVFP4", 29.0)):
        found = weight_bytes(load_model(name), None, Layout(tensor_parallel_size=8)) / 2**30
        assert found == pytest.approx(expected, rel=0.01)
    mixed = load_model("nvidia/MiniMax-M3-NVFP4")
    assert (weight_format(mixed, None), attention_format(mixed, None), expert_format(mixed, None)) == (
        "mxfp8", "mxfp8", "nvfp4")


def test_a_block_has_as_many_tokens_as_are_chosen_together() -> None:
    arch = load_model("minimax-m3")
    assert [pages(arch, engine, 16, 2.0, 8) for engine in ("vllm", "sglang")] == [(128, 0), (128, 0)]
    assert pages(arch, "vllm", 256, 2.0, 8) == (256, 0)


def test_queries_and_keys_of_the_indexer_are_in_the_product_of_the_others() -> None:
    found = [(gemm.n, gemm.count) for gemm in projections(load_model("minimax-m3"), 8) if gemm.name == "qkv_proj"]
    assert found == [((8 + 2) * 128, 3), ((8 + 2 + 2) * 128, 57)]


@pytest.mark.parametrize(("engine", "gpu", "prompts", "measured_us"), [
    ("vllm", "h200-sxm", 1, 1_346.8), ("vllm", "h200-sxm", 8, 10_095.8), ("sglang", "h200-sxm", 8, 14_445.1),
    ("vllm", "b200-sxm", 8, 2_452.8), ("sglang", "b200-sxm", 8, 11_700.4)])
def test_prompts_take_as_long_as_was_measured(engine: str, gpu: str, prompts: int, measured_us: float) -> None:
    """Prompts of 8,192 tokens in AIConfigurator's modules of 8 heads and one group, products included."""
    stack = stack_of("minimax-m3", gpu, engine, Layout(tensor_parallel_size=8))
    cool = replace(stack, constants=replace(stack.constants, compute_ratio=1 / stack.compute_ratio("bf16")))
    products_s = sum(gemm.count / 60 * gemms_s(cool, np.array([8192.0 * prompts]), gemm.n, gemm.k, "bf16")[0]
                     for gemm in attention_gemms(stack.arch, 8))
    pairs, chosen = 8192 * 8193 / 2, 2048 * 2049 / 2 + 2048 * 6144
    found_s = products_s + prompts * (pairs * index_s(stack) + chosen * sparse_s(stack))
    assert 1e6 * found_s == pytest.approx(measured_us, rel=0.12)


def test_groups_and_heads_of_the_indexer_are_spread_over_ranks() -> None:
    stacks = [stack_of("minimax-m3", "h200-sxm", "vllm", Layout(tensor_parallel_size=ranks)) for ranks in (1, 4, 8)]
    one, four, eight = (sparse_s(stack) for stack in stacks)
    assert (one / four, four) == (4, eight)
    assert index_s(stacks[0]) / index_s(stacks[1]) == 4
    assert 1e12 * index_s(stacks[0]) == pytest.approx(4 * 0.7, rel=0.15)  # measured on H200


def test_decodes_read_the_indexer_s_keys_of_the_whole_context() -> None:
    """56 ps a token on H200 under vLLM, 36 on B200, by the tables' slopes from 8,192 to 65,536 tokens."""
    for gpu, measured_ps in (("h200-sxm", 56.0), ("b200-sxm", 36.0)):
        stack = stack_of("minimax-m3", gpu, "vllm", Layout(tensor_parallel_size=8))
        dense = replace(stack, arch=replace(stack.arch, layers=stack.arch.layers[:1]))
        curve, without = roofline(stack).curve, roofline(dense).curve
        slope = (curve.decode_s_per_context_token[-1] - without.decode_s_per_context_token[-1]) / 57
        assert 1e12 * slope == pytest.approx(measured_ps, rel=0.15)


def test_tensorrt_llm_s_kernels_are_refused() -> None:
    stack = stack_of("minimax-m3", "h200-sxm", "trtllm", Layout(tensor_parallel_size=8))
    with pytest.raises(UsageError, match=r"minimax-m3 under trtllm: .*use --engine vllm or sglang"):
        roofline(stack)


def test_mxfp8_is_widened_before_blackwell() -> None:
    for gpu, expected in (("h200-sxm", ("int8_wo", "int4_wo")), ("b200-sxm", ("mxfp8", "mxfp8"))):
        stack = replace(stack_of("minimax-m3", gpu, "vllm", Layout(tensor_parallel_size=8)), quantization="mxfp8")
        assert (gemm_kernels(stack, "mxfp8")[0], moe_kernels(stack)[0]) == expected
        assert load_gpu(gpu).name == stack.gpu.name
    assert {"dense layers", "experts"} <= set(priors(stack))  # block-scaled FP8 stands in
    assert not {"dense layers", "experts"} & set(priors(replace(stack, quantization="fp8_block")))
    marlin = replace(stack, moe_backend="flashinfer_trtllm")
    assert moe_kernels(marlin)[0] == "mxfp8"
