"""Names of published checkpoints: the name of a known model, then words that say how its weights are stored."""

import re
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from planner.catalog import families

# Words behind a model's name, and the format that each says; of several the first in this order counts.
_SAY: Mapping[str, str] = {
    "bnb": "bnb-4bit", "nvfp4a16": "w4a16_nvfp4", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "mxfp8": "mxfp8", "awq": "awq",
    "w8a16": "w8a16", "gptq": "gptq", "gptqmodel": "gptq", "autoround": "gptq", "w4a16": "int4", "int4": "int4",
    "4bit": "int4", "fp8": "fp8", "w8a8": "int8", "int8": "int8", "8bit": "w8a16", "fp4": "nvfp4",
    "bf16": "bf16", "fp16": "bf16", "unquantized": "bf16"}
# Words that change no format: methods of finding scales, publishers, tools.
_SAY_NOTHING = frozenset((
    "quantized", "quant", "dynamic", "static", "marlin", "unsloth", "auto", "round", "per", "tensor", "channel",
    "token", "sym", "asym", "qat", "q4", "0", "g64", "g128", "128g", "hf", "ptpc", "torchao", "ao", "ct",
    "compressed", "tensors", "v2", "kv", "w", "a", "fp8kv", "block", "g32", "32g", "mlperf", "no", "act",
    "preview", "4b", "hybrid"))
_EIGHT = ("int8", "8bit", "w8a16")
_BLOCK_SCALED = ("qwen", "deepseek-ai", "minimaxai", "xiaomimimo")  # whose own FP8 checkpoints have scales of blocks
_NVIDIA = "nvidia"
_QUANTIZERS = (_NVIDIA, "redhatai", "neuralmagic", "amd")  # whose checkpoints are no copies of others' of that name
_WITH_KV_SCALES = ("fp8", "nvfp4", "w4a16_nvfp4")  # formats of NVIDIA's checkpoints that state an FP8 KV cache, too
_NVIDIAS_MLP_ONLY = ("gemma4_text",)  # dense models of which NVIDIA's NVFP4 checkpoints quantise the MLPs alone

_UNSERVED = {"gguf": "llama.cpp's format (GGUF), whose weight formats and kernels are not modelled",
             "mlx": "MLX's format, which vLLM, SGLang and TensorRT-LLM do not load"}

