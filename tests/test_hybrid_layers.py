"""Layers of hybrid models: short convolutions, Mamba, and attention beside a state; their states, weights and times."""

from dataclasses import replace

import numpy as np
import pytest
from architectures import attention_of, count, experts_of, num_indexers, num_sliding
from steps import stack_of

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model
from planner.catalog.hf_config import architecture_from_config
from planner.catalog.kv_cache import kv_bytes_per_token, state_bytes_per_seq
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.linear_layers import GatedDeltaNet, KimiDelta, Mamba1, Mamba2, ShortConv
from planner.errors import CatalogError
from planner.model.layout import Layout
from planner.model.projections import projections
from planner.steptime.attention_time import OPERATORS

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512}


def read(model_type: str, **changes: object) -> Architecture:
    return architecture_from_config({**SMALL, "model_type": model_type, **changes}, name="test", where="config.json")


def test_a_short_convolution_keeps_its_last_inputs() -> None:
    """Ten of LFM2-1.2B's layers, two inputs of 2,048 channels each."""
    arch = load_model("lfm2-1.2b")
    conv = attention_of(arch, ShortConv)
    assert (conv.width, conv.conv_kernel_dim, arch.num_linear_layers, arch.num_attention_layers) == (2048, 3, 10, 6)
    assert state_bytes_per_seq(arch, 2.0, 1, 1) == 10 * 2 * 2048 * 2
    assert state_bytes_per_seq(arch, 2.0, 2, 1) == 10 * 2 * 2048
    assert kv_bytes_per_token(arch, 2.0) == 6 * 2 * 8 * 64 * 2
    gemms = {gemm.name: gemm for gemm in projections(arch, 2)}
    assert (gemms["in_proj"].n, gemms["in_proj"].k, gemms["in_proj"].count, gemms["out_proj"].k) == (
        3072, 2048, 10, 1024)


def test_a_short_convolution_takes_its_traffic_and_a_kernel() -> None:
    stack = stack_of(model="lfm2-1.2b", gpu="h100-sxm")
    conv = attention_of(stack.arch, ShortConv)
    groups = [group for group in stack.arch.layers if group.attention == conv]
    counts = np.array([0.0, 1.0, 1000.0])
    found = next(iter(OPERATORS[ShortConv].contributions(stack, conv, groups, counts)))
    floor_s, bandwidth = stack.constants.kernel_floor_s, stack.gpu.hbm_bandwidth_bytes_per_s
    moved = 2048 * (2 * 4 + 2 * 2 * 2)  # input, gates and output; last inputs, read and written
    assert found.curve["decode_s"] == pytest.approx([0.0, *(10 * (floor_s + n * moved / bandwidth)
                                                            for n in (1, 1000))])
    assert not any(fit.is_measured for fit in OPERATORS[ShortConv].fits(stack, conv))
    halved = replace(stack, layout=Layout(tensor_parallel_size=2))
    other = next(iter(OPERATORS[ShortConv].contributions(halved, conv, groups, counts)))
    assert other.curve["decode_bytes"] == pytest.approx(found.curve["decode_bytes"] / 2)


def test_mamba_has_a_state_for_each_channel() -> None:
    """Jamba-1.5-Mini: 8,192 channels of 16 states, three inputs of the convolution, 28 layers."""
    arch = load_model("jamba-1.5-mini")
    mamba = attention_of(arch, Mamba1)
    assert (mamba.value_width, mamba.key_head_dim, mamba.decay_rank) == (8192, 16, 256)
    assert (arch.num_linear_layers, arch.num_attention_layers, arch.num_moe_layers, arch.num_dense_layers) == (
        28, 4, 16, 16)
    state = 28 * 8192 * (16 + 3) * 2
    assert state <= state_bytes_per_seq(arch, 2.0, 1, 1) < 1.01 * state
    assert read("jamba", num_experts=1, num_experts_per_tok=1).num_moe_layers == 0


