"""The collectives of a step: the time of all-reduces in all layers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.catalog.gpus import Gpu
from planner.catalog.layers.mlps import Dense
from planner.steptime.contribution import Contribution
from planner.steptime.fused_norms import KERNELS_OF, largest_fused_bytes
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.collectives import CollectiveConstants, collective_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.host_path import HostPathConstants, host_path_s
from planner.steptime.operators.network import network_s
from planner.steptime.step_context import StepContext

ACTIVATION_BYTES = 2.0  # between kernels activations are 16-bit, for any format of the weights
NCCL = "nccl"  # the engine of NCCL's rows in hardware_db/kernels
QK_NORM_BYTES = 8.0  # of a token: the sums of squares of query and key, 32-bit


def is_staged(choice: bool | None, gpu: Gpu) -> bool:
    """Tell whether collectives go through the host, since GPUs on PCIe cannot reach each other's memory.

    Parameters
    ----------
    choice : `pcie_p2p`; None leaves it to the GPU's profile. It has no effect on GPUs that another link joins.

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [is_staged(given, load_gpu(name)) for name, given in
    ...  (("rtx-4090", None), ("rtx-4090", True), ("l40s", None), ("l40s", False), ("h100-sxm", False))]
    [True, False, False, True, False]
    """
    if not gpu.scale_up_link.startswith("PCIe"):
        return False
    return bool(gpu.host_staged) if choice is None else not choice


def collectives(stack: StepContext, counts: Floats, fused: Floats) -> Iterator[Contribution]:
    """Yield the collectives of all layers.

    One or two all-reduces of the hidden state a layer, of which the `fused` take the norm after them along. If query
    and key are normalised over all heads, ranks first add up two sums of squares a token (MiniMaxText01RMSNormTP in
    vLLM).
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


def fused_reduces(stack: StepContext, counts: Floats) -> Floats:
    """Return how many of a step's all-reduces take the norm after them along, by its tokens [1]."""
    largest = largest_fused_bytes(stack.engine, stack.gpu, stack.layout.tensor_parallel_size, stack.arch.hidden_size)
    is_fused = stack.fuses_norms & (ACTIVATION_BYTES * stack.arch.hidden_size * counts <= largest)
    return np.where(is_fused, float(_num_reduces(stack)), 0.0)


def _num_reduces(stack: StepContext) -> int:
    """Return the all-reduces of the hidden state in a step, each before a norm: after attention, and after each MLP.

    One for both if they run on the same hidden state and are added up together (`adds_up_once`).
    """
    arch, layout = stack.arch, stack.layout
    if layout.tensor_parallel_size == 1:
        return 0
    after_attention = 0 if arch.adds_up_once else arch.num_layers
    has_ranks = layout.data_parallel_size * layout.prefill_context_parallel_size > 1
    return after_attention + (arch.num_mlp_layers if not has_ranks
                              else sum(count for count, _ in arch.mlps_of(Dense)))


def collectives_s(stack: StepContext, message_bytes: Floats, op: str, num_gpus: int) -> Floats:
    """Return the time of one collective of the engine [s], shape of `message_bytes`.

    Over several nodes it is the time on one node's GPUs and on the network; never less than inside one node.
    Through the host NCCL sends all messages, since engines' own kernels need peer access (`_can_p2p` in vLLM's
    custom_all_reduce.py, and SGLang's copy; TensorRT-LLM's AUTO strategy falls back to NCCL).
    """
    def direct_s(count: int, sender: StepContext) -> Floats:
        return collective_s(message_bytes, op=op, num_gpus=count, constants=collective_fit(sender, op, count).constants,
                            link_bandwidth_bytes_per_s=stack.gpu.scale_up_bandwidth_bytes_per_s)

    def inside_s(count: int) -> Floats:
        own_s = direct_s(count, stack)
        if not stack.is_staged:
            return own_s
        host = find_fit(HostPathConstants, "host_paths", gpu=stack.gpu.name, engine=NCCL,
                        prior=stack.gpu.scale_up_link).constants
        slower_s = np.maximum(own_s, direct_s(count, replace(stack, uses_nccl=True)))
        return host_path_s(message_bytes, op=op, num_gpus=count, direct_s=slower_s, constants=host)

    benchmark_s, per_node = inside_s(num_gpus), stack.gpu.gpus_per_node
    if num_gpus > per_node:
        assert stack.node_link is not None, "`deploy` asks for it"
        over_s = network_s(message_bytes, op=op, num_nodes=num_gpus // per_node, gpus_per_node=per_node,
                           link=stack.node_link)
        benchmark_s = np.maximum(benchmark_s, (inside_s(per_node) if per_node > 1 else 0.0) + over_s)
    return stack.constants.collective_wait_s + benchmark_s


def collective_fit(stack: StepContext, op: str, num_gpus: int) -> Fit[CollectiveConstants]:
    """Return the constants of a collective; unmeasured sizes take the next larger size's, 8 at most.

    If a GPU was not measured, medians over others on the same PCIe stand in before medians over NVLink.
    """
    measured = next((size for size in (2, 4, 8) if size >= num_gpus), 8)
    return find_fit(CollectiveConstants, "collectives", gpu=stack.gpu.collectives_of,
                    engine=NCCL if stack.uses_nccl else stack.engine, op=op,
                    prior=stack.gpu.scale_up_link, num_gpus=measured)
