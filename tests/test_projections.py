"""The dense matrix products of a model: they add up to its parameters, and are sharded as vLLM does."""

import doctest

import pytest

from planner.catalog.catalog_files import load_model, model_names
from planner.catalog.parameters import embedding_parameters, expert_parameters, num_parameters
from planner.model import projections as module
from planner.model.precision import attention_format
from planner.model.projections import Gemm, attention_projections, projections

MLP = ("gate_up_proj", "down_proj", "router", "shared_gate_up_proj", "shared_down_proj",
       "latent_down_proj", "latent_up_proj", "per_layer_model_projection", "per_layer_input_gate",
       "per_layer_projection")
KEPT_APART = ("fused_wkv_wgate", "hc_fn")  # that stay 16-bit


def by_name(model: str, tensor_parallel_size: int) -> dict[str, Gemm]:
    return {gemm.name: gemm for gemm in projections(load_model(model), tensor_parallel_size)}


def test_doctests_hold() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", model_names())
def test_they_and_experts_and_tables_are_all_parameters(name: str) -> None:
    arch = load_model(name)
    dense = sum(gemm.parameters for gemm in projections(arch, 1))
    experts = arch.num_moe_layers * arch.num_experts * expert_parameters(arch)
    assert dense + experts + embedding_parameters(arch) == num_parameters(arch)


@pytest.mark.parametrize("name", model_names())
def test_ranks_share_attention_but_for_what_each_has_in_full(name: str) -> None:
    arch = load_model(name)
    whole, eighth = (sum(gemm.parameters for gemm in attention_projections(arch, tp)) for tp in (1, 8))
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
    assert gemms["in_proj_qkvz"] == Gemm("in_proj_qkvz", 2 * (2048 + 8192) // 4, 4096, 45, "attention")
    assert gemms["in_proj_ba"] == Gemm("in_proj_ba", 32, 4096, 45, "kept")
    assert gemms["out_proj"] == Gemm("out_proj", 4096, 2048, 45, "attention")
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
        assert {gemm.part for gemm in gemms if gemm.name not in MLP} <= {"attention", "kept"}
        assert attention_format(load_model(name), None) == "bf16"
