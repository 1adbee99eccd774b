"""Architectures: published parameter and KV counts, every supported family, and errors."""

import doctest

import pytest

from planner import architecture
from planner.architecture import (
    Architecture,
    architecture_from_config,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    num_active_parameters,
    num_parameters,
)
from planner.catalog import load_model
from planner.errors import CatalogError

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512}


def read(**changes: object) -> Architecture:
    return architecture_from_config({**LLAMA, **changes}, name="test", where="config.json")


def test_doctests_hold() -> None:
    assert doctest.testmod(architecture).failed == 0


@pytest.mark.parametrize(("name", "published"), [
    ("llama-3.1-8b", 8.03e9), ("llama-3.1-70b", 70.55e9), ("llama-3.1-405b", 405.9e9), ("llama-3.2-1b", 1.24e9),
    ("llama-3.2-3b", 3.21e9), ("llama-2-7b", 6.74e9), ("llama-2-70b", 68.98e9), ("llama-4-scout", 107.8e9),
    ("llama-4-maverick", 400.7e9), ("mistral-7b-v0.1", 7.24e9), ("mistral-7b", 7.25e9), ("mixtral-8x7b", 46.7e9),
    ("mixtral-8x22b", 140.6e9), ("qwen2.5-7b", 7.62e9), ("qwen2.5-72b", 72.7e9), ("qwen3-8b", 8.19e9),
    ("qwen3-32b", 32.8e9), ("qwen3-30b-a3b", 30.5e9), ("qwen3-235b-a22b", 235e9), ("gemma-2-9b", 9.24e9),
    ("gemma-2-27b", 27.2e9), ("gemma-3-27b", 27.0e9), ("phi-3-mini", 3.82e9), ("phi-4", 14.66e9),
    ("deepseek-v2-lite", 15.7e9), ("deepseek-v3", 671e9), ("kimi-k2", 1.026e12), ("gpt-oss-20b", 20.9e9),
    ("gpt-oss-120b", 116.8e9), ("minimax-m2.5", 228.7e9),
])
def test_parameter_count_is_the_published_one(name: str, published: float) -> None:
    assert num_parameters(load_model(name)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("name", "published", "counts_embedding"), [
    ("deepseek-v3", 37e9, True), ("mixtral-8x7b", 12.9e9, True), ("qwen3-235b-a22b", 22e9, True),
    ("qwen3-30b-a3b", 3.3e9, True), ("gpt-oss-120b", 5.13e9, False), ("gpt-oss-20b", 3.61e9, False),
])
def test_active_parameters_are_the_published_ones(name: str, published: float, counts_embedding: bool) -> None:
    arch = load_model(name)
    embedding = arch.vocab_size * arch.hidden_size if counts_embedding else 0
    assert num_active_parameters(arch) + embedding == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("name", "expected"), [
    ("llama-3-8b", 131_072), ("llama-3.1-70b", 327_680), ("llama-2-7b", 524_288), ("deepseek-v3", 70_272),
])
def test_kv_bytes_per_token(name: str, expected: int) -> None:
    assert kv_bytes_per_token(load_model(name), 2) == expected


@pytest.mark.parametrize(("name", "tp", "pp", "expected"), [
    ("llama-3.1-70b", 4, 1, 327_680 / 4), ("llama-3.1-70b", 8, 2, 327_680 / 16),
    ("llama-3.1-70b", 16, 1, 327_680 / 8),  # 8 KV heads: two ranks hold the same one
    ("deepseek-v3", 8, 1, 70_272),  # the latent is on every rank
    ("llama-3.1-405b", 8, 4, 32 * 2 * 128 * 2),  # 126 layers: the largest stage has 32
])
def test_kv_bytes_per_gpu(name: str, tp: int, pp: int, expected: float) -> None:
    assert kv_bytes_per_token_per_gpu(load_model(name), 2, tp, pp) == expected


@pytest.mark.parametrize(("name", "window", "layers"), [
    ("gemma-2-9b", 4096, 21), ("gemma-3-27b", 1024, 52), ("gpt-oss-120b", 128, 18), ("mistral-7b-v0.1", 4096, 32),
    ("mistral-7b", 0, 0), ("qwen2.5-7b", 0, 0), ("llama-4-scout", 8192, 36), ("llama-3.1-8b", 0, 0),
])
def test_sliding_layers(name: str, window: int, layers: int) -> None:
    arch = load_model(name)
    assert (arch.sliding_window, arch.num_sliding_layers) == (window, layers)


def test_listed_layer_types_override_the_pattern() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    assert read(sliding_window=16, layer_types=kinds).num_sliding_layers == 3
    assert read(sliding_window=512).num_sliding_layers == 0  # as long as the context: no window


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
    assert (arch.num_moe_layers, arch.num_dense_layers, arch.shared_intermediate_size) == (3, 1, 48)
    deepseek = load_model("deepseek-v3")
    assert (deepseek.num_dense_layers, deepseek.shared_intermediate_size, deepseek.attention) == (3, 2048, "mla")
    maverick = load_model("llama-4-maverick")
    assert (maverick.num_moe_layers, maverick.intermediate_size) == (24, 16384)


def test_nested_text_config_with_omitted_defaults() -> None:
    config = {"model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}
    arch = architecture_from_config(config, name="gemma-3-4b", where="config.json")
    assert num_parameters(arch) == pytest.approx(3.88e9, rel=0.01)
    assert (arch.max_model_len, arch.num_sliding_layers, arch.tie_word_embeddings) == (131_072, 29, True)


@pytest.mark.parametrize(("given", "expected"), [
    ({"quant_method": "fp8"}, ("fp8", True)),
    ({"quant_method": "awq", "bits": 4}, ("awq", True)),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, ("nvfp4", True)),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, ("mxfp4", False)),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, ("fp8", True)),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
     ("int4-g32", True)),
])
def test_native_quantization(given: dict[str, object], expected: tuple[str, bool]) -> None:
    arch = read(quantization_config=given)
    assert (arch.quantization, arch.quantized_attention) == expected


@pytest.mark.parametrize(("changes", "message"), [
    ({"model_type": "llama5"}, r"config.json: model_type = 'llama5' is not supported \(nearest: 'llama'"),
    ({"model_type": "mamba"}, "supported: .*qwen3_moe"),
    ({"model_type": None}, "config.json: model_type is missing"),
    ({"hidden_size": None}, "config.json: hidden_size is missing"),
    ({"vocab_size": "many"}, "vocab_size = 'many'; must be a positive integer"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0; must be a positive integer"),
    ({"num_key_value_heads": 0}, "num_key_value_heads = 0; must be a positive integer"),
    ({"num_key_value_heads": 3}, "num_key_value_heads = 3 must divide num_attention_heads = 8"),
    ({"model_type": "mixtral"}, "num_local_experts is missing"),
    ({"quantization_config": {"quant_method": "rot13"}}, "quant_method = 'rot13' is not supported"),
])
def test_errors_name_file_key_and_value(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        read(**changes)
