"""Architectures: published parameter counts, KV cache, and the states of linear attention."""

import doctest
import math

import pytest
from architectures import attention_of, num_indexers, num_sliding, weights

from planner.catalog import attention_reads as attention
from planner.catalog import kv_cache, parameters
from planner.catalog.attention_reads import readings, window_tokens
from planner.catalog.catalog_files import load_model
from planner.catalog.kv_cache import (
    index_bytes_per_token,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    state_bytes_per_seq,
    windowed_share,
)
from planner.catalog.layers import dense_gemm
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.parameters import (
    compressor_parameters,
    embedding_parameters,
    mixing_parameters,
    num_active_parameters,
    num_parameters,
    per_layer_embeddings,
)
from planner.deployment.memory import weight_bytes
from planner.model.layout import Layout
from planner.model.projections import projections


def test_doctests_hold() -> None:
    assert [doctest.testmod(module).failed for module in (attention, kv_cache, parameters, dense_gemm)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("name", "published"), [
    ("llama-3.1-8b", 8.03e9), ("llama-3.1-70b", 70.55e9), ("llama-3.1-405b", 405.9e9), ("llama-3.2-1b", 1.24e9),
    ("llama-3.2-3b", 3.21e9), ("llama-2-7b", 6.74e9), ("llama-2-70b", 68.98e9), ("llama-4-scout", 107.8e9),
    ("llama-4-maverick", 400.7e9), ("mistral-7b-v0.1", 7.24e9), ("mistral-7b", 7.25e9), ("mixtral-8x7b", 46.7e9),
    ("mixtral-8x22b", 140.6e9), ("qwen2.5-7b", 7.62e9), ("qwen2.5-72b", 72.7e9), ("qwen3-8b", 8.19e9),
    ("qwen3-32b", 32.8e9), ("qwen3-30b-a3b", 30.5e9), ("qwen3-235b-a22b", 235e9), ("gemma-2-9b", 9.24e9),
    ("gemma-2-27b", 27.2e9), ("gemma-3-27b", 27.0e9), ("gemma-4-31b", 30.7e9),
    ("gemma-4-26b-a4b", 25.2e9), ("mimo-v2-flash", 309e9),
    ("nemotron-3-nano-30b-a3b", 31.6e9), ("granite-4.0-h-small", 32.2e9), ("phi-3-mini", 3.82e9), ("phi-4", 14.66e9),
    ("deepseek-v2-lite", 15.7e9), ("deepseek-v3", 671e9), ("kimi-k2", 1.026e12), ("gpt-oss-20b", 20.9e9),
    ("gpt-oss-120b", 116.8e9), ("minimax-m2.5", 228.7e9),
    ("qwen3.5-397b-a17b", 397e9), ("qwen3.5-122b-a10b", 122e9), ("qwen3.5-27b", 27e9), ("qwen3.5-35b-a3b", 35e9),
    ("qwen3-next-80b-a3b", 80e9), ("glm-5", 744e9), ("deepseek-v3.2", 671.9e9), ("glm-4.5", 355e9),
    ("glm-4.5-air", 106e9), ("glm-4.7-flash", 30e9), ("qwen3-coder-480b-a35b", 480e9),
    ("deepseek-v4-flash", 284e9), ("deepseek-v4-pro", 1.573e12), ("hy3", 295e9), ("mistral-small-4", 119e9),
    ("mistral-large-3", 675e9), ("nemotron-3-super-120b-a12b", 120.7e9), ("nemotron-3-ultra-550b-a55b", 550e9),
    ("step-3.5-flash", 196e9), ("command-a-plus", 218e9), ("granite-4.1-30b", 28.9e9), ("granite-4.2-8b", 8.79e9),
    ("granite-4.2-30b", 29.28e9), ("solar-open-100b", 102.6e9), ("mimo-v2.5-pro", 1.023e12),
    ("kimi-k3", 2779.48e9), ("kimi-linear-48b-a3b", 49.12e9), ("k2-horizon-375b-a23b", 379.2e9),
    ("laguna-s-2.1", 117.6e9), ("laguna-xs.2", 33.4e9), ("llama-3.3-nemotron-super-49b", 49.87e9),
    ("ling-1t", 999.705e9), ("ling-flash-2.0", 103e9), ("ling-mini-2.0", 16.26e9), ("ling-lite-1.5", 16.8e9),
    ("hunyuan-a13b", 80.4e9),
])
def test_parameter_count_is_the_published_one(name: str, published: float) -> None:
    assert num_parameters(load_model(name)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("name", "published", "counts_embedding"), [
    ("deepseek-v3", 37e9, True), ("mixtral-8x7b", 12.9e9, True), ("qwen3-235b-a22b", 22e9, True),
    ("qwen3-30b-a3b", 3.3e9, True), ("gpt-oss-120b", 5.13e9, False), ("gpt-oss-20b", 3.61e9, False),
    ("qwen3-coder-480b-a35b", 35e9, True), ("deepseek-v3.2", 37e9, False),
    ("deepseek-v4-pro", 49e9, False), ("gemma-4-e2b", 2.3e9, False), ("kimi-k3", 104e9, False),
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


def test_sliding_layers_with_other_heads_have_their_own_cache() -> None:
    """Gemma 4 31B: 10 layers of 4 heads, 512 wide, that see all tokens, 50 of 16, 256 wide, with a window of 1,024."""
    arch = load_model("gemma-4-31b")
    full, local = 10 * 2 * 4 * 512 * 2, 50 * 2 * 16 * 256 * 2
    assert kv_bytes_per_token(arch, 2) == full + local == kv_bytes_per_token_per_gpu(arch, 2, 1, 1)
    assert windowed_share(arch, 1) == local / (full + local)
    assert kv_bytes_per_token_per_gpu(arch, 2, 8, 1) == 10 * 2 * 1 * 512 * 2 + local / 8  # two ranks hold a head
    assert [sum(group.count for group in groups) * weights(kind, 5376) for kind, groups in arch.by_attention] == [
        10 * 5376 * 512 * (2 * 32 + 4), 50 * 5376 * 256 * (2 * 32 + 2 * 16)]  # keys are values where all is seen
    assert readings(arch) == [(10, 10, 0, 0, 0, arch.by_attention[0][0]), (50, 0, 50, 0, 0, arch.by_attention[1][0])]


def test_layers_that_share_a_cache_read_it_and_keep_none() -> None:
    """Gemma 4 E2B: of 7 layers that see all tokens and 28 with a window, 3 and 12 have a cache, and 20 a wide MLP."""
    arch = load_model("google/gemma-4-E2B-it")
    assert [reading[:5] for reading in readings(arch)] == [(7, 7, 0, 0, 4), (28, 0, 28, 0, 16)]
    full, local = 3 * 2 * 512 * 2, 12 * 2 * 256 * 2
    assert kv_bytes_per_token(arch, 2) == full + local == kv_bytes_per_token_per_gpu(arch, 2, 1, 1)
    assert windowed_share(arch, 1) == local / (full + local)
    assert num_active_parameters(arch) == num_parameters(arch) - per_layer_embeddings(arch)
    attention = 7 * 1536 * 512 * (2 * 8 + 2) + 28 * 1536 * 256 * (2 * 8 + 2)
    inputs = 35 * 2 * 1536 * 256 + 1536 * 35 * 256
    assert num_active_parameters(arch) == 262144 * 1536 + attention + 3 * 1536 * 6144 * (15 + 2 * 20) + inputs
    assert weight_bytes(arch, None, Layout()) == 2 * num_parameters(arch)
    halves = sum(gemm.parameters for gemm in projections(arch, 2)) + embedding_parameters(arch) / 2
    assert weight_bytes(arch, None, Layout(tensor_parallel_size=2)) == pytest.approx(2 * halves, rel=1e-12)


def test_states_of_kimi_delta_attention() -> None:
    """As in SGLang's cookbook: 69 layers of 96 heads of 128 x 128 in FP32, and 9 inputs a head in 16 bit."""
    arch = load_model("moonshotai/Kimi-K3")
    assert state_bytes_per_seq(arch, 2, 8, 1) == 69 * (12 * 128 * 128 * 4 + 9 * 12 * 128 * 2)
    assert kv_bytes_per_token(arch, 2) == 24 * 576 * 2
    assert weight_bytes(arch, None, Layout(tensor_parallel_size=8)) / 2**30 == pytest.approx(190.97, rel=1e-3)


@pytest.mark.parametrize(("name", "window", "layers"), [
    ("gemma-2-9b", 4096, 21), ("gemma-3-27b", 1024, 52), ("gpt-oss-120b", 128, 18), ("mistral-7b-v0.1", 4096, 32),
    ("mistral-7b", 0, 0), ("qwen2.5-7b", 0, 0), ("llama-4-scout", 8192, 36), ("llama-3.1-8b", 0, 0),
])
def test_sliding_layers(name: str, window: int, layers: int) -> None:
    arch = load_model(name)
    assert (arch.sliding_window, num_sliding(arch)) == (window, layers)


@pytest.mark.parametrize(("name", "published"), [("glm-5", 40e9), ("glm-4.5", 32e9), ("glm-4.5-air", 12e9)])
def test_glm_publishes_the_active_parameters_of_the_layers(name: str, published: float) -> None:
    arch = load_model(name)
    assert num_active_parameters(arch) - arch.vocab_size * arch.hidden_size == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("name", "tables", "published"), [
    ("qwen3.5-397b-a17b", 2, 17), ("qwen3-next-80b-a3b", 0, 3), ("qwen3.5-35b-a3b", 1, 3), ("qwen3.5-122b-a10b", 2, 10),
])
def test_active_parameters_round_to_the_name(name: str, tables: int, published: int) -> None:
    """Qwen's names have one rounded number, counted with or without the embedding and the LM head."""
    arch = load_model(name)
    layers = num_active_parameters(arch) - arch.vocab_size * arch.hidden_size
    assert round((layers + tables * arch.vocab_size * arch.hidden_size) / 1e9) == published


def test_hybrid_layers_by_hand() -> None:
    arch = load_model("Qwen/Qwen3.5-397B-A17B")
    assert (arch.num_attention_layers, arch.num_linear_layers) == (15, 45)
    gated = 4096 * (2 * 32 * 256 + 2 * 2 * 256) + 32 * 256 * 4096  # query and gate
    assert weights(attention_of(arch, Gqa), 4096) == gated
    assert kv_bytes_per_token(arch, 2) == 15 * 2 * 2 * 256 * 2
    assert kv_bytes_per_token_per_gpu(arch, 2, 8, 1) == 15 * 2 * 256 * 2  # 2 KV heads: four ranks hold the same one
    state, inputs = 64 * 128 * 128 * 4, 3 * (2 * 16 * 128 + 64 * 128) * 2
    assert state_bytes_per_seq(arch, 2, 1, 1) == 45 * (state + inputs)
    assert state_bytes_per_seq(arch, 2, 8, 1) * 8 == state_bytes_per_seq(arch, 2, 1, 1)
    assert state_bytes_per_seq(arch, 2, 1, 2) == 23 * (state + inputs)
    assert state_bytes_per_seq(load_model("llama-3.1-8b"), 2, 1, 1) == 0


@pytest.mark.parametrize(("pool_gib", "blocks", "tokens"), [
    (8.82, 184, 141_036), (9.75, 203, 155_600), (16.74, 349, 267_509),
])
def test_state_and_kv_give_the_pool_of_vllms_start_up_logs(pool_gib: float, blocks: int, tokens: int) -> None:
    """vLLM 0.26, one GPU, a Qwen 27B of 48 linear and 16 other layers: 4 groups of 16 layers share one pool.

    A block of each group is as large; a sequence takes one for the state of each linear group. vLLM states the pool as
    the blocks over those of the longest sequence, times its 131,072 tokens.
    """
    arch = load_model("qwen3.5-27b")
    state_groups = arch.num_linear_layers // arch.num_attention_layers
    kv = kv_bytes_per_token(arch, 2)
    block_size = 16 * math.ceil(state_bytes_per_seq(arch, 2, 1, 1) / state_groups / kv / 16)
    assert int(pool_gib * 2**30 / (block_size * kv)) == blocks
    longest = math.ceil(131_072 / block_size) + state_groups
    assert longest * block_size * kv / 2**30 == pytest.approx(8.18, abs=0.005)  # "8.18 GiB KV cache is needed"
    assert int(blocks / longest * 131_072) == tokens


def test_sparse_attention_keeps_a_key_for_the_indexer() -> None:
    arch = load_model("zhipuai/GLM-5")
    assert (window_tokens(arch), num_indexers(arch), attention_of(arch, Mla).is_sparse) == (2048, 78, True)
    assert kv_bytes_per_token(arch, 2) == 78 * (576 * 2 + 132)
    assert kv_bytes_per_token(arch, 1) == 78 * (656 + 132)  # vLLM's fp8_ds_mla
    assert kv_bytes_per_token_per_gpu(arch, 1, 8, 1) == kv_bytes_per_token(arch, 1)  # on every rank in full
    assert kv_bytes_per_token_per_gpu(arch, 1, 8, 2) * 2 == kv_bytes_per_token(arch, 1)
    assert index_bytes_per_token(arch) == 78 * 132
    assert index_bytes_per_token(load_model("zai-org/GLM-5.2")) == 21 * 132  # shared by four layers
    assert index_bytes_per_token(load_model("deepseek-v3")) == 0


def test_compressed_attention_by_hand() -> None:
    """DeepSeek-V4-Flash: 21 layers with entries of 4 tokens, 20 of 128, 2 with their window of 128 tokens alone."""
    arch = load_model("deepseek-ai/DeepSeek-V4-Flash")
    indexed, plain, alone = arch.layers
    assert [(group.count, group.tokens_per_entry) for group in arch.layers] == [(21, 4), (20, 128), (2, 0)]
    assert (num_indexers(arch), arch.num_residual_streams) == (21, 4)
    assert indexed.attention == plain.attention == alone.attention
    attention, indexer = attention_of(arch, Csa), indexed.indexer
    assert indexer is not None
    projected = sum(gemm.parameters for gemm in attention.projections(alone, 4096, 1))
    assert projected == 4096 * (1024 + 512) + 1024 * 64 * 512 + 64 * 512 * 1024 + 8 * 1024 * 4096
    assert sum(gemm.parameters for gemm in indexer.projections(4096, 1024)) == 1024 * 64 * 128 + 4096 * 64
    assert compressor_parameters(arch) == 4096 * (21 * 4 * (512 + 128) + 20 * 2 * 512)
    assert mixing_parameters(arch) == 2 * 43 * 4 * 4096 * (4 + 4 + 16)
    entry, key = 448 + 2 * 64 + 8, 128 + 4
    assert kv_bytes_per_token(arch, 1) == 21 * (entry + key) / 4 + 20 * entry / 128
    assert kv_bytes_per_token_per_gpu(arch, 1, 8, 1) == kv_bytes_per_token(arch, 1)  # on every rank in full
    assert index_bytes_per_token(arch) == 21 * key / 4
    rows = 4 * (21 * 8 * 4 * (512 + 128) + 20 * 128 * 2 * 512)
    assert state_bytes_per_seq(arch, 1, 8, 1) == 43 * 128 * entry + rows
    assert readings(arch) == [(43, 20 / 128, 21 / 4, 43 * 128, 0, attention)]
