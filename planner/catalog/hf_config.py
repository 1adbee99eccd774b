"""An architecture read from the keys of a Hugging Face `config.json`."""

import difflib
import math
from collections.abc import Mapping

from planner.catalog import families
from planner.catalog.architecture import Architecture
from planner.catalog.hf_attention import layer_groups
from planner.catalog.hf_keys import Keys, block_counts
from planner.catalog.hf_mlps import mlps_of
from planner.catalog.hf_quantization import formats, kv_cache_dtype
from planner.catalog.other_kinds import stated_refusal
from planner.catalog.pooling import OFFSET_POSITIONS, WHOLE, pooling_of, sees_both_sides
from planner.catalog.vision import left_out, vision_of
from planner.errors import CatalogError


def architecture_from_config(config: Mapping[str, object], *, name: str, where: str) -> Architecture:
    """Read an architecture from the keys of a Hugging Face `config.json`.

    Parameters
    ----------
    config : the parsed file; the language model of a multimodal one is looked up in `text_config` and the like.
    name : name that results will carry.
    where : file, for error messages.

    Raises
    ------
    CatalogError
        If the architecture is unknown, or a key is missing or no positive integer.

    Notes
    -----
    Keys that Hugging Face's config class fills in (Gemma 3 omits most) take its value. Multi-token-prediction layers,
    projectors of images and audio towers are left out: the memory that they take is missing.
    """
    merged = _language_model(config)
    model_type = _model_type(merged, where)
    for part in families.NESTED.get(model_type, ()):
        table = merged.get(part)
        merged |= {f"{part}.{key}": value for key, value in table.items()} if isinstance(table, Mapping) else {}
    if model_type == "nemotron-nas":
        merged |= _searched(merged, where)
    usual = families.RENAMED.get(model_type, {})
    filled = families.CLASS_DEFAULTS.get(model_type, {})
    named = {usual.get(key, key): value for key, value in merged.items() if value is not None or key not in filled}
    keys = Keys({**_expert_count(merged, model_type), **filled, **named}, where, usual)
    num_layers, num_mlp_layers = _layers(keys, model_type)
    max_model_len = _max_model_len(keys, model_type)
    vision = vision_of(merged, where)
    stored, (mlps, dense_mlp) = formats(keys.config, where), mlps_of(keys, model_type, num_layers, num_mlp_layers)
    return Architecture(
        name=name, model_type=model_type, hidden_size=keys.integer("hidden_size"),
        vocab_size=keys.integer("vocab_size"), max_model_len=max_model_len,
        original_model_len=_original_model_len(keys),
        tie_word_embeddings=bool(keys.config.get("tie_word_embeddings", False)),
        layers=layer_groups(keys, model_type, num_layers, max_model_len), mlps=mlps, dense_mlp=dense_mlp,
        num_residual_streams=keys.integer("hc_mult", 1), attn_res_block_size=keys.integer("attn_res_block_size", 0),
        per_layer_input_size=(keys.integer("hidden_size_per_layer_input", 0) if model_type in families.SHARED_CACHES
                              else 0),
        adds_up_once=_adds_up_once(keys, model_type), quantization=stored.quantization,
        attention_quantization=stored.attention_quantization, expert_quantization=stored.expert_quantization,
        linear_quantization=stored.linear_quantization, head_quantization=stored.head_quantization,
        kv_cache_dtype=kv_cache_dtype(keys.config, model_type, where), vision=vision,
        pooling=pooling_of(config, where, model_type), is_bidirectional=sees_both_sides(config, model_type),
        pools_whole=config.get("pooling_type") in WHOLE,
        encoders_left_out=left_out(merged, vision))


def _expert_count(config: Mapping[str, object], model_type: str) -> dict[str, object]:
    """The number of experts under the family's key, if the config has it under another family's."""
    counts = [config[key] for key in families.EXPERT_COUNTS if config.get(key) is not None]
    return {families.MOE_KEYS[model_type][0]: counts[0]} if counts and model_type in families.MOE_KEYS else {}


_MULTIPLE = 256  # of which a Nemotron-NAS's MLPs are as wide


def _language_model(config: Mapping[str, object]) -> dict[str, object]:
    """The keys of the language model, then the keys of the multimodal wrappers around it."""
    inner = next((part for key in families.INNER if isinstance(part := config.get(key), Mapping)), None)
    return dict(config) if inner is None else {**config, **_language_model(inner)}


def _model_type(config: Mapping[str, object], where: str) -> str:
    """The supported model type of a config."""
    value = config.get("model_type")
    if value is None:
        raise CatalogError(f"{where}: model_type is missing; copy it from the model's config.json")
    if (refusal := stated_refusal(config, str(value))) is not None:
        raise CatalogError(f"{where}: model_type = {value!r}, architectures = {config.get('architectures')}: {refusal}")
    model_type = families.WRAPPERS.get(str(value), str(value))
    if model_type not in families.SUPPORTED:
        close = difflib.get_close_matches(model_type, families.SUPPORTED, n=1, cutoff=0.4)
        hint = f" (nearest: {close[0]!r}, if the layers are the same)" if close else ""
        raise CatalogError(f"{where}: model_type = {value!r} is not supported{hint}; "
                           f"supported: {', '.join(sorted(families.SUPPORTED))}")
    return model_type


def _layers(keys: Keys, model_type: str) -> tuple[int, int]:
    """The layers with attention of any kind, and the layers with an MLP.

    Nemotron-H counts every block as a layer: Mamba-2, attention, an MLP or experts (M, *, - and E in its pattern).
    """
    if model_type == "longcat_flash":  # two of attention and of dense MLPs in each, beside its experts
        num_layers = keys.integer("num_hidden_layers")
        return 2 * num_layers, 3 * num_layers
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


def _adds_up_once(keys: Keys, model_type: str) -> bool:
    """Whether attention and MLP are added up together, as in all of Falcon but RefinedWeb-1B and 7B."""
    is_parallel = (keys.config.get("parallel_attn", True), keys.config.get("new_decoder_architecture", False))
    return model_type == "falcon" and True in is_parallel


def _max_model_len(keys: Keys, model_type: str) -> int:
    """Positions that the model reaches: YaRN counts from its original length, other scalings multiply [tokens].

    Sentence Transformers have a limit of their own, `max_seq_length`, which engines take in its place.
    """
    if "max_seq_length" in keys.config:
        return keys.integer("max_seq_length")
    positions = keys.integer("max_position_embeddings") - OFFSET_POSITIONS.get(model_type, 0)
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or model_type == "gemma3_text":  # Gemma 3 states the scaled length
        return positions
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        positions = int(scaling.get("original_max_position_embeddings", positions))
    return int(positions * float(scaling.get("factor", 1))) if kind in ("yarn", "linear", "dynamic") else positions


def _original_model_len(keys: Keys) -> int:
    """Return the positions before LongRoPE extends them; 0 without LongRoPE [tokens]."""
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or scaling.get("rope_type", scaling.get("type")) not in ("longrope", "su"):
        return 0
    return keys.integer("original_max_position_embeddings", 0)
