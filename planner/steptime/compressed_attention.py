"""Compressed sparse attention (DeepSeek-V4): time of decodes, and reach of prompts and indexer."""

import math
from typing import Any

from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import layer_kv_bytes
from planner.engines import ENGINES
from planner.loop.state.count_table import node_counts
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients
from planner.steptime.step_context import StepContext

# What prompts reach of the 16-bit peak, heads padded, and the indexer with its choice of entries of the FP8 peak; and
# `Engine.index_share`, of `index_layer_s`. From AIConfigurator's tables of whole
# attention modules (`dsv4_csa_*` and `dsv4_hca_*`; SGLang 0.5.14, vLLM 0.24.0, TensorRT-LLM 1.3.0rc23), whose time
# grows by 24 ps an entry and query on H100 and H200, by 15 to 17 on B200, B300 and GB200, whichever the engine.
FLOPS_FRAC = {"hopper": 0.35, "blackwell": 0.6}
INDEX_FLOPS_FRAC = {"hopper": 0.34, "blackwell": 0.23}
SPARSE_HEADS = 64  # that FlashMLA's sparse kernel for decodes has room for, at least (`get_padded_num_q_heads` in vLLM)


def csa_decode_coefficients(stack: StepContext, counts: Floats, constants: MlaDecode, *, bandwidth_bytes_per_s: float,
                            flops_per_s: float) -> tuple[Any, Any]:
    """Return one layer's time of decode attention: by the number of decodes, and per entry [s].

    It is MLA's kernel, whose latent is an entry without a rotary part of its own.

    Parameters
    ----------
    counts : decodes as a CUDA graph pads them [1].
    """
    arch, running = stack.arch, node_counts()
    entry_bytes = layer_kv_bytes(arch, stack.kv_bytes_per_element, stack.layout.tensor_parallel_size)
    return mla_decode_coefficients(
        running, num_padded=counts - running, num_heads=csa_heads(stack), kv_lora_rank=arch.head_dim,
        qk_rope_head_dim=0, kv_bytes_per_element=entry_bytes / arch.head_dim,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s, flops_per_s=flops_per_s, constants=constants)


def csa_heads(stack: StepContext) -> int:
    """Return the heads that a GPU's kernel multiplies for decodes, padding included [1]."""
    return max(math.ceil(stack.arch.num_attention_heads / stack.layout.tensor_parallel_size), SPARSE_HEADS)


def padded_heads(gpu: Gpu, num_heads: int) -> int:
    """Return the heads that FlashMLA's sparse kernel for prompts multiplies for those of a rank [1].

    It runs 64 at once on Hopper and 128 on Blackwell (`prefill_padding` of FlashMLASparseImpl in vLLM).
    """
    at_once = 128 if _generation(gpu) == "blackwell" else 64
    return -(-num_heads // at_once) * at_once


def csa_flops_frac(gpu: Gpu) -> float:
    """Return what prompts reach of the 16-bit peak, heads padded [1]."""
    return FLOPS_FRAC[_generation(gpu)]


def entry_pair_s(stack: StepContext) -> float:
    """Return what an indexer takes for one query and one token, its choice included [s], CSA's and DSA's alike."""
    arch, peaks = stack.arch, stack.gpu.flops_per_s
    products = 2.0 * arch.index_n_heads * arch.index_head_dim / arch.index_rate
    return products / peaks.get("fp8", peaks["bf16"]) / INDEX_FLOPS_FRAC[_generation(stack.gpu)]


def index_share(stack: StepContext) -> float:
    """Return what of `index_layer_s` a layer with an indexer takes [1]: nothing in GQA, whose tables show none."""
    return {"csa": ENGINES[stack.engine].index_share, "mla": 1.0, "gqa": 0.0}[stack.arch.attention]


def _generation(gpu: Gpu) -> str:
    """Return whose kernels a GPU runs: Blackwell's where it multiplies FP4."""
    return "blackwell" if "fp4" in gpu.flops_per_s else "hopper"
