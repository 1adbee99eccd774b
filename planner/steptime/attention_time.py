"""Attention time of a step, for the prompts and decodes of all layers: one operator for each kind of attention."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from planner.catalog.attention_reads import window_tokens
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import Attention
from planner.catalog.layers.linear_layers import GatedDeltaNet, KimiDelta, Mamba1, Mamba2, ShortConv
from planner.steptime.compressed_attention import csa_contributions, csa_fits
from planner.steptime.contribution import Contribution
from planner.steptime.gqa_time import gqa_contributions, gqa_fits
from planner.steptime.kernel_constants import Fit
from planner.steptime.linear_time import (
    delta_net_contributions,
    delta_net_fits,
    kimi_delta_contributions,
    kimi_delta_fits,
    mamba_fits,
    short_conv_contributions,
    short_conv_fits,
)
from planner.steptime.mla_time import mla_contributions, mla_fits
from planner.steptime.operators.gemm import Floats
from planner.steptime.step_context import StepContext


class AttentionOperator(NamedTuple):
    """How a kind of attention runs.

    Parameters
    ----------
    contributions : of all its layers to a step, of (step context, attention, groups of layers, counts of the curve).
    fits : the constants of its kernels, of (step context, attention).
    launches : the engine's constant of the host's extra time for the kernels of a layer; None for no extra time.
    name : of its kernels, for a note that they are not measured.
    """

    contributions: Callable[..., Iterator[Contribution]]
    fits: Callable[[StepContext, Any], Iterable[Fit[Any]]]
    launches: str | None = None
    name: str = "attention"


OPERATORS: Mapping[type[Attention], AttentionOperator] = {
    Gqa: AttentionOperator(gqa_contributions, gqa_fits),
    Mla: AttentionOperator(mla_contributions, mla_fits, "launch_s_per_mla_layer"),
    Csa: AttentionOperator(csa_contributions, csa_fits, "launch_s_per_mla_layer"),
    GatedDeltaNet: AttentionOperator(delta_net_contributions, delta_net_fits, "launch_s_per_linear_layer",
                                     "linear attention"),
    KimiDelta: AttentionOperator(kimi_delta_contributions, kimi_delta_fits, "launch_s_per_linear_layer",
                                 "linear attention"),
    Mamba2: AttentionOperator(delta_net_contributions, mamba_fits, "launch_s_per_linear_layer",
                              "Mamba-2 (as a gated delta net)"),
    Mamba1: AttentionOperator(delta_net_contributions, mamba_fits, "launch_s_per_linear_layer",
                              "Mamba (as a gated delta net)"),
    ShortConv: AttentionOperator(short_conv_contributions, short_conv_fits, "launch_s_per_linear_layer",
                                 "short convolutions (their traffic alone)"),
}


def attention(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield the attention of all layers.

    Layers with a KV cache read all of their context, or a window of it: sliding layers read their last tokens, sparse
    attention its indexer's choice, by kernels of its own in GQA; CSA's read entries of several tokens, and also
    the last tokens. Linear layers read a state of fixed size. For any ratios of the engine, no context is read
    and no pair multiplied faster than at the hardware's peaks.
    """
    yield Contribution("window", {"window_tokens": window_tokens(stack.arch)})
    for kind, groups in stack.arch.by_attention:
        yield from OPERATORS[type(kind)].contributions(stack, kind, groups, counts)
