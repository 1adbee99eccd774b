"""How vLLM lays out one pool of KV blocks for compressed sparse attention: groups of layers, pages, and its checks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.layers.csa import COMPRESSOR_BYTES_PER_ELEMENT, Csa, compressor_widths, kept_tokens
from planner.catalog.layers.layer_group import LayerGroup

# A block holds 256 tokens of entries, or of each other group of layers as many tokens as fill a page of the same size:
# 64 of a window, 4 or 8 of a compressor's rows.
BLOCK_SIZE, WINDOW_PAGE, OVERLAPPING_PAGE, PLAIN_PAGE = 256, 64, 4, 8
FP8_ALIGNMENT, ALIGNMENT = 576, 512  # of a page of the FP8 layout, and of others [B]

Pages = dict[int, int]  # layers of a group by the bytes of their page


@dataclass(frozen=True, slots=True, kw_only=True)
class PageGroup:
    """Layers that share a block table.

    Parameters
    ----------
    page_bytes : of all its layers [bytes].
    page_tokens : tokens of a page [tokens].
    window : tokens that a layer keeps; 0 for all of the context [tokens].
    """

    page_bytes: int
    page_tokens: int
    window: int = 0

    def pages(self, length: int, in_flight: int) -> int:
        """Return the most pages of a request: its context, or the window and the tokens in flight, with one more."""
        if self.window == 0:
            return math.ceil(length / self.page_tokens)
        return math.ceil(min(self.window - 1 + in_flight, length) / self.page_tokens) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedGroups:
    """The groups of a model's layers in the KV pool of one GPU. Groups that keep the whole context come first."""

    groups: tuple[PageGroup, ...]  # each with its own blocks
    block_bytes: int  # of the pool [bytes]
    checked_bytes: int  # of a block in the check at start-up, which counts every layer tuple in full [bytes]
    in_flight: int  # tokens of a prompt that windows and compressors keep while it is computed [tokens]

    def needed_bytes(self, length: int) -> int:
        """Return the memory without which vLLM refuses to start with a context limit [bytes].

        Source: `_max_memory_usage_bytes_from_groups` in vllm/v1/core/kv_cache_utils.py.
        """
        return self.checked_bytes * sum(group.pages(length, self.in_flight) for group in self.groups)

    def longest(self, kv_bytes: float, most: int) -> int:
        """Return the longest context limit that vLLM starts with in a KV cache, at most `most`; 0 for none [tokens]."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.needed_bytes(middle) <= kv_bytes else (low, middle - 1)
        return low

    def concurrency(self, num_gpu_blocks: int, length: int) -> float:
        """Return the requests of the longest context that vLLM's log says the pool holds [1].

        Source: `get_max_concurrency_for_kv_cache_config`, which divides by the first group's page.
        """
        request_bytes = sum(group.pages(length, self.in_flight) * group.page_bytes for group in self.groups)
        return num_gpu_blocks / math.ceil(request_bytes / self.groups[0].page_bytes)


def compressed_groups(arch: Architecture, kv_bytes_per_element: float, stages: int, num_draft_layers: int,
                      in_flight: int) -> CompressedGroups:
    """Return the groups of layers with compressed sparse attention, as vLLM makes them.

    Entries of all layers are one group, the windows of all layers and of a draft's are others, and the rows of
    compressors whose entries overlap, and of the rest. A page is padded to the next larger one of the first group, and
    a group with more layers than the others is divided.

    Source: `group_and_unify_kv_cache_specs`, `_get_kv_cache_groups_uniform_groups` and `_get_kv_cache_config_packed` in
    vllm/v1/core/kv_cache_utils.py of 0.25; vllm-project/vllm#54703 prints the pages of DeepSeek-V4-Flash.

    >>> from planner.catalog.catalog_files import load_model
    >>> flash = compressed_groups(load_model("deepseek-v4-flash"), 1.0, 1, 0, 16384)
    >>> [group.page_bytes for group in flash.groups], flash.block_bytes
    ([1002240, 823680, 786240, 967680, 748800], 1039680)
    >>> round(flash.needed_bytes(30_000) / 2**30, 2), flash.longest(5.44 * 2**30, 30_000)
    (6.66, 13524)
    """
    overlapping = next(group for group in arch.layers if group.indexer is not None)
    plain = next(group for group in arch.layers if group.indexer is None and group.tokens_per_entry)
    attention, indexer = overlapping.attention, overlapping.indexer
    assert isinstance(attention, Csa)
    assert indexer is not None
    alignment = FP8_ALIGNMENT if kv_bytes_per_element == 1 else ALIGNMENT
    entry = attention.kv_bytes(kv_bytes_per_element, 1)
    both, rest, windows = (-(-count // stages) for count in (
        overlapping.count, plain.count, sum(group.count for group in arch.layers)))
    index_page = _aligned(BLOCK_SIZE // overlapping.tokens_per_entry * indexer.key_bytes, alignment)
    large, small = (_aligned(BLOCK_SIZE // group.tokens_per_entry * entry, alignment) for group in (overlapping, plain))
    first: Pages = {large: both, index_page: both, small: rest}
    others: list[tuple[Pages, int, int]] = [
        ({_aligned(WINDOW_PAGE * entry, alignment): windows + num_draft_layers}, WINDOW_PAGE, attention.window),
        (_row_pages(overlapping, both, OVERLAPPING_PAGE, alignment), OVERLAPPING_PAGE, kept_tokens(overlapping)),
        (_row_pages(plain, rest, PLAIN_PAGE, alignment), PLAIN_PAGE, kept_tokens(plain))]
    counts = [max(pages.values()) for pages, _, _ in others]
    tuples = _layers_of_a_group([max(first.values()), *counts])
    groups, layers = [PageGroup(page_bytes=_total(first), page_tokens=BLOCK_SIZE)], [first]
    for pages, page_tokens, window in others:
        padded = {min(size for size in first if size >= page): count for page, count in pages.items()}
        parts = math.ceil(max(padded.values()) / tuples)
        for part in range(parts):
            divided = {page: len(range(part, count, parts)) for page, count in padded.items()}
            groups.append(PageGroup(page_bytes=_total(divided), page_tokens=page_tokens, window=window))
            layers.append(divided)
    return CompressedGroups(
        groups=tuple(groups), block_bytes=sum(size * max(layer.get(size, 0) for layer in layers) for size in first),
        checked_bytes=sum(first) * max(max(layer.values()) for layer in layers), in_flight=in_flight)


def compressed_pages(arch: Architecture, block_size: int) -> tuple[int, int]:
    """Return the tokens of a block and a running sequence's blocks for windows and compressors [tokens], [1].

    A window that ends within a page touches one page more than it fills. The windows are in two groups, since half of
    the layers have entries of the same size. The extra blocks of a prompt's chunk, before its window has moved on, are
    left out: one for every 2 or 3 tokens.

    Source: `DeepseekV4SWACache` and `CompressorStateCache`; issues 42948 and 51041 have the groups.

    >>> from planner.catalog.catalog_files import load_model
    >>> compressed_pages(load_model("deepseek-v4-pro"), 16)
    (256, 26)
    """
    overlapping = next(group for group in arch.layers if group.indexer is not None)
    plain = next(group for group in arch.layers if group.indexer is None and group.tokens_per_entry)
    groups = round(sum(group.count for group in arch.layers) / overlapping.count)
    windows = groups * _touched(overlapping.attention.recent_entries, WINDOW_PAGE)
    return max(block_size, BLOCK_SIZE), (windows + _touched(kept_tokens(overlapping), OVERLAPPING_PAGE)
                                         + _touched(kept_tokens(plain), PLAIN_PAGE))


def _touched(window: int, page: int) -> int:
    """Return the most pages that a window of the last tokens touches [1]."""
    return math.ceil((window - 1) / page) + 1


def _row_pages(group: LayerGroup, count: int, page_tokens: int, alignment: int) -> Pages:
    """Return the pages of the rows that the compressors of a group's layers keep."""
    pages: Pages = {}
    for width in compressor_widths(group):
        page = _aligned(page_tokens * width * COMPRESSOR_BYTES_PER_ELEMENT, alignment)
        pages[page] = pages.get(page, 0) + count
    return pages


def _layers_of_a_group(counts: Sequence[int]) -> int:
    """Return the size of a group that pads the fewest layers, at least the first group's: `_approximate_gcd`."""
    return min(range(counts[0], max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _total(pages: Pages) -> int:
    return sum(size * count for size, count in pages.items())


def _aligned(num_bytes: float, alignment: int) -> int:
    return alignment * math.ceil(num_bytes / alignment)
