"""Prefill context parallelism: groups of tensor-parallel GPUs share the tokens of each prompt."""

import numpy as np

from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.loop.state.count_table import node_counts
from planner.loop.state.terms import StepTime
from planner.steptime.collective_time import collectives_s
from planner.steptime.contribution import tokens_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.step_context import StepContext

OF_TOKENS = ("linear_s", "experts_s", "activations_s", "collectives_s", "draft_s", "tokens_bytes", "shared_s")
OF_QUERIES = ("prompt_s_per_token", "prompt_s_per_pair", "prompt_s_per_window_pair")


def shared_prompts(stack: StepContext, alone: StepTime, ranked: StepTime) -> StepTime:
    """Return the time of steps whose prompts the groups share.

    Each group multiplies its n/p tokens of a prompt, as a rank of data-parallel attention does, and attends to all of
    the context for its own queries: a p-th of the pairs, all of the reads. The new keys and values are gathered in each
    layer. All groups have the same decodes, and multiply them all. The step's tokens tell which it is: up to the
    largest graph of decodes it is one of decodes.

    Parameters
    ----------
    alone : of steps whose tokens are all in each group.
    ranked : the same with the groups as ranks of data-parallel attention, with tokens of their own.

    Notes
    -----
    Source: sgl-project/sglang#12065; cp_utils.py (zigzag and interleaved splits share the pairs evenly).
    """
    ranks, counts = stack.layout.prefill_context_parallel_size, node_counts()
    is_shared = counts > stack.graph_seqs * stack.tokens_per_decode
    curve, terms = alone.curve.copy(), alone.terms.copy()
    for name in OF_TOKENS:
        part = np.interp(-(-counts // ranks), counts, ranked.curve[name])
        curve[name] = np.where(is_shared, part, curve[name])
    curve.collectives_s = curve.collectives_s + np.where(is_shared, _gathered_s(stack), 0.0)
    curve.tokens_s = tokens_s(curve)
    for name in OF_QUERIES:
        terms[name] /= ranks
    return StepTime(terms=terms, curve=curve)


def _gathered_s(stack: StepContext) -> Floats:
    """Return the time of all layers to gather the keys and values of a step's tokens [s], shape of `node_counts`."""
    arch, layout = stack.arch, stack.layout
    num_layers = arch.num_attention_layers
    entry = kv_bytes_per_token_per_gpu(arch, stack.kv_bytes_per_element, layout.tensor_parallel_size, 1) / num_layers
    message = node_counts().astype(np.float64) * entry
    return num_layers * collectives_s(stack, message, "all_gather", layout.prefill_context_parallel_size)
