"""The number formats of weights and KV cache: their size, the kernels that multiply them, and those kernels' peaks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.families import COMPRESSED
from planner.catalog.gpus import Gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.engines import ENGINES
from planner.engines.releases import is_before
from planner.errors import CatalogError, UnknownNameError, UsageError

# Part of other kernels' arithmetic that kernels reach which widen weights to 16 bit as they multiply them (Marlin, in
# vLLM and SGLang). 16,000 tokens of Qwen3-14B in AWQ on an A100 take 3.35 s (vllm-project/vllm#20469), and 3.31
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
        that reads them: 4 a weight; 0 if the product itself reads them as they are stored [B].
    """

    bytes_per_element: float
    gemm: tuple[str, ...]
    moe: tuple[str, ...]
    widened_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel's operands, GPU peak and maker.

    Parameters
    ----------
    activation_bytes : of an element as it enters the product [B].
    precision : of the peak that it multiplies at.
    needs : another precision that the GPU must have, if only its generation runs the kernel.
    shared : the operators, "gemm" and "moe", whose kernels come from libraries that all engines tune over.
    grouped_also : formats whose grouped kernels multiply this one too.
    like : the kernel with measurements to use, if this one has none.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKv:
    """How an engine packs the key and the value of a token and a KV head into one slot, scales included.

    Parameters
    ----------
    bits : of an element of the key and one of the value together, with the scales of their blocks [bit].
    head_bytes : scales, norms and zeros of the slot, for any head size [B].
    multiple : the slot's size is rounded up to it [B].
    vendor : the only vendor of GPUs with a kernel for it; None for any.
    edge_layers : first and last layers that stay in 16 bit in a model without linear attention [1].
    """

    bits: float
    head_bytes: int = 0
    multiple: int = 1
    vendor: str | None = None
    edge_layers: int = 0


# Sources, of vLLM 0.33: `TritonAttentionBackend.customize_spec` (FP32 scales), `nvfp4_kv_cache_full_dim` (an 8-bit
# scale for 16 values), `TurboQuantConfig.slot_size_aligned`, `OctaveFormat.slot_bytes` (here all of a key is rotary),
# and the slot of `ultraquant/format.py` (an 8-bit scale for 32 values). Of SGLang 0.5.23: `compute_cell_size` of
# fp4_kv_cache_quant_method.py, and pool_configurator.py (MXFP8: an 8-bit scale for 32 values).
PACKED_KV = {
    "nvfp4": PackedKv(bits=2 * (4 + 8 / 16), vendor="NVIDIA"),
    "nvfp4_4over6": PackedKv(bits=2 * (4 + 8 / 16), vendor="NVIDIA"),
    "fp4_mx_block16": PackedKv(bits=2 * (4 + 8 / 16)),
    "mxfp8": PackedKv(bits=2 * (8 + 8 / 32), vendor="NVIDIA"),
    "int8_per_token_head": PackedKv(bits=16, head_bytes=8),
    "fp8_per_token_head": PackedKv(bits=16, head_bytes=8),
    "int4_per_token_head": PackedKv(bits=8, head_bytes=8),
    "turboquant_k8v4": PackedKv(bits=8 + 4, head_bytes=4, multiple=2, edge_layers=2),
    "turboquant_4bit_nc": PackedKv(bits=4 + 4, head_bytes=6, multiple=2, edge_layers=2),
    "turboquant_k3v4_nc": PackedKv(bits=3 + 4, head_bytes=6, multiple=2, edge_layers=2),
    "turboquant_3bit_nc": PackedKv(bits=3 + 3, head_bytes=6, multiple=2, edge_layers=2),
    "octave_k3v4": PackedKv(bits=4 + 16 / 64 + 4, head_bytes=2, multiple=8, vendor="AMD"),
    "octave_k3v3": PackedKv(bits=4 + 16 / 64 + 3, head_bytes=2, multiple=8, vendor="AMD"),
    "octave_k3v3_compact": PackedKv(bits=3 + 3, head_bytes=4, multiple=4, vendor="AMD"),
    "ultraquant_4bit": PackedKv(bits=2 * (4 + 8 / 32), vendor="AMD", edge_layers=2),
}
PACKED_LATENT = "nvfp4_ds_mla"  # a sparse latent: an 8-bit scale for 16 values in 4 bit, and an 8-bit rotary part
KV_TYPES = (*KV_BYTES_PER_ELEMENT, *PACKED_KV, PACKED_LATENT)


