"""Linear attention of a step, all layers: states of decodes, and the chunked rule of prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.linear_layers import LinearAttention, ShortConv
from planner.steptime.contribution import Contribution
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.linear_attention import (
    LinearDecode,
    LinearPrompt,
    linear_decode_s,
    linear_prompt_s,
    state_traffic_bytes,
)
from planner.steptime.step_context import StepContext

Fits = tuple[Fit[LinearDecode], Fit[LinearPrompt]]


def delta_net_fits(stack: StepContext, _: LinearAttention) -> Fits:
    """Return the constants of the gated delta net's kernels."""
    return _fits(stack, "linear_attention")


def kimi_delta_fits(stack: StepContext, _: LinearAttention) -> Fits:
    """Return the constants of Kimi delta attention's kernels."""
    return _fits(stack, "kda")


def mamba_fits(stack: StepContext, _: LinearAttention | None) -> Fits:
    """Return the constants that stand in for Mamba-2, whose scan was not measured: the gated delta net's."""
    decode, prompt = _fits(stack, "linear_attention")
    return replace(decode, is_measured=False), replace(prompt, is_measured=False)


def delta_net_contributions(stack: StepContext, attention: LinearAttention, groups: Sequence[LayerGroup],
                            counts: Floats) -> Iterator[Contribution]:
    """Yield the time of layers with a gated delta net, or with Mamba-2."""
    yield _contribution(stack, attention, groups, counts, _fits(stack, "linear_attention"))


def kimi_delta_contributions(stack: StepContext, attention: LinearAttention, groups: Sequence[LayerGroup],
                             counts: Floats) -> Iterator[Contribution]:
    """Yield the time of layers with Kimi delta attention."""
    yield _contribution(stack, attention, groups, counts, _fits(stack, "kda"))


def short_conv_fits(stack: StepContext, _: ShortConv) -> Fits:
    """Return constants that stand in for short convolutions, which were not measured: a note says so."""
    return mamba_fits(stack, None)


def short_conv_contributions(stack: StepContext, attention: ShortConv, groups: Sequence[LayerGroup],
                             counts: Floats) -> Iterator[Contribution]:
    """Yield the time of short convolutions: one kernel a layer for prompts and for decodes, and its traffic.

    A token has its input, two gates and the output, and a decode reads and writes the last inputs.
    """
    width = -(-attention.width // stack.layout.tensor_parallel_size)
    bandwidth, layers = stack.gpu.hbm_bandwidth_bytes_per_s, sum(group.count for group in groups)
    floor_s, token_bytes = stack.constants.kernel_floor_s, 2.0 * 4 * width
    decode_bytes = counts * (token_bytes + 2.0 * 2 * (attention.conv_kernel_dim - 1) * width)
    decode_s = np.where(counts > 0, floor_s, 0.0) + decode_bytes / bandwidth
    yield Contribution("linear attention", {
        "prompt_s": layers * floor_s, "prompt_s_per_token": layers * token_bytes / bandwidth,
    }, {"decode_s": layers * decode_s, "decode_bytes": layers * decode_bytes})


def _fits(stack: StepContext, family: str) -> Fits:
    where = {"gpu": stack.gpu.kernels_of, "engine": stack.engine}
    return (find_fit(LinearDecode, family, phase="generation", **where),
            find_fit(LinearPrompt, family, phase="context", **where))


def _contribution(stack: StepContext, attention: LinearAttention, groups: Sequence[LayerGroup], counts: Floats,
                  fits: Fits) -> Contribution:
    """Return the time of decodes to read and write their states, and of prompts to run through the chunked delta rule.

    If drafts are checked, the state after each token is written, to go on from the last one accepted (vLLM's
    `fused_recurrent_gated_delta_rule`, SGLang's intermediate states).
    """
    ranks, c, (decode, prompt) = stack.layout.tensor_parallel_size, stack.constants, fits
    shape = {"num_k_heads": -(-attention.num_key_heads // ranks),
             "num_v_heads": -(-attention.num_value_heads // ranks), "head_k_dim": attention.key_head_dim,
             "head_v_dim": attention.value_head_dim, "conv_kernel_dim": attention.conv_kernel_dim}
    bandwidth, element = stack.gpu.hbm_bandwidth_bytes_per_s, float(decode.row["state_bytes_per_element"])
    layers = sum(group.count for group in groups)
    states = counts * (1 + stack.tokens_per_decode) / 2  # one read, and one written for each token
    decode_s = linear_decode_s(states, state_bytes_per_element=element, bandwidth_bytes_per_s=bandwidth,
                               constants=decode.constants, **shape)
    traffic = state_traffic_bytes(state_bytes_per_element=element, **shape)
    per_token_s = float(linear_prompt_s(1.0, 1.0, state_bytes_per_element=element, bandwidth_bytes_per_s=bandwidth,
                                        constants=replace(prompt.constants, floor_s=0.0), **shape))
    return Contribution("linear attention", {
        "prompt_s": layers * c.prompt_attention_ratio * prompt.constants.floor_s,
        "prompt_s_per_token": layers * c.prompt_attention_ratio * (per_token_s - traffic / bandwidth),
    }, {"decode_s": layers * np.maximum(c.decode_attention_ratio * decode_s, states * traffic / bandwidth),
        "decode_bytes": layers * states * traffic})
