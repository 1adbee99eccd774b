"""The exchange of a step: the time to bring data-parallel attention's tokens to their experts, and results back."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.catalog.layers.mlps import Experts
from planner.model.precision import KERNELS, WEIGHT_FORMATS, expert_format, usable_kernels
from planner.steptime.collective_time import ACTIVATION_BYTES, collective_fit, collectives_s
from planner.steptime.contribution import Contribution
from planner.steptime.dense_time import gemms_s, projection_format
from planner.steptime.expert_time import layer_experts_s
from planner.steptime.kernel_constants import Fit, find_fit
from planner.steptime.operators.exchange import ExchangeConstants, exchange_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.moe import touched_gpus
from planner.steptime.step_context import StepContext

LOW_LATENCY, HIGH_THROUGHPUT = "deepep_low_latency", "deepep_high_throughput"
# Kernels by the name of the exchange: several if the engine chooses by its tokens.
EXCHANGES = {"deepep": (LOW_LATENCY, HIGH_THROUGHPUT), LOW_LATENCY: (LOW_LATENCY,),
             HIGH_THROUGHPUT: (HIGH_THROUGHPUT,), "nvlink_one_sided": ("nvlink_one_sided",),
             "nvlink_two_sided": ("nvlink_two_sided",), "mori": ("mori",)}
# Tokens of a rank that DeepEP's low-latency buffers hold: SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK of SGLang.
LOW_LATENCY_TOKENS = 128
# Tokens travel beside the GPU's compute; DeepEP's other kernels hold 20 multiprocessors (`Buffer.num_sms`) of Hopper's
# 132, and so compute beside them has the rest.
BESIDE_HIGH_THROUGHPUT = 132 / (132 - 20)

# Time of an empty row of MoRI's buffer in AITER's experts [s]: they start work groups for each row that the buffer can
# hold, and groups of empty rows end at once (aiter/fused_moe.py; sgl-project/sglang#22952, #36130). By twelve runs
# without drafts under SGLang 0.5.6 on MI355X, with 131,072 rows on 8 ranks and 262,144 on 16: 2.7 ns on either.
EMPTY_ROW_S = 2.7e-9


def exchange(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield the exchange of all MoE layers between the ranks of attention."""
    if stack.layout.data_parallel_size * stack.layout.prefill_context_parallel_size == 1:
        return
    for num_layers, experts in stack.arch.mlps_of(Experts):
        there_s, back_s = layer_exchange_s(stack, experts, counts)
        hidden_s = hidden_exchange_s(stack, experts, counts, there_s, back_s)
        empty_rows = np.maximum(stack.dispatch_tokens - counts, 0.0) * stack.layout.data_parallel_size
        exchanged_s = num_layers * (there_s + back_s - hidden_s + EMPTY_ROW_S * empty_rows)
        yield Contribution("exchange", curve={"collectives_s": exchanged_s, "shared_s": exchanged_s})


def layer_exchange_s(stack: StepContext, experts: Experts, counts: Floats) -> tuple[Floats, Floats]:
    """Return one layer's time to bring a rank's tokens to their experts, and results back [s].

    All tokens go to all GPUs, and sums come back (vLLM's `AgRsAll2AllManager`); or each token goes to the GPUs that
    have its experts, in the format that these multiply, and as many results come back in 16 bit. The GPUs of a rank
    share its tokens then. Groups of GPUs that share prompts have the same decodes: they only add up their results.
    """
    layout = stack.layout
    if not layout.dispatches and layout.data_parallel_size == 1:
        message = counts * ACTIVATION_BYTES * stack.arch.hidden_size
        return np.zeros_like(counts), collectives_s(stack, message, "all_reduce", layout.num_expert_gpus)
    if not layout.dispatches:
        message = counts * layout.data_parallel_size * ACTIVATION_BYTES * stack.arch.hidden_size
        return (collectives_s(stack, message, "all_gather", layout.num_expert_gpus),
                collectives_s(stack, message, "reduce_scatter", layout.num_expert_gpus))
    sent = counts * layout.data_parallel_size / layout.num_expert_gpus
    times = [_dispatched_s(stack, experts, sent, kernel) for kernel in EXCHANGES.get(layout.exchange, ("alltoall",))]
    if len(times) == 1:
        return times[0]
    (first_there, first_back), (there, back) = times
    is_low = counts <= LOW_LATENCY_TOKENS
    return np.where(is_low, first_there, there), np.where(is_low, first_back, back)


