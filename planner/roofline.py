"""The step-time model: what the hardware's roofs make of each operator of the model, as coefficients for the loop."""

from dataclasses import dataclass
from typing import Any

from planner.architecture import (
    Architecture,
    expert_parameters,
    kv_bytes_per_token_per_gpu,
    mlp_parameters,
    router_parameters,
    shared_expert_parameters,
)
from planner.catalog import Gpu
from planner.engine.state import STEP_TIME, records
from planner.errors import CatalogError, UsageError
from planner.memory import attention_parameters_per_gpu, bytes_per_element, weight_format

# Precision that a weight format is multiplied in; the first one that the GPU has. Weight-only formats end at 16 bit.
COMPUTE_PRECISIONS = {
    "bf16": ("bf16",),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", "bf16"),
    "int8": ("int8", "bf16"),
    "fp4": ("fp4", "bf16"),
    "nvfp4": ("fp4", "bf16"),
    "mxfp4": ("bf16",),
    "int4": ("bf16",),
    "int4-g32": ("bf16",),
    "awq": ("bf16",),
    "gptq": ("bf16",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The shares of the hardware's peaks that kernels reach, and what a step costs besides.

    The defaults are priors: medians of large shapes among NVIDIA AIConfigurator's operator measurements (H100 SXM, vLLM
    0.24: GEMM in bf16 0.80 and in fp8 0.53 of the dense peak, weights streamed at 0.83 and KV read at 0.81 of the HBM
    bandwidth, prefill attention at 0.51 of the bf16 peak, an all-reduce of 512 MiB on 8 GPUs at 469 of 450 + 450 GB/s).

    Parameters
    ----------
    gemm_flops_frac, gemm_low_precision_flops_frac : large GEMMs in 16 bit; in 8 and 4 bit [1].
    weights_bandwidth_frac, kv_bandwidth_frac : HBM, streaming weights; reading KV in decode [1].
    prompt_attention_flops_frac : prefill attention [1].
    link_bandwidth_frac : scale-up link in large all-reduces [1].
    overhead_s : host and launch time of a step that the GPU waits for [s].
    overhead_s_per_seq : the same for each sequence of the step [s].
    """

    gemm_flops_frac: float = 0.80
    gemm_low_precision_flops_frac: float = 0.53
    weights_bandwidth_frac: float = 0.83
    kv_bandwidth_frac: float = 0.81
    prompt_attention_flops_frac: float = 0.51
    link_bandwidth_frac: float = 0.90
    overhead_s: float = 0.6e-3
    overhead_s_per_seq: float = 4e-6

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value < 0 or (name.endswith("_frac") and not 0 < value <= 1):
                raise UsageError(f"{name} = {value}; a fraction is in (0, 1], a time is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is spread over the GPUs of one replica."""

    tensor_parallel_size: int
    pipeline_parallel_size: int

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size


def roofline(arch: Architecture, gpu: Gpu, layout: Layout, quantization: str | None, kv_bytes_per_element: float,
             efficiency: Efficiency) -> Any:
    """Return the coefficients of `engine.state.STEP_TIME` for one model on one GPU type.

    A batch passes all pipeline stages one after the other, so times are those of all layers.

    Parameters
    ----------
    quantization : weight format; None for the checkpoint's own.
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [B].

    Notes ----- Each operator takes the smooth maximum of the time of its traffic at the HBM bandwidth and of its
    arithmetic at the dense peak (Williams et al., Roofline, CACM 2009), both lowered by `efficiency`. Kernel floors
    and the host's time at light load are only in `overhead_s`: very small models come out too fast.
    """
    t = records(1, STEP_TIME)[0]
    _fold_linear_layers(t, arch, gpu, layout, quantization, efficiency)
    _fold_head(t, arch, gpu, layout, efficiency)
    _fold_attention(t, arch, gpu, layout, kv_bytes_per_element, efficiency)
    _fold_collectives(t, arch, gpu, layout, efficiency)
    t.overhead_s = efficiency.overhead_s
    t.overhead_s_per_seq = efficiency.overhead_s_per_seq
    return t


def peak_flops_per_s(gpu: Gpu, weights: str) -> tuple[float, bool]:
    """Return the dense peak that weights of this format are multiplied at [FLOP/s], and whether it is below 16 bit."""
    for precision in COMPUTE_PRECISIONS[weights]:
        if precision in gpu.flops_per_s:
            return gpu.flops_per_s[precision], precision not in ("bf16", "fp16")
    raise CatalogError(f"GPU {gpu.name} states no FLOP/s for {' or '.join(COMPUTE_PRECISIONS[weights])}; add it")


def _gemm_flops_per_s(gpu: Gpu, weights: str, efficiency: Efficiency) -> float:
    peak, is_low = peak_flops_per_s(gpu, weights)
    return peak * (efficiency.gemm_low_precision_flops_frac if is_low else efficiency.gemm_flops_frac)


def _fold_linear_layers(t: Any, arch: Architecture, gpu: Gpu, layout: Layout, quantization: str | None,
                        efficiency: Efficiency) -> None:
    """Projections, MLPs and experts: 2 FLOP per parameter and token; weights are read once a step."""
    tp = layout.tensor_parallel_size
    element, attention_element = bytes_per_element(arch, quantization)
    weights = weight_format(arch, quantization)
    flops_per_s = _gemm_flops_per_s(gpu, weights, efficiency)
    attention_flops_per_s = flops_per_s if attention_element == element else _gemm_flops_per_s(gpu, "bf16", efficiency)
    bandwidth = gpu.hbm_bandwidth_bytes_per_s * efficiency.weights_bandwidth_frac

    attention = arch.num_layers * attention_parameters_per_gpu(arch, tp)
    mlp = arch.num_dense_layers * mlp_parameters(arch) / tp
    router = 0.0
    if arch.num_moe_layers:
        mlp += arch.num_moe_layers * shared_expert_parameters(arch) / tp
        router = float(arch.num_moe_layers * router_parameters(arch))
    t.weights_bytes = attention * attention_element + mlp * element + router * 2.0
    t.weights_s = t.weights_bytes / bandwidth
    t.linear_s_per_token = 2.0 * (attention / attention_flops_per_s + (mlp + router) / flops_per_s)
    if arch.num_moe_layers:
        expert = arch.num_moe_layers * expert_parameters(arch) / tp
        t.num_experts = arch.num_experts
        t.experts_per_token = arch.num_experts_per_tok
        t.expert_weights_bytes = expert * element
        t.expert_weights_s = t.expert_weights_bytes / bandwidth
        t.expert_s_per_token = 2.0 * arch.num_experts_per_tok * expert / flops_per_s
    # Per layer two norms and two residual additions, read and written, and the MLP's gate and product, all 16-bit.
    width = arch.moe_intermediate_size * arch.num_experts_per_tok if arch.num_moe_layers else arch.intermediate_size
    t.activation_bytes_per_token = 2.0 * arch.num_layers * (8 * arch.hidden_size + 3 * width / tp)
    t.activation_s_per_token = t.activation_bytes_per_token / bandwidth


def _fold_head(t: Any, arch: Architecture, gpu: Gpu, layout: Layout, efficiency: Efficiency) -> None:
    """LM head: 16-bit in every format, run on the tokens that are sampled."""
    parameters = arch.vocab_size * arch.hidden_size / layout.tensor_parallel_size
    t.head_weights_bytes = 2.0 * parameters
    t.head_weights_s = t.head_weights_bytes / (gpu.hbm_bandwidth_bytes_per_s * efficiency.weights_bandwidth_frac)
    t.head_s_per_sample = 2.0 * parameters / _gemm_flops_per_s(gpu, "bf16", efficiency)


def attention_flops_per_pair(arch: Architecture, *, is_decode: bool) -> float:
    """Return the arithmetic of one query token attending to one key in one layer, all heads [FLOP].

    GQA: QK^T and PV, 4 · heads · head_dim. MLA in prefill multiplies the expanded keys and values; in decode the
    latent itself (absorbed projections), 2 · heads · (2 · kv_lora_rank + qk_rope_head_dim).

    >>> from planner.catalog import load_model
    >>> attention_flops_per_pair(load_model("llama-3.1-8b"), is_decode=True)
    16384.0
    """
    if arch.attention != "mla":
        return 4.0 * arch.num_attention_heads * arch.head_dim
    if is_decode:
        return 2.0 * arch.num_attention_heads * (2 * arch.kv_lora_rank + arch.qk_rope_head_dim)
    return 2.0 * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim + arch.v_head_dim)


