"""The number formats that a Hugging Face `config.json` states: of weights, of routed experts, of the KV cache."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from planner.catalog import families
from planner.errors import CatalogError

_NOT_PROJECTIONS = ("indexer", "norm", "mtp", "o_proj")  # 16-bit in checkpoints whose attention otherwise is not
_MLP = re.compile(r"shared_experts?(?!_gate)|mlp\*$")  # what is beside routed experts, in names and patterns of modules
# of quantization_config: what stays 16-bit
_KEPT_KEYS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
_ALGORITHMS = {  # ModelOpt's names
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "FP8_BLOCK_SCALES": "fp8_block",
    "MXFP8": "mxfp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "w4a16_nvfp4", "W4A16_AWQ": "awq"}
_OUTSIDE = ("lm_head", "embed", "mtp", "eh_proj", "visual", "vision")  # of the layers
_ATTENTION = ("attn", "attention", *(f"mixer.{name}_proj" for name in ("in", "out", "q", "k", "v", "qkv", "o")))
_REMEDY = "remove quantization_config and give the weight format with --quantization"
_EXPERT_FORMATS = {None: None, "fp8": None, "fp4": "mxfp4", "nvfp4": "nvfp4"}


class Formats(NamedTuple):
    """The weight formats of a published checkpoint, as fields of an `Architecture`."""

    quantization: str | None
    attention_quantization: str | None
    expert_quantization: str | None


def formats(config: Mapping[str, object], where: str) -> Formats:
    """Return the weight formats that a config states.

    Raises
    ------
    CatalogError : a format is none of ours.

    >>> given = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    >>> formats({"quantization_config": given}, "config.json")
    Formats(quantization='mxfp4', attention_quantization='bf16', expert_quantization=None)
    """
    given = config.get("quantization_config")
    if not isinstance(given, Mapping):
        return Formats(None, None, _expert_dtype(config, where))
    if str(given.get("quant_algo")).upper() == "MIXED_PRECISION":
        return _mixed(given, where)
    kept = [str(part) for key in _KEPT_KEYS for part in given.get(key) or ()]
    found = _uniform(given, where)
    is_kept = any("self_attn" in part and not any(other in part for other in _NOT_PROJECTIONS) for part in kept)
    if any(_MLP.search(part) for part in kept):  # then the few dense layers that some have are taken as kept, too
        return Formats(None, None if is_kept else found, found)
    experts = "mxfp4" if given.get("store_dtype") == "mxfp4" else _expert_dtype(config, where)
    return Formats(found, "bf16" if is_kept else None, experts)


def _uniform(given: Mapping[str, object], where: str) -> str:
    """The format of a checkpoint's weights, of all but what it leaves out."""
    method = str(given.get("quant_method", given.get("quant_algo"))).lower()
    if method == "fp8" and given.get("weight_block_size"):
        return "fp8_block"
    if (method, given.get("bits")) == ("gptq", 8):
        return "w8a16"
    if method in ("fp8", "fbgemm_fp8", "mxfp4", "mxfp8") or (method in ("awq", "gptq") and given.get("bits", 4) == 4):
        return method.removeprefix("fbgemm_")
    algorithm = str(given.get("quant_algo"))
    if method == "modelopt" and algorithm.upper() in _ALGORITHMS:
        return _ALGORITHMS[algorithm.upper()]
    groups = given.get("config_groups")
    for group in groups.values() if method == "compressed-tensors" and isinstance(groups, Mapping) else ():
        found = _of_group(group, str(given.get("format")))
        if found:
            return found
    named = f"quant_algo = {algorithm!r}" if method == "modelopt" else f"quant_method = {method!r}"
    named += f" with bits = {given['bits']!r}" if "bits" in given else ""
    raise CatalogError(f"{where}: quantization_config.{named} is not supported; {_REMEDY}")


