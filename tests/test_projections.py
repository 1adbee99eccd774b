"""The dense matrix products of a model: they add up to its parameters, and are sharded as vLLM does."""

import doctest

import pytest

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model, model_names
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.linear_layers import LinearAttention, Mamba1, ShortConv
from planner.catalog.layers.mlps import Dense, Experts, Mlp
from planner.catalog.parameters import (
    attention_gemms,
    embedding_parameters,
    mixing_parameters,
    num_parameters,
    per_layer_parameters,
)
from planner.model import projections as module
from planner.model.precision import attention_format
from planner.model.projections import projections

MLP = ("gate_up_proj", "down_proj", "router", "shared_gate_up_proj", "shared_down_proj",
       "latent_down_proj", "latent_up_proj", "per_layer_model_projection", "per_layer_input_gate",
       "per_layer_projection")
KEPT_APART = ("fused_wkv_wgate", "hc_fn")  # that stay 16-bit


def by_name(model: str, tensor_parallel_size: int) -> dict[str, Gemm]:
    return {gemm.name: gemm for gemm in projections(load_model(model), tensor_parallel_size)}


def test_doctests_hold() -> None:
    assert doctest.testmod(module).failed == 0


def attention_weights(arch: Architecture, group: LayerGroup) -> int:
    """Return the weights of one layer's attention by the papers' formulas, its indexer and compressors included."""
    h, of, index = arch.hidden_size, group.attention, group.indexer if group.runs_indexer else None
    if isinstance(of, Gqa):
        own = h * of.head_dim * ((2 + of.has_output_gate) * of.num_heads + (2 - of.key_is_value) * of.num_kv_heads)
        return own + (0 if index is None else h * index.head_dim * (index.num_heads + 1))
    if isinstance(of, ShortConv):
        return 4 * h * h
    if isinstance(of, Mamba1):
        inner = of.num_value_heads * of.value_head_dim
        return 3 * h * inner + inner * (2 * of.key_head_dim + 2 * of.decay_rank)
    if isinstance(of, LinearAttention):
        keys, values = of.num_key_heads * of.key_head_dim, of.num_value_heads * of.value_head_dim
        whole = h * (2 * keys + (2 if of.gate_rank else 3) * values + of.scalars_per_head * of.num_value_heads)
        return whole + of.decay_rank * (h + keys) + of.gate_rank * (h + values)
    assert isinstance(of, (Mla, Csa))
    rank = of.q_lora_rank
    indexer = 0 if index is None else rank * index.num_heads * index.head_dim + h * index.num_heads
    if isinstance(of, Csa):
        width = of.num_heads * of.head_dim
        rows = 4 * (of.head_dim + index.head_dim) if index else 2 * of.head_dim if group.tokens_per_entry else 0
        return (h * (rank + of.head_dim) + rank * width + of.o_lora_rank * (width + of.o_groups * h) + indexer
                + h * rows)
    query = of.num_heads * (of.qk_nope_head_dim + of.qk_rope_head_dim)
    down = h * (of.kv_lora_rank + of.qk_rope_head_dim) + (h * index.head_dim if index else 0)
    expansion = of.kv_lora_rank * of.num_heads * (of.qk_nope_head_dim + of.v_head_dim)
    output = (1 + of.has_output_gate) * of.num_heads * of.v_head_dim * h
    return (rank * (h + query) if rank else h * query) + down + expansion + output + indexer


def mlp_weights(arch: Architecture, mlp: Mlp) -> int:
    """Return the weights of one layer's MLP, all routed experts included."""
    h = arch.hidden_size
    if isinstance(mlp, Dense):
        return mlp.num_matrices * h * mlp.width
    assert isinstance(mlp, Experts)
    routed = mlp.num_experts * mlp.num_matrices * (mlp.latent_width or h) * mlp.width
    return routed + h * (mlp.num_matrices * mlp.shared_width + 2 * mlp.latent_width + mlp.num_experts)


