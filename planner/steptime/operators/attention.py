"""Attention (MHA, GQA, sliding window): its time for the prompts and for the decodes of a step, one layer, one GPU."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.steptime.operators.constant_ranges import KernelConstants

FLASH2_TILE = 64  # queries of a tile of FlashAttention-2 over a paged KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAttention(KernelConstants):
    """Constants of a prompt attention kernel; fitted in `hardware_db/kernels/attention.toml`, phase "context".

    Parameters
    ----------
    floor_s : launch and first wave of thread blocks [s].
    flops_frac : share of the dense peak of the tensor cores at very long prompts [1].
    softmax_flops_per_pair : cost of softmax for a pair of query and key in a head, as FLOP of the tensor cores [FLOP].
    bandwidth_frac : share of the HBM bandwidth for queries, keys, values and outputs [1].
    s_per_token_head : extra time of a token in one head: RoPE, conversion, tiles cut by the causal mask [s].
    """

    floor_s: float
    flops_frac: float
    softmax_flops_per_pair: float
    bandwidth_frac: float
    s_per_token_head: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention(KernelConstants):
    """Constants of a decode attention kernel; fitted in `hardware_db/kernels/attention.toml`, phase "generation".

    Parameters
    ----------
    floor_s : launch, split and merge of the keys [s].
    bandwidth_frac : share of the HBM bandwidth for reading keys and values [1].
    s_per_seq_head : time of one sequence in one query head, for any context: part-filled tiles, merging [s].
    """

    floor_s: float
    bandwidth_frac: float
    s_per_seq_head: float


def smooth_max(a: Any, b: Any) -> Any:
    """Return (a⁴ + b⁴)^¼, never below either, for positive numbers or arrays.

    >>> bool(smooth_max(3.0, 3.0) > 3.0), float(smooth_max(2.0, 0.0))
    (True, 2.0)
    """
    return np.sqrt(np.hypot(np.square(a), np.square(b)))


def prompt_attention_coefficients(
    *, num_heads: int, num_kv_heads: int, head_dim: int, kv_bytes_per_element: float, bandwidth_bytes_per_s: float,
    flops_per_s: float, constants: PromptAttention,
) -> tuple[float, float, float, float]:
    """Return (base [s], per prompt token [s], per cached context token [s], per attended pair [s]).

    The time of all prompt chunks of a step is
    base + Σ tokens · per_token + Σ cached tokens · per_context_token + Σ pairs · per_pair, with

        per_pair          = heads · (4 · head_dim + softmax) / (flops_frac · peak)
        per_token         = (16-bit Q and O, cached K and V) / (bandwidth_frac · bandwidth) + heads · s_per_token_head
        per_context_token = (cached K and V) / (bandwidth_frac · bandwidth)

    Parameters
    ----------
    num_heads, num_kv_heads : query and key-value heads on this GPU [1].
    head_dim : [1].
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [B].
    bandwidth_bytes_per_s, flops_per_s : HBM, and dense peak at the precision that attention multiplies in.

    Notes
    -----
    A pair is a query and a key that it sees: with a window of w keys, at most w a query. Fitted to fresh prompts of
    128 to 16,384 tokens, 1 to 16 at once, 4 to 16 query heads for each key-value head; as good without grouping. Too
    low for one short prompt on few heads (below 2,048 tokens on 8 heads, by up to a third): its tiles
    do not fill the GPU. Too low for many prompts of under 64 tokens.

    Source: least squares on NVIDIA AIConfigurator's operator times; `benchmarks/kernels/fit_attention.py`.

    >>> constants = PromptAttention(floor_s=1e-5, flops_frac=0.8, softmax_flops_per_pair=160.0, bandwidth_frac=0.5,
    ...                             s_per_token_head=0.0)
    >>> base, token, context, pair = prompt_attention_coefficients(
    ...     num_heads=32, num_kv_heads=8, head_dim=128, kv_bytes_per_element=2, bandwidth_bytes_per_s=3.35e12,
    ...     flops_per_s=989e12, constants=constants)
    >>> round(1e6 * (base + 2048 * token + 2048 * 2049 / 2 * pair))
    92
    """
    bandwidth = bandwidth_bytes_per_s * constants.bandwidth_frac
    cached = 2.0 * num_kv_heads * head_dim * kv_bytes_per_element
    query_and_output = 2.0 * 2.0 * num_heads * head_dim
    per_token = (query_and_output + cached) / bandwidth + num_heads * constants.s_per_token_head
    work = num_heads * (4.0 * head_dim + constants.softmax_flops_per_pair)
    return constants.floor_s, per_token, cached / bandwidth, work / (flops_per_s * constants.flops_frac)


def prompt_attention_s(num_tokens: Any, num_context_tokens: Any, num_pairs: Any, **shape: Any) -> Any:
    """Return the time of a step's prompt chunks in one layer [s]; numbers or arrays of one shape.

    `shape` : the keywords of `prompt_attention_coefficients`.
    """
    base, per_token, per_context_token, per_pair = prompt_attention_coefficients(**shape)
    return base + num_tokens * per_token + num_context_tokens * per_context_token + num_pairs * per_pair


def decode_attention_coefficients(
    num_decodes: Any, *, num_heads: int, num_kv_heads: int, head_dim: int, kv_bytes_per_element: float,
    bandwidth_bytes_per_s: float, flops_per_s: float, constants: DecodeAttention,
) -> tuple[Any, Any]:
    """Return (A [s], B [s per context token]): the step's decodes take A + B · Σ context tokens in one layer.

        A = floor + decodes · (16-bit Q and O / bandwidth + heads · s_per_seq_head)
        B = max(cached K and V of a token / (bandwidth_frac · bandwidth), 4 · heads · head_dim / peak)

    Parameters
    ----------
    num_decodes : sequences of the step; a number or array [1].
    num_heads, num_kv_heads : query and key-value heads on this GPU [1].
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [B].
    bandwidth_bytes_per_s, flops_per_s : HBM, and dense peak at the precision that attention multiplies in.

    Notes
    -----
    Under a sliding window of w keys count min(context, w) for each sequence. A merge of split keys hides most of the
    loss at few sequences, so B does not depend on `num_decodes`; kernels that do not split (SGLang on Blackwell with
    head_dim 256) are several times slower with few long sequences than this says. Fitted to reads from HBM; the
    tables' times of KV that stays in the L2 cache between runs are shorter than this. Too low by up to a fifth
    below 100 tokens of context, which do not fill a tile.

    Source: least squares on NVIDIA AIConfigurator's operator times; `benchmarks/kernels/fit_attention.py`.

    >>> base, per_token = decode_attention_coefficients(
    ...     64, num_heads=32, num_kv_heads=8, head_dim=128, kv_bytes_per_element=2, bandwidth_bytes_per_s=3.35e12,
    ...     flops_per_s=989e12,
    ...     constants=DecodeAttention(floor_s=1.3e-5, bandwidth_frac=0.89, s_per_seq_head=8e-10))
    >>> round(1e6 * (base + 64 * 2048 * per_token))
    195
    """
    query_and_output = 2.0 * 2.0 * num_heads * head_dim / bandwidth_bytes_per_s
    base = constants.floor_s + num_decodes * (query_and_output + num_heads * constants.s_per_seq_head)
    read = 2.0 * num_kv_heads * head_dim * kv_bytes_per_element / (bandwidth_bytes_per_s * constants.bandwidth_frac)
    return base, np.maximum(read, 4.0 * num_heads * head_dim / flops_per_s)


def mixed_decode_s(read_s: float, pair_s: float) -> float:
    """Return the time of a decode's context token in one layer beside a prompt, under FlashAttention-2 [s].

    √(read² + (64 · pair)²), both in one kernel and partly at once.

    Parameters
    ----------
    read_s : the same in a step of decodes alone: its keys and values are read [s].
    pair_s : one query and one key in all query heads, as prompts' tiles multiply them [s].

    Notes
    -----
    `mha_varlen_fwd` puts a key-value head's query heads into one tile only if all queries are one token
    (`seqlenq_ngroups_swapped`) and split contexts. Beside a prompt each head of a decode multiplies a tile of 64 rows
    (kBlockM of `run_mha_fwd_splitkv_dispatch`), of which one counts. On RTX 4090 and RTX PRO 6000, whose steps of both
    kinds were measured, 16 to 64 decodes of 1,024 tokens take 1.5 to 1.9 and 1.2 to 1.4 times as long beside 64
    tokens; with these cards' constants this says 1.8 to 1.9 and 1.5 to 1.6.

    >>> mixed_decode_s(3e-9, 0.0625e-9)
    5e-09
    """
    return math.hypot(read_s, FLASH2_TILE * pair_s)


def decode_attention_s(num_decodes: Any, num_context_tokens: Any, **shape: Any) -> Any:
    """Return the time of a step's decodes in one layer [s]; `shape`: keywords of `decode_attention_coefficients`."""
    base, per_context_token = decode_attention_coefficients(num_decodes, **shape)
    return base + num_context_tokens * per_context_token