def weight_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the weights: the one asked for, else the checkpoint's own.

    The format of its routed experts, if that is another, names the checkpoint as it is, as in engines' commands.

    Raises
    ------
    UnknownNameError : there is no such format.
    """
    chosen = (arch.quantization or "bf16") if _is_own(arch, quantization) else str(quantization).lower()
    if chosen not in WEIGHT_FORMATS:
        raise UnknownNameError("quantization", chosen, WEIGHT_FORMATS)
    return chosen


def attention_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the attention's projections: the weights', unless the checkpoint has another for them."""
    chosen = weight_format(arch, quantization)
    return arch.attention_quantization or chosen if is_native(arch, chosen) else chosen


def linear_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of linear attention's projections: the attention's, unless the checkpoint has another."""
    is_own = is_native(arch, weight_format(arch, quantization))
    return (is_own and arch.linear_quantization) or attention_format(arch, quantization)


def head_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the LM head: 16-bit, unless the checkpoint says another."""
    return (is_native(arch, weight_format(arch, quantization)) and arch.head_quantization) or "bf16"


def _is_own(arch: Architecture, quantization: str | None) -> bool:
    return quantization is None or quantization.lower() == arch.expert_quantization


def is_native(arch: Architecture, format_name: str) -> bool:
    """Tell whether a weight format is the published checkpoint's."""
    return format_name == (arch.quantization or "bf16")


def expert_format(arch: Architecture, quantization: str | None) -> str:
    """Return the format of the routed experts: the weights', unless the checkpoint has another for them."""
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
    """Return the kernels whose precision the GPU multiplies in, in the order of preference.

    Raises
    ------
    CatalogError : the GPU states no peak for any of them.
    """
    usable = tuple(name for name in choices
                   if KERNELS[name].precision in gpu.flops_per_s and KERNELS[name].needs in gpu.flops_per_s)
    if not usable:
        wanted = " or ".join(dict.fromkeys(KERNELS[name].precision for name in choices))
        raise CatalogError(f"GPU {gpu.name} states no FLOP/s for {wanted}; add it")
    return usable


def kv_cache_type(arch: Architecture | None, dtype: str, engine: str, gpu: Gpu | None = None,
                  version: str | None = None) -> str:
    """Return the type of the KV cache: for "auto" the one that the checkpoint states, as engines take it.

    Older releases may not read it (`Memory.reads_kv_type_since`). With DeepSeek's sparse attention an engine may go by
    the GPU (`Defaults.sparse_kv_cache_type`).

    >>> from planner.catalog.catalog_files import load_model
    >>> arch = load_model("nvidia/Llama-3.3-70B-Instruct-NVFP4")
    >>> kv_cache_type(arch, "auto", "vllm"), kv_cache_type(arch, "auto", "vllm", version="0.12")
    ('fp8', 'auto')
    """
    if dtype != "auto" or arch is None:
        return dtype
    is_dsa = any(isinstance(group.attention, Mla) and group.indexer is not None for group in arch.layers)
    sparse_dtype, since = ENGINES[engine].defaults.sparse_kv_cache_type, ENGINES[engine].memory.reads_kv_type_since
    if sparse_dtype is not None and is_dsa and gpu is not None and gpu.vendor == "NVIDIA":
        return sparse_dtype(gpu)
    if is_before(version, since) and arch.model_type not in COMPRESSED:
        return dtype
    return arch.kv_cache_dtype or dtype


