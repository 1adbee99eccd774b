"""Reading a Hugging Face config: every supported family, what its class fills in, and errors."""

from typing import Any

import pytest
from architectures import attention_of, count, experts_of, num_indexers, num_sliding

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.hf_config import architecture_from_config
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.indexers import BlockIndexer, Indexer
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.linear_layers import GatedDeltaNet, KimiDelta, Mamba2
from planner.catalog.layers.mlps import Dense
from planner.catalog.parameters import attention_gemms, num_active_parameters, num_parameters
from planner.deployment.memory import layers_bytes
from planner.errors import CatalogError
from planner.model.layout import Layout
from planner.model.precision import (
    attention_format,
    expert_format,
    head_format,
    kv_cache_type,
    linear_format,
    weight_format,
)

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512}

MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
HYBRID = {"model_type": "qwen3_next", **MOE, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4}
SPARSE = {"model_type": "glm_moe_dsa", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
          "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
          "index_n_heads": 2, "index_head_dim": 128, "index_topk": 8}

COMPRESSED = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 32, "n_shared_experts": 1, "q_lora_rank": 16, "qk_rope_head_dim": 4,
              "o_groups": 2, "o_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 128, "index_topk": 8,
              "sliding_window": 16, "hc_mult": 4, "compress_ratios": [0, 4, 128, 4, 0]}


def read(**changes: object) -> Architecture:
    return architecture_from_config({**LLAMA, **changes}, name="test", where="config.json")


def test_listed_layer_types_override_the_pattern() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    assert num_sliding(read(sliding_window=16, layer_types=kinds)) == 3
    assert num_sliding(read(sliding_window=512)) == 0  # as long as the context: no window


@pytest.mark.parametrize(("name", "length"), [
    ("llama-3.1-8b", 131_072), ("llama-3-8b", 8192), ("deepseek-v3", 163_840), ("gpt-oss-20b", 131_072),
    ("gemma-3-27b", 131_072), ("kimi-k2.5", 262_144),
])
def test_max_model_len(name: str, length: int) -> None:
    assert load_model(name).max_model_len == length


def test_rope_scaling_multiplies_where_hugging_face_means_it() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    assert read(rope_scaling=yarn).max_model_len == 4096
    assert read(rope_scaling={"type": "linear", "factor": 2.0}).max_model_len == 1024
    assert read(rope_scaling={"rope_type": "llama3", "factor": 8.0}).max_model_len == 512


