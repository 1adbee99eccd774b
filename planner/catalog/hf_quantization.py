"""The number formats that a Hugging Face `config.json` states: of weights, of routed experts, of the KV cache."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from planner.catalog import families
from planner.catalog.hf_quant_methods import ALGORITHMS, REMEDY, group_format, method_format, quark_format
from planner.errors import CatalogError

# 16-bit in checkpoints whose attention, or linear attention, otherwise is not
_NOT_PROJECTIONS = ("indexer", "norm", "mtp", "o_proj", "in_proj_a", "in_proj_b", "conv1d", "dt_proj")
_FULL = re.compile(r"self_attn|mixer\\?\.(q|k|v|qkv)_proj")
_LINEAR = re.compile(r"linear_attn|mamba|mixer\\?\.(in|out)_proj")
_MLP = re.compile(r"shared_experts?(?!_gate)|mlp\*$")  # the MLPs beside routed experts, in names and module patterns
# of quantization_config: modules that stay 16-bit
_KEPT_KEYS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude",
              "llm_int8_skip_modules")
_FEWEST = 1 / 8  # of the layers: fewer that are listed one by one are exceptions
_OUTSIDE = ("lm_head", "embed", "mtp", "eh_proj", "visual", "vision")  # of the layers
_ATTENTION = ("attn", "attention", *(f"mixer.{name}_proj" for name in ("in", "out", "q", "k", "v", "qkv", "o")))
_EXPERT_FORMATS = {None: None, "fp8": None, "fp4": "mxfp4", "nvfp4": "nvfp4"}


class Formats(NamedTuple):
    """The weight formats of a published checkpoint, as fields of an `Architecture`."""

    quantization: str | None
    attention_quantization: str | None
    expert_quantization: str | None
    linear_quantization: str | None = None
    head_quantization: str | None = None


def formats(config: Mapping[str, object], where: str) -> Formats:
    """Return the weight formats that a config states.

    Raises
    ------
    CatalogError : a format is none of ours.

    >>> given = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    >>> formats({"quantization_config": given}, "config.json")[:3]
    ('mxfp4', 'bf16', None)
    """
    quant_config = config.get("quantization_config")
    if not isinstance(quant_config, Mapping):
        return Formats(None, None, _expert_dtype(config, where))
    if str(quant_config.get("quant_algo")).upper() == "MIXED_PRECISION":
        return _mixed(quant_config, where)
    parts = _kept_parts(quant_config, config.get("num_hidden_layers"))
    if (targeted := _by_targets(quant_config, where)) is not None:
        return targeted._replace(attention_quantization="bf16") if "attention" in parts else targeted
    weight_format = method_format(quant_config, where)
    attention_format = _quark_attention(quant_config)
    attention = "bf16" if "attention" in parts else attention_format if attention_format != weight_format else None
    linear = "bf16" if "linear" in parts and "attention" not in parts else None
    if "mlp" in parts:  # then the few dense layers that some have are taken as kept, too
        return Formats(None, None if attention == "bf16" else attention or weight_format, weight_format, linear)
    experts = "mxfp4" if quant_config.get("store_dtype") == "mxfp4" else _expert_dtype(config, where)
    return Formats(weight_format, attention, experts, linear)


def quant_method(config: Any) -> str | None:
    """Return the method of quantization that a config states, itself or in the config of its language model."""
    parts = [config, *(config.get(key) for key in families.INNER)] if isinstance(config, Mapping) else []
    quant_config = next((stated for part in parts if isinstance(part, Mapping)
                  and isinstance(stated := part.get("quantization_config"), Mapping)), {})
    return str(quant_config.get("quant_method", "")).lower().replace("compressed_tensors", "compressed-tensors") or None


def _by_targets(quant_config: Mapping[str, Any], where: str) -> Formats | None:
    """Return the formats of compressed-tensors' groups that name modules; None if they hold for all linear layers.

    Modules in no group stay 16-bit.
    """
    groups = quant_config.get("config_groups")
    groups = groups if quant_config.get("quant_method") == "compressed-tensors" and isinstance(groups, Mapping) else {}
    form_of: dict[str, str] = {}
    for name, group in groups.items():
        form = group_format(group, str(group.get("format") or quant_config.get("format")))
        if form is None:
            raise CatalogError(f"{where}: quantization_config.config_groups.{name}.weights = "
                               f"{group.get('weights')!r} is not supported; {REMEDY}")
        for target in map(str, group.get("targets") or ()):
            part = "all" if target.isidentifier() else _part(target)
            if part is not None:
                form_of.setdefault(part, form)
    if not form_of.keys() - {"all"}:
        return None
    rest = form_of.get("all", "bf16")
    mlp, attention = form_of.get("mlp", rest), form_of.get("attention", rest)
    experts = form_of.get("experts", mlp)
    return Formats(None if mlp == "bf16" else mlp, None if attention == mlp else attention,
                   None if experts == mlp else experts)


def _kept_parts(quant_config: Mapping[str, Any], num_layers: object) -> set[str]:
    """Return the parts of layers that stay 16-bit: "attention", "linear", and "mlp" for MLPs beside routed experts.

    Modules are listed by patterns or layer by layer; a list of a few layers has exceptions, and the rest is
    quantised.
    """
    layers: dict[str, set[str]] = {"attention": set(), "linear": set(), "mlp": set()}
    for module in _kept_modules(quant_config):
        number = re.search(r"layers?\\?\.(\d+)\b", module)
        is_projection = not any(other in module for other in _NOT_PROJECTIONS)
        for part, pattern in (("attention", _FULL), ("linear", _LINEAR), ("mlp", _MLP)):
            if pattern.search(module) and (is_projection or part == "mlp"):
                layers[part].add(number[1] if number else "*")
    least = _FEWEST * num_layers if isinstance(num_layers, int) else 1
    return {part for part, numbers in layers.items() if "*" in numbers or (numbers and len(numbers) >= least)}


def _kept_modules(quant_config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the modules that a checkpoint leaves in 16 bit, as its method lists them."""
    for key in _KEPT_KEYS:
        parts = quant_config.get(key) or ()
        yield from map(str, [parts] if isinstance(parts, str) else parts)
    for key in ("extra_config", "dynamic"):  # AutoRound's and GPTQModel's
        rules = quant_config.get(key)
        for name, rule in (rules.items() if isinstance(rules, Mapping) else ()):
            bits = rule.get("bits", 0) if isinstance(rule, Mapping) else 0
            if name.startswith("-:") or (isinstance(bits, int) and bits >= 16):
                yield name


