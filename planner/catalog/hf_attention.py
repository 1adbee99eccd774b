"""Attention in a Hugging Face config: groups of layers, each kind read by a reader of its own."""

from collections.abc import Callable, Mapping, Sequence

from planner.catalog import families
from planner.catalog.hf_indexers import block_indexer, compressed_layers, latent_indexer
from planner.catalog.hf_keys import Depth, Keys
from planner.catalog.hf_linear import linear_layers
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import LayerGroup
from planner.errors import CatalogError

Reader = Callable[[Keys, str, Depth], tuple[LayerGroup, ...]]
SINK_KEYS = ("add_full_attention_sink_bias", "add_swa_attention_sink_bias")  # MiMo-V2's; gpt-oss always has sinks


def layer_groups(keys: Keys, model_type: str, num_layers: int, max_model_len: int) -> tuple[LayerGroup, ...]:
    """Return the groups of layers with attention of any kind: layers that see all tokens, sliding ones, linear ones.

    Raises
    ------
    CatalogError : no layer has a KV cache, or a key is missing or wrong.
    """
    linear = linear_layers(keys, model_type, num_layers)
    is_apart = linear is not None and model_type not in families.SIDE_BY_SIDE
    num_cached = num_layers - linear.count if linear is not None and is_apart else num_layers
    if num_cached < 1:
        raise CatalogError(f"{keys.where}: {num_layers - num_cached} of {num_layers} layers are linear; at least one "
                           "must have full attention; check layer_types")
    window, num_sliding = sliding_layers(keys, model_type, num_layers, max_model_len)
    read = next(reader for is_of, reader in READERS if is_of(keys, model_type))
    groups = read(keys, model_type, Depth(num_layers, num_cached, window, min(num_sliding, num_cached)))
    return tuple(group for group in (*groups, linear) if group is not None and group.count > 0)


def _grouped_query(keys: Keys, model_type: str, depth: Depth) -> tuple[LayerGroup, ...]:
    """Read grouped-query attention, with windows, shared caches, or an indexer that chooses blocks (MiniMax)."""
    full, local = _heads(keys, model_type)
    if model_type in families.BLOCK_SPARSE:
        num_sparse, indexer = block_indexer(keys, depth.num_layers)
        return LayerGroup(depth.num_cached - num_sparse, full), LayerGroup(num_sparse, full, indexer=indexer)
    shared, sliding_shared = shared_caches(keys, model_type, depth)
    num_full = depth.num_cached - depth.num_sliding
    return (LayerGroup(num_full - shared, full), LayerGroup(shared, full, shares_cache=True),
            LayerGroup(depth.num_sliding - sliding_shared, local, window=depth.window),
            LayerGroup(sliding_shared, local, window=depth.window, shares_cache=True))


def _latent(keys: Keys, model_type: str, depth: Depth) -> tuple[LayerGroup, ...]:
    """Read multi-head latent attention, with an indexer in DeepSeek sparse attention."""
    num_heads, num_kv_heads, head_dim = _full_heads(keys, model_type)
    is_sparse = model_type in families.SPARSE
    attention = Mla(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, q_lora_rank=keys.integer("q_lora_rank", 0),
        kv_lora_rank=keys.integer("kv_lora_rank"), qk_nope_head_dim=keys.integer("qk_nope_head_dim"),
        qk_rope_head_dim=keys.integer("qk_rope_head_dim", 0 if model_type in families.WITHOUT_ROPE else None),
        v_head_dim=keys.integer("v_head_dim"), has_output_gate=_has_output_gate(keys), is_sparse=is_sparse)
    if not is_sparse:
        return depth.groups(attention)
    count, indexer = latent_indexer(keys, depth.num_layers)
    return (LayerGroup(count, attention, indexer=indexer),
            LayerGroup(depth.num_cached - count, attention, indexer=indexer, reuses_choice=True))


def _compressed(keys: Keys, model_type: str, depth: Depth) -> tuple[LayerGroup, ...]:
    """Read compressed sparse attention: layers with an indexer, without one, and with their window alone."""
    num_heads, _, head_dim = _full_heads(keys, model_type)
    attention = Csa(
        num_heads=num_heads, head_dim=head_dim, qk_rope_head_dim=keys.integer("qk_rope_head_dim"),
        q_lora_rank=keys.integer("q_lora_rank", 0), o_groups=keys.integer("o_groups"),
        o_lora_rank=keys.integer("o_lora_rank"), window=keys.integer("sliding_window", 0))
    return compressed_layers(keys, attention, depth.num_layers)


READERS: tuple[tuple[Callable[[Keys, str], bool], Reader], ...] = (  # the first that fits a model
    (lambda _, model_type: model_type in families.COMPRESSED, _compressed),
    (lambda keys, _: "kv_lora_rank" in keys.config, _latent),
    (lambda _, __: True, _grouped_query),
)


