"""Bytes and operations of attention for one query, by kind of layer."""

from typing import NamedTuple

from planner.catalog.architecture import Architecture


class Reading(NamedTuple):
    """What layers of one kind read of a sequence's context.

    Parameters
    ----------
    layers : of this kind [1].
    context : entries read of each context token, over all of these layers [1].
    window : the same of the last `window_tokens`, or of as many that an indexer chooses [1].
    recent : entries read besides, whatever the context [1].
    shared : of these, layers that read what an earlier layer keeps [1].
    kind : the model as if all layers had these heads.
    """

    layers: int
    context: float
    window: float
    recent: int
    shared: int
    kind: Architecture


def readings(arch: Architecture) -> list[Reading]:
    """Return the kinds of layers with a KV cache, by their heads, and what they read.

    An entry is a token, but where CSA keeps one for several: its layers with an indexer choose among those of 4 tokens,
    the others read all of those of 128, and all of them the last 128 tokens besides, as they are.

    >>> from planner.catalog.catalog_files import load_model
    >>> [reading[:4] for reading in readings(load_model("gpt-oss-120b"))]
    [(36, 18, 18, 0)]
    >>> [reading[:4] for reading in readings(load_model("deepseek-v4-flash"))]
    [(43, 0.15625, 5.25, 5504)]
    """
    layers = arch.num_attention_layers
    if arch.attention == "csa":
        return [Reading(layers, arch.num_hca_layers / arch.hca_rate, arch.num_index_layers / arch.index_rate,
                        layers * arch.sliding_window, 0, arch)]
    windowed = arch.num_sparse_layers or arch.num_sliding_layers
    if not arch.sliding_head_dim:
        return [Reading(layers, layers - windowed, windowed, 0, 0, arch)]
    (full, of_full), (windowed, of_windowed) = arch.attention_kinds
    return [Reading(full, full, 0, 0, arch.num_kv_shared_layers, of_full),
            Reading(windowed, 0, windowed, 0, arch.num_kv_shared_sliding_layers, of_windowed)]


def window_tokens(arch: Architecture) -> int:
    """Return how much context layers with a window, or an indexer, see at most; 0 where there are none [tokens].

    >>> from planner.catalog.catalog_files import load_model
    >>> [window_tokens(load_model(name)) for name in ("llama-3.1-8b", "gpt-oss-120b", "glm-5", "deepseek-v4-flash")]
    [0, 128, 2048, 2048]
    """
    if arch.index_topk:
        return arch.index_topk * arch.index_rate
    return arch.sliding_window if arch.num_sliding_layers else 0


def attention_flops_per_pair(arch: Architecture, *, is_decode: bool) -> float:
    """Return the arithmetic of one query token attending to one entry in one layer, all heads [FLOP].

    GQA and CSA: QK^T and PV, 4 · heads · head_dim. MLA in prefill multiplies the expanded keys and values; in decode
    the latent itself (absorbed projections), 2 · heads · (2 · kv_lora_rank + qk_rope_head_dim).

    >>> from planner.catalog.catalog_files import load_model
    >>> attention_flops_per_pair(load_model("llama-3.1-8b"), is_decode=True)
    16384.0
    """
    if arch.attention != "mla":
        return 4.0 * arch.num_attention_heads * arch.head_dim
    if is_decode:
        return 2.0 * arch.num_attention_heads * (2 * arch.kv_lora_rank + arch.qk_rope_head_dim)
    return 2.0 * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim + arch.v_head_dim)
