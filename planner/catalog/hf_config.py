"""An architecture read from the keys of a Hugging Face `config.json`."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.catalog import families
from planner.catalog.architecture import Architecture
from planner.catalog.hf_quantization import formats, kv_cache_dtype
from planner.errors import CatalogError


def architecture_from_config(config: Mapping[str, object], *, name: str, where: str) -> Architecture:
    """Read an architecture from the keys of a Hugging Face `config.json`.

    Parameters
    ----------
    config : the parsed file; the language model of a multimodal one is looked up in `text_config`.
    name : name that results will carry.
    where : file, for error messages.

    Raises
    ------
    CatalogError
        Where the architecture is unknown, or a key is missing or no positive integer.

    Notes
    -----
    Keys that Hugging Face's config class fills in (Gemma 3 omits most) take its value. Multi-token-prediction layers
    and vision towers are left out: the memory that they take is missing.
    """
    merged = _language_model(config)
    model_type = _model_type(merged, where)
    usual = families.RENAMED.get(model_type, {})
    filled = families.CLASS_DEFAULTS.get(model_type, {})
    given = {usual.get(key, key): value for key, value in merged.items() if value is not None or key not in filled}
    keys = _Keys({**filled, **given}, where, usual)
    num_layers, num_bare_layers = _layers(keys, model_type)
    max_model_len = _max_model_len(keys, model_type)
    window, num_sliding_layers = _sliding(keys, model_type, num_layers, max_model_len)
    stored, experts = formats(keys.config, where), _experts(keys, model_type, num_layers)
    width_key = families.DENSE_WIDTH.get(model_type, "intermediate_size")
    return Architecture(
        name=name, model_type=model_type, num_layers=num_layers, num_bare_layers=num_bare_layers,
        hidden_size=keys.integer("hidden_size"), num_attention_heads=keys.integer("num_attention_heads"),
        vocab_size=keys.integer("vocab_size"), max_model_len=max_model_len,
        tie_word_embeddings=bool(keys.config.get("tie_word_embeddings", False)),
        attention=_attention(keys, model_type), qk_norm_over_heads=keys.config.get("qk_norm_type") == "per_layer",
        attn_output_gate=keys.config.get("attn_output_gate") is True, **_projections(keys, model_type),
        **_indexer(keys, model_type, num_layers), **_compressed(keys, model_type, num_layers),
        num_residual_streams=keys.integer("hc_mult", 1),
        attn_res_block_size=keys.integer("attn_res_block_size", 0), linear_attention=families.linear_kind(model_type),
        **_linear_attention(keys, model_type, num_layers),
        sliding_window=window, num_sliding_layers=num_sliding_layers, **_heads(keys, model_type, window),
        key_is_value=_key_is_value(keys, model_type), **_later_layers(keys, model_type, num_layers, num_sliding_layers),
        intermediate_size=keys.integer(
            width_key, 0 if experts["num_moe_layers"] == num_layers - num_bare_layers else None),
        num_mlp_matrices=2 if model_type in families.UNGATED else 3,
        quantization=stored.quantization, attention_quantization=stored.attention_quantization,
        expert_quantization=stored.expert_quantization, kv_cache_dtype=kv_cache_dtype(keys.config, model_type, where),
        **experts,
    )


_MLA_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_CSA_KEYS = ("qk_rope_head_dim", "o_groups", "o_lora_rank")
_BLOCK_KEYS = {"sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
               "sparse_topk_blocks": "index_topk_blocks", "sparse_block_size": "index_block_size"}
_COMPRESS_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}

_LINEAR_KEYS = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                "linear_conv_kernel_dim")
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_LISTS = ("mlp_layer_types", "is_moe_layer", "moe_layer_freq")  # of every layer, whether it has experts
_STEP_KEYS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")


@dataclass(frozen=True, slots=True)
class _Keys:
    """A config and the file that it came from."""

    config: Mapping[str, object]
    where: str
    renamed: Mapping[str, str]  # what the file calls a key -> its usual name, under which it is in `config`

    def integer(self, key: str, default: int | None = None) -> int:
        """The positive integer at `key`, the same in all layers; `default` where it is absent or null."""
        value = self.config.get(key)
        named = next((own for own, usual in self.renamed.items() if usual == key), key)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                raise CatalogError(f"{self.where}: {named} differs from layer to layer, which is not supported")
            value = value[0]
        if value is None and default is not None:
            return default
        if value is None:
            raise CatalogError(f"{self.where}: {named} is missing; copy it from the model's config.json")
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if default == 0 else 1):
            raise CatalogError(f"{self.where}: {named} = {value!r}; must be a positive integer")
        return value


def _language_model(config: Mapping[str, object]) -> dict[str, object]:
    """The keys of the language model, those of a multimodal wrapper behind them."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, Mapping) else dict(config)