def sliding_layers(keys: Keys, model_type: str, num_layers: int, max_model_len: int) -> tuple[int, int]:
    """Return the window [tokens] and the number of the layers that have it; zeros without one."""
    window = keys.integer("attention_chunk_size" if model_type == "llama4_text" else "sliding_window", 0)
    if model_type == "modernbert":  # half of it on each side, and the token itself
        window = keys.integer("local_attention") // 2 + 1
    layer_types = keys.config.get("layer_types") or keys.config.get("hybrid_layer_pattern")
    if isinstance(layer_types, Sequence):
        count = sum(kind in ("sliding_attention", "chunked_attention", 1) for kind in layer_types[:num_layers])
    elif model_type == "modernbert":
        count = num_layers - -(-num_layers // keys.integer("global_attn_every_n_layers"))
    elif model_type in ("gemma2", "gpt_oss"):
        count = (num_layers + 1) // 2
    elif isinstance(pattern := keys.config.get("sliding_window_pattern"), str) and pattern:  # "LLLG": local and global
        count = sum(pattern[layer % len(pattern)] == "L" for layer in range(num_layers))
    elif model_type in families.SLIDING_PATTERN:
        period = keys.integer("sliding_window_pattern", families.SLIDING_PATTERN[model_type])
        last = model_type == "gemma4_text" and num_layers % period > 0  # sees all tokens wherever it falls
        count = num_layers - num_layers // period - last
    elif model_type.startswith("qwen") or model_type == "dots1":
        first = keys.integer("max_window_layers", 0)
        slides = keys.config.get("use_sliding_window", model_type == "dots1")
        count = max(0, num_layers - first) if slides else 0
    else:
        count = num_layers
    return (window, count) if 0 < window < max_model_len and count else (0, 0)


def _heads(keys: Keys, model_type: str) -> tuple[Gqa, Gqa]:
    """Return the attention of layers that see all tokens, and of sliding ones.

    MiMo-V2's keys are wider than its values: a head has the mean of both, which is as much in the cache, in products
    and in projections.
    """
    num_heads, num_kv_heads, _ = full = local = _full_heads(keys, model_type)
    if model_type == "gemma4_text":
        if _key_is_value(keys, model_type):
            num_kv_heads = keys.integer("num_global_key_value_heads", num_kv_heads)
        full = num_heads, num_kv_heads, keys.integer("global_head_dim", 512)
    elif model_type == "mimo_v2_flash":
        width = (full[2] + keys.integer("v_head_dim", full[2])) // 2
        full = *full[:2], width
        local = (keys.integer("swa_num_attention_heads", num_heads),
                 keys.integer("swa_num_key_value_heads", 2 * full[1]), width)
    elif model_type == "laguna":
        counts = keys.config.get("num_attention_heads_per_layer")
        if isinstance(counts, list) and counts and len({*counts} - {num_heads}) <= 1:
            local = (max({*counts} - {num_heads}, default=num_heads), *full[1:])
    elif model_type == "step3p5":
        other = keys.config.get("attention_other_setting")
        local = (keys.integer("num_sliding_attention_heads", num_heads), *full[1:])
        if isinstance(other, Mapping):
            others = Keys(other, f"{keys.where}: attention_other_setting", {})
            local = (others.integer("num_attention_heads", local[0]), others.integer("num_attention_groups", local[1]),
                     others.integer("head_dim", local[2]))
    sinks_of_all, sinks_of_sliding = (model_type == "gpt_oss" or keys.config.get(name) is True for name in SINK_KEYS)
    seeing_all = _gqa(keys, full, key_is_value=_key_is_value(keys, model_type), has_sinks=sinks_of_all)
    if local == full and sinks_of_all == sinks_of_sliding:
        return seeing_all, seeing_all
    return seeing_all, _gqa(keys, local, key_is_value=False, has_sinks=sinks_of_sliding)


def _gqa(keys: Keys, shape: tuple[int, int, int], *, key_is_value: bool, has_sinks: bool) -> Gqa:
    num_heads, num_kv_heads, head_dim = shape
    return Gqa(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, key_is_value=key_is_value,
               has_sinks=has_sinks, has_output_gate=_has_output_gate(keys),
               norms_all_heads=keys.config.get("qk_norm_type") == "per_layer")


def _full_heads(keys: Keys, model_type: str) -> tuple[int, int, int]:
    """Return heads, KV heads, and the width of a head, as most configs have them."""
    num_heads = keys.integer("num_attention_heads")
    num_kv_heads = 1 if _is_multi_query(keys, model_type) else keys.integer("num_key_value_heads", num_heads)
    return num_heads, num_kv_heads, keys.integer("head_dim", keys.integer("hidden_size") // num_heads)


def _is_multi_query(keys: Keys, model_type: str) -> bool:
    """Whether one head has the keys of all: so in Falcon-7B, whose larger sisters have `new_decoder_architecture`."""
    return (model_type in families.MULTI_QUERY and keys.config.get("multi_query", True) is True
            and keys.config.get("new_decoder_architecture") is not True)


def _has_output_gate(keys: Keys) -> bool:
    return keys.config.get("attn_output_gate") is True


def _key_is_value(keys: Keys, model_type: str) -> bool:
    """Tell whether layers that see all tokens project no values (`attention_k_eq_v`)."""
    return model_type == "gemma4_text" and keys.config.get("attention_k_eq_v") is True


def shared_caches(keys: Keys, model_type: str, depth: Depth) -> tuple[int, int]:
    """Return the layers that read an earlier layer's cache (Gemma 3n, small Gemma 4): seeing all tokens, sliding."""
    if model_type not in families.SHARED_CACHES:
        return 0, 0
    shared, kinds = num_sharing(keys, depth.num_layers), keys.config.get("layer_types")
    last = list(kinds)[depth.num_layers - shared:depth.num_layers] if isinstance(kinds, Sequence) else []
    sliding = min(last.count("sliding_attention"), depth.num_sliding)
    return shared - sliding, sliding


def num_sharing(keys: Keys, num_layers: int) -> int:
    """Return how many of Gemma 4's layers, the last ones, share caches."""
    shared, kinds = keys.integer("num_kv_shared_layers", 0), keys.config.get("layer_types")
    if shared >= num_layers:
        raise CatalogError(f"{keys.where}: num_kv_shared_layers = {shared}; must be below num_hidden_layers = "
                           f"{num_layers}")
    if shared and not isinstance(kinds, Sequence):
        raise CatalogError(f"{keys.where}: layer_types is missing; copy it from the model's config.json")
    return shared
