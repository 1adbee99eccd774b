"""Mixture of experts: the time of one layer's routed experts on one GPU, routing and permutation included."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.steptime.operators.constant_ranges import KernelConstants
from planner.steptime.operators.gemm import Floats, smooth_maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeConstants(KernelConstants):
    """Constants of grouped GEMMs of one GPU, engine and precision; fitted in `hardware_db/kernels/moe.toml`.

    Parameters
    ----------
    flops_frac : of the dense peak, in large grouped products [1].
    bandwidth_frac : of the device memory's bandwidth, streaming experts [1].
    route_bandwidth_frac : of the same, permuting tokens to experts and summing them up [1].
    floor_s : the smallest call, with all its kernels [s].
    s_per_expert : of each expert that the GPU holds, touched or not: CUTLASS's and DeepGEMM's grouped kernels go
        through the list of all of them, Triton's and TensorRT-LLM's own through experts with tokens [s].
    depth_s : per element of the inner dimensions hidden + inter, which are summed in sequence [s].
    padding_tokens : rows that a touched expert computes beside its own, tiles being whole [tokens].
    tile_tokens : rows of an expert that its first tile takes; each further one reads the weights again [tokens].
    rereads_max : how often that happens at most, since larger batches get larger tiles [1].
    spread_frac : how fast tokens touch new experts; 1 for uniform random routing, less if some are favoured [1].
    imbalance_exponent : the busiest of `moe_ep` GPUs has moe_ep ** this times the mean load; 0 for balanced [1].
    sharpness : exponent p of the smooth maximum of the two roofs [1].
    """

    flops_frac: float
    bandwidth_frac: float
    route_bandwidth_frac: float
    floor_s: float
    s_per_expert: float
    depth_s: float
    padding_tokens: float
    tile_tokens: float
    rereads_max: float
    spread_frac: float
    imbalance_exponent: float
    sharpness: float


def touched_experts(tokens: ArrayLike, topk: ArrayLike, num_experts: ArrayLike, moe_ep: ArrayLike,
                    spread_frac: float) -> Floats:
    """Return how many experts of one GPU get at least one token: E/ep · (1 − (1 − k/E)^(1 + (n − 1)·spread)).

    The first token touches k different experts, further ones touch new ones at a rate that `spread_frac` lowers.

    >>> touched_experts([1, 16, 1024], 8, 128, 1, 1.0).round(1)
    array([  8. ,  82.4, 128. ])
    """
    tokens, topk, num_experts, moe_ep = (np.asarray(x, float) for x in (tokens, topk, num_experts, moe_ep))
    draws = np.where(tokens < 1, tokens, 1 + (tokens - 1) * spread_frac)
    touched: Floats = num_experts / moe_ep * (1.0 - (1.0 - topk / num_experts) ** draws)
    return touched


def touched_gpus(topk: int, num_experts: int, num_gpus: int) -> float:
    """Return how many of the GPUs that experts are spread over have any of a token's, on the average [1].

    N · (1 − Π (E − E/N − i) / (E − i)) over the token's k experts, drawn evenly and each once.

    >>> [round(touched_gpus(8, 256, count), 2) for count in (1, 8, 64)]
    [1.0, 5.29, 7.68]
    """
    elsewhere = 1.0
    for drawn in range(topk):
        elsewhere *= max(num_experts - num_experts / num_gpus - drawn, 0.0) / (num_experts - drawn)
    return num_gpus * (1.0 - elsewhere)


def moe_s(tokens: ArrayLike, *, hidden: ArrayLike, inter: ArrayLike, topk: ArrayLike, num_experts: ArrayLike,
          moe_tp: ArrayLike, moe_ep: ArrayLike, weight_bytes_per_element: float, flops_per_s: float,
          bandwidth_bytes_per_s: float, constants: MoeConstants, unevenness: float = 0.0,
          most_imbalance: float = math.inf, is_dispatched: bool = False) -> Floats:
    """Return the time of one layer's routed experts on the busiest GPU: gate, up and down with routing [s].

    t = floor + (E/ep)·per expert + (hidden + i)·depth + ‖M, C‖_p + R, with i = inter / moe_tp, T the touched experts
    of one GPU and A = tokens·topk / moe_ep · moe_ep^imbalance_exponent the (token, expert) pairs of the busiest, and

    - M = (T·(1 + r)·3·hidden·i·w + 2·A·(2·hidden + 3·i)) / (bandwidth · bandwidth_frac), touched weights, read again
      r times by further tiles, and activations; r = most · (1 − exp(−x·exp(−1/x) / most)) of x = A / (T·tile_tokens)
      tiles and most = rereads_max / moe_ep;
    - C = 2·3·hidden·i·(A + T·padding) / (flops · flops_frac), every touched expert computing whole tiles;
    - R = 2·P·hidden / (bandwidth · route_bandwidth_frac), with P = tokens·topk: each GPU permutes and sums the whole
      group's pairs; or P = A, if tokens were sent to the GPUs of their experts.

    Parameters
    ----------
    tokens : of the whole expert-parallel group in this step [1]; all arrays broadcast.
    hidden, inter : of the model, one expert's whole intermediate width [1].
    topk, num_experts : experts per token, and of the layer; without shared experts [1].
    moe_tp, moe_ep : GPUs that share each expert, and over which the experts are spread [1].
    weight_bytes_per_element : with its scales: bf16 2, fp8 1, nvfp4 0.5625, mxfp4 0.53125 [B].
    flops_per_s, bandwidth_bytes_per_s : dense peak of the precision multiplied in (16 bit for w4a16); device memory.
    unevenness : standard deviations by which the busiest GPU touches more experts than the mean; small batches over
        many GPUs touch, say, 12 experts on one and 8 on the average [1].
    most_imbalance : the busiest GPU's pairs over the mean with experts placed by their load, if that is less than
        moe_ep^imbalance_exponent [1].

    Returns
    -------
    Floats
        Seconds, in the broadcast shape; non-decreasing in tokens, never below either roof of the mean load.

    Notes
    -----
    Fitted on power-law routing (exponent 1.01), nearer to real traffic than balanced; `most_imbalance` is 1 for
    balanced experts. Gated experts (three matrices) only. Dispatch and combine over the network are not in it. Too slow
    at one token by 10 to 45 % on most kernels. Skewed routing touches fewer experts than `touched_experts` says, so
    if the fit ends at a fraction of 1 that is this formula's slack, not the memory's speed. Constants fitted by
    `benchmarks/kernels/fit_moe.py`.

    >>> h100 = MoeConstants(flops_frac=0.6, bandwidth_frac=0.95, route_bandwidth_frac=0.3, floor_s=2e-5,
    ...                     s_per_expert=0.0, depth_s=6e-9, padding_tokens=7, tile_tokens=8.0, rereads_max=0.0,
    ...                     spread_frac=1.0, imbalance_exponent=0.4, sharpness=1.5)
    >>> qwen3_235b = dict(hidden=4096, inter=1536, topk=8, num_experts=128, moe_tp=8, moe_ep=1)
    >>> (moe_s([1, 64, 4096], **qwen3_235b, weight_bytes_per_element=2.0, flops_per_s=989.4e12,
    ...        bandwidth_bytes_per_s=3.35e12, constants=h100) * 1e6).round(0)
    array([ 58., 241., 822.])
    """
    tokens, hidden, topk, moe_ep = (np.asarray(x, float) for x in (tokens, hidden, topk, moe_ep))
    width = np.asarray(inter, float) / np.asarray(moe_tp, float)
    expert = 3.0 * hidden * width
    touched = touched_experts(tokens, topk, num_experts, moe_ep, constants.spread_frac)
    local = np.asarray(num_experts, float) / moe_ep
    touched = np.minimum(touched + unevenness * np.sqrt(touched * (1.0 - touched / local)), local)
    pairs = tokens * topk * np.minimum(moe_ep ** (constants.imbalance_exponent - 1.0), most_imbalance / moe_ep)
    reads = touched * (1.0 + _rereads(pairs / np.maximum(touched, 1e-9), moe_ep, constants))
    traffic = reads * expert * weight_bytes_per_element + 2.0 * pairs * (2.0 * hidden + 3.0 * width)
    flops = 2.0 * expert * (pairs + touched * constants.padding_tokens)
    roofs = smooth_maximum(traffic / (bandwidth_bytes_per_s * constants.bandwidth_frac),
                           flops / (flops_per_s * constants.flops_frac), constants.sharpness)
    routed = pairs if is_dispatched else tokens * topk
    route_s = 2.0 * routed * hidden / (bandwidth_bytes_per_s * constants.route_bandwidth_frac)
    total: Floats = (constants.floor_s + local * constants.s_per_expert + (hidden + width) * constants.depth_s
                     + roofs + route_s)
    return total


def _rereads(rows_per_expert: Floats, moe_ep: Floats, constants: MoeConstants) -> Floats:
    """Return how often an expert's weights are read again [1]: by each tile but the first, up to a limit.

    Kernels choose larger tiles for larger batches, by the rows of all GPUs over the experts of their own, so that tiles
    are the larger the more GPUs share the experts.
    """
    filled = np.maximum(rows_per_expert / constants.tile_tokens, 1e-9)
    most = max(constants.rereads_max, 1e-9) / moe_ep
    again: Floats = -most * np.expm1(-filled * np.exp(-1.0 / filled) / most)
    return again
