"""An architecture read from the keys of a Hugging Face `config.json`."""

import difflib
import math
from collections.abc import Mapping, Sequence

from planner.catalog import families
from planner.catalog.architecture import Architecture
from planner.catalog.hf_attention import (
    attention_kind,
    compressed_layers,
    head_shapes,
    indexer_shapes,
    key_is_value,
    later_layers,
    linear_attention,
    projection_shapes,
    sliding_layers,
)
from planner.catalog.hf_keys import Keys, block_counts
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
    if model_type == "nemotron-nas":
        merged |= _searched(merged, where)
    usual = families.RENAMED.get(model_type, {})
    filled = families.CLASS_DEFAULTS.get(model_type, {})
    given = {usual.get(key, key): value for key, value in merged.items() if value is not None or key not in filled}
    keys = Keys({**filled, **given}, where, usual)
    num_layers, num_mlp_layers = _layers(keys, model_type)
    max_model_len = _max_model_len(keys, model_type)
    window, num_sliding_layers = sliding_layers(keys, model_type, num_layers, max_model_len)
    stored, experts = formats(keys.config, where), _experts(keys, model_type, num_layers)
    return Architecture(
        name=name, model_type=model_type, num_layers=num_layers, num_mlp_layers=num_mlp_layers,
        hidden_size=keys.integer("hidden_size"), num_attention_heads=keys.integer("num_attention_heads"),
        vocab_size=keys.integer("vocab_size"), max_model_len=max_model_len,
        tie_word_embeddings=bool(keys.config.get("tie_word_embeddings", False)),
        attention=attention_kind(keys, model_type), qk_norm_over_heads=keys.config.get("qk_norm_type") == "per_layer",
        attn_output_gate=keys.config.get("attn_output_gate") is True, **projection_shapes(keys, model_type),
        **indexer_shapes(keys, model_type, num_layers), **compressed_layers(keys, model_type, num_layers),
        num_residual_streams=keys.integer("hc_mult", 1),
        attn_res_block_size=keys.integer("attn_res_block_size", 0), linear_attention=families.linear_kind(model_type),
        **linear_attention(keys, model_type, num_layers),
        sliding_window=window, num_sliding_layers=num_sliding_layers, **head_shapes(keys, model_type, window),
        key_is_value=key_is_value(keys, model_type), **later_layers(keys, model_type, num_layers, num_sliding_layers),
        intermediate_size=_dense_width(keys, model_type, is_needed=experts["num_moe_layers"] != num_mlp_layers),
        adds_up_once=_adds_up_once(keys, model_type),
        num_mlp_matrices=2 if model_type in families.UNGATED else 3,
        quantization=stored.quantization, attention_quantization=stored.attention_quantization,
        expert_quantization=stored.expert_quantization, kv_cache_dtype=kv_cache_dtype(keys.config, model_type, where),
        **experts,
    )


_MULTIPLE = 256  # of which a Nemotron-NAS's MLPs are as wide
_LISTS = ("mlp_layer_types", "is_moe_layer", "moe_layer_freq")  # of every layer, whether it has experts
_STEP_KEYS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")


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


def _layers(keys: Keys, model_type: str) -> tuple[int, int]:
    """Layers with attention of any kind, and those with an MLP.

    Nemotron-H counts every block as a layer: Mamba-2, attention, an MLP or experts (M, *, - and E in its pattern).
    """
    if model_type != "nemotron_h":
        num_layers = keys.integer("num_hidden_layers")
        return num_layers, keys.integer("num_mlp_layers", num_layers)
    blocks = block_counts(keys)
    num_layers, num_mlps = blocks["mamba"] + blocks["attention"], blocks["mlp"] + blocks["moe"]
    if num_mlps > num_layers:
        raise CatalogError(f"{keys.where}: {num_mlps} MLPs behind {num_layers} layers of attention and Mamba-2; must "
                           "be no more; check layers_block_type")
    return num_layers, num_mlps


def _searched(config: Mapping[str, object], where: str) -> dict[str, object]:
    """The keys that Nemotron-NAS has for each block, as of layers that are alike.

    A block may have lost its attention, or its MLP, whose width is a multiple of the hidden size that differs from
    block to block; the mean width has all of their parameters.
    """
    blocks, hidden, heads = (config.get(key) for key in ("block_configs", "hidden_size", "num_attention_heads"))
    if not isinstance(blocks, list) or not blocks or not isinstance(hidden, int) or not isinstance(heads, int):
        raise CatalogError(f"{where}: block_configs, hidden_size or num_attention_heads is missing; copy it from the "
                           "model's config.json")
    kept = [block["attention"] for block in blocks if not block["attention"].get("no_op")]
    mlps = [block["ffn"] for block in blocks if not block["ffn"].get("no_op")]
    if any(part.get("replace_with_linear") or part.get("window_length") for part in (*kept, *mlps)):
        raise CatalogError(f"{where}: block_configs has blocks of one product alone, or with windows, which are not "
                           "supported")
    groups = {part["n_heads_in_group"] for part in kept}
    if len(groups) != 1:
        raise CatalogError(f"{where}: block_configs has n_heads_in_group of {sorted(groups)}, and only one "
                           "is supported")
    widths = [_MULTIPLE * math.ceil(int(2 * part["ffn_mult"] * hidden / 3) / _MULTIPLE) for part in mlps]
    return {"num_hidden_layers": len(kept), "num_mlp_layers": len(mlps), "num_key_value_heads": heads // groups.pop(),
            "intermediate_size": round(sum(widths) / len(widths))}


def _dense_width(keys: Keys, model_type: str, *, is_needed: bool) -> int:
    """Width of a dense MLP; 0 where the config names none and no layer needs it."""
    key = families.DENSE_WIDTH.get(model_type, "intermediate_size")
    if model_type in families.FOUR_FOLD:
        return keys.integer(key, 4 * keys.integer("hidden_size"))
    return keys.integer(key, None if is_needed else 0)


def _adds_up_once(keys: Keys, model_type: str) -> bool:
    """Whether attention and MLP are added up together, as in all of Falcon but RefinedWeb-1B and 7B."""
    is_parallel = (keys.config.get("parallel_attn", True), keys.config.get("new_decoder_architecture", False))
    return model_type == "falcon" and True in is_parallel


def _max_model_len(keys: Keys, model_type: str) -> int:
    """Positions that the model reaches: YaRN counts from its original length, other scalings multiply [tokens]."""
    positions = keys.integer("max_position_embeddings")
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or model_type == "gemma3_text":  # Gemma 3 states the scaled length
        return positions
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        positions = int(scaling.get("original_max_position_embeddings", positions))
    return int(positions * float(scaling.get("factor", 1))) if kind in ("yarn", "linear", "dynamic") else positions


def _experts(keys: Keys, model_type: str, num_layers: int) -> dict[str, int]:
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


def _num_moe_layers(keys: Keys, model_type: str, num_layers: int) -> int:
    """Layers with routed experts: those listed, else those at a step from the first on; 0 without experts."""
    if model_type not in families.MOE_KEYS or keys.config.get("enable_moe_block", True) is not True:
        return 0
    if keys.config.get(families.MOE_KEYS[model_type][0]) == 0:  # Granite 4's small ones
        return 0
    if model_type == "nemotron_h":
        return block_counts(keys)["moe"]
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