def test_moe_layers_are_counted_as_the_family_places_them() -> None:
    qwen = {"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48}
    assert read(**qwen, decoder_sparse_step=2).num_moe_layers == 2
    arch = read(**qwen, mlp_only_layers=[0])
    assert (arch.num_moe_layers, arch.num_dense_layers, experts_of(arch).shared_width) == (3, 1, 48)
    deepseek = load_model("deepseek-v3")
    assert (deepseek.num_dense_layers, experts_of(deepseek).shared_width) == (3, 2048)
    assert [type(kind) for kind, _ in deepseek.by_attention] == [Mla]
    maverick = load_model("llama-4-maverick")
    assert (maverick.num_moe_layers, maverick.dense_mlp.width) == (24, 16384)


def test_other_names_of_the_same_keys_are_read() -> None:
    ernie = read(model_type="ernie4_5_moe", moe_num_experts=8, moe_k=2, moe_intermediate_size=32,
                 moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_interval=1)
    experts = experts_of(ernie)
    assert (experts.num_experts, experts.num_experts_per_tok, experts.shared_width) == (8, 2, 64)
    assert (ernie.num_moe_layers, ernie.num_dense_layers) == (3, 1)
    assert read(model_type="qwen3_vl_text").model_type == "qwen3"
    assert read(quantization_config={"quant_method": "FP8"}).quantization == "fp8"


SPARSE_LESS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# Published sizes of whole and active parameters [10^9], and the keys that a model's config.json has for them.
PUBLISHED: dict[str, tuple[float, float, dict[str, Any]]] = {
    "CohereLabs/c4ai-command-a-03-2025": (111, 111, {
        "model_type": "cohere2", "hidden_size": 12288, "intermediate_size": 36864, "num_hidden_layers": 64,
        "num_attention_heads": 96, "num_key_value_heads": 8, "vocab_size": 256000, "sliding_window": 4096}),
    "mistralai/Mistral-Small-4-119B-2603": (119, 6.5, {
        "model_type": "mistral4", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "vocab_size": 131072, "moe_intermediate_size": 2048, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_experts_per_tok": 4, "q_lora_rank": 1024, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128}),
    "upstage/Solar-Open-100B": (102.6, 12, {
        "model_type": "solar_open", "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 196608, "moe_intermediate_size": 1280,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "intermediate_size": None}),
    "tencent/Hy3-preview": (295, 21, {
        "model_type": "hy_v3", "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 120832,
        "moe_intermediate_size": 1536, "num_experts": 192, "num_shared_experts": 1, "num_experts_per_tok": 8}),
    "skt/A.X-K1": (519, 33, {
        "model_type": "axk1", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
        "num_attention_heads": 64, "vocab_size": 163840, "moe_intermediate_size": 2048, "n_routed_experts": 192,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}),
    "microsoft/Phi-3.5-MoE-instruct": (41.9, 6.6, {
        "model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32064, "num_local_experts": 16,
        "num_experts_per_tok": 2}),
    "allenai/OLMoE-1B-7B-0924": (6.9, 1.3, {
        "model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304}),
    "inclusionAI/Ling-flash-2.0": (103, 6.1, {
        "model_type": "bailing_moe_v2", "hidden_size": 4096, "intermediate_size": 9216, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 157184,
        "moe_intermediate_size": 1024, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 1}),
    "tencent/Hunyuan-A13B-Instruct": (80.4, 13, {
        "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128167, "num_experts": 64,
        "moe_topk": [8] * 32, "num_shared_expert": [1] * 32, "tie_word_embeddings": True}),
    "deepseek-ai/deepseek-moe-16b-chat": (16.4, 2.8, {
        "model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "moe_intermediate_size": 1408,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1}),
    "databricks/dbrx-instruct": (132, 36, {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8}, "ffn_config": {
            "ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}),
    "rednote-hilab/dots.llm1.inst": (142, 14, {
        "model_type": "dots1", "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 152064, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1}),
    "LGAI-EXAONE/K-EXAONE-236B-A23B": (236, 23, {
        "model_type": "exaone_moe", "hidden_size": 6144, "intermediate_size": 18432, "num_hidden_layers": 48,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 153600,
        "moe_intermediate_size": 2048, "num_experts": 128, "num_shared_experts": 1, "num_experts_per_tok": 8,
        "sliding_window": 128, "sliding_window_pattern": "LLLG", "is_moe_layer": [False] + [True] * 47}),
    "ibm-granite/granite-3.1-3b-a800m-instruct": (3.3, 0.8, {
        "model_type": "granitemoe", "hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 49155, "num_local_experts": 40,
        "num_experts_per_tok": 8, "tie_word_embeddings": True}),
    "nvidia/Nemotron-4-340B-Instruct": (341, 341, {
        "model_type": "nemotron", "hidden_size": 18432, "intermediate_size": 73728, "num_hidden_layers": 96,
        "num_attention_heads": 96, "num_key_value_heads": 8, "vocab_size": 256000}),
    "zai-org/GLM-4-32B-0414": (32.6, 32.6, {
        "model_type": "glm4", "hidden_size": 6144, "intermediate_size": 23040, "num_hidden_layers": 61,
        "num_attention_heads": 48, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552}),
    "LGAI-EXAONE/EXAONE-3.5-32B-Instruct": (32.0, 32.0, {
        "model_type": "exaone", "hidden_size": 5120, "intermediate_size": 27392, "num_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 102400}),
    "google/gemma-4-31B-it": (30.7, 30.7, {
        "model_type": "gemma4", "text_config": {
            "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
            "num_attention_heads": 32, "num_key_value_heads": 16, "num_global_key_value_heads": 4, "head_dim": 256,
            "global_head_dim": 512, "attention_k_eq_v": True, "sliding_window": 1024, "vocab_size": 262144}}),
    "google/gemma-4-26B-A4B-it": (25.2, 3.8, {
        "model_type": "gemma4", "text_config": {
            "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
            "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2, "head_dim": 256,
            "global_head_dim": 512, "attention_k_eq_v": True, "sliding_window": 1024, "vocab_size": 262144,
            "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}}),
    "XiaomiMiMo/MiMo-V2-Flash": (309, 15, {
        "model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "vocab_size": 152576,
        "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "sliding_window": 128,
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, *[1, 1, 1, 1, 1, 0] * 7], "moe_layer_freq": [0] + [1] * 47,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8}),
    "stepfun-ai/Step-3.5-Flash": (196, 11, {
        "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45,
        "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "vocab_size": 128896,
        "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12, "sliding_window": 512,
        "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280,
        "moe_layers_enum": ",".join(map(str, range(3, 45)))}),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.6, {
        "model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "num_hidden_layers": 52,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,
        "ssm_state_size": 128, "conv_kernel": 4, "n_routed_experts": 128, "num_experts_per_tok": 6,
        "n_shared_experts": 1, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
        "vocab_size": 131072}),
    "nvidia/Nemotron-H-8B-Base-8K": (8.1, 8.1, {
        "model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 52,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
        "ssm_state_size": 128, "conv_kernel": 4, "vocab_size": 131072}),
    "ibm-granite/granite-4.0-h-small": (32.2, 9, {
        "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768, "num_hidden_layers": 40,
        "shared_intermediate_size": 1536, "layer_types": [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10,
        "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
        "vocab_size": 100352, "tie_word_embeddings": True}),
    "swiss-ai/Apertus-8B-Instruct-2509": (8.05, 8.05, {
        "model_type": "apertus", "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072}),
    "tiiuae/falcon-7b": (6.92, 6.92, {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "num_kv_heads": 71, "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024}),
    "tiiuae/falcon-40b": (41.3, 41.3, {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_kv_heads": 8, "multi_query": True, "new_decoder_architecture": True, "vocab_size": 65024}),
    "bigscience/bloom-7b1": (7.07, 7.07, {
        "model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "num_attention_heads": 32, "n_inner": None,
        "seq_length": 2048, "vocab_size": 250880}),
    "bigcode/starcoder": (15.5, 15.5, {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "multi_query": True,
        "n_inner": 24576, "n_positions": 8192, "vocab_size": 49152}),
    "LiquidAI/LFM2-1.2B": (1.17, 1.17, {
        "model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "block_auto_adjust_ff_dim": True,
        "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14]}),
    "LiquidAI/LFM2-8B-A1B": (8.34, 1.5, {
        "model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "conv_L_cache": 3,
        "layer_types": ["conv", "conv", "full_attention", "conv"] * 6}),
    "tiiuae/Falcon-H1-34B-Instruct": (33.6, 33.6, {
        "model_type": "falcon_h1", "hidden_size": 5120, "intermediate_size": 21504, "num_hidden_layers": 72,
        "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 261120,
        "mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256,
        "mamba_d_conv": 4}),
    "ibm-ai-platform/Bamba-9B-v1": (9.78, 9.78, {
        "model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attn_layer_indices": [9, 18, 27],
        "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4}),
    "ai21labs/AI21-Jamba-1.5-Mini": (51.6, 12, {
        "model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16,
        "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256}),
    "ai21labs/AI21-Jamba-1.5-Large": (398, 94, {
        "model_type": "jamba", "hidden_size": 8192, "intermediate_size": 24576, "num_hidden_layers": 72,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16,
        "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 512}),
    "meituan-longcat/LongCat-Flash-Chat": (561, 27, {
        "model_type": "longcat_flash", "hidden_size": 6144, "ffn_hidden_size": 12288, "num_layers": 28,
        "num_attention_heads": 64, "vocab_size": 131072, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512,
        "zero_expert_num": 256, "moe_topk": 12, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128}),
    "google/gemma-3n-E4B": (6.87, 4.3, {
        "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [16384] * 35, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400,
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7}),
    "openbmb/MiniCPM3-4B": (4.07, 4.07, {
        "model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,
        "num_attention_heads": 40, "vocab_size": 73448, "q_lora_rank": 768, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}),
    "internlm/internlm2_5-7b": (7.74, 7.74, {
        "model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92544}),
    "THUDM/glm-4-9b-chat": (9.4, 9.4, {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40,
        "num_attention_heads": 32, "multi_query_group_num": 2, "kv_channels": 128, "padded_vocab_size": 151552,
        "seq_length": 131072}),
    "baichuan-inc/Baichuan2-7B-Chat": (7.51, 7.51, {
        "model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 125696}),
    "openai-community/gpt2-xl": (1.56, 1.56, {
        "model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}),
    "EleutherAI/gpt-neox-20b": (20.6, 20.6, {
        "model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44,
        "num_attention_heads": 64, "vocab_size": 50432, "tie_word_embeddings": False}),
    "jinaai/jina-embeddings-v3": (0.559, 0.559, {  # without the adapters of its tasks
        "model_type": "jina_embeddings_v3", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 250002}),
    "Alibaba-NLP/gte-multilingual-base": (0.305, 0.305, {
        "model_type": "gte", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 250048}),
    "PaddlePaddle/PaddleOCR-VL": (0.36, 0.36, {  # ERNIE-4.5-0.3B, without the vision encoder
        "model_type": "paddleocr_vl_text", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 103424}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_familys_config_gives_the_published_numbers_of_parameters(name: str) -> None:
    """Active ones as makers count them: some with the embeddings, some without, most rounded up."""
    whole, active, config = PUBLISHED[name]
    arch = architecture_from_config({"max_position_embeddings": 8192, **config}, name=name, where="config.json")
    assert num_parameters(arch) / 1e9 == pytest.approx(whole, rel=0.01)
    embedding = arch.vocab_size * arch.hidden_size
    assert num_active_parameters(arch) / 1e9 < 1.12 * active
    assert (num_active_parameters(arch) + 2 * embedding) / 1e9 > 0.94 * active


def test_a_familys_own_patterns() -> None:
    cohere = read(model_type="cohere2", sliding_window=16, num_hidden_layers=8)
    assert (num_sliding(cohere), cohere.tie_word_embeddings) == (6, True)
    pattern = read(model_type="exaone4", sliding_window=16, num_hidden_layers=8, sliding_window_pattern="LLLG")
    assert num_sliding(pattern) == 6
    afmoe = read(model_type="afmoe", **MOE, num_dense_layers=2, sliding_window=16, global_attn_every_n_layers=2)
    assert (afmoe.num_moe_layers, num_sliding(afmoe), attention_of(afmoe, Gqa).has_output_gate) == (2, 2, True)
    dots = {"model_type": "dots1", **SPARSE_LESS, "sliding_window": 16}
    assert (num_sliding(read(**dots, max_window_layers=3)), num_sliding(read(**dots))) == (1, 4)
    listed = read(model_type="glm4_moe", **SPARSE_LESS, mlp_layer_types=["dense", "sparse", "sparse", "sparse"])
    assert listed.num_moe_layers == 3
    assert read(model_type="starcoder2").dense_mlp.num_matrices == 2
    sarvam = read(model_type="sarvam_moe", **MOE, moe_shared_expert_intermediate_size=48)
    assert (sarvam.num_moe_layers, experts_of(sarvam).shared_width) == (3, 48)
    assert [read(model_type=name).model_type for name in ("telechat3", "solar", "phi3_v")] == ["llama", "llama", "phi3"]
    assert read(model_type="qwen2_5_vl_text").model_type == "qwen2"


def test_what_falcon_and_its_time_leave_out_of_their_configs() -> None:
    """One head for keys in the smaller ones, MLPs four times as wide, positions that no key states."""
    small, large, bloom, starcoder = (
        architecture_from_config(PUBLISHED[name][2], name=name, where=name)
        for name in ("tiiuae/falcon-7b", "tiiuae/falcon-40b", "bigscience/bloom-7b1", "bigcode/starcoder"))
    assert [attention_of(arch, Gqa).num_kv_heads for arch in (small, large, bloom, starcoder)] == [1, 8, 32, 1]
    assert [arch.max_model_len for arch in (small, large, bloom, starcoder)] == [2048, 2048, 2048, 8192]
    assert [arch.dense_mlp.width // arch.hidden_size for arch in (small, large, bloom, starcoder)] == [4] * 4
    assert [arch.adds_up_once for arch in (small, large, bloom, starcoder)] == [True, True, False, False]
    assert all(arch.tie_word_embeddings for arch in (small, large, bloom, starcoder))
    several = architecture_from_config({**PUBLISHED["bigcode/starcoder"][2], "multi_query": False}, name="", where="")
    assert attention_of(several, Gqa).num_kv_heads == 48
    serial = architecture_from_config({**PUBLISHED["tiiuae/falcon-7b"][2], "parallel_attn": False}, name="", where="")
    assert not serial.adds_up_once


def gqa_kinds(arch: Architecture) -> list[tuple[int, int, int, int]]:
    """Return the kinds of grouped-query attention: layers, heads, KV heads and width."""
    return [(sum(group.count for group in groups), kind.num_heads, kind.num_kv_heads, kind.head_dim)
            for kind, groups in arch.by_attention if isinstance(kind, Gqa)]


def test_sliding_layers_may_have_other_heads() -> None:
    """How many layers of each kind, with how many heads for queries and keys, how wide."""
    def kinds(name: str) -> list[tuple[int, int, int, int]]:
        arch = architecture_from_config({"max_position_embeddings": 8192, **PUBLISHED[name][2]}, name=name, where=name)
        return gqa_kinds(arch)

    assert kinds("google/gemma-4-31B-it") == [(10, 32, 4, 512), (50, 32, 16, 256)]
    assert kinds("XiaomiMiMo/MiMo-V2-Flash") == [(9, 64, 4, 160), (39, 64, 8, 160)]
    assert kinds("stepfun-ai/Step-3.5-Flash") == [(12, 64, 8, 128), (33, 96, 8, 128)]
    assert kinds("LGAI-EXAONE/K-EXAONE-236B-A23B") == [(48, 64, 8, 128)]
    gemma = {"model_type": "gemma4_text", "head_dim": 8, "global_head_dim": 16, "sliding_window": 16,
             "num_global_key_value_heads": 1}
    both, keys_alone = read(**gemma), read(**gemma, attention_k_eq_v=True)
    assert [(count, kv_heads) for count, _, kv_heads, _ in gqa_kinds(both)] == [(1, 2), (3, 2)]  # the last is full
    full, one = (attention_of(arch, Gqa) for arch in (both, keys_alone))
    assert (full.head_dim, full.key_is_value, one.num_kv_heads, one.key_is_value) == (16, False, 1, True)


def test_names_that_transformers_5_saves_are_read() -> None:
    """It writes the number of experts under one key for many families, and kinds of blocks with longer names."""
    experts = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
    for model_type in ("qwen3_moe", "mellum", "sarvam_moe"):
        for key in ("num_local_experts", "num_experts", "n_routed_experts"):
            assert experts_of(read(model_type=model_type, **{key: 8}, **experts)).num_experts == 8
    mamba = {"n_groups": 2, "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 8, "conv_kernel": 4}
    blocks = read(model_type="nemotron_h", num_hidden_layers=None, n_routed_experts=8, **experts, **mamba,
                  layers_block_type=["linear_attention", "moe", "full_attention", "mlp"])
    assert (blocks.num_linear_layers, blocks.num_layers, blocks.num_moe_layers) == (1, 2, 1)


def test_mixtures_of_this_autumn() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    local = {"layer_types": kinds, "sliding_window": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    spark = read(model_type="muse_spark_text", num_local_experts=8, moe_hidden_size=24, **local)
    assert (experts_of(spark).latent_width, attention_of(spark, Gqa).has_output_gate) == (24, True)
    kolibri = read(model_type="kolibri1", num_local_experts=8, shared_expert_intermediate_size=32, **local)
    assert (experts_of(kolibri).shared_width, num_sliding(kolibri), attention_of(kolibri, Gqa).has_output_gate) == (
        32, 2, False)
    flint = read(model_type="flint", num_experts=8, shared_expert_intermediate_size=64, mlp_only_layers=[0, 1], **local)
    assert (flint.num_moe_layers, experts_of(flint).shared_width, attention_of(flint, Gqa).has_sinks) == (2, 64, True)
    beam = read(model_type="beam", num_experts=8, mlp_layer_types=["dense"] + 3 * ["sparse"], **local)
    assert (beam.num_moe_layers, experts_of(beam).shared_width, attention_of(beam, Gqa).has_output_gate) == (3, 0, True)
    aria = read(model_type="aria_text", moe_num_experts=8, moe_topk=2, moe_num_shared_experts=2, intermediate_size=32)
    assert (experts_of(aria).width, experts_of(aria).shared_width, aria.num_moe_layers) == (32, 64, 4)
    assert num_sliding(read(model_type="spark2_5", sliding_window=16)) == 3


def test_encoders_of_other_makers_are_read_as_their_base() -> None:
    for model_type, base in (("gte", "new"), ("ernie", "bert"), ("jina_embeddings_v3", "xlm-roberta")):
        arch = read(model_type=model_type)
        assert (arch.model_type, arch.pooling, arch.is_bidirectional) == (base, "embed", True)


def test_blocks_of_nemotron_h_are_attention_mamba_or_mlps() -> None:
    nano, dense = (architecture_from_config({"max_position_embeddings": 8192, **PUBLISHED[name][2]}, name=name,
                                            where=name)
                   for name in ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nvidia/Nemotron-H-8B-Base-8K"))
    assert (nano.num_layers, nano.num_mlp_layers, nano.num_linear_layers, nano.num_moe_layers) == (29, 23, 23, 23)
    assert (nano.num_attention_layers, nano.num_dense_layers, experts_of(nano).num_matrices) == (6, 0, 2)
    assert (dense.num_layers, dense.num_mlp_layers, dense.num_dense_layers) == (28, 24, 24)
    assert [type(kind) for kind, _ in dense.by_attention] == [Gqa, Mamba2]
    listed = {**PUBLISHED["nvidia/Nemotron-H-8B-Base-8K"][2], "hybrid_override_pattern": None,
              "layers_block_type": ["mamba", "mlp", "attention", "mlp"], "max_position_embeddings": 8192}
    arch = architecture_from_config(listed, name="small", where="config.json")
    assert (arch.num_layers, arch.num_mlp_layers, arch.num_linear_layers) == (2, 2, 1)
    for blocks, message in ((["mamba", "ssm"], r"layers_block_type = \['mamba', 'ssm'\]; must be a list of"),
                            (["mamba", "attention", "mlp", "mlp", "mlp"], "3 MLPs behind 2 layers")):
        with pytest.raises(CatalogError, match=message):
            architecture_from_config({**listed, "layers_block_type": blocks}, name="wrong", where="config.json")


def test_experts_may_work_on_a_latent() -> None:
    """Two matrices of 32 by 16 for each of 8 experts, and 64 by 32 to the latent and from it in each of 4 layers."""
    moe = {"model_type": "glm4_moe", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    whole, latent = read(**moe), read(**moe, moe_latent_size=32)
    assert num_parameters(whole) - num_parameters(latent) == 4 * (8 * 3 * 32 * 16 - 2 * 64 * 32)
    halves = [layers_bytes(arch, "bf16", Layout(tensor_parallel_size=2)) for arch in (whole, latent)]
    assert halves[0] - halves[1] == 2.0 * 4 * (8 * 3 * 32 * 16 / 2 - 2 * 64 * 32)  # each rank has the projections whole


def sharing_and_wide(arch: Architecture) -> tuple[int, int, int]:
    """Return the layers that share a cache, without and with a window, and those with a wide MLP."""
    wide = sum(number for number, mlp in arch.mlps_of(Dense) if mlp.width > arch.dense_mlp.width)
    return (count(arch, lambda group: group.shares_cache and not group.window),
            count(arch, lambda group: group.shares_cache and group.window), wide)


def test_small_gemma_4_share_caches_between_layers() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    gemma = {"model_type": "gemma4_text", "sliding_window": 16, "num_kv_shared_layers": 1, "layer_types": kinds}
    arch = read(**gemma, hidden_size_per_layer_input=8)
    assert sharing_and_wide(arch) == (1, 0, 0)
    wide = read(**{**gemma, "num_kv_shared_layers": 3, "use_double_wide_mlp": True})
    assert sharing_and_wide(wide) == (2, 1, 3)
    assert (arch.per_layer_input_size, wide.per_layer_input_size) == (8, 0)
    with pytest.raises(CatalogError, match="num_kv_shared_layers = 4; must be below num_hidden_layers = 4"):
        read(**{**gemma, "num_kv_shared_layers": 4})
    with pytest.raises(CatalogError, match="layer_types is missing"):
        read(**{**gemma, "layer_types": None})


def test_what_differs_by_layer_is_refused() -> None:
    with pytest.raises(CatalogError, match=r"config\.json: moe_topk differs from layer to layer"):
        read(model_type="hunyuan_v1_moe", num_experts=8, moe_topk=[2, 2, 4, 2])


def test_nested_text_config_with_omitted_defaults() -> None:
    config = {"model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}
    arch = architecture_from_config(config, name="gemma-3-4b", where="config.json")
    assert num_parameters(arch) == pytest.approx(3.88e9, rel=0.01)
    assert (arch.max_model_len, num_sliding(arch), arch.tie_word_embeddings) == (131_072, 29, True)


@pytest.mark.parametrize(("given", "expected"), [
    ({"quant_method": "fp8"}, ("fp8", None)),
    ({"quant_method": "awq", "bits": 4}, ("awq", None)),
    ({"quant_method": "gptq", "bits": 8}, ("w8a16", None)),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, ("nvfp4", None)),
    ({"quant_method": "modelopt", "quant_algo": "nvfp4"}, ("nvfp4", None)),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, ("mxfp4", "bf16")),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, ("fp8", None)),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8, "type": "int"}}}},
     ("int8", None)),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "int"}, "input_activations": None}}}, ("w8a16", None)),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
     ("int4-g32", None)),
    ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.indexer.weights_proj"]},
     ("fp8", None)),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 64, "packing_format": "auto_round:auto_awq"},
     ("awq", None)),
    ({"quant_method": "intel/auto-round", "bits": 8, "group_size": 128}, ("w8a16", None)),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32}, ("mxfp4", None)),
    ({"quant_method": "auto-round", "bits": 4, "extra_config": {
        f"model.layers.{k}.self_attn.q_proj": {"bits": 16} for k in range(4)}}, ("gptq", "bf16")),
    ({"quant_method": "gptq", "bits": 4, "group_size": 32}, ("int4-g32", None)),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*self_attn.*": {}}}, ("gptq", "bf16")),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}},
     ("fp8", None)),
    ({"quant_method": "quark", "exclude": ["re:.*self_attn.*", "lm_head"], "global_quant_config": {
        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}, ("mxfp4", "bf16")),
    ({"quant_method": "quark", "layer_quant_config": {"*self_attn*": {"weight": {"dtype": "fp8_e4m3"}}},
      "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, ("mxfp4", "fp8")),
    ({"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"}, {"dtype": "int4"}]}},
     ("int4", None)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
      "llm_int8_skip_modules": ["lm_head"]}, ("bnb-4bit", None)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("int8", None)),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig"}}},
     ("fp8", None)),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, ("int4", None)),
    ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, ("w8a16", None)),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, ("int4", None)),
])
def test_native_quantization(given: dict[str, object], expected: tuple[str, str | None]) -> None:
    arch = read(quantization_config=given)
    assert (arch.quantization, arch.attention_quantization) == expected


@pytest.mark.parametrize(("given", "expected"), [
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": None}, None),
    ({"quant_method": "fp8"}, None),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}},
      "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}}, "fp8"),
])
def test_a_checkpoint_may_have_scales_for_its_kv_cache(given: dict[str, object], expected: str | None) -> None:
    assert read(quantization_config=given).kv_cache_dtype == expected
    assert kv_cache_type(read(quantization_config=given), "auto", "vllm") == (expected or "auto")
    assert kv_cache_type(read(quantization_config=given), "bf16", "vllm") == "bf16"


@pytest.mark.parametrize(("engine", "gpu", "expected"), [
    ("sglang", "b200-sxm", "fp8"), ("sglang", "h200-sxm", "bf16"), ("sglang", "mi355x", "fp8"),
    ("vllm", "h200-sxm", "fp8")])
def test_sglang_chooses_the_cache_of_sparse_attention_by_the_gpu(engine: str, gpu: str, expected: str) -> None:
    """The checkpoint has FP8 scales, which all others take."""
    arch = load_model("nvidia/DeepSeek-V3.2-NVFP4")
    assert kv_cache_type(arch, "auto", engine, load_gpu(gpu)) == expected
    assert kv_cache_type(load_model("nvidia/DeepSeek-V3.1-NVFP4"), "auto", engine, load_gpu(gpu)) == "fp8"


@pytest.mark.parametrize(("changes", "message"), [
    ({"model_type": "llama5"}, r"config.json: model_type = 'llama5' is not supported \(nearest: 'llama'"),
    ({"model_type": "arctic"}, "supported: .*qwen3_moe"),
    ({"model_type": "mamba"}, "architectures = None: its layers have recurrent states alone, .* does not model"),
    ({"model_type": None}, "config.json: model_type is missing"),
    ({"hidden_size": None}, "config.json: hidden_size is missing"),
    ({"vocab_size": "many"}, "vocab_size = 'many'; must be a positive integer"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0; must be a positive integer"),
    ({"num_key_value_heads": 0}, "num_key_value_heads = 0; must be a positive integer"),
    ({"num_key_value_heads": 3}, "num_key_value_heads = 3 must divide num_attention_heads = 8"),
    ({"model_type": "mixtral"}, "num_local_experts is missing"),
    ({**HYBRID, "layer_types": ["linear_attention"] * 4}, "4 of 4 layers are linear"),
    ({**HYBRID, "linear_num_value_heads": 3}, "linear_num_key_heads = 2 must divide linear_num_value_heads = 3"),
    ({"model_type": "qwen3_next", **MOE}, "linear_num_key_heads is missing"),
    ({**SPARSE, "q_lora_rank": None}, "index_topk = 8 needs q_lora_rank"),
    ({**SPARSE, "index_topk": None}, "index_topk is missing"),
    ({"quantization_config": {"quant_method": "rot13"}}, "quant_method = 'rot13' is not supported"),
    ({"quantization_config": {"quant_method": "auto-round", "bits": 3}},
     "quant_method = 'auto-round' with bits = 3 is not supported; remove .*--quantization"),
    ({"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp6_e3m2"}}}},
     "quant_method = 'quark' is not supported"),
    ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
     "quant_algo = 'MIXED_PRECISION' without quantized_layers.*hf_quant_config.json, or remove .*--quantization"),
    ({"quantization_config": {"quant_algo": "MIXED_PRECISION",
                              "quantized_layers": {"layers.0.mlp.up_proj": {"quant_algo": "W4A8_MXFP4"}}}},
     "quantized_layers: layers.0.mlp.up_proj has quant_algo = 'W4A8_MXFP4'; must be one of FP8"),
    ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8"}}, "quant_algo = 'W4A8' is not supp"),
    ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}},
     "calibrates a KV cache of 'NVFP4'.*--kv-cache-dtype"),
])
def test_errors_name_file_key_and_value(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        read(**changes)


def test_linear_layers_are_listed_or_come_at_an_interval() -> None:
    kinds = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
    assert read(**HYBRID).num_linear_layers == 3
    assert read(**HYBRID, full_attention_interval=2).num_linear_layers == 2
    assert read(**HYBRID, layer_types=kinds).num_linear_layers == 2
    assert read(layer_types=["full_attention"] * 4).num_linear_layers == 0


KIMI: dict[str, Any] = {
    "model_type": "kimi_linear", "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 4, "head_dim": 16,
                           "short_conv_kernel_size": 4}, "num_experts": 8, "num_experts_per_token": 2,
    "num_shared_experts": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "moe_layer_freq": 1}


def test_kimi_delta_attention_beside_latent_attention() -> None:
    arch = read(**KIMI)
    latent, linear, experts = attention_of(arch, Mla), attention_of(arch, KimiDelta), experts_of(arch)
    assert [kind for kind, _ in arch.by_attention] == [latent, linear]
    assert (arch.num_linear_layers, arch.num_moe_layers) == (3, 3)
    assert (linear.num_key_heads, linear.value_width, linear.decay_rank, linear.gate_rank) == (4, 64, 16, 16)
    assert (experts.num_experts_per_tok, experts.shared_width, linear.state_bytes_per_element) == (2, 32, 4)
    full = read(**{**KIMI, "linear_attn_config": {**KIMI["linear_attn_config"], "use_full_rank_gate": True}},
                mla_use_output_gate=True, routed_expert_hidden_size=32, attn_res_block_size=2)
    assert (attention_of(full, KimiDelta).gate_rank, attention_of(full, Mla).has_output_gate) == (0, True)
    assert (experts_of(full).latent_width, full.attn_res_block_size) == (32, 2)
    with pytest.raises(CatalogError, match=r"linear_attn_config = None; must have kda_layers"):
        read(**{**KIMI, "linear_attn_config": None})
    with pytest.raises(CatalogError, match=r"config.json: linear_attn_config: num_heads is missing"):
        read(**{**KIMI, "linear_attn_config": {"kda_layers": [1], "head_dim": 16, "short_conv_kernel_size": 4}})


BLOCKS = {"model_type": "minimax_m3", "num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
          "dense_intermediate_size": 256, "moe_layer_freq": [0, 1, 1, 1],
          "sparse_attention_config": {"sparse_attention_freq": [0, 1, 1, 1], "sparse_block_size": 16,
                                      "sparse_topk_blocks": 4, "sparse_num_index_heads": 2, "sparse_index_dim": 16}}


@pytest.mark.parametrize(("ignored", "expected"), [
    (["model.layers.3.mlp.shared_experts*", "model.layers.3.self_attn*"], (None, None, "nvfp4")),  # GLM-5.2, Kimi-K2.6
    (["*.mlp.shared_expert.*"], (None, "nvfp4", "nvfp4")),
    (["model.layers.0.mlp*"], (None, "nvfp4", "nvfp4")),  # Gemma 4's MLP beside its experts
    (["model.layers.0.mlp.shared_expert_gate", "model.layers.0.mlp.gate"], ("nvfp4", None, None)),
])
def test_a_checkpoint_may_keep_what_is_beside_its_experts(ignored: list[str], expected: tuple[str | None, ...]) -> None:
    arch = read(model_type="qwen2_moe", **MOE, quantization_config={
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignored})
    assert (arch.quantization, arch.attention_quantization, arch.expert_quantization) == expected
    for asked in (None, "nvfp4"):  # a command names the checkpoint's method, whatever that leaves out
        assert (weight_format(arch, asked), expert_format(arch, asked)) == (expected[0] or "bf16", "nvfp4")
    assert {form(arch, "fp8") for form in (weight_format, attention_format, expert_format)} == {"fp8"}


FLOAT_8 = {"num_bits": 8, "type": "float", "strategy": "block"}
FLOAT_4 = {"num_bits": 4, "type": "float", "group_size": 16}


@pytest.mark.parametrize(("groups", "ignored", "expected"), [
    ({"re:.*attn.*(wq_b|wo_a)$": FLOAT_8, "re:.*ffn.*(gate|up|down)_proj$": FLOAT_4}, [], ("nvfp4", "fp8_block", None)),
    ({"re:.*mlp.experts.*": FLOAT_4}, [], (None, None, "nvfp4")),
    ({"re:.*mlp.experts.*": FLOAT_4, "Linear": FLOAT_8}, ["lm_head"], ("fp8_block", None, "nvfp4")),
    ({"re:.*mlp.experts.*": FLOAT_4, "Linear": FLOAT_8}, ["re:.*self_attn.*"], ("fp8_block", "bf16", "nvfp4")),
    ({"re:.*mlp.*": FLOAT_8}, [], ("fp8_block", "bf16", None)),
    ({"Linear": FLOAT_4}, [], ("nvfp4", None, None)),
])
def test_groups_of_modules_have_formats_of_their_own(groups: dict[str, object], ignored: list[str],
                                                     expected: tuple[str | None, ...]) -> None:
    """As RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8 states them."""
    arch = read(model_type="qwen2_moe", **MOE, quantization_config={
        "quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ignored,
        "config_groups": {f"group_{k}": {"targets": [target], "weights": weights, "format": "nvfp4-pack-quantized"}
                          for k, (target, weights) in enumerate(groups.items())}})
    assert (arch.quantization, arch.attention_quantization, arch.expert_quantization) == expected


def test_a_group_of_an_unknown_format_is_named() -> None:
    with pytest.raises(CatalogError, match=r"config_groups.group_1.weights = \{'num_bits': 6.* is not supported"):
        read(quantization_config={"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"targets": ["re:.*mlp.*"], "weights": FLOAT_8},
            "group_1": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 6, "type": "float"}}}})


@pytest.mark.parametrize(("ignored", "expected"), [
    (["re:.*linear_attn.*"], (None, "bf16")),
    (["re:.*linear_attn.*", "re:.*self_attn.*"], ("bf16", None)),
    ([f"model.layers.{k}.linear_attn.in_proj_qkvz" for k in (0, 1, 2)], (None, "bf16")),
    ([f"model.layers.{k}.linear_attn.{name}" for k in (0, 1, 2) for name in ("in_proj_a", "in_proj_b", "conv1d")],
     (None, None)),  # which stay 16-bit in every format
])
def test_linear_attention_may_stay_in_16_bit(ignored: list[str], expected: tuple[str | None, str | None]) -> None:
    """Its projections, which are a fifth of a dense hybrid model, are then as large as in the 16-bit checkpoint."""
    stated = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "float"}}}}
    arch = read(**HYBRID, quantization_config={**stated, "ignore": ignored})
    assert (arch.quantization, arch.attention_quantization, arch.linear_quantization) == ("fp8", *expected)
    whole = read(**HYBRID, quantization_config=stated)
    linear = sum(gemm.parameters for gemm in attention_gemms(arch, 1) if gemm.part == "linear")
    full = sum(gemm.parameters for gemm in attention_gemms(arch, 1) if gemm.part != "linear")
    more = {(None, "bf16"): linear, ("bf16", None): linear + full}.get(expected, 0)
    assert layers_bytes(arch, None, Layout()) - layers_bytes(whole, None, Layout()) == pytest.approx(more)
    assert layers_bytes(arch, "bf16", Layout()) == layers_bytes(read(**HYBRID), None, Layout())


def test_a_few_layers_that_are_listed_one_by_one_are_exceptions() -> None:
    """Llama-3.1-405B in FP8 keeps the MLPs of its first and last layer, unsloth's checkpoints some attention."""
    listed = ["model.layers.0.self_attn.q_proj", "model.layers.3.self_attn"]
    stated = {"quant_method": "bitsandbytes", "llm_int8_skip_modules": listed}
    assert read(num_hidden_layers=40, quantization_config=stated).attention_quantization is None
    assert read(num_hidden_layers=8, quantization_config=stated).attention_quantization == "bf16"


@pytest.mark.parametrize("wrapped", [
    lambda text: {"model_type": "internvl_chat", "llm_config": text, "vision_config": {}},
    lambda text: {"model_type": "qwen3_omni_moe", "thinker_config": {"model_type": "thinker", "text_config": text,
                                                                      "audio_config": {}}},
    lambda text: {"model_type": "deepseek_vl_v2", "language_config": text},
    lambda text: {"model_type": "some_vl", "text_config": text, "hidden_size": 1},
])
def test_the_language_model_is_found_in_its_wrappers(wrapped: Any) -> None:
    text = {**LLAMA, "model_type": "qwen3_omni_moe_text", **MOE}
    arch = architecture_from_config(wrapped(text), name="test", where="config.json")
    assert arch == read(model_type="qwen3_moe", **MOE)


def test_mixed_precision_may_start_from_block_scaled_fp8() -> None:
    """As nvidia/DeepSeek-V4-Flash-NVFP4 states it."""
    arch = read(**COMPRESSED, quantization_config={
        "quant_method": "fp8", "weight_block_size": [128, 128], "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}}})
    assert (arch.quantization, arch.attention_quantization, arch.expert_quantization) == ("fp8_block", None, "nvfp4")


def test_blocks_of_nemotron_nas_have_lost_attention_or_width() -> None:
    def block(no_op: bool, ffn_mult: float, **more: object) -> dict[str, dict[str, object]]:
        return {"attention": {"no_op": no_op, "n_heads_in_group": None if no_op else 4, **more},
                "ffn": {"no_op": False, "ffn_mult": ffn_mult}}

    nas = {"model_type": "nemotron-nas", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": None,
           "intermediate_size": None}
    arch = read(**nas, block_configs=[block(False, 5.25), block(True, 1.5), block(False, 0.5)])
    assert (arch.num_layers, arch.num_mlp_layers, arch.num_dense_layers) == (2, 3, 3)
    assert attention_of(arch, Gqa).num_kv_heads == 2
    assert arch.dense_mlp.width == round((1792 + 512 + 256) / 3)
    assert arch.num_halves == 5
    with pytest.raises(CatalogError, match=r"block_configs has n_heads_in_group of \[2, 4\], and only one"):
        read(**nas, block_configs=[block(False, 1.0), block(False, 1.0, n_heads_in_group=2)])
    with pytest.raises(CatalogError, match="or with windows, which are not supported"):
        read(**nas, block_configs=[block(False, 1.0, window_length=64)])
    with pytest.raises(CatalogError, match="block_configs, hidden_size or num_attention_heads is missing"):
        read(**nas)


def test_an_indexer_may_choose_blocks_of_keys() -> None:
    arch = read(**BLOCKS)
    attention = attention_of(arch, Gqa)
    assert arch.layers == (LayerGroup(1, attention), LayerGroup(3, attention, indexer=BlockIndexer(
        num_heads=2, head_dim=16, topk=64)))
    assert (arch.dense_mlp.width, experts_of(arch).width, arch.num_moe_layers) == (256, LLAMA["intermediate_size"], 3)
    named = {name: value for name, value in BLOCKS.items() if name != "sparse_attention_config"} | {
        "layer_types": ["full_attention", *["minimax_m3_sparse"] * 3], "index_n_heads": 2, "index_head_dim": 16,
        "index_block_size": 16, "index_topk_blocks": 4}
    assert read(**named) == arch
    assert num_indexers(read()) == 0
    assert count(read(**SPARSE), lambda group: type(group.indexer) is Indexer) == 4
    with pytest.raises(CatalogError, match=r"sparse_attention_config = None; must have sparse_attention_freq"):
        read(**{**BLOCKS, "sparse_attention_config": None})
    with pytest.raises(CatalogError, match=r"sparse_attention_config: sparse_topk_blocks is missing"):
        read(**{**BLOCKS, "sparse_attention_config": {"sparse_attention_freq": [1] * 4, "sparse_num_index_heads": 1,
                                                      "sparse_index_dim": 8}})


def test_a_checkpoint_may_quantize_its_routed_experts_alone() -> None:
    """As Kimi-K2.5 in int4 and Kimi-K3 in MXFP4, by what their patterns leave out."""
    ignored = ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    for kind, form, expected in (("int", "pack-quantized", "int4-g32"), ("float", "mxfp4-pack-quantized", "mxfp4")):
        arch = read(**KIMI, quantization_config={
            "quant_method": "compressed-tensors", "format": form, "ignore": ignored,
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": kind, "group_size": 32}}}})
        assert (arch.quantization, arch.attention_quantization, arch.expert_quantization) == (None, None, expected)


def test_state_has_the_type_that_the_config_asks_for_and_the_class_adds_the_gate() -> None:
    assert attention_of(read(**HYBRID), GatedDeltaNet).state_bytes_per_element == 2
    assert attention_of(read(**HYBRID, mamba_ssm_dtype="float32"), GatedDeltaNet).state_bytes_per_element == 4
    assert attention_of(read(**HYBRID), Gqa).has_output_gate
    assert not attention_of(read(**HYBRID, attn_output_gate=False), Gqa).has_output_gate
    assert not attention_of(read(), Gqa).has_output_gate


def test_only_minimax_normalises_over_all_heads() -> None:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    assert read(model_type="minimax_m2", **experts).num_layers_normed_over_heads == 4
    assert not read(model_type="minimax_m2", qk_norm_type="per_head", **experts).num_layers_normed_over_heads
    assert not read().num_layers_normed_over_heads


def test_qwen3_5_wrapper_without_a_dense_width() -> None:
    text = {**LLAMA, **HYBRID, "model_type": "qwen3_5_moe_text", "shared_expert_intermediate_size": 16}
    del text["intermediate_size"]
    config = {"model_type": "qwen3_5_moe", "text_config": text, "vision_config": {"hidden_size": 1152}}
    arch = architecture_from_config(config, name="test", where="config.json")
    assert (arch.dense_mlp.width, arch.num_moe_layers, experts_of(arch).shared_width) == (0, 4, 16)


def test_layers_that_share_an_indexer() -> None:
    assert num_indexers(read(**SPARSE)) == 4
    assert num_indexers(read(**SPARSE, indexer_types=["full", "shared", "shared", "full"])) == 2
    frequent = read(**SPARSE, index_topk_freq=4, index_skip_topk_offset=3, num_hidden_layers=11)
    assert num_indexers(frequent) == 5  # layers 0, 1, 2, 6 and 10
    assert read(**SPARSE, first_k_dense_replace=1).num_moe_layers == 3


def test_compressed_attention_has_layers_by_their_ratios() -> None:
    arch = read(**COMPRESSED)
    assert [(group.count, group.tokens_per_entry, group.runs_indexer) for group in arch.layers] == [
        (2, 4, True), (1, 128, False), (1, 0, False)]  # the ratio of a layer that drafts comes last
    assert (attention_of(arch, Csa).window, num_sliding(arch)) == (16, 0)
    assert (arch.num_moe_layers, arch.kv_cache_dtype) == (4, "fp8")
    named = {name: value for name, value in COMPRESSED.items() if name != "compress_ratios"} | {
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                        "compressed_sparse_attention"], "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"]}
    assert read(**named) == arch


@pytest.mark.parametrize(("given", "expected"), [("fp4", "mxfp4"), ("fp8", None), (None, None), ("nvfp4", "nvfp4")])
def test_experts_may_have_a_format_of_their_own(given: str | None, expected: str | None) -> None:
    arch = read(**COMPRESSED, expert_dtype=given,
                quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert (arch.quantization, arch.expert_quantization) == ("fp8_block", expected)
    assert (weight_format(arch, None), expert_format(arch, None)) == ("fp8_block", expected or "fp8_block")
    assert expert_format(arch, "nvfp4") == "nvfp4"


@pytest.mark.parametrize(("changes", "message"), [
    ({"compress_ratios": [0, 4]}, r"compress_ratios = \[0, 4\]; must be a list with a number of tokens for each of 4"),
    ({"compress_ratios": [0, 4, 4, 4]}, r"compress_ratios has the ratios \[4\]; must be two"),
    ({"o_groups": 3}, "o_groups = 3 must divide num_attention_heads"),
    ({"expert_dtype": "fp3"}, "expert_dtype = 'fp3' is not supported; must be one of fp8, fp4, nvfp4"),
    ({"o_lora_rank": None}, "o_lora_rank is missing"),
])
def test_errors_of_compressed_attention_name_the_key(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        read(**{**COMPRESSED, **changes})


@pytest.mark.parametrize(("given", "weights", "experts", "attention"), [
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "store_dtype": "mxfp4"}, "fp8_block", "mxfp4", None),
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["model.layers.0.self_attn.o_proj"]},
     "fp8_block", None, None),  # the output alone
    ({"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.q_proj"]}, "fp8", None, "bf16"),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "float", "strategy": "block"}}}}, "fp8_block", None, None),
])
def test_formats_of_checkpoints_as_they_state_them(given: dict[str, object], weights: str, experts: str | None,
                                                   attention: str | None) -> None:
    arch = read(quantization_config=given)
    assert (arch.quantization, arch.expert_quantization, arch.attention_quantization) == (weights, experts, attention)