@pytest.mark.parametrize("name", model_names())
def test_weights_are_those_of_the_formulas(name: str) -> None:
    """Products and parameters are both of the classes of layers; here they are written out again."""
    arch = load_model(name)
    attention = sum(group.count * attention_weights(arch, group) for group in arch.layers)
    assert sum(gemm.parameters for gemm in attention_gemms(arch, 1)) == attention
    layers = attention + sum(group.count * mlp_weights(arch, group.mlp) for group in arch.mlps)
    around = embedding_parameters(arch) + mixing_parameters(arch) + per_layer_parameters(arch)
    assert num_parameters(arch) == layers + around
    dense = layers - sum(count * experts.num_experts * experts.expert_parameters(arch.hidden_size)
                         for count, experts in arch.mlps_of(Experts))
    beside = mixing_parameters(arch) + per_layer_parameters(arch)
    assert sum(gemm.parameters for gemm in projections(arch, 1)) == dense + beside


@pytest.mark.parametrize("name", model_names())
def test_ranks_share_attention_but_for_what_each_has_in_full(name: str) -> None:
    arch = load_model(name)
    whole, eighth = (sum(gemm.parameters for gemm in attention_gemms(arch, tp) if gemm.part != "unquantized")
                     for tp in (1, 8))
    assert whole / 8 * (1 - 1e-12) <= eighth < whole


def test_grouped_attention_and_mlp_on_eight_ranks() -> None:
    assert projections(load_model("llama-3.1-70b"), 8) == (
        Gemm("qkv_proj", 1280, 8192, 80, "attention"), Gemm("o_proj", 8192, 1024, 80, "attention"),
        Gemm("gate_up_proj", 7168, 8192, 80, "mlp"), Gemm("down_proj", 8192, 3584, 80, "mlp"))
    assert by_name("llama-3.1-70b", 16)["qkv_proj"].n == (4 + 2) * 128  # a KV head on two ranks


def test_latent_attention_and_moe_on_eight_ranks() -> None:
    assert projections(load_model("deepseek-r1"), 8) == (
        Gemm("fused_qkv_a_proj", 1536 + 576, 7168, 61, "attention"), Gemm("q_b_proj", 16 * 192, 1536, 61, "attention"),
        Gemm("kv_b_proj", 16 * 256, 512, 61, "attention"), Gemm("o_proj", 7168, 16 * 128, 61, "attention"),
        Gemm("gate_up_proj", 4608, 7168, 3, "mlp"), Gemm("down_proj", 7168, 2304, 3, "mlp"),
        Gemm("router", 256, 7168, 58, "kept"),
        Gemm("shared_gate_up_proj", 512, 7168, 58, "mlp"), Gemm("shared_down_proj", 7168, 256, 58, "mlp"))
    assert by_name("deepseek-v2-lite", 1)["q_proj"] == Gemm("q_proj", 16 * 192, 2048, 27, "attention")


def test_hybrid_layers_on_four_ranks() -> None:
    gemms = by_name("Qwen/Qwen3.5-397B-A17B-FP8", 4)
    assert gemms["qkv_proj"] == Gemm("qkv_proj", (2 * 8 + 2 * 1) * 256, 4096, 15, "attention")
    assert gemms["o_proj"] == Gemm("o_proj", 4096, 8 * 256, 15, "attention")
    assert gemms["in_proj_qkvz"] == Gemm("in_proj_qkvz", 2 * (2048 + 8192) // 4, 4096, 45, "linear")
    assert gemms["in_proj_ba"] == Gemm("in_proj_ba", 32, 4096, 45, "kept")
    assert gemms["out_proj"] == Gemm("out_proj", 4096, 2048, 45, "linear")
    assert gemms["router"] == Gemm("router", 512, 4096, 60, "kept")
    assert "gate_up_proj" not in gemms


def test_the_indexer_is_on_every_rank() -> None:
    for tp in (1, 8):
        gemms = by_name("zai-org/GLM-5-FP8", tp)
        assert gemms["indexer.wq_b"] == Gemm("indexer.wq_b", 32 * 128, 2048, 78, "attention")
        assert gemms["indexer.wk"] == Gemm("indexer.wk", 128, 6144, 78, "attention")
        assert gemms["indexer.weights_proj"] == Gemm("indexer.weights_proj", 32, 6144, 78, "kept")
    assert by_name("glm-5.2", 1)["indexer.wk"].count == 21


def test_attention_that_the_checkpoint_keeps_in_16_bit_is_marked() -> None:
    for name in ("gpt-oss-120b", "nvidia/Qwen3.5-397B-A17B-NVFP4", "nvidia/GLM-5-NVFP4"):
        gemms = projections(load_model(name), 1)
        assert {gemm.part for gemm in gemms if gemm.name not in MLP} <= {"attention", "linear", "kept"}
        assert attention_format(load_model(name), None) == "bf16"