def test_falcon_h1_has_attention_and_mamba_2_in_every_layer() -> None:
    arch = read("falcon_h1", num_hidden_layers=72, mamba_d_ssm=4096, mamba_n_heads=32, mamba_d_head=128,
                mamba_n_groups=2, mamba_d_state=256, mamba_d_conv=4)
    assert (arch.num_attention_layers, arch.num_linear_layers, arch.num_mlp_layers) == (72, 72, 72)
    assert attention_of(arch, Mamba2).value_width == 4096
    assert state_bytes_per_seq(arch, 2.0, 1, 1) == 72 * 2 * (4096 * 256 + 3 * (2 * 2 * 256 + 4096))


def test_longcat_has_two_attentions_and_two_mlps_beside_its_experts() -> None:
    arch = load_model("longcat-flash")
    assert count(arch, lambda group: isinstance(group.attention, Mla)) == 56
    assert (arch.num_dense_layers, arch.num_moe_layers) == (56, 28)
    assert (experts_of(arch).num_experts, experts_of(arch).num_experts_per_tok) == (512, 8)


def test_gemma_3n_shares_caches_of_its_last_layers() -> None:
    arch = load_model("gemma-3n-e4b")
    assert (num_sliding(arch), arch.per_layer_input_size) == (28, 256)
    assert count(arch, lambda group: group.shares_cache) == 15
    kept = count(arch, lambda group: not group.shares_cache)
    assert kv_bytes_per_token(arch, 2.0) == pytest.approx(kept * 2 * 2 * 256 * 2)


def test_glm_5_3_flash_has_kimi_delta_attention_beside_sparse_latent_attention() -> None:
    arch = load_model("zai-org/GLM-5.3-Flash")
    assert (count(arch, lambda group: isinstance(group.attention, KimiDelta)), num_indexers(arch)) == (34, 11)
    assert (attention_of(arch, Mla).qk_rope_head_dim, arch.num_residual_streams, arch.num_moe_layers) == (0, 4, 42)


def test_layers_of_other_hybrids() -> None:
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    olmo = read("olmo_hybrid", layer_types=kinds * 2, linear_num_key_heads=4, linear_num_value_heads=4,
                linear_key_head_dim=12, linear_value_head_dim=24, linear_conv_kernel_dim=4)
    assert (attention_of(olmo, GatedDeltaNet).value_width, olmo.num_linear_layers) == (96, 6)
    assert (attention_of(olmo, Gqa).has_output_gate, attention_of(olmo, Gqa).norms_all_heads) == (False, True)
    lfm3 = read("lfm3", layer_types=["conv", "conv", "full_attention", "conv", "sliding_attention", "conv",
                                     "full_attention", "conv"], sliding_window=16)
    assert (lfm3.num_linear_layers, num_sliding(lfm3)) == (5, 1)
    hy = read("hy_v4", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1,
              q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, index_n_heads=2,
              index_head_dim=128, index_topk=8, hc_mult=4, indexer_types=["full", "shared"] * 4)
    assert (num_indexers(hy), hy.num_residual_streams, hy.num_dense_layers) == (4, 4, 1)


@pytest.mark.parametrize(("model_type", "message"), [
    ("lfm2", "layer_types is missing; copy it"), ("bamba", "layer_types is missing; copy it"),
    ("falcon_h1", "mamba_n_groups is missing"), ("longcat_flash", "kv_lora_rank|n_routed_experts|ffn_hidden"),
])
def test_a_config_that_lacks_its_layers_says_so(model_type: str, message: str) -> None:
    changes = {"mamba_n_groups": 1, "mamba_d_state": 16, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_conv": 4}
    given = changes if model_type == "bamba" else {}
    with pytest.raises(CatalogError, match=message):
        read(model_type, **given)


def test_channels_are_divided_over_ranks() -> None:
    assert attention_of(load_model("lfm2-1.2b"), ShortConv).undivided(3) == ("channels of a convolution", 2048)