def _fold_attention(t: Any, arch: Architecture, gpu: Gpu, layout: Layout, kv_bytes_per_element: float,
                    efficiency: Efficiency) -> None:
    """Attention over cached KV: decodes read it, prompts multiply with it; sliding layers see a window only."""
    tp = layout.tensor_parallel_size
    kv_bytes = kv_bytes_per_token_per_gpu(arch, kv_bytes_per_element, tp, 1)
    sliding = arch.num_sliding_layers / arch.num_layers
    bandwidth = gpu.hbm_bandwidth_bytes_per_s * efficiency.kv_bandwidth_frac
    flops_per_s = gpu.flops_per_s["bf16"] * efficiency.prompt_attention_flops_frac * tp
    decode_s = max(kv_bytes / bandwidth,
                   arch.num_layers * attention_flops_per_pair(arch, is_decode=True) / flops_per_s)
    prompt_s = arch.num_layers * attention_flops_per_pair(arch, is_decode=False) / flops_per_s
    t.window_tokens = arch.sliding_window if arch.num_sliding_layers else 0
    t.kv_bytes_per_token = (1 - sliding) * kv_bytes
    t.window_kv_bytes_per_token = sliding * kv_bytes
    t.decode_s_per_context_token = (1 - sliding) * decode_s
    t.decode_s_per_window_token = sliding * decode_s
    t.prompt_s_per_pair = (1 - sliding) * prompt_s
    t.prompt_s_per_window_pair = sliding * prompt_s
    t.prompt_s_per_context_token = (1 - sliding) * kv_bytes / bandwidth


def _fold_collectives(t: Any, arch: Architecture, gpu: Gpu, layout: Layout, efficiency: Efficiency) -> None:
    """Two all-reduces of the hidden state a layer: α + 2(p − 1)/p · bytes / bandwidth (ring)."""
    tp = layout.tensor_parallel_size
    if tp > 1:
        reduces = 2 * arch.num_layers
        traffic = 2.0 * (tp - 1) / tp * 2.0 * arch.hidden_size
        t.collective_s = reduces * gpu.scale_up_latency_s
        t.collective_s_per_token = reduces * traffic / (
            gpu.scale_up_bandwidth_bytes_per_s * efficiency.link_bandwidth_frac
        )
