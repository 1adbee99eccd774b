"""Contexts in parts: the GPUs of a group hold a part of each context, and exchange queries and results."""

from collections.abc import Iterator

import numpy as np

from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.loop.state.count_table import node_counts
from planner.steptime.collective_time import ACTIVATION_BYTES, collectives_s
from planner.steptime.contribution import Contribution
from planner.steptime.step_context import StepContext

LSE_BYTES = 4.0  # the logarithm of a query's sum of exponentials, by which parts of attention are merged


def heads_of_group(stack: StepContext, num_heads: int) -> int:
    """Return the query heads that a GPU multiplies in decodes: its own, and the other heads of its group."""
    return -(-num_heads // stack.layout.tensor_parallel_size) * stack.layout.decode_context_parallel_size


def exchanges(stack: StepContext, attention: Gqa | Mla, num_layers: float) -> Iterator[Contribution]:
    """Yield the exchange of the GPUs of a group in all layers of one attention; nothing without such groups.

    Each gathers the queries of all, attends to its part of the contexts, gathers the sums of exponentials, and keeps
    the sum of the results for its own heads. Groups that share prompts have the same queries, and add up the results.
    A prompt's earlier tokens are gathered in each step that has a chunk of
    it.

    Source: `cp_lse_ag_out_rs` in vllm/v1/attention/ops/common.py, and `_context_parallel_compute_prefill_context` of
    `MLACommonImpl`.
    """
    layout, tokens = stack.layout, stack.tokens_per_decode * node_counts()
    ranks, groups, parts = layout.decode_context_parallel_size, layout.cache_groups, layout.cache_parts
    if parts == 1:
        return
    heads = heads_of_group(stack, attention.num_heads)
    result = _output_width(attention) * ACTIVATION_BYTES
    sizes = [(parts * LSE_BYTES, "all_gather", parts)]
    if ranks > 1:
        sizes += [(_query_width(attention) * ACTIVATION_BYTES, "all_gather", ranks), (result, "reduce_scatter", ranks)]
    if groups > 1:
        sizes.append((result / ranks, "all_reduce", groups))
    times = [collectives_s(stack, np.asarray(tokens * heads * size, float), op, count) for size, op, count in sizes]
    entry = attention.kv_bytes(stack.kv_bytes_per_element, layout.tensor_parallel_size)
    gathered_s = entry * (1 - 1 / parts) / stack.gpu.scale_up_bandwidth_bytes_per_s
    yield Contribution("context parallelism", {"prompt_s_per_context_token": num_layers * gathered_s},
                       {"decode_s": num_layers * np.sum(times, axis=0) * (node_counts() > 0)})


def _query_width(attention: Gqa | Mla) -> int:
    """Return the values of a query of one head, as it meets the cache [1]."""
    return attention.kv_lora_rank + attention.qk_rope_head_dim if isinstance(attention, Mla) else attention.head_dim


def _output_width(attention: Gqa | Mla) -> int:
    """Return the values of a result of one head, before MLA expands it [1]."""
    return attention.kv_lora_rank if isinstance(attention, Mla) else attention.head_dim
