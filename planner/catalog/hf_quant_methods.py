"""The number format of a checkpoint's weights, by the method that its `quantization_config` names."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from planner.errors import CatalogError

ALGORITHMS = {  # ModelOpt's names
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "FP8_BLOCK_SCALES": "fp8_block",
    "MXFP8": "mxfp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "w4a16_nvfp4", "W4A16_AWQ": "awq"}
REMEDY = "remove quantization_config and give the weight format with --quantization"
# TorchAO's types of configs, in either spelling: weights and activations, in the order in which they are looked for.
_TORCHAO = (("int4weightonly", "int4"), ("int4", "int4"), ("int8weightonly", "w8a16"), ("float8weightonly", "w8a16"),
            ("int8dynamicactivationint8weight", "int8"), ("float8", "fp8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"))

Given = Mapping[str, Any]
Reader = Callable[[Given], str | None]


def method_format(config: Given, where: str) -> str:
    """Return the format of all weights that a checkpoint quantises.

    Raises
    ------
    CatalogError : the method, or its number of bits, is none of ours.

    >>> method_format({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "config.json")
    'gptq'
    """
    method = str(config.get("quant_method", config.get("quant_algo"))).lower().replace("_", "-")
    reader = next((reader for names, reader in READERS if method in names), None)
    weight_format = None if reader is None else reader(config)
    if weight_format is not None:
        return weight_format
    algorithm = config.get("quant_algo")
    named = (f"quant_algo = {algorithm!r}" if method.startswith("modelopt")
             else f"quant_method = {str(config.get('quant_method', algorithm))!r}")
    named += f" with bits = {config['bits']!r}" if "bits" in config else ""
    raise CatalogError(f"{where}: quantization_config.{named} is not supported; {REMEDY}")


def _fp8(config: Given) -> str:
    return "fp8_block" if config.get("weight_block_size") else "fp8"


def _same(name: str) -> Reader:
    return lambda _: name


def _gptq(config: Given) -> str | None:
    return integers(config.get("bits", 4), config.get("group_size"), "gptq")


def _awq(quant: Given) -> str | None:
    return integers(quant.get("bits", quant.get("w_bit", 4)), quant.get("group_size", quant.get("q_group_size")), "awq")


def integers(bits: Any, group_size: Any, four: str) -> str | None:
    """Return the format of integer weights beside 16-bit activations; None if no kernel multiplies `bits` bits.

    Parameters
    ----------
    four : the format of four bits in groups of more than 32.
    """
    if bits == 4:
        return "int4-g32" if isinstance(group_size, int) and 0 < group_size <= 32 else four
    return "w8a16" if bits == 8 else None


def _auto_round(config: Given) -> str | None:
    """AutoRound's weights, which engines run by the kernels of the method that they are packed for."""
    kind, bits = str(config.get("data_type", "int")), config.get("bits")
    if kind.startswith(("mx", "nv")):
        return {("mx", 4): "mxfp4", ("mx", 8): "mxfp8", ("nv", 4): "nvfp4"}.get((kind[:2], bits or 0))
    if kind.startswith("fp"):
        return "fp8" if bits == 8 else None
    packing = str(config.get("packing_format", config.get("backend", "")))
    return integers(bits, config.get("group_size"), "awq" if "awq" in packing else "gptq")


def _modelopt(config: Given) -> str | None:
    return ALGORITHMS.get(str(config.get("quant_algo")).upper())


def _compressed_tensors(config: Given) -> str | None:
    groups = config.get("config_groups")
    group_formats = (group_format(group, str(group.get("format") or config.get("format")))
                     for group in (groups.values() if isinstance(groups, Mapping) else ()))
    return next(filter(None, group_formats), None)


def group_format(group: Given, named: str) -> str | None:
    """Return the format of one of compressed-tensors' groups; None if it is unknown."""
    weights = group.get("weights") or {}
    kind = (weights.get("num_bits") or 0, str(weights.get("type")))
    if kind == (4, "int"):
        return integers(4, weights.get("group_size"), "int4")
    if kind == (4, "float"):
        return "mxfp4" if named.startswith("mxfp4") or weights.get("group_size") == 32 else "nvfp4"
    if kind == (8, "float"):
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    return {(8, "int"): "int8" if group.get("input_activations") else "w8a16"}.get(kind)


def _quark(config: Given) -> str | None:
    return quark_format(config.get("global_quant_config"))


def quark_format(part: Any) -> str | None:
    """Return the format that Quark gives a part of a model; None if it is unknown.

    Weights that are quantised twice (FP8, then INT4) are stored as the last says.
    """
    weight = part.get("weight") if isinstance(part, Mapping) else None
    weight = weight[-1] if isinstance(weight, list) and weight else weight
    if not isinstance(weight, Mapping):
        return None
    kind, group = str(weight.get("dtype")).lower(), weight.get("group_size")
    if kind.startswith("fp8"):
        return "fp8_block" if weight.get("qscheme") == "per_block" else "fp8"
    if kind in ("fp4", "mxfp4"):
        return "nvfp4" if group == 16 else "mxfp4"
    if kind.removeprefix("u") == "int4":
        return integers(4, group, "int4")
    return ("int8" if part.get("input_tensors") else "w8a16") if kind.removeprefix("u") == "int8" else None


def _bitsandbytes(config: Given) -> str | None:
    if config.get("load_in_8bit", config.get("_load_in_8bit")):
        return "int8"
    return "bnb-4bit" if config.get("load_in_4bit", config.get("_load_in_4bit", True)) else None


def _torchao(config: Given) -> str | None:
    kind = str(config.get("quant_type")).lower().replace("_", "")
    return next((name for words, name in _TORCHAO if words in kind), None)


def _hqq(config: Given) -> str | None:
    weights = (config.get("quant_config") or config).get("weight_quant_params")
    return integers(weights.get("nbits"), weights.get("group_size"), "int4") if isinstance(weights, Mapping) else None


READERS: tuple[tuple[Iterable[str], Reader], ...] = (
    (("fp8", "fbgemm-fp8", "ptpc-fp8", "w8a8-fp8"), _fp8),
    (("mxfp4",), _same("mxfp4")),
    (("mxfp8",), _same("mxfp8")),
    (("w8a8-int8",), _same("int8")),
    (("eetq",), _same("w8a16")),
    (("awq", "awq-marlin"), _awq),
    (("gptq", "gptq-marlin", "moe-wna16"), _gptq),
    (("auto-round", "intel/auto-round", "inc"), _auto_round),
    (("modelopt", "modelopt-fp4", "modelopt-fp8", "modelopt-mxfp8"), _modelopt),
    (("compressed-tensors",), _compressed_tensors),
    (("quark",), _quark),
    (("bitsandbytes",), _bitsandbytes),
    (("torchao",), _torchao),
    (("hqq",), _hqq),
)
