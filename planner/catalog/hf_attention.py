"""Attention in a Hugging Face config: kinds of layers, heads, windows, indexers, linear attention."""

from collections.abc import Mapping, Sequence

from planner.catalog import families
from planner.catalog.hf_keys import Keys, block_counts
from planner.errors import CatalogError

_MLA_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_CSA_KEYS = ("qk_rope_head_dim", "o_groups", "o_lora_rank")
_BLOCK_KEYS = {"sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
               "sparse_topk_blocks": "index_topk_blocks", "sparse_block_size": "index_block_size"}
_COMPRESS_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_LINEAR_KEYS = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                "linear_conv_kernel_dim")


def sliding_layers(keys: Keys, model_type: str, num_layers: int, max_model_len: int) -> tuple[int, int]:
    """Return the window [tokens] and the number of the layers that have it; zeros without one."""
    window = keys.integer("attention_chunk_size" if model_type == "llama4_text" else "sliding_window", 0)
    if model_type in families.COMPRESSED:  # of every layer, beside its entries
        return window, 0
    layer_types = keys.config.get("layer_types") or keys.config.get("hybrid_layer_pattern")
    if isinstance(layer_types, Sequence):
        count = sum(kind in ("sliding_attention", "chunked_attention", 1) for kind in layer_types[:num_layers])
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


