"""Small kernels of a step, all layers: norms with residuals, rotary embedding, activation, and sampling."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.catalog.layers.mlps import Experts
from planner.engines import ENGINES
from planner.loop.state.count_table import node_counts
from planner.model.small_kernels import LAYER_KERNELS, NORM_SHARE, Small, sampler, small_kernels
from planner.steptime.collective_time import ACTIVATION_BYTES
from planner.steptime.contribution import Contribution
from planner.steptime.indexer_time import index_layers_s
from planner.steptime.kernel_constants import find_fit
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.small import SmallConstants, small_kernel_s
from planner.steptime.step_context import StepContext


def activations(stack: StepContext, counts: Floats, fused: Floats) -> Iterator[Contribution]:
    """Yield norms with residuals, rotary embedding and activation: launches, then their reads and writes.

    Quantization is in the products' benchmarks, routed experts' activation in the experts', and the launch of a norm
    in each all-reduce that is `fused`.
    """
    arch, c, older = stack.arch, stack.constants, stack.older_release
    norm_s = NORM_SHARE * LAYER_KERNELS * _small_constants(stack).floor_s
    routed_apart = 0 if ENGINES[stack.engine].kernels.routes_with_experts else sum(n for n, _ in arch.mlps_of(Experts))
    for name, seconds in (("routing", routed_apart * c.moe_layer_s), ("norms in all-reduces", -fused * norm_s),
                          ("older release", 0.0 if older is None else (
                              older.num_layers * (older.layer_s + counts * older.token_s))),
                          ("layers with an indexer", index_layers_s(stack))):
        yield Contribution(name, curve={"activations_s": seconds})
    for kernel in small_kernels(arch, stack.engine, stack.layout.tensor_parallel_size,
                                fuses_shared=stack.fuses_shared_experts):
        yield Contribution("small kernels", curve={
            "activations_s": kernel.num * small_s(stack, kernel, counts),
            "tokens_bytes": kernel.num * ACTIVATION_BYTES * counts * kernel.elements})


def small_s(stack: StepContext, kernel: Small, tokens: Floats) -> Floats:
    """Return the time of one small kernel, its launch included [s], shape of `tokens`."""
    return small_kernel_s(ACTIVATION_BYTES * tokens * kernel.elements, ACTIVATION_BYTES * tokens * kernel.distinct,
                          bandwidth_bytes_per_s=stack.gpu.hbm_bandwidth_bytes_per_s, constants=_small_constants(stack),
                          num_floors=LAYER_KERNELS * kernel.share)


def _small_constants(stack: StepContext) -> SmallConstants:
    """Return the constants of small kernels: as measured on this GPU, else as runs of the engine show."""
    c, fit = stack.constants, find_fit(SmallConstants, "small", gpu=stack.gpu.kernels_of, engine=stack.engine)
    return fit.constants if fit.is_measured else replace(
        fit.constants, floor_s=c.layer_s / LAYER_KERNELS, bandwidth_frac=c.activation_bandwidth_frac)


def sampling_s(stack: StepContext) -> Floats:
    """Return the time of sampling by the number of sequences, at the counts of `engine.curve` [s]."""
    sampled = node_counts().astype(np.float64)
    return small_s(stack, sampler(stack.arch), sampled) + sampled * stack.constants.sampling_s_per_seq
