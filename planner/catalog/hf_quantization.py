"""The number formats that a Hugging Face `config.json` states: of weights, of routed experts, of the KV cache."""

from collections.abc import Mapping

from planner.catalog import families
from planner.errors import CatalogError

_NOT_PROJECTIONS = ("indexer", "norm", "mtp", "o_proj")  # 16-bit in checkpoints whose attention otherwise is not
_KEPT_KEYS = ("modules_to_not_convert", "ignore", "ignored_layers")  # of quantization_config: what stays 16-bit
_EXPERT_FORMATS = {None: None, "fp8": None, "fp4": "mxfp4", "nvfp4": "nvfp4"}


def native_quantization(config: Mapping[str, object], where: str) -> tuple[str | None, bool]:
    """Weight format of the checkpoint, and whether its attention has it too."""
    given = config.get("quantization_config")
    if not isinstance(given, Mapping):
        return None, True
    method = str(given.get("quant_method", given.get("quant_algo"))).lower()
    kept = [str(part) for key in _KEPT_KEYS for part in given.get(key) or ()]
    attention = not any("self_attn" in part and not any(other in part for other in _NOT_PROJECTIONS) for part in kept)
    if method == "fp8" and given.get("weight_block_size"):
        return "fp8_block", attention
    if (method, given.get("bits")) == ("gptq", 8):
        return "w8a16", attention
    if method in ("fp8", "fbgemm_fp8", "mxfp4") or (method in ("awq", "gptq") and given.get("bits", 4) == 4):
        return method.removeprefix("fbgemm_"), attention
    algorithm = str(given.get("quant_algo"))
    if method == "modelopt" and algorithm.lower() in ("fp8", "nvfp4"):
        return algorithm.lower(), attention
    groups = given.get("config_groups")
    for group in groups.values() if method == "compressed-tensors" and isinstance(groups, Mapping) else ():
        weights = group.get("weights", {})
        kind = (weights.get("num_bits"), weights.get("type"))
        names = {(8, "float"): "fp8", (8, "int"): "int8" if group.get("input_activations") else "w8a16",
                 (4, "float"): "nvfp4", (4, "int"): "int4"}
        if kind in names:
            narrow = kind == (4, "int") and (weights.get("group_size") or 128) <= 32
            blocks = kind == (8, "float") and weights.get("strategy") == "block"
            return "int4-g32" if narrow else "fp8_block" if blocks else names[kind], attention
    named = f"quant_algo = {algorithm!r}" if method == "modelopt" else f"quant_method = {method!r}"
    named += f" with bits = {given['bits']!r}" if "bits" in given else ""
    raise CatalogError(f"{where}: quantization_config.{named} is not supported; remove quantization_config and "
                       "give the weight format with --quantization")


def expert_quantization(config: Mapping[str, object], where: str) -> str | None:
    """Weight format of the routed experts where the config names one of their own.

    DeepSeek-V4 does as `expert_dtype`, MiMo-V2.6 as `store_dtype` of an FP8 checkpoint.
    """
    stored = config.get("quantization_config")
    if isinstance(stored, Mapping) and stored.get("store_dtype") == "mxfp4":
        return "mxfp4"
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
