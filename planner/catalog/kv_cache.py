"""Memory of the KV cache of a token, and of the recurrent states of a sequence."""

from planner.catalog.architecture import Architecture
from planner.catalog.attention_reads import ContextReading, reading_of, readings
from planner.catalog.layers.layer_group import LayerGroup


def kv_bytes_per_token(arch: Architecture, kv_bytes_per_element: float) -> float:
    """KV cache of one token over all layers and GPUs, each value stored once, the indexer's keys included [bytes].

    GQA: 2 · layers · kv_heads · head_dim · bytes. MLA: layers · (kv_lora_rank + qk_rope_head_dim) · bytes. CSA: an
    entry of head_dim for every 4 or 128 tokens. Linear layers have none. Layers that read an earlier layer's have none.
    Sliding layers count in full, so for a context beyond the window it is too high.

    Each kind of attention has the bytes that a layer keeps (`Attention.kv_bytes`), each indexer the bytes of its keys.

    Source: Kwon et al., PagedAttention, 2023; DeepSeek-V2, 2024, table 1; vLLM's `MLAAttentionSpec`.

    >>> from planner.catalog.catalog_files import load_model
    >>> kv_bytes_per_token(load_model("llama-3.1-8b"), 2)
    131072.0
    """
    kept = sum(reading.layers * _entries_kept(reading) * reading.attention.kv_bytes(kv_bytes_per_element, 1)
               for reading in readings(arch))
    return kept + index_bytes_per_token(arch)


def kv_bytes_per_token_per_gpu(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int,
                               pipeline_parallel_size: int) -> float:
    """KV cache of one token on the GPU that holds most of it, the indexer's keys included [bytes].

    Layers are split over pipeline stages and KV heads over tensor-parallel ranks, both rounded up. A KV head is
    replicated if there are more ranks than heads; MLA's latent and the indexer's keys are on every rank.

    >>> from planner.catalog.catalog_files import load_model
    >>> kv_bytes_per_token_per_gpu(load_model("llama-3.1-8b"), 2, 16, 1)  # 8 KV heads: two ranks hold each
    16384.0
    """
    keys = sum(_key_bytes(group, -(-group.count // pipeline_parallel_size)) for group in arch.layers)
    return keys + sum(
        -(-reading.layers // pipeline_parallel_size) * _entries_kept(reading)
        * reading.attention.kv_bytes(kv_bytes_per_element, tensor_parallel_size) for reading in readings(arch))


def windowed_share(arch: Architecture, tensor_parallel_size: int) -> float:
    """Return the share of sliding layers in a token's KV cache on a GPU, without the indexer's keys [1].

    >>> from planner.catalog.catalog_files import load_model
    >>> windowed_share(load_model("gpt-oss-120b"), 1)
    0.5
    """
    sliding = [(attention, [group for group in groups if group.window]) for attention, groups in arch.by_attention]
    local = [reading_of(attention, groups) for attention, groups in sliding if groups]
    part, whole = (sum(reading.layers * _entries_kept(reading) * reading.attention.kv_bytes(1.0, tensor_parallel_size)
                       for reading in of) for of in (local, readings(arch)))
    return part / whole


def index_bytes_per_token(arch: Architecture) -> float:
    """Return the bytes that indexers read of one token of context, over all layers; every rank holds all of it [bytes].

    layers · (index_head_dim + 4 · index_head_dim / 128): an FP8 key and its FP32 scale, for any type of the KV cache;
    of CSA, one for every 4 tokens; of GQA, a key in 16 bit.

    >>> from planner.catalog.catalog_files import load_model
    >>> index_bytes_per_token(load_model("deepseek-v3.2")) / 61
    132.0
    """
    return sum(_key_bytes(group, group.count) for group in arch.layers)


def state_bytes_per_seq(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int,
                        pipeline_parallel_size: int) -> int:
    """Return the state of one sequence on the GPU that holds most of it, the same for any length [bytes].

    Recurrent states of linear attention; in CSA the window and the tokens that compressors have not made entries of
    (`Attention.state_bytes`).

    >>> from planner.catalog.catalog_files import load_model
    >>> state_bytes_per_seq(load_model("qwen3.5-397b-a17b"), 2, 1, 1) // 45  # FP32: 64 heads of 128 x 128
    4268032
    """
    return sum(attention.state_bytes(groups, kv_bytes_per_element, tensor_parallel_size, pipeline_parallel_size)
               for attention, groups in arch.by_attention)


def _entries_kept(reading: ContextReading) -> float:
    """Entries that a layer of a kind keeps of a token in the mean: none if it reads an earlier layer's [1]."""
    return (reading.context + reading.window) / reading.layers * (1 - reading.shared / reading.layers)


def _key_bytes(group: LayerGroup, num_layers: int) -> float:
    """The indexers' keys of one token, of `num_layers` layers of a group [bytes]."""
    if group.indexer is None or group.reuses_choice:
        return 0.0
    return num_layers * group.indexer.key_bytes / group.tokens_per_entry