def _model_type(config: Mapping[str, object], where: str) -> str:
    """The supported model type of a config."""
    value = config.get("model_type")
    if value is None:
        raise CatalogError(f"{where}: model_type is missing; copy it from the model's config.json")
    model_type = families.WRAPPERS.get(str(value), str(value))
    if model_type not in families.SUPPORTED:
        close = difflib.get_close_matches(model_type, families.SUPPORTED, n=1, cutoff=0.4)
        hint = f" (nearest: {close[0]!r}, if the layers are the same)" if close else ""
        raise CatalogError(f"{where}: model_type = {value!r} is not supported{hint}; "
                           f"supported: {', '.join(sorted(families.SUPPORTED))}")
    return model_type


def _layers(keys: _Keys, model_type: str) -> tuple[int, int]:
    """Layers with attention of any kind, and those of them that have no MLP behind them.

    Nemotron-H counts every block as a layer: Mamba-2, attention, an MLP or experts (M, *, - and E in its pattern).
    """
    if model_type != "nemotron_h":
        return keys.integer("num_hidden_layers"), 0
    blocks = _blocks(keys)
    num_layers, num_mlps = blocks["mamba"] + blocks["attention"], blocks["mlp"] + blocks["moe"]
    if num_mlps > num_layers:
        raise CatalogError(f"{keys.where}: {num_mlps} MLPs behind {num_layers} layers of attention and Mamba-2; must "
                           "be no more; check layers_block_type")
    return num_layers, num_layers - num_mlps


def _blocks(keys: _Keys) -> dict[str, int]:
    """How many blocks of each kind a Nemotron-H has."""
    pattern = keys.config.get("hybrid_override_pattern")
    kinds = ([_BLOCKS.get(letter) for letter in pattern] if isinstance(pattern, str)
             else keys.config.get("layers_block_type"))
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(_BLOCKS.values()):
        raise CatalogError(f"{keys.where}: layers_block_type = {kinds!r}; must be a list of "
                           f"{', '.join(sorted(_BLOCKS.values()))}, or hybrid_override_pattern a text of M, *, - and E")
    return {kind: kinds.count(kind) for kind in _BLOCKS.values()}


def _max_model_len(keys: _Keys, model_type: str) -> int:
    """Positions that the model reaches: YaRN counts from its original length, other scalings multiply [tokens]."""
    positions = keys.integer("max_position_embeddings")
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or model_type == "gemma3_text":  # Gemma 3 states the scaled length
        return positions
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        positions = int(scaling.get("original_max_position_embeddings", positions))
    return int(positions * float(scaling.get("factor", 1))) if kind in ("yarn", "linear", "dynamic") else positions


def _sliding(keys: _Keys, model_type: str, num_layers: int, max_model_len: int) -> tuple[int, int]:
    """Window [tokens] and number of the layers that have it."""
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


