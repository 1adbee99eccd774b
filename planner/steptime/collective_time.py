"""The collectives of a step: what all-reduces, and gathering and scattering around experts, take in all layers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.catalog.layers.mlps import Dense, Experts
from planner.model.precision import KERNELS, WEIGHT_FORMATS, expert_format, usable_kernels
from planner.steptime.contribution import Contribution
from planner.steptime.fused_norms import KERNELS_OF, largest_fused_bytes
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.collectives import CollectiveConstants, collective_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.moe import touched_gpus
from planner.steptime.operators.network import network_s
from planner.steptime.step_context import StepContext

ACTIVATION_BYTES = 2.0  # between kernels activations are 16-bit, whatever the weights are
QK_NORM_BYTES = 8.0  # of a token: the sums of squares of query and key, 32-bit


def collectives(stack: StepContext, counts: Floats, fused: Floats) -> Iterator[Contribution]:
    """Yield the collectives of all layers.

    One or two all-reduces of the hidden state a layer, of which the `fused` take the norm after them along;
    data-parallel attention brings it to experts and back (`exchange_s`). Where query and key are normalised over all
    heads, ranks first add up two sums of squares a token (MiniMaxText01RMSNormTP in vLLM).
    """
    arch, layout = stack.arch, stack.layout
    hidden = ACTIVATION_BYTES * arch.hidden_size
    if layout.tensor_parallel_size > 1:
        apart_s = collectives_s(stack, counts * hidden, "all_reduce", layout.tensor_parallel_size)
        fused_s = collectives_s(replace(stack, engine=KERNELS_OF), counts * hidden, "all_reduce",
                                layout.tensor_parallel_size)
        yield Contribution("all-reduces", curve={
            "collectives_s": (_num_reduces(stack) - fused) * apart_s + fused * np.minimum(fused_s, apart_s)})
        if arch.num_layers_normed_over_heads:
            sums_s = collectives_s(stack, counts * QK_NORM_BYTES, "all_reduce", layout.tensor_parallel_size)
            yield Contribution("norms over heads", curve={
                "collectives_s": arch.num_layers_normed_over_heads * sums_s})
    if layout.data_parallel_size > 1:
        for num_layers, experts in arch.mlps_of(Experts):
            exchanged_s = num_layers * exchange_s(stack, experts, counts)
            yield Contribution("exchange", curve={"collectives_s": exchanged_s, "shared_s": exchanged_s})


def exchange_ops(stack: StepContext) -> tuple[str, str]:
    """Return the collectives that bring tokens of data-parallel attention to experts, and their results back."""
    return ("alltoall", "alltoall") if stack.layout.dispatches else ("all_gather", "reduce_scatter")


def exchange_s(stack: StepContext, experts: Experts, counts: Floats) -> Floats:
    """Return what one layer of data-parallel attention takes to bring a rank's tokens to experts and back [s].

    All tokens go to all GPUs, and sums come back; or each goes to those GPUs alone that have its experts, in the format
    that these multiply, and as many results come back in 16 bit. The GPUs of a rank share its tokens then.

    Source: vLLM's `AgRsAll2AllManager`; Zhao et al., DeepEP, 2025.
    """
    arch, layout = stack.arch, stack.layout
    there, back = exchange_ops(stack)
    tokens = counts * layout.data_parallel_size
    there_bytes = back_bytes = tokens * ACTIVATION_BYTES * arch.hidden_size
    if layout.dispatches:
        copies = tokens / layout.num_expert_gpus * touched_gpus(experts.num_experts_per_tok, experts.num_experts,
                                                                layout.num_expert_gpus) * arch.hidden_size
        choices = WEIGHT_FORMATS[expert_format(arch, stack.quantization)].moe
        there_bytes = copies * KERNELS[usable_kernels(choices, stack.gpu)[0]].activation_bytes
        back_bytes = copies * ACTIVATION_BYTES
    return (collectives_s(stack, there_bytes, there, layout.num_expert_gpus)
            + collectives_s(stack, back_bytes, back, layout.num_expert_gpus))


def fused_reduces(stack: StepContext, counts: Floats) -> Floats:
    """Return how many of a step's all-reduces take the norm after them along, by its tokens [1]."""
    largest = largest_fused_bytes(stack.engine, stack.gpu, stack.layout.tensor_parallel_size, stack.arch.hidden_size)
    is_fused = stack.fuses_norms & (ACTIVATION_BYTES * stack.arch.hidden_size * counts <= largest)
    return np.where(is_fused, float(_num_reduces(stack)), 0.0)


def _num_reduces(stack: StepContext) -> int:
    """Return the all-reduces of the hidden state in a step, each before a norm: after attention, and after each MLP.

    One for both where they run on the same hidden state and are added up together (`adds_up_once`).
    """
    arch, layout = stack.arch, stack.layout
    if layout.tensor_parallel_size == 1:
        return 0
    after_attention = 0 if arch.adds_up_once else arch.num_layers
    return after_attention + (arch.num_mlp_layers if layout.data_parallel_size == 1
                              else sum(count for count, _ in arch.mlps_of(Dense)))


def collectives_s(stack: StepContext, message_bytes: Floats, op: str, num_gpus: int) -> Floats:
    """Return the time of one collective of the engine [s], shape of `message_bytes`.

    Over several nodes it is that of the GPUs of one, and what the network takes; never less than inside one node.
    """
    def inside_s(count: int) -> Floats:
        return collective_s(message_bytes, op=op, num_gpus=count, constants=collective_fit(stack, op, count).constants,
                            link_bandwidth_bytes_per_s=stack.gpu.scale_up_bandwidth_bytes_per_s)

    benchmark_s, per_node = inside_s(num_gpus), stack.gpu.gpus_per_node
    if num_gpus > per_node:
        assert stack.node_link is not None, "`deploy` asks for it"
        over_s = network_s(message_bytes, op=op, num_nodes=num_gpus // per_node, gpus_per_node=per_node,
                           link=stack.node_link)
        benchmark_s = np.maximum(benchmark_s, (inside_s(per_node) if per_node > 1 else 0.0) + over_s)
    return stack.constants.collective_wait_s + benchmark_s


def collective_fit(stack: StepContext, op: str, num_gpus: int) -> Fit[CollectiveConstants]:
    """Return the constants of a collective; sizes that nobody measured take those of the next larger, 8 at most.

    Where a GPU was not measured, medians over others on the same PCIe stand in before those over NVLink.
    """
    measured = next((size for size in (2, 4, 8) if size >= num_gpus), 8)
    return find_fit(CollectiveConstants, "collectives", gpu=stack.gpu.collectives_of, engine=stack.engine, op=op,
                    prior=stack.gpu.scale_up_link, num_gpus=measured)
