"""The step-time model: operator times of a model on a GPU, under an engine, as the terms and curves of the loop."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.catalog.layers.mlps import Experts
from planner.loop.state.count_table import node_counts
from planner.loop.state.terms import StepTime
from planner.model.batch_overlap import BatchOverlap
from planner.model.drafting import Draft
from planner.model.precision import WEIGHT_FORMATS, head_format
from planner.model.projections import projections
from planner.steptime.attention_time import OPERATORS, attention
from planner.steptime.collective_time import (
    ACTIVATION_BYTES,
    collective_fit,
    collectives,
    collectives_s,
    fused_reduces,
)
from planner.steptime.contribution import Contribution, summed
from planner.steptime.dense_time import dense_products, gemm_kernels, gemms_s, projection_format
from planner.steptime.draft_time import draft_block, draft_heads, draft_passes
from planner.steptime.exchange_time import exchange, exchange_fits
from planner.steptime.expert_time import moe_kernels, routed_experts
from planner.steptime.host_time import host
from planner.steptime.kernel_constants import Fit
from planner.steptime.lora import adapters
from planner.steptime.operators.gemm import Floats
from planner.steptime.shared_prompts import shared_prompts
from planner.steptime.small_time import activations, sampling_s
from planner.steptime.step_context import StepContext
from planner.steptime.two_batches import half_counts, in_two_batches

DRAFT_FORMAT = "bf16"  # of the products that a draft adds, in every format


def roofline(stack: StepContext) -> StepTime:
    """Return how long steps take.

    Each operator's time comes from its formula in `steptime/operators`. The formula's constants are fitted to measured
    kernels on this GPU. An operator without measurements on it takes the medians over other GPUs. The engine's
    constants scale the kernels and add the host's time. A batch passes all pipeline stages one after the other, so
    times cover all layers. No time is below the hardware's floor.
    """
    ranked = _own_steps(stack)
    shares = stack.layout.prefill_context_parallel_size
    if shares == 1:
        return ranked
    layout = replace(stack.layout, data_parallel_size=stack.layout.data_parallel_size * shares,
                     prefill_context_parallel_size=1)
    return shared_prompts(stack, ranked, roofline(replace(stack, layout=layout)))


def _own_steps(stack: StepContext) -> StepTime:
    """Return how long steps take whose tokens are all on each group of tensor-parallel GPUs."""
    whole = summed(contributions(stack))
    if not stack.overlap.splits:
        return whole
    halves = list(contributions(replace(stack, overlap=BatchOverlap()), half_counts()))
    return in_two_batches(whole, halves, stack.overlap, stack.layout.exchange)


def contributions(stack: StepContext, tokens: NDArray[np.int64] | None = None) -> Iterator[Contribution]:
    """Yield each operator's contribution to a step's time; `roofline` is their sum.

    tokens : of the step at each count of the curve, `node_counts` unless given.
    """
    counts = padded(node_counts() if tokens is None else tokens).astype(np.float64)
    fused = fused_reduces(stack, counts)
    yield from dense_products(stack, counts)
    yield from routed_experts(stack, counts)
    yield from activations(stack, counts, fused)
    yield from collectives(stack, counts, fused)
    yield from exchange(stack, counts)
    yield from _head(stack, counts)
    yield from attention(stack, counts)
    yield host(stack)
    yield from _draft(stack, counts)
    if stack.lora_rank:
        yield adapters(stack, stack.lora_rank)


def _draft(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield the drafting for the decodes, whose tokens are taken as the likeliest, without the sampler."""
    draft = stack.draft
    if draft is None or draft.arch is None:
        return
    checks = replace(draft, arch=None) if draft.is_block else None  # a block's queries attend together
    alone = replace(stack, arch=draft.arch, quantization=draft.quantization, draft=checks, lora_rank=0,
                    overlap=BatchOverlap())
    draft_steps, hidden = roofline(alone), draft.arch.hidden_size
    draft_steps.curve.head_s -= sampling_s(alone)
    joining_s = _joining_s(alone, counts, draft.fused_inputs)
    if draft.is_block:
        width = round(kv_bytes_per_token_per_gpu(draft.arch, 1.0, stack.layout.tensor_parallel_size, 1))
        context_s: Floats = joining_s + gemms_s(alone, counts, width, hidden, DRAFT_FORMAT)
        yield from draft_block(stack.arch, draft_steps, context_s, _markov_s(alone, counts, draft.markov_rank),
                               draft.num_tokens)
        return
    if draft.method != "medusa":
        yield from draft_passes(stack.arch, draft_steps, joining_s, _passes(draft))
        return
    block_s = gemms_s(alone, counts, hidden, hidden, DRAFT_FORMAT)
    block_bytes = WEIGHT_FORMATS[DRAFT_FORMAT].bytes_per_element * hidden**2
    yield draft_heads(draft.num_tokens * (block_s + draft_steps.curve.head_s),
                      draft.num_tokens * (block_bytes + float(draft_steps.curve.head_bytes[1])))