def head_shapes(keys: Keys, model_type: str, window: int) -> dict[str, int]:
    """Return the heads of the layers that see all tokens, and of the sliding ones where they differ.

    MiMo-V2's keys are wider than its values: a head has the mean of both, which is as much in the cache, in products
    and in projections.
    """
    num_heads = keys.integer("num_attention_heads")
    num_kv_heads = 1 if _is_multi_query(keys, model_type) else keys.integer("num_key_value_heads", num_heads)
    full = local = num_heads, num_kv_heads, keys.integer("head_dim", keys.integer("hidden_size") // num_heads)
    if model_type == "gemma4_text":
        num_kv = keys.integer("num_global_key_value_heads", full[1]) if key_is_value(keys, model_type) else full[1]
        full = num_heads, num_kv, keys.integer("global_head_dim", 512)
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
    return dict(zip(("num_kv_heads", "head_dim", "sliding_num_heads", "sliding_num_kv_heads", "sliding_head_dim"),
                    (*full[1:], *(local if window and local != full else (0, 0, 0))), strict=True))


def _is_multi_query(keys: Keys, model_type: str) -> bool:
    """Whether one head has the keys of all: so in Falcon-7B, whose larger sisters have `new_decoder_architecture`."""
    return (model_type in families.MULTI_QUERY and keys.config.get("multi_query", True) is True
            and keys.config.get("new_decoder_architecture") is not True)


def key_is_value(keys: Keys, model_type: str) -> bool:
    """Tell whether layers that see all tokens project no values (`attention_k_eq_v`)."""
    return model_type == "gemma4_text" and keys.config.get("attention_k_eq_v") is True


def later_layers(keys: Keys, model_type: str, num_layers: int, num_sliding_layers: int) -> dict[str, int]:
    """Return the fields of Gemma 4's small models: layers that share a cache, wide MLPs, inputs of each layer."""
    fields = ("num_kv_shared_layers", "num_kv_shared_sliding_layers", "num_wide_layers", "per_layer_input_size")
    if model_type != "gemma4_text":
        return dict.fromkeys(fields, 0)
    shared, kinds = keys.integer("num_kv_shared_layers", 0), keys.config.get("layer_types")
    if shared >= num_layers:
        raise CatalogError(f"{keys.where}: num_kv_shared_layers = {shared}; must be below num_hidden_layers = "
                           f"{num_layers}")
    if shared and not isinstance(kinds, Sequence):
        raise CatalogError(f"{keys.where}: layer_types is missing; copy it from the model's config.json")
    last = list(kinds)[num_layers - shared:num_layers] if isinstance(kinds, Sequence) else []
    sliding = min(last.count("sliding_attention"), num_sliding_layers)
    wide = shared if keys.config.get("use_double_wide_mlp") is True else 0
    return dict(zip(fields, (shared - sliding, sliding, wide, keys.integer("hidden_size_per_layer_input", 0)),
                    strict=True))


def attention_kind(keys: Keys, model_type: str) -> str:
    """Return the kind of attention of the layers that have a KV cache."""
    return "csa" if model_type in families.COMPRESSED else "mla" if "kv_lora_rank" in keys.config else "gqa"


def projection_shapes(keys: Keys, model_type: str) -> dict[str, int]:
    """Return the shapes that one kind of attention has and others lack, zeros there."""
    own = {"mla": _MLA_KEYS, "csa": _CSA_KEYS, "gqa": ()}[attention_kind(keys, model_type)]
    shapes = {key: keys.integer(key) if key in own else 0 for key in dict.fromkeys((*_MLA_KEYS, *_CSA_KEYS))}
    return {"q_lora_rank": keys.integer("q_lora_rank", 0) if own else 0, **shapes}


def indexer_shapes(keys: Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """Return the fields of a sparse attention's indexer, zeros without one.

    Layers share an indexer's choice where `indexer_types` says "shared", or by `index_topk_freq` (GLM-5.2).
    """
    fields = ("index_n_heads", "index_head_dim", "index_topk")
    if model_type in families.COMPRESSED:
        return {field: keys.integer(field) for field in fields} | {"num_sparse_layers": 0}
    if model_type in families.BLOCK_SPARSE:
        return _block_indexer(keys, num_layers)
    if model_type not in families.SPARSE:
        return dict.fromkeys((*fields, "num_index_layers", "num_sparse_layers"), 0)
    types = keys.config.get("indexer_types")
    if isinstance(types, Sequence):
        count = sum(kind == "full" for kind in types)
    else:
        frequency, offset = keys.integer("index_topk_freq", 1), keys.integer("index_skip_topk_offset", 2)
        count = sum(max(layer - offset + 1, 0) % frequency == 0 for layer in range(num_layers))
    return {field: keys.integer(field) for field in fields} | {
        "num_index_layers": count, "num_sparse_layers": num_layers}


def _block_indexer(keys: Keys, num_layers: int) -> dict[str, int]:
    """The fields of the indexer that chooses blocks of keys, by the layers that are listed as sparse.

    Transformers 5 lists them as `layer_types`, with keys of its own for the rest.
    """
    given, kinds = keys.config.get("sparse_attention_config"), keys.config.get("layer_types")
    if not isinstance(given, Mapping) and isinstance(kinds, list):
        given = {"sparse_attention_freq": [int(kind == "minimax_m3_sparse") for kind in kinds],
                 **{own: keys.config.get(name) for own, name in _BLOCK_KEYS.items()}}
    listed = given.get("sparse_attention_freq") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(listed, list) or len(listed) < num_layers:
        raise CatalogError(f"{keys.where}: sparse_attention_config = {given!r}; must have sparse_attention_freq, a "
                           f"list of 0 and 1 for each of {num_layers} layers; copy it from the model's config.json")
    own = Keys(given, f"{keys.where}: sparse_attention_config", {})
    count = sum(kind == 1 for kind in listed[:num_layers])
    return {"index_n_heads": own.integer("sparse_num_index_heads"), "index_head_dim": own.integer("sparse_index_dim"),
            "index_topk": own.integer("sparse_topk_blocks") * own.integer("sparse_block_size"),
            "num_index_layers": count, "num_sparse_layers": count}


def compressed_layers(keys: Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """Return the fields of the layers with compressed sparse attention: those with an indexer, and those without.

    `compress_ratios` has tokens an entry for each layer, 0 or 1 where it keeps its window alone, and goes on for the
    layers that draft; transformers' `layer_types` names the kinds, with their `compress_rates`.
    """
    if model_type not in families.COMPRESSED:
        return {"index_rate": 1, "num_hca_layers": 0, "hca_rate": 0}
    ratios, kinds = keys.config.get("compress_ratios"), keys.config.get("layer_types")
    if not isinstance(ratios, list) and isinstance(kinds, list):
        given = keys.config.get("compress_rates")
        rate_of = {**_COMPRESS_RATES, **(given if isinstance(given, Mapping) else {})}
        ratios = [rate_of.get(kind, 0) for kind in kinds]
    if not isinstance(ratios, list) or len(ratios) < num_layers or not all(isinstance(each, int) for each in ratios):
        raise CatalogError(f"{keys.where}: compress_ratios = {ratios!r}; must be a list with a number of tokens for "
                           f"each of {num_layers} layers")
    own = ratios[:num_layers]
    rates = sorted({each for each in own if each > 1})
    if len(rates) != 2:
        raise CatalogError(f"{keys.where}: compress_ratios has the ratios {rates}; must be two, that of layers with an "
                           "indexer and a larger one")
    return {"num_index_layers": own.count(rates[0]), "index_rate": rates[0],
            "num_hca_layers": own.count(rates[1]), "hca_rate": rates[1]}


def linear_attention(keys: Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """Return the fields of the layers with linear attention, zeros without them.

    Their state has the type that the config asks for (`mamba_ssm_dtype`: FP32 in Qwen3.5), else the model's 16 bit, as
    in vLLM; SGLang keeps FP32 there, so for Qwen3-Next its states are twice as large.
    """
    fields = ("num_linear_layers", *_LINEAR_KEYS, "linear_decay_rank", "linear_gate_rank",
              "linear_state_bytes_per_element")
    if model_type in families.KDA:
        return dict(zip(fields, _kimi_delta_attention(keys), strict=True))
    if model_type not in (*families.DELTA_NET, *families.MAMBA):
        return dict.fromkeys(fields, 0)
    layer_types = keys.config.get("layer_types")
    if model_type == "nemotron_h":
        count = block_counts(keys)["mamba"]
    elif isinstance(layer_types, Sequence):
        count = sum(kind in ("linear_attention", "mamba") for kind in layer_types)
    else:
        count = num_layers - num_layers // keys.integer("full_attention_interval", 4)
    state = 4 if keys.config.get("mamba_ssm_dtype") == "float32" else 2
    return dict(zip(fields, (count, *(keys.integer(key) for key in _LINEAR_KEYS), 0, 0, state), strict=True))


def _kimi_delta_attention(keys: Keys) -> tuple[int, ...]:
    """The fields of Kimi delta attention: layers, heads, their widths, convolution, ranks, and a state in FP32.

    What projects decays has a head's width as its rank, and so has what projects gates unless that is full (Kimi-K3).
    """
    given = keys.config.get("linear_attn_config")
    layers = given.get("kda_layers") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(layers, list):
        raise CatalogError(f"{keys.where}: linear_attn_config = {given!r}; must have kda_layers, num_heads, head_dim "
                           "and short_conv_kernel_size; copy it from the model's config.json")
    own = Keys(given, f"{keys.where}: linear_attn_config", {})
    heads, width = own.integer("num_heads"), own.integer("head_dim")
    gate_rank = 0 if given.get("use_full_rank_gate") is True else width
    return len(layers), heads, heads, width, width, own.integer("short_conv_kernel_size"), width, gate_rank, 4