def _heads(keys: _Keys, model_type: str, window: int) -> dict[str, int]:
    """The heads of the layers that see all tokens, and of the sliding ones where they differ.

    MiMo-V2's keys are wider than its values: a head has the mean of both, which is as much in the cache, in products
    and in projections.
    """
    num_heads = keys.integer("num_attention_heads")
    full = local = (num_heads, keys.integer("num_key_value_heads", num_heads),
                    keys.integer("head_dim", keys.integer("hidden_size") // num_heads))
    if model_type == "gemma4_text":
        num_kv = keys.integer("num_global_key_value_heads", full[1]) if _key_is_value(keys, model_type) else full[1]
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
            others = _Keys(other, f"{keys.where}: attention_other_setting", {})
            local = (others.integer("num_attention_heads", local[0]), others.integer("num_attention_groups", local[1]),
                     others.integer("head_dim", local[2]))
    return dict(zip(("num_kv_heads", "head_dim", "sliding_num_heads", "sliding_num_kv_heads", "sliding_head_dim"),
                    (*full[1:], *(local if window and local != full else (0, 0, 0))), strict=True))


def _key_is_value(keys: _Keys, model_type: str) -> bool:
    """Whether layers that see all tokens project no values (`attention_k_eq_v`)."""
    return model_type == "gemma4_text" and keys.config.get("attention_k_eq_v") is True


def _later_layers(keys: _Keys, model_type: str, num_layers: int, num_sliding_layers: int) -> dict[str, int]:
    """The fields of Gemma 4's small models: last layers that share a KV cache, their MLPs, and inputs of each layer."""
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


def _attention(keys: _Keys, model_type: str) -> str:
    """The kind of attention of the layers that have a KV cache."""
    return "csa" if model_type in families.COMPRESSED else "mla" if "kv_lora_rank" in keys.config else "gqa"


def _projections(keys: _Keys, model_type: str) -> dict[str, int]:
    """The shapes that one kind of attention has and others lack, zeros there."""
    own = {"mla": _MLA_KEYS, "csa": _CSA_KEYS, "gqa": ()}[_attention(keys, model_type)]
    shapes = {key: keys.integer(key) if key in own else 0 for key in dict.fromkeys((*_MLA_KEYS, *_CSA_KEYS))}
    return {"q_lora_rank": keys.integer("q_lora_rank", 0) if own else 0, **shapes}


def _indexer(keys: _Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """The fields of a sparse attention's indexer, zeros without one.

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


def _block_indexer(keys: _Keys, num_layers: int) -> dict[str, int]:
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
    own = _Keys(given, f"{keys.where}: sparse_attention_config", {})
    count = sum(kind == 1 for kind in listed[:num_layers])
    return {"index_n_heads": own.integer("sparse_num_index_heads"), "index_head_dim": own.integer("sparse_index_dim"),
            "index_topk": own.integer("sparse_topk_blocks") * own.integer("sparse_block_size"),
            "num_index_layers": count, "num_sparse_layers": count}


def _compressed(keys: _Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """The fields of the layers with compressed sparse attention: those with an indexer, and those without.

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


def _linear_attention(keys: _Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """The fields of the layers with linear attention, zeros without them.

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
        count = _blocks(keys)["mamba"]
    elif isinstance(layer_types, Sequence):
        count = sum(kind in ("linear_attention", "mamba") for kind in layer_types)
    else:
        count = num_layers - num_layers // keys.integer("full_attention_interval", 4)
    state = 4 if keys.config.get("mamba_ssm_dtype") == "float32" else 2
    return dict(zip(fields, (count, *(keys.integer(key) for key in _LINEAR_KEYS), 0, 0, state), strict=True))


def _kimi_delta_attention(keys: _Keys) -> tuple[int, ...]:
    """The fields of Kimi delta attention: layers, heads, their widths, convolution, ranks, and a state in FP32.

    What projects decays has a head's width as its rank, and so has what projects gates unless that is full (Kimi-K3).
    """
    given = keys.config.get("linear_attn_config")
    layers = given.get("kda_layers") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(layers, list):
        raise CatalogError(f"{keys.where}: linear_attn_config = {given!r}; must have kda_layers, num_heads, head_dim "
                           "and short_conv_kernel_size; copy it from the model's config.json")
    own = _Keys(given, f"{keys.where}: linear_attn_config", {})
    heads, width = own.integer("num_heads"), own.integer("head_dim")
    gate_rank = 0 if given.get("use_full_rank_gate") is True else width
    return len(layers), heads, heads, width, width, own.integer("short_conv_kernel_size"), width, gate_rank, 4


def _experts(keys: _Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """The MoE fields of an architecture, zeros where it is dense."""
    fields = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_intermediate_size",
              "moe_latent_size", "num_moe_layers")
    num_moe = _num_moe_layers(keys, model_type, num_layers)
    if not num_moe:
        return dict.fromkeys(fields, 0)
    count_key, width_key = families.MOE_KEYS[model_type]
    width = keys.integer(width_key)
    own = keys.integer("shared_expert_intermediate_size", 0)
    shared = (keys.integer("intermediate_size") if model_type in families.BESIDE_MLP
              else keys.integer("n_shared_experts", 1 if own else 0) * (own or width))
    return dict(zip(fields, (keys.integer(count_key), keys.integer("num_experts_per_tok"), width, shared,
                             keys.integer("moe_latent_size", 0), num_moe), strict=True))


def _num_moe_layers(keys: _Keys, model_type: str, num_layers: int) -> int:
    """Layers with routed experts: those listed, else those at a step from the first on; 0 without experts."""
    if model_type not in families.MOE_KEYS or keys.config.get("enable_moe_block", True) is not True:
        return 0
    if keys.config.get(families.MOE_KEYS[model_type][0]) == 0:  # Granite 4's small ones
        return 0
    if model_type == "nemotron_h":
        return _blocks(keys)["moe"]
    kinds = next((keys.config[key] for key in _LISTS if isinstance(keys.config.get(key), list)), None)
    if isinstance(kinds, list):
        return sum(kind in ("sparse", "moe", "hash_moe", 1) for kind in kinds[:num_layers])
    numbers = keys.config.get("moe_layers_enum")
    if isinstance(numbers, str):
        return sum(number.strip().isdigit() and int(number) < num_layers for number in numbers.split(","))
    step = keys.integer(next((key for key in _STEP_KEYS if key in keys.config), "moe_layer_freq"), 1)
    dense_only = keys.config.get("mlp_only_layers")
    dense = set(dense_only) if isinstance(dense_only, Sequence) else set()
    first = keys.integer("first_k_dense_replace", 0)
    offset = 0 if model_type.startswith(("deepseek", "kimi", "glm")) else 1  # others start at the step's last layer
    return sum((layer + offset) % step == 0 for layer in range(first, num_layers) if layer not in dense)
