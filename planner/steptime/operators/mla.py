"""Multi-head latent attention (DeepSeek, Kimi): prompts and decodes, one layer, one GPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.steptime.operators.attention import PromptAttention, smooth_max
from planner.steptime.operators.constant_ranges import KernelConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaDecode(KernelConstants):
    """Constants of an MLA decode kernel; fitted in `hardware_db/kernels/mla.toml`, phase "generation".

    Parameters
    ----------
    floor_s : launch, split and merge [s].
    bandwidth_frac : share of the HBM bandwidth for reading the latent cache [1].
    flops_frac : share of the dense peak in multiplying all heads with the latents [1].
    s_per_seq_head : time of one sequence in one head, for any context [s].
    s_per_own_token : of a sequence's context, which is read in sequence by the part of the GPU that it is split over:
        the least that a token takes, however few sequences share the memory's bandwidth [s].
    """

    floor_s: float
    bandwidth_frac: float
    flops_frac: float
    s_per_seq_head: float
    s_per_own_token: float


def mla_prompt_coefficients(
    *, num_heads: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int, bandwidth_bytes_per_s: float,
    flops_per_s: float, constants: PromptAttention,
) -> tuple[float, float, float, float]:
    """Return (base [s], per prompt token [s], per cached context token [s], per attended pair [s]) of MLA in prefill.

    Keys and values are expanded to heads before (a GEMM of the caller's, for the cached context again):

        per_pair          = heads · (2 · (qk_dim + v_dim) + softmax) / (flops_frac · peak)
        per_token         = heads · 16-bit Q, K, V and O / (bandwidth_frac · bandwidth) + heads · s_per_token_head
        per_context_token = heads · 16-bit K and V / (bandwidth_frac · bandwidth)

    Parameters
    ----------
    num_heads : on this GPU [1].
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim : of one head, 128, 64 and 128 in DeepSeek-V3 [1].
    bandwidth_bytes_per_s, flops_per_s : HBM, and dense peak at the precision that attention multiplies in.

    Notes
    -----
    Fitted to fresh prompts of 128 to 16,384 tokens, 1 to 16 at once.

    >>> constants = PromptAttention(floor_s=1.5e-5, flops_frac=0.6, softmax_flops_per_pair=50.0, bandwidth_frac=0.5,
    ...                             s_per_token_head=0.0)
    >>> base, token, context, pair = mla_prompt_coefficients(
    ...     num_heads=16, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, bandwidth_bytes_per_s=3.35e12,
    ...     flops_per_s=989e12, constants=constants)
    >>> round(1e6 * (base + 4096 * token + 4096 * 4097 / 2 * pair))
    221
    """
    query = qk_nope_head_dim + qk_rope_head_dim
    bandwidth = bandwidth_bytes_per_s * constants.bandwidth_frac
    per_context_token = 2.0 * num_heads * (query + v_head_dim) / bandwidth
    per_token = 2.0 * per_context_token + num_heads * constants.s_per_token_head
    work = num_heads * (2.0 * (query + v_head_dim) + constants.softmax_flops_per_pair)
    return constants.floor_s, per_token, per_context_token, work / (flops_per_s * constants.flops_frac)


def mla_decode_coefficients(
    num_decodes: Any, *, num_heads: int, kv_lora_rank: int, qk_rope_head_dim: int, kv_bytes_per_element: float,
    bandwidth_bytes_per_s: float, flops_per_s: float, constants: MlaDecode, num_padded: Any = 0,
) -> tuple[Any, Any]:
    """Return (A [s], B [s per context token]): the step's decodes take A + B · Σ context tokens in one layer.

        A = floor + (decodes + padded) · heads · (16-bit Q and O / bandwidth + s_per_seq_head)
        B = smooth max of (rank + rope) · element / (bandwidth_frac · bandwidth),
            2 · heads · (2 · rank + rope) / (flops_frac · peak) and s_per_own_token / decodes

    The step is over when its longest sequence is; the mean context stands for that one's. The latent is read once for
    all heads, so that with 64 or 128 heads arithmetic counts as much as the reading.
    Only the attention proper: the projections are products of their own (`model.projections`).

    Parameters
    ----------
    num_decodes : sequences of the step; a number or array [1].
    num_padded : padding rows of a CUDA graph, whose context is empty [1].
    num_heads : on this GPU, with data-parallel attention all of the model's; times the tokens of a decode that are
        checked together [1].
    kv_lora_rank, qk_rope_head_dim : 512 and 64 in DeepSeek-V3 [1].
    kv_bytes_per_element : of the latent cache, 2 or 1 [B].

    >>> base, per_token = mla_decode_coefficients(
    ...     64, num_heads=128, kv_lora_rank=512, qk_rope_head_dim=64, kv_bytes_per_element=2,
    ...     bandwidth_bytes_per_s=3.35e12, flops_per_s=989e12,
    ...     constants=MlaDecode(floor_s=1.5e-5, bandwidth_frac=0.9, flops_frac=0.7, s_per_seq_head=1e-9,
    ...                         s_per_own_token=3e-10))
    >>> round(1e6 * (base + 64 * 8192 * per_token))
    273
    """
    wide = 2.0 * kv_lora_rank + qk_rope_head_dim
    row_s = num_heads * (2.0 * wide / bandwidth_bytes_per_s + constants.s_per_seq_head)
    base = constants.floor_s + (num_decodes + num_padded) * row_s
    latent = (kv_lora_rank + qk_rope_head_dim) * kv_bytes_per_element
    read = latent / (bandwidth_bytes_per_s * constants.bandwidth_frac)
    multiply = 2.0 * num_heads * wide / (flops_per_s * constants.flops_frac)
    alone = constants.s_per_own_token / np.maximum(num_decodes, 1)
    return base, smooth_max(smooth_max(read, multiply), alone)