@pytest.mark.parametrize(("modules", "expected"), [
    ({"layers.0.self_attn.q_proj": "FP8", "layers.0.mlp.up_proj": "NVFP4", "lm_head": "W4A16_NVFP4",
      "mtp.layers.0.mlp.up_proj": "FP8"}, ("nvfp4", "fp8", None)),
    ({"layers.0.linear_attn.out_proj": "FP8", "layers.3.self_attn.q_proj": "FP8",
      "layers.0.mlp.experts": "W4A16_NVFP4", "layers.0.mlp.shared_expert.up_proj": "W4A16_NVFP4"},
     ("w4a16_nvfp4", "fp8", None)),
    ({"backbone.layers.0.mixer.in_proj": "FP8", "backbone.layers.1.mixer.experts.0.up_proj": "NVFP4",
      "backbone.layers.1.mixer.experts.1.up_proj": "NVFP4", "backbone.layers.1.mixer.shared_experts.up_proj": "FP8"},
     ("fp8", "bf16", "nvfp4")),  # attention is not listed, Mamba-2 is
    ({"layers.0.mlp.experts": "FP8_BLOCK_SCALES"}, (None, None, "fp8_block")),
])
def test_mixed_precision_has_a_format_for_each_part(modules: dict[str, str], expected: tuple[str | None, ...]) -> None:
    """As in PRs 35047 and 47318 of vLLM, and nvidia/Qwen3.6-35B-A3B-NVFP4."""
    arch = read(quantization_config={"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        name: {"quant_algo": algorithm} for name, algorithm in modules.items()}})
    assert (arch.quantization, arch.attention_quantization, arch.expert_quantization) == expected
    assert attention_format(arch, None) == (expected[1] or expected[0] or "bf16")
    assert attention_format(arch, "bf16") == "bf16"
    assert (head_format(arch, None), head_format(arch, "bf16")) == (
        "w4a16_nvfp4" if "lm_head" in modules else "bf16", "bf16")
    is_mamba = any("mixer" in name for name in modules)
    assert linear_format(arch, None) == ("fp8" if is_mamba else attention_format(arch, None))


@pytest.mark.parametrize(("engine", "version", "expected"), [
    ("vllm", None, "fp8"), ("vllm", "0.13", "fp8"), ("vllm", "0.12.0", "auto"), ("sglang", "0.5.5", "fp8"),
    ("trtllm", "1.0.0", "fp8")])
def test_vllm_takes_the_checkpoints_kv_cache_since_0_13(engine: str, version: str | None, expected: str) -> None:
    """vllm-project/vllm#29980."""
    arch = load_model("nvidia/Llama-3.3-70B-Instruct-NVFP4")
    assert kv_cache_type(arch, "auto", engine, version=version) == expected
    assert kv_cache_type(arch, "bf16", engine, version=version) == "bf16"


def test_a_null_key_takes_what_the_class_fills_in() -> None:
    assert read(model_type="gemma", tie_word_embeddings=None).tie_word_embeddings
    assert not read(tie_word_embeddings=None).tie_word_embeddings


def test_sliding_layers_of_laguna_have_more_heads() -> None:
    arch = load_model("poolside/Laguna-XS.2")
    assert [kind[1:3] for kind in gqa_kinds(arch)] == [(48, 8), (64, 8)]
    assert num_sliding(arch) == 30
