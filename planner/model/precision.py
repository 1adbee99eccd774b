"""The number formats of weights and KV cache: their size, the kernels that multiply them, and what those compute in."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.families import COMPRESSED
from planner.catalog.gpus import Gpu
from planner.catalog.layers.latent import Mla
from planner.engines import ENGINES
from planner.engines.releases import is_before
from planner.errors import CatalogError, UnknownNameError

# What kernels that widen weights to 16 bit as they multiply them (Marlin, in vLLM and SGLang) reach of the arithmetic
# of those that need not. 16,000 tokens of Qwen3-14B in AWQ on an A100 take 3.35 s (vllm-project/vllm#20469), and 3.31
# with it; bursts of 8-bit and 4-bit weights there (GPUStack's performance lab, vLLM 0.11) say 0.6 to 0.75.
# TensorRT-LLM's own reach 0.97 (`int4_wo` in gemm.toml).
WIDENING_FRAC = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How weights are stored and multiplied.

    Parameters
    ----------
    bytes_per_element : scales and zeros included [B].
    gemm, moe : kernels of `KERNELS` for dense and for grouped products, the preferred one first.
    widened_bytes : traffic of a kernel before each dense product that writes the weights in 16 bit, and of the product
        that reads them: 4 a weight; 0 where the product itself reads them as they are stored [B].
    """

    bytes_per_element: float
    gemm: tuple[str, ...]
    moe: tuple[str, ...]
    widened_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a kernel multiplies, and who writes it.

    Parameters
    ----------
    activation_bytes : of an element as it enters the product [B].
    precision : of the peak that it multiplies at.
    needs : a precision that the GPU must have besides, for what only its generation can do.
    shared : the operators, "gemm" and "moe", whose kernels come from libraries that all engines tune over.
    grouped_also : formats whose grouped kernels multiply this one too.
    like : the kernel whose measurements stand for it, where nobody measured this one.
    quantizes_apart : whether each product has a kernel before it that finds the scales of its activations; others get
        them from the norm or activation before, or know them.
    """

    activation_bytes: float
    precision: str
    needs: str = "bf16"
    shared: tuple[str, ...] = ()
    grouped_also: tuple[str, ...] = ()
    quantizes_apart: bool = False
    like: str | None = None


KERNELS = {
    "bfloat16": Kernel(activation_bytes=2.0, precision="bf16", shared=("gemm",)),
    "fp8": Kernel(activation_bytes=1.0, precision="fp8", shared=("gemm",), grouped_also=("fp8_block",)),  # one scale
    "fp8_block": Kernel(activation_bytes=1.0, precision="fp8", quantizes_apart=True),  # scales of 128 x 128 weights
    # the same by FlashInfer's TensorRT-LLM kernel, for Blackwell and small batches
    "fp8_block_trtllm": Kernel(activation_bytes=1.0, precision="fp8", needs="fp4", quantizes_apart=True),
    # of MiniMax-M3 alone; before Blackwell weights are widened to 16 bit (Marlin in vLLM)
    "mxfp8": Kernel(activation_bytes=1.0, precision="fp8", needs="fp4", quantizes_apart=True, like="fp8_block"),
    "nvfp4": Kernel(activation_bytes=(4 + 8 / 16) / 8, precision="fp4", shared=("gemm", "moe"), quantizes_apart=True),
    "sq": Kernel(activation_bytes=1.0, precision="int8", quantizes_apart=True),  # both sides in 8-bit integers
    "int8_wo": Kernel(activation_bytes=2.0, precision="bf16"),
    "int4_wo": Kernel(activation_bytes=2.0, precision="bf16", shared=("moe",)),
    "w4a16_mxfp4": Kernel(activation_bytes=2.0, precision="bf16", shared=("moe",)),
    "w4a8_mxfp4_mxfp8": Kernel(activation_bytes=1.0, precision="fp8", needs="fp4", shared=("moe",)),
}

_16_BIT = WeightFormat(bytes_per_element=2.0, gemm=("bfloat16",), moe=("bfloat16",))
_FP8 = WeightFormat(bytes_per_element=1.0, gemm=("fp8", "bfloat16"), moe=("fp8", "fp8_block", "bfloat16"))
_INT4 = WeightFormat(bytes_per_element=(4 + 20 / 128) / 8,  # groups of 128 with a 16-bit scale and a 4-bit zero
                     gemm=("int4_wo", "bfloat16"), moe=("int4_wo", "bfloat16"))
_INT8 = WeightFormat(bytes_per_element=1.0, gemm=("sq", "bfloat16"), moe=_FP8.moe)
_NVFP4 = WeightFormat(bytes_per_element=(4 + 8 / 16) / 8,  # groups of 16 with an 8-bit scale
                      gemm=("nvfp4", "bfloat16"), moe=("nvfp4", "w4a16_mxfp4", "int4_wo", "bfloat16"))

WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    "bf16": _16_BIT,
    "fp16": _16_BIT,
    "fp8": _FP8,
    "fp8_block": WeightFormat(bytes_per_element=1.0, gemm=("fp8_block", "fp8", "bfloat16"),
                              moe=("fp8_block", "fp8", "bfloat16")),
    "mxfp8": WeightFormat(bytes_per_element=1.0 + 1 / 32,  # blocks of 32 with an 8-bit scale
                          gemm=("mxfp8", "int8_wo", "bfloat16"), moe=("mxfp8", "int4_wo", "bfloat16")),
    "int8": _INT8,
    "w8a8": _INT8,
    "w8a16": WeightFormat(bytes_per_element=1.0, gemm=("int8_wo", "bfloat16"), moe=("bfloat16",)),
    "int4": _INT4,
    "awq": _INT4,
    "gptq": _INT4,
    "w4a16": _INT4,
    # bitsandbytes' NF4 in blocks of 64, whose scales are 8-bit; vLLM widens the weights before each product
    "bnb-4bit": WeightFormat(bytes_per_element=(4 + 8 / 64) / 8, gemm=("bfloat16",), moe=_INT4.moe, widened_bytes=4.0),
    "int4-g32": WeightFormat(bytes_per_element=(4 + 16 / 32) / 8,  # groups of 32 with a 16-bit scale, no zero
                             gemm=_INT4.gemm, moe=_INT4.moe),
    "fp4": _NVFP4,
    "nvfp4": _NVFP4,
    "w4a16_nvfp4": WeightFormat(bytes_per_element=_NVFP4.bytes_per_element,  # ModelOpt's, with 16-bit activations
                                gemm=_INT4.gemm, moe=("w4a16_mxfp4", *_INT4.moe)),
    "mxfp4": WeightFormat(bytes_per_element=(4 + 8 / 32) / 8,  # groups of 32 with an 8-bit scale
                          gemm=("bfloat16",), moe=("w4a8_mxfp4_mxfp8", "w4a16_mxfp4", "bfloat16")),
}
KV_BYTES_PER_ELEMENT = {"auto": 2.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}


def weight_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the weights: the one asked for, else the checkpoint's own.

    The format of its routed experts, where that is another, names the checkpoint as it is, as in engines' commands.

    Raises
    ------
    UnknownNameError : there is no such format.
    """
    chosen = (arch.quantization or "bf16") if _is_own(arch, quantization) else str(quantization).lower()
    if chosen not in WEIGHT_FORMATS:
        raise UnknownNameError("quantization", chosen, WEIGHT_FORMATS)
    return chosen