def hidden_exchange_s(stack: StepContext, experts: Experts, counts: Floats, there_s: Floats, back_s: Floats) -> Floats:
    """Return the part of one layer's exchange that single-batch overlap hides [s], shape of `counts`.

    The shared experts run beside the way to the experts, or on Blackwell beside the way back; the last product of the
    routed experts runs beside the way back. It is one of the expert's matrices of equal size.

    Source: sgl-project/sglang#9660; `SboFlags` in single_batch_overlap.py.
    """
    if not stack.overlap.in_one_batch:
        return np.zeros_like(counts)
    last_s = layer_experts_s(stack, experts, counts) / experts.num_matrices
    products = experts.projections(stack.arch.hidden_size, stack.layout.tensor_parallel_size)
    shared_s: Floats = sum((gemms_s(stack, counts, gemm.n, gemm.k, projection_format(stack, gemm)) for gemm in products
                            if gemm.name.startswith("shared_")), np.zeros_like(counts))
    if "fp4" in stack.gpu.flops_per_s:
        return np.minimum(back_s, shared_s + last_s)
    return np.minimum(there_s, shared_s) + np.minimum(back_s, last_s)


def _dispatched_s(stack: StepContext, experts: Experts, sent: Floats, kernel: str) -> tuple[Floats, Floats]:
    """Return both ways of an exchange kernel, or of NCCL's all-to-all, for the tokens that each GPU sends [s].

    DeepEP's low-latency kernels send a copy of a token to each of its experts, the others to each GPU with any of them,
    and once to each node.
    """
    num_gpus, chosen, known = stack.layout.num_expert_gpus, experts.num_experts_per_tok, experts.num_experts
    choices = WEIGHT_FORMATS[expert_format(stack.arch, stack.quantization)].moe
    there, back = (sent * stack.arch.hidden_size * element for element in
                   (KERNELS[usable_kernels(choices, stack.gpu)[0]].activation_bytes, ACTIVATION_BYTES))
    per_gpu = touched_gpus(chosen, known, num_gpus)
    if kernel == "alltoall":
        return (collectives_s(stack, there * per_gpu, "alltoall", num_gpus),
                collectives_s(stack, back * per_gpu, "alltoall", num_gpus))
    num_nodes = max(num_gpus // stack.gpu.gpus_per_node, 1)
    per_node = touched_gpus(chosen, known, num_nodes)
    if kernel == LOW_LATENCY:
        per_gpu = per_node = float(chosen)
    there_s, back_s = (
        stack.constants.collective_wait_s
        + exchange_s(copy, per_gpu=per_gpu, per_node=per_node, num_gpus=num_gpus, num_nodes=num_nodes,
                     link_bandwidth_bytes_per_s=stack.gpu.scale_up_bandwidth_bytes_per_s, node_link=stack.node_link,
                     constants=_fit(stack, kernel, op).constants)
        for copy, op in ((there, "dispatch"), (back, "combine")))
    return there_s, back_s


def exchange_fits(stack: StepContext) -> list[Fit[Any]]:
    """Return the constants that a layout's exchange takes; none without several ranks of attention."""
    layout = stack.layout
    if layout.data_parallel_size * layout.prefill_context_parallel_size == 1:
        return []
    kernels = EXCHANGES.get(layout.exchange)
    if kernels is not None:
        return [_fit(stack, kernel, op) for kernel in kernels for op in ("dispatch", "combine")]
    ops = ("alltoall",) if layout.dispatches else ("all_gather", "reduce_scatter")
    return [collective_fit(stack, op, layout.num_expert_gpus) for op in ops]


def _fit(stack: StepContext, kernel: str, op: str) -> Fit[ExchangeConstants]:
    return find_fit(ExchangeConstants, "exchanges", gpu=stack.gpu.collectives_of, engine="any", kernel=kernel, op=op,
                    over_nodes=stack.layout.num_expert_gpus > stack.gpu.gpus_per_node)