_STATED: Mapping[str, Mapping[str, Any]] = {  # a format -> the keys that such a checkpoint's config states
    "awq": {"quant_method": "awq", "bits": 4}, "gptq": {"quant_method": "gptq", "bits": 4},
    "int4": {"quant_method": "compressed-tensors",
             "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}}},
    "int4-g32": {"quant_method": "gptq", "bits": 4, "group_size": 32},
    "w8a16": {"quant_method": "gptq", "bits": 8}, "int8": {"quant_method": "w8a8_int8"},
    "fp8": {"quant_method": "fp8"}, "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "w4a16_nvfp4": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
    "mxfp4": {"quant_method": "mxfp4"}, "mxfp8": {"quant_method": "mxfp8"},
    "bnb-4bit": {"quant_method": "bitsandbytes", "load_in_4bit": True}}


class Checkpoint(NamedTuple):
    """A published checkpoint of a known model.

    Parameters
    ----------
    base : the known model's name, as a key of the catalog.
    format : of its weights, None for the known model's own.
    owner : publisher, in small letters; empty if the name has none.
    has_kv_scales : whether its KV cache is in FP8: the name says so, or it is one of NVIDIA's in FP8 or NVFP4.
    """

    base: str
    format: str | None
    owner: str
    has_kv_scales: bool


def checkpoint_of(key: str, known: Container[str]) -> Checkpoint | None:
    """Return the model and the format that a checkpoint's name says; None if either is unknown.

    A copy has the name of a known model behind another owner's.

    Parameters
    ----------
    key : the name in small letters, with dashes between its words.
    known : keys of all models.

    >>> checkpoint_of("redhatai/qwen3-8b-quantized-w4a16", {"qwen3-8b"})
    Checkpoint(base='qwen3-8b', format='int4', owner='redhatai', has_kv_scales=False)
    >>> checkpoint_of("me/qwen3-8b-uncensored", {"qwen3-8b"}) is None
    True
    """
    owner, _, name = key.rpartition("/")
    owner = owner.rpartition("/")[2]
    words = name.removeprefix(f"{_NVIDIA}-").split("-")  # nvidia/NVIDIA-Nemotron-…
    whole, parts = (len(words),), range(1, len(words))
    is_own = owner in _QUANTIZERS and f"{_NVIDIA}/{_NVIDIA}-{'-'.join(words)}" not in known
    # The whole name, then the fewest words that are a model's; reversed if the owner quantises by its own recipes.
    for cut in (*parts, *whole) if is_own else (*whole, *parts):
        base, tail = "-".join(words[:cut]), words[cut:]
        if base in known and all(word in _SAY or word in _SAY_NOTHING for word in tail):
            weight_format = _format_of(tail, owner)
            if weight_format is not None or not tail:
                has_scales = bool({"kv", "fp8kv"} & {*tail}) or (owner == _NVIDIA and weight_format in _WITH_KV_SCALES)
                return Checkpoint(base, weight_format, owner, has_scales)
    return None


def unserved_format(key: str) -> str | None:
    """Return the format that a checkpoint's name says if no engine of this catalog serves it; else None.

    >>> unserved_format("mlx-community/qwen3-8b-4bit"), unserved_format("qwen/qwen3-8b")
    ("MLX's format, which vLLM, SGLang and TensorRT-LLM do not load", None)
    """
    words = re.split(r"[/:-]", key)
    return next((said for word, said in _UNSERVED.items() if word in words), None)


def format_in_name(name: str) -> str | None:
    """Return the weight format in the words of a checkpoint's name, of any model; None if they have none.

    >>> format_in_name("/models/demo-NVFP4"), format_in_name("Qwen/Qwen3-8B")
    ('nvfp4', None)
    """
    owner, _, last = name.rstrip("/").lower().rpartition("/")
    return _format_of(re.split(r"[-_.]", last), owner.rpartition("/")[2])


def known_part(key: str, known: Container[str]) -> str | None:
    """Return the known model that a name begins with, of two words or more, with its whole version; None if none is."""
    words = re.split(r"-(?!\d(?:-|$))", key.rpartition("/")[2])
    return next((base for cut in range(len(words), 1, -1) if (base := "-".join(words[:cut])) in known), None)


def _format_of(tail: list[str], owner: str) -> str | None:
    """Return the format in the words behind a model's name; None if they have none."""
    word_format = next((said for word, said in _SAY.items() if word in tail), None)
    if word_format in ("gptq", "awq", "bnb-4bit") and any(word in tail for word in _EIGHT):
        return "int8" if word_format == "bnb-4bit" else "w8a16"
    if word_format in ("gptq", "awq", "int4") and {"g32", "32g"} & {*tail}:
        return "int4-g32"
    if word_format == "fp8" and ("block" in tail or owner in _BLOCK_SCALED):
        return "fp8_block"
    return word_format


def _has_experts(config: Mapping[str, object], model_type: str) -> bool:
    """Tell whether a model is a mixture of experts; of some types there are both."""
    return model_type in families.MOE_KEYS and bool(config.get(families.MOE_KEYS[model_type][0], 1)) and (
        config.get("enable_moe_block", model_type != "gemma4_text") is True)


def as_published(config: Mapping[str, object], checkpoint: Checkpoint) -> dict[str, object]:
    """Return a model's config with the keys that a checkpoint of another format states.

    Publishers leave in 16 bit: linear attention in all formats; attention in all of Llama 4's, in NVFP4 beside
    latent attention, and in NVIDIA's NVFP4 of any mixture of experts and of Gemma 4. Of DeepSeek-V4 NVFP4 has the
    experts alone. NVIDIA's NVFP4 of other dense models (Llama 3, Qwen3) leaves out the LM head alone. Embeddings, LM
    head and routers always are 16-bit.

    NVIDIA's checkpoints in FP8 and NVFP4 state `kv_cache_quant_algo` = FP8, which is the default of ModelOpt's
    examples/llm_ptq/hf_ptq.py. Checkpoints that state none are entries of the catalog.

    Source: the `ignore` lists of llm-compressor's examples and of NVIDIA's hf_quant_config.json files.
    """
    if checkpoint.format is None:
        return dict(config)
    kept = {key: value for key, value in config.items() if key not in ("quantization_config", "expert_dtype")}
    if checkpoint.format == "bf16":
        return kept
    model_type = families.WRAPPERS.get(str(config.get("model_type")), str(config.get("model_type")))
    if model_type in families.COMPRESSED and checkpoint.format == "nvfp4":  # its experts alone
        return {**config, "expert_dtype": "nvfp4"}
    ignored = ["lm_head"]
    if model_type in (*families.DELTA_NET, *families.KDA, *families.MAMBA):
        ignored.append("re:.*linear_attn.*")
    is_fp4, is_moe = checkpoint.format in ("nvfp4", "w4a16_nvfp4"), _has_experts(config, model_type)
    latent, is_nvidias = "kv_lora_rank" in config, checkpoint.owner == _NVIDIA
    is_mlp_only = is_nvidias and (is_moe or model_type in _NVIDIAS_MLP_ONLY)
    if model_type == "llama4_text" or (is_fp4 and (latent or is_mlp_only)):
        ignored.append("re:.*self_attn.*")
    stated = {**_STATED[checkpoint.format], "ignore": ignored}
    if checkpoint.has_kv_scales:
        stated["kv_cache_quant_algo"] = "FP8"
    return kept | {"quantization_config": stated}