def _of_group(group: Mapping[str, Any], named: str) -> str | None:
    """The format of one of compressed-tensors' groups; none that is known."""
    weights = group.get("weights", {})
    kind = (weights.get("num_bits"), weights.get("type"))
    quantizes = bool(group.get("input_activations"))
    if kind == (4, "int"):
        return "int4-g32" if (weights.get("group_size") or 128) <= 32 else "int4"
    if kind == (4, "float"):
        return "mxfp4" if named.startswith("mxfp4") else "nvfp4"
    if kind == (8, "float"):
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    return {(8, "int"): "int8" if quantizes else "w8a16"}.get(kind)


def _mixed(given: Mapping[str, object], where: str) -> Formats:
    """The formats of ModelOpt's mixed precision: of attention, experts and the rest, what most of its modules have.

    A part that is not listed stays as the checkpoint was, 16-bit, or FP8 in DeepSeek-V4's; a list without experts is
    that of a dense model.
    """
    before = "fp8_block" if given.get("weight_block_size") else "bf16"
    listed = given.get("quantized_layers")
    if not isinstance(listed, Mapping) or not listed:
        raise CatalogError(f"{where}: quantization_config.quant_algo = 'MIXED_PRECISION' without quantized_layers, "
                           f"which lists the format of each module; copy it from hf_quant_config.json, or {_REMEDY}")
    counts: dict[str, Counter[str]] = {"attention": Counter(), "experts": Counter(), "mlp": Counter()}
    for name, module in listed.items():
        algorithm = str(module.get("quant_algo") if isinstance(module, Mapping) else module)
        if algorithm not in _ALGORITHMS:
            raise CatalogError(f"{where}: quantization_config.quantized_layers: {name} has quant_algo = {algorithm!r}; "
                               f"must be one of {', '.join(_ALGORITHMS)}; or {_REMEDY}")
        part = _part(name)
        if part is not None:
            counts[part][_ALGORITHMS[algorithm]] += 1
    attention, experts, mlp = (counts[part].most_common(1)[0][0] if counts[part] else before for part in counts)
    return Formats(None if mlp == "bf16" else mlp, None if attention == mlp else attention,
                   experts if counts["experts"] and experts != mlp else None)


def _part(module: str) -> str | None:
    """Which part of a layer a module is, by its name in the checkpoint; None of what is not in the layers."""
    if any(word in module for word in _OUTSIDE):
        return None
    if "experts" in module and "shared_expert" not in module:
        return "experts"
    return "attention" if any(word in module for word in _ATTENTION) else "mlp"


def _expert_dtype(config: Mapping[str, object], where: str) -> str | None:
    """The format that DeepSeek-V4 names for its routed experts, None where it is the others'."""
    given = config.get("expert_dtype")
    if given not in _EXPERT_FORMATS:
        raise CatalogError(f"{where}: expert_dtype = {given!r} is not supported; must be one of "
                           f"{', '.join(name for name in _EXPERT_FORMATS if name)}; remove it, and give the format of "
                           "all weights with --quantization")
    return _EXPERT_FORMATS[given]


def kv_cache_dtype(config: Mapping[str, object], model_type: str, where: str) -> str | None:
    """Return the type of the KV cache that ModelOpt or compressed-tensors calibrated: 8 bit, or none.

    Engines keep the entries of compressed sparse attention in 8 bit (`fp8_ds_mla`).
    """
    if model_type in families.COMPRESSED:
        return "fp8"
    given = config.get("quantization_config")
    if not isinstance(given, Mapping):
        return None
    algorithm, scheme = given.get("kv_cache_quant_algo"), given.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        algorithm = "FP8" if (scheme.get("num_bits"), scheme.get("type")) == (8, "float") else scheme
    if algorithm in (None, "FP8"):
        return None if algorithm is None else "fp8"
    raise CatalogError(f"{where}: quantization_config calibrates a KV cache of {algorithm!r}, and only FP8 is "
                       "supported; remove it and give the type with --kv-cache-dtype")