def _quark_attention(quant_config: Mapping[str, Any]) -> str | None:
    """Return the format that Quark gives attention in a list of its own; None without one."""
    rules = quant_config.get("layer_quant_config")
    return next((quark_format(rule) for name, rule in (rules.items() if isinstance(rules, Mapping) else ())
                 if _FULL.search(name) or "attn" in name), None)


def _mixed(quant_config: Mapping[str, object], where: str) -> Formats:
    """The formats of ModelOpt's mixed precision: for each part of a layer, the format of most of its modules.

    A part that is not listed stays as the checkpoint was, 16-bit, or FP8 in DeepSeek-V4's; a list without experts is
    that of a dense model, and one without linear attention gives it the attention's format. An LM head that is not
    listed is 16-bit.
    """
    before = "fp8_block" if quant_config.get("weight_block_size") else "bf16"
    listed = quant_config.get("quantized_layers")
    if not isinstance(listed, Mapping) or not listed:
        raise CatalogError(f"{where}: quantization_config.quant_algo = 'MIXED_PRECISION' without quantized_layers, "
                           f"which lists the format of each module; copy it from hf_quant_config.json, or {REMEDY}")
    counts: dict[str, Counter[str]] = {part: Counter() for part in ("attention", "experts", "mlp", "linear")}
    head: str | None = None
    for name, module in listed.items():
        algorithm = str(module.get("quant_algo") if isinstance(module, Mapping) else module)
        if algorithm not in ALGORITHMS:
            raise CatalogError(f"{where}: quantization_config.quantized_layers: {name} has quant_algo = {algorithm!r}; "
                               f"must be one of {', '.join(ALGORITHMS)}; or {REMEDY}")
        head = ALGORITHMS[algorithm] if name.endswith("lm_head") else head
        part = _part(name)
        if part is not None:
            is_linear = part == "attention" and _LINEAR.search(name) is not None
            counts["linear" if is_linear else part][ALGORITHMS[algorithm]] += 1
    attention, experts, mlp, linear = (counts[part].most_common(1)[0][0] if counts[part] else before
                                       for part in counts)
    return Formats(None if mlp == "bf16" else mlp, None if attention == mlp else attention,
                   experts if counts["experts"] and experts != mlp else None,
                   linear if counts["linear"] and linear != attention else None, head)


def _part(module: str) -> str | None:
    """The part of a layer to which a module belongs, by its name in the checkpoint; None outside the layers."""
    if any(word in module for word in _OUTSIDE):
        return None
    if "experts" in module and "shared_expert" not in module:
        return "experts"
    return "attention" if any(word in module for word in _ATTENTION) else "mlp"


def _expert_dtype(config: Mapping[str, object], where: str) -> str | None:
    """The format that DeepSeek-V4 names for its routed experts, None if it is the others'."""
    expert_dtype = config.get("expert_dtype")
    if expert_dtype not in _EXPERT_FORMATS:
        raise CatalogError(f"{where}: expert_dtype = {expert_dtype!r} is not supported; must be one of "
                           f"{', '.join(name for name in _EXPERT_FORMATS if name)}; remove it, and give the format of "
                           "all weights with --quantization")
    return _EXPERT_FORMATS[expert_dtype]


def kv_cache_dtype(config: Mapping[str, object], model_type: str, where: str) -> str | None:
    """Return the type of the KV cache that ModelOpt or compressed-tensors calibrated: 8 bit, or none.

    Engines keep the entries of compressed sparse attention in 8 bit (`fp8_ds_mla`).
    """
    if model_type in families.COMPRESSED:
        return "fp8"
    quant_config = config.get("quantization_config")
    if not isinstance(quant_config, Mapping):
        return None
    algorithm, scheme = quant_config.get("kv_cache_quant_algo"), quant_config.get("kv_cache_scheme")
    if "fp8" in json.dumps(quant_config.get("kv_cache_quant_config", ""), default=str).lower():  # Quark's, by module
        return "fp8"
    if isinstance(scheme, Mapping):
        algorithm = "FP8" if (scheme.get("num_bits"), scheme.get("type")) == (8, "float") else scheme
    if algorithm in (None, "FP8"):
        return None if algorithm is None else "fp8"
    raise CatalogError(f"{where}: quantization_config calibrates a KV cache of {algorithm!r}, and only FP8 is "
                       "supported; remove it and give the type with --kv-cache-dtype")