def attention_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the attention's projections: the weights', but where the checkpoint has another for them."""
    chosen = weight_format(arch, quantization)
    return arch.attention_quantization or chosen if is_native(arch, chosen) else chosen


def linear_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of linear attention's projections: the attention's, unless the checkpoint has another."""
    is_own = is_native(arch, weight_format(arch, quantization))
    return (is_own and arch.linear_quantization) or attention_format(arch, quantization)


def _is_own(arch: Architecture, quantization: str | None) -> bool:
    return quantization is None or quantization.lower() == arch.expert_quantization


def is_native(arch: Architecture, format_name: str) -> bool:
    """Tell whether a weight format is the published checkpoint's."""
    return format_name == (arch.quantization or "bf16")


def expert_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the routed experts: the weights', but where the checkpoint has another for them."""
    if _is_own(arch, quantization) and arch.expert_quantization is not None:
        return arch.expert_quantization
    return weight_format(arch, quantization)


def peak_flops_per_s(gpu: Gpu, format_name: str, of_experts: str | None = None) -> float:
    """Return the dense peak that weights of a format are multiplied at, or experts of theirs if higher [FLOP/s].

    Raises
    ------
    CatalogError : the GPU states no peak for it.
    """
    choices = [WEIGHT_FORMATS[format_name].gemm] + ([WEIGHT_FORMATS[of_experts].moe] if of_experts else [])
    return max(gpu.flops_per_s[KERNELS[usable_kernels(names, gpu)[0]].precision] for names in choices)


def usable_kernels(choices: tuple[str, ...], gpu: Gpu) -> tuple[str, ...]:
    """Return those kernels whose precision the GPU multiplies in, in the order of preference.

    Raises
    ------
    CatalogError : the GPU states no peak for any of them.
    """
    found = tuple(name for name in choices
                  if KERNELS[name].precision in gpu.flops_per_s and KERNELS[name].needs in gpu.flops_per_s)
    if not found:
        wanted = " or ".join(dict.fromkeys(KERNELS[name].precision for name in choices))
        raise CatalogError(f"GPU {gpu.name} states no FLOP/s for {wanted}; add it")
    return found


def kv_cache_type(arch: Architecture | None, given: str, engine: str = "vllm", gpu: Gpu | None = None,
                  version: str | None = None) -> str:
    """Return the type of the KV cache: for "auto" the one that the checkpoint states, as engines take it.

    vLLM does from 0.13 on (pull request 29980), SGLang and TensorRT-LLM for ModelOpt's checkpoints. With DeepSeek's
    sparse attention an engine may go by the GPU (`Engine.sparse_kv_cache_type`).

    >>> from planner.catalog.catalog_files import load_model
    >>> arch = load_model("nvidia/Llama-3.3-70B-Instruct-NVFP4")
    >>> kv_cache_type(arch, "auto"), kv_cache_type(arch, "auto", version="0.12")
    ('fp8', 'auto')
    """
    if given != "auto" or arch is None:
        return given
    is_dsa = any(isinstance(group.attention, Mla) and group.indexer is not None for group in arch.layers)
    own = ENGINES[engine].sparse_kv_cache_type
    if own is not None and is_dsa and gpu is not None and gpu.vendor == "NVIDIA":
        return own(gpu)
    if engine == "vllm" and is_before(version, "0.13") and arch.model_type not in COMPRESSED:
        return given
    return arch.kv_cache_dtype or given


def kv_bytes_per_element(name: str) -> float:
    """Return the size of one element of a KV cache [B].

    Raises
    ------
    UnknownNameError : there is no such type.
    """
    if name.lower() not in KV_BYTES_PER_ELEMENT:
        raise UnknownNameError("KV cache type", name, KV_BYTES_PER_ELEMENT)
    return KV_BYTES_PER_ELEMENT[name.lower()]