def kv_bytes_per_element(name: str, arch: Architecture | None, engine: str, gpu: Gpu | None = None) -> float:
    """Return the size of one element of a KV cache, its share of the scales included [B].

    It is the mean over the model's layers, whose heads may differ in size; without a model, only the element's.

    >>> from planner.catalog.catalog_files import load_model
    >>> kv_bytes_per_element("int8_per_token_head", load_model("llama-3.1-8b"), "vllm")  # (2 · 128 + 8) / (2 · 128)
    1.03125

    Raises
    ------
    UnknownNameError : there is no such type.
    UsageError : the engine has no kernel for it with this model or on this GPU.
    """
    chosen = name.lower()
    if chosen in KV_BYTES_PER_ELEMENT:
        return KV_BYTES_PER_ELEMENT[chosen]
    if chosen not in KV_TYPES:
        raise UnknownNameError("KV cache type", name, KV_TYPES)
    memory, title = ENGINES[engine].memory, ENGINES[engine].title
    if chosen not in memory.packed_kv:
        owners = " and ".join(f"{owner.title}'s" for owner in ENGINES.values() if chosen in owner.memory.packed_kv)
        raise UsageError(f"kv_cache_dtype = {chosen}: this KV cache format is {owners} alone, and the engine is "
                         f"{title}; give fp8 or bf16")
    if chosen == PACKED_LATENT:
        return _latent_bytes_per_element(arch)
    form, needed = PACKED_KV[chosen], memory.packed_kv[chosen]
    if gpu is not None and form.vendor is not None and gpu.vendor != form.vendor:
        raise UsageError(f"kv_cache_dtype = {chosen}: {title} has a kernel for it on GPUs of {form.vendor} alone, and "
                         f"{gpu.name} is {gpu.vendor}'s; give fp8 or bf16")
    if gpu is not None and needed is not None and needed not in gpu.flops_per_s:
        raise UsageError(f"kv_cache_dtype = {chosen}: {title} has a kernel for it on GPUs that multiply in {needed} "
                         f"alone, and {gpu.name} does not; give fp8 or bf16")
    if arch is None:
        return form.bits / 16
    is_widened = chosen in memory.widened_kv and gpu is not None and not gpu.scale_up_link.startswith("NVLink")
    return _packed_bytes_per_element(chosen, form, arch, title, widened_layers=int(is_widened))


def _packed_bytes_per_element(name: str, form: PackedKv, arch: Architecture, engine: str,
                              widened_layers: int) -> float:
    """Return the mean size of an element of a model's keys and values in a packed format [B].

    Parameters
    ----------
    widened_layers : layers whose tokens are also stored in 8 bit [1].
    """
    stored, elements, layers = 0.0, 0, 0
    for attention, groups in arch.by_attention:
        if not attention.has_cache:
            continue
        if not isinstance(attention, Gqa):
            raise UsageError(f"kv_cache_dtype = {name}: {engine} has no kernel for it with the latent attention of "
                             f"{arch.name}; give fp8 or bf16")
        count = sum(group.count for group in groups)
        slot = math.ceil((attention.head_dim * form.bits / 8 + form.head_bytes) / form.multiple) * form.multiple
        stored += count * attention.num_kv_heads * slot
        elements += count * attention.num_kv_heads * 2 * attention.head_dim
        layers += count
    edges = 0 if arch.num_linear_layers else 2 * min(form.edge_layers, layers // 2)
    return (edges * KV_BYTES_PER_ELEMENT["bf16"] + (layers - edges) * stored / elements + widened_layers) / layers


def _latent_bytes_per_element(arch: Architecture | None) -> float:
    """Return the mean size of an element of a sparse latent in the packed format [B]."""
    latents = [] if arch is None else [attention for attention, _ in arch.by_attention
                                       if isinstance(attention, Mla) and attention.is_sparse]
    if not latents:
        raise UsageError(f"kv_cache_dtype = {PACKED_LATENT}: only DeepSeek's sparse latent attention (V3.2) has this "
                         f"format{f', and {arch.name} has none' if arch else ''}; give fp8 or bf16")
    rank, rotary = latents[0].kv_lora_rank, latents[0].qk_rope_head_dim
    return (rank * (4 + 8 / 16) / 8 + rotary) / (rank + rotary)