def _passes(draft: Draft) -> Floats:
    """Return the passes that a draft runs after a step, by its number of decodes, shape of `node_counts` [1].

    vLLM runs the first one with no drafts to make too, so that the draft has the KV of all tokens.
    """
    if not draft.lengths:
        return np.full(len(node_counts()), float(draft.num_tokens))
    lengths = np.array(draft.lengths, dtype=np.float64)
    return np.maximum(lengths[np.minimum(node_counts(), len(lengths) - 1)], 1.0)


def _markov_s(stack: StepContext, counts: Floats, rank: int) -> Floats:
    """Return the time of DSpark's low-rank head for one token of each decode: a product with the vocabulary [s]."""
    if not rank:
        return np.zeros_like(counts)
    width = -(-stack.arch.vocab_size // stack.layout.tensor_parallel_size)
    return gemms_s(stack, counts, width, rank, DRAFT_FORMAT)


def _joining_s(stack: StepContext, counts: Floats, inputs: int) -> Floats:
    """Return a draft layer's time to join its inputs, a 16-bit product that no rank shares with another [s]."""
    hidden = stack.arch.hidden_size
    joining_s = gemms_s(stack, counts, hidden, inputs * hidden, DRAFT_FORMAT) if inputs else np.zeros_like(counts)
    joining_s[0] = 0.0
    return joining_s


def padded(counts: Any) -> Any:
    """Return the batch sizes that CUDA graphs run: 1, 2, 4, then multiples of 8 up to 256 and of 16 up to 512.

    vLLM captures these and pads smaller batches up (vllm/config/compilation.py); larger steps run as they are.

    >>> padded(np.array([1, 3, 9, 250, 257, 513])).tolist()
    [1, 4, 16, 256, 272, 513]
    """
    small = np.where(counts <= 2, counts, np.where(counts <= 4, 4, -(-counts // 8) * 8))
    return np.where(counts > 512, counts, np.where(counts > 256, -(-counts // 16) * 16, small))


def priors(stack: StepContext) -> tuple[str, ...]:
    """Return the operators with a kernel that was not measured on this GPU: others stand in.

    Medians over other GPUs; for Mamba-2, whose scan was not measured anywhere, the gated delta net.
    """
    layout = stack.layout
    formats = {head_format(stack.arch, stack.quantization), *(
        projection_format(stack, gemm) for gemm in projections(stack.arch, layout.tensor_parallel_size))}
    sizes = [("all_reduce", layout.tensor_parallel_size), ("all_gather", layout.tensor_parallel_size)]
    fits: dict[str, Sequence[Fit[Any]]] = {
        "dense layers": [gemm_kernels(stack, name)[1][0] for name in sorted(formats)],
        "experts": [moe_kernels(stack)[1][0] for _ in stack.arch.mlps_of(Experts)]}
    for kind, _ in stack.arch.by_attention:
        operator = OPERATORS[type(kind)]
        fits[operator.name] = [*fits.get(operator.name, ()), *operator.fits(stack, kind)]
    fits["collectives"] = [*(collective_fit(stack, op, num_gpus) for op, num_gpus in sizes if num_gpus > 1),
                           *exchange_fits(stack)]
    unmeasured = tuple(name for name, kernels in fits.items() if not all(fit.is_measured for fit in kernels))
    over_nodes = layout.num_expert_gpus > stack.gpu.gpus_per_node
    return (*unmeasured, "collectives between nodes") if over_nodes else unmeasured


def _head(stack: StepContext, counts: Floats) -> Iterator[Contribution]:
    """Yield the LM head on the sampled tokens, in its own format; their logits gathered, and sampled from.

    A pooling model has none: its pooling of hidden states is below a microsecond, and is left out.
    """
    arch, tp = stack.arch, stack.layout.tensor_parallel_size
    if arch.pooling is not None:
        return
    width, form = -(-arch.vocab_size // tp), head_format(arch, stack.quantization)
    yield Contribution("lm_head", curve={
        "head_s": gemms_s(stack, counts, width, arch.hidden_size, form),
        "head_bytes": WEIGHT_FORMATS[form].bytes_per_element * width * arch.hidden_size})
    if tp > 1:
        yield Contribution("logits gathered", curve={
            "head_s": collectives_s(stack, counts * arch.vocab_size * ACTIVATION_BYTES, "all_gather", tp)})
    yield Contribution("sampling", curve={"head_s": sampling_s(stack)})
