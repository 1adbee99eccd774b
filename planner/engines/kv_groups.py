"""How vLLM lays out one pool of KV blocks for layers that keep all of the context and layers that keep a window."""

import math

from planner.catalog.architecture import Architecture
from planner.engines.engine import WindowPages
from planner.engines.releases import is_before

# `--disable-hybrid-kv-cache-manager` began with this release; before, all layers count in full (pull request 17996).
HYBRID_SINCE = "0.9.2"
CHUNKED_SINCE = "0.13"  # of Llama 4's chunks: off by default (21761) until they cost no time any more (29627)
IN_FLIGHT_SINCE = "0.26"  # tokens of all steps in flight are kept, two of them with async scheduling
POOLED_LOG_SINCE = "0.21"  # "GPU KV cache size": concurrency · max_model_len; before, blocks // groups · block size
NULL_BLOCK_SINCE = "0.29"  # the fitted context leaves out the block that the pool holds back (`get_kv_cache_configs`)
PADDING_ALLOWED = 1.5  # of the larger count of layers over the smaller one: then one group each, with padding


def window_pages(arch: Architecture, block_size: int, kv_bytes_per_element: float, tensor_parallel_size: int,
                 pipeline_parallel_size: int, version: str | None) -> WindowPages | None:
    """Return the blocks of layers that see all tokens, and the pages of sliding ones; None if all count in full.

    A page has the same bytes in every layer: layers that keep less of a token have more tokens in it. Layers of a kind
    form groups of as many layers as the rarer kind has, the last one padded. A page of the pool belongs to one group.

    Source: `unify_kv_cache_spec_page_size` and `_get_kv_cache_groups_uniform_page_size` in v1/core/kv_cache_utils.py.
    Gemma-4-12B has 64 tokens in a block of its full layers and 16 in one of the others (ovg-project/kvcached#396).

    >>> from planner.catalog.catalog_files import load_model
    >>> window_pages(load_model("gemma-4-12b"), 16, 2.0, 1, 1, None)
    WindowPages(block_size=64, block_bytes=1048576, page_size=16, page_bytes=5242880)
    """
    is_chunked = arch.model_type == "llama4_text"
    if arch.num_linear_layers or is_before(version, CHUNKED_SINCE if is_chunked else HYBRID_SINCE):
        return None
    kinds = _kinds(arch, kv_bytes_per_element, tensor_parallel_size, pipeline_parallel_size)
    if {is_sliding for is_sliding, _, _ in kinds} != {True, False}:
        return None
    most = max(per_token for _, per_token, _ in kinds)
    counts = [count for _, _, count in kinds]
    layers = max(counts) if max(counts) < PADDING_ALLOWED * min(counts) else min(counts)
    group_bytes = layers * most * block_size  # of a page of the pool
    sizes = {False: 0, True: 0}
    for is_sliding, per_token, _ in kinds:
        sizes[is_sliding] = max(sizes[is_sliding], block_size * int(most / per_token))
    pages = {False: 0, True: 0}
    for is_sliding, per_token, count in kinds:
        pages[is_sliding] += math.ceil(count / layers) * sizes[is_sliding] // (block_size * int(most / per_token))
    return WindowPages(block_size=sizes[False], block_bytes=math.ceil(pages[False] * group_bytes),
                       page_size=sizes[True], page_bytes=math.ceil(pages[True] * group_bytes))


def _kinds(arch: Architecture, kv_bytes_per_element: float, ranks: int, stages: int) -> list[tuple[bool, float, int]]:
    """Return the kinds of layers that keep a KV cache: sliding or not, bytes of a token, and layers of a stage."""
    counts: dict[tuple[bool, float], int] = {}
    for attention, groups in arch.by_attention:
        for group in groups:
            if attention.has_cache and not group.shares_cache:
                kind = group.window > 0, attention.kv_bytes(kv_bytes_per_element, ranks)
                counts[kind] = counts.get(kind, 0) + group.count
    return [(*kind, math.ceil(count / stages)) for kind, count in counts.items()]


def tokens_in_flight(max_num_batched_tokens: int, num_batches: int, version: str | None) -> int:
    """Return the tokens of a prompt that sliding layers keep beside the window while it is computed [tokens].

    Source: `VllmConfig.max_in_flight_tokens`, and `max_admission_blocks_per_request` in v1/kv_cache_interface.py.

    >>> tokens_in_flight(2048, 2, None), tokens_in_flight(2048, 2, "0.21.0")
    (4096, 2048)
    """
    return max_num_batched_tokens * (1 if is_before(version, IN_FLIGHT_SINCE) else num_batches)


def logs_pool(version: str | None) -> bool:
    """Tell whether a release's "GPU KV cache size" is its room for the longest contexts (pull request 40694)."""
    return not is_before(version, POOLED_LOG_SINCE)


def reserved_blocks(version: str | None) -> int:
    """Return the blocks that the pool holds back when the context limit is fitted to it [1]."""
    return 0 if is_before(version, NULL_BLOCK_SINCE) else 1
