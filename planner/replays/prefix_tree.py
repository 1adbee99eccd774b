"""The memory of SGLang's radix cache, and which requests share their first tokens."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import EngineSettings
from planner.loop.state.entries import NODE, STAND
from planner.policies.policy import Policy
from planner.traces import PrefixIds, Trace

STEM_TOKENS = 32  # IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD in sglang/srt/managers/schedule_policy.py


def caches_in_tree(trace: Trace, policy: Policy, settings: EngineSettings) -> bool:
    """Tell whether prefixes are kept in a radix tree: with KV tiers and in a pipeline they are kept block by block."""
    is_alone = settings.cpu_tier is None and settings.remote_tier is None and settings.pipeline_parallel_size == 1
    return policy.cache_tree and settings.enable_prefix_caching and trace.prefix is not None and is_alone


def tree_memory(trace: Trace, record: Any, adapters: NDArray[np.int64]) -> tuple[Any, Any, NDArray[np.int64], int]:
    """Return the tree's nodes, the place of each request, the stem of each, and how many stems there are."""
    if not record.caches_in_tree:
        return st.records(1, NODE), st.records(1, STAND), np.empty(0, np.int64), 0
    nodes = st.records(int(record.num_gpu_blocks) + 2, NODE)
    _clear(nodes)
    stems = _stems(trace, adapters) if record.queue_order == st.BY_PREFIX else np.empty(0, np.int64)
    return nodes, st.records(trace.num_requests, STAND), stems, int(stems.max(initial=-1)) + 1


def forget_tree(state: st.State) -> None:
    """Empty the tree of an engine that has no requests."""
    _clear(state.nodes)
    state.entries.first = st.NONE
    engine = state.engine
    engine.num_evictable, engine.free_node = 0, 1
    engine.oldest_node = engine.newest_node = st.NONE


def _clear(nodes: Any) -> None:
    """Leave the root, and all other nodes in the list of free ones."""
    nodes[:] = 0
    nodes.next = np.arange(1, len(nodes) + 1)
    nodes.parent = 0


def ids_under_adapters(prefix: PrefixIds, adapters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ids of prompts: the same tokens have another KV under another adapter."""
    ids = prefix.values
    if not len(adapters) or not len(ids):
        return ids
    ids = np.unique(ids, return_inverse=True)[1].reshape(-1).astype(np.int64)
    under: NDArray[np.int64] = ids + (ids.max() + 1) * np.repeat(adapters + 1, np.diff(prefix.offsets))
    return under


def _stems(trace: Trace, adapters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return equal numbers for requests with equal first tokens, shape [num_requests].

    A shorter prompt goes on with its generated tokens, which only an equal prompt generates too.
    """
    assert trace.prefix is not None
    ids, offsets, size = ids_under_adapters(trace.prefix, adapters), trace.prefix.offsets, trace.prefix.block_tokens
    lengths = trace.requests["input_tokens"].to_numpy()
    known: dict[tuple[int, ...], int] = {}
    stems = np.empty(len(lengths), np.int64)
    for i, length in enumerate(lengths):
        wanted = min(STEM_TOKENS, int(length))
        count = -(-wanted // size)
        head = ids[offsets[i]:offsets[i + 1]][:count]
        is_covered = len(head) == count
        key = (-1 - wanted, *head.tolist()) if is_covered else (i,)
        stems[i] = known.setdefault(key, len(known))
    return stems
