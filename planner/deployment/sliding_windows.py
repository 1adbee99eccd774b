"""The KV of sliding layers: windows charged to the requests that run, a pool of their own, or all of the context."""

import math
from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.kv_cache import windowed_share
from planner.engines.engine import Memory
from planner.loop.memory import window_pages
from planner.model.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The part of the KV cache for sliding layers, on one GPU.

    Parameters
    ----------
    block_size : tokens of a block of the layers that see all of the context.
    bytes_per_token : of the context, in blocks.
    window_tokens : that a running request keeps in sliding layers; 0 if blocks hold all of their KV.
    window_chunk : more tokens of its prompt that it keeps until the prompt is computed.
    window_page_size, window_page_bytes : tokens of a page of sliding layers, and its bytes over all of them.
    """

    block_size: int
    bytes_per_token: float
    window_tokens: int = 0
    window_chunk: int = 0
    window_page_size: int = 1
    window_page_bytes: int = 0

    def __str__(self) -> str:
        """The text to add to the number of blocks."""
        if self.window_tokens == 0:
            return ""
        most, long = self.window_tokens + self.window_chunk + self.window_page_size, self.window_chunk
        return (f", {self.window_blocks(most, 1)} for a decode's windows of {self.window_tokens:,} tokens, "
                f"{self.window_blocks(most, long)} for a long prompt's")

    @property
    def block_bytes(self) -> int:
        """Size of a block [bytes]."""
        return math.ceil(self.block_size * self.bytes_per_token)

    def window_blocks(self, length: int, new_tokens: int) -> int:
        """Return the blocks of windows of a request of a length while `new_tokens` tokens are computed [1]."""
        return window_pages.window_blocks(self, length, new_tokens)

    def logged_tokens(self, num_gpu_blocks: int, longest: int, *, of_pool: bool) -> int:
        """Return the tokens that vLLM's start-up log gives the KV cache: room for the longest contexts [tokens].

        Parameters
        ----------
        longest : context [tokens].
        of_pool : whether groups share the blocks as they need them; else, as older logs count, each has as many.
        """
        if self.window_tokens == 0:
            return num_gpu_blocks * self.block_size
        if of_pool:
            blocks = math.ceil(longest / self.block_size) + self.window_blocks(longest, self.window_chunk)
            return int(num_gpu_blocks / blocks * longest)
        share = self.block_bytes / (self.block_bytes + self.window_page_bytes)
        return int(num_gpu_blocks * share) * min(self.block_size, self.window_page_size)


def window_settings(windows: Windows | None) -> dict[str, int]:
    """Return the loop's charges for windows; nothing if blocks hold all KV, as given blocks do."""
    if windows is None or windows.window_tokens == 0:
        return {}
    names = ("window_tokens", "window_chunk", "window_page_size", "window_page_bytes", "block_bytes")
    return {name: getattr(windows, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRules:
    """The rules by which sliding layers keep their KV, beside model and engine.

    Parameters
    ----------
    version : release of the engine, None for the newest.
    longest : context of a request at most [tokens].
    max_num_batched_tokens, num_batches : of a step; steps in flight [1].
    pool_ratio : tokens in a pool of sliding layers over the others' tokens; None for the engine's default [1].
    keeps_all : whether sliding layers keep all of the context, as the engine was told.
    """

    version: str | None = None
    longest: int | None = None
    max_num_batched_tokens: int = 2048
    num_batches: int = 1
    pool_ratio: float | None = None
    keeps_all: bool = False


def windows_of(arch: Architecture, memory: Memory, layout: Layout, *, block_size: int, kv_bytes_per_element: float,
               bytes_per_token: float, draft_bytes_per_token: float, rules: WindowRules) -> Windows:
    """Return how the KV of a model is divided between blocks and windows.

    Parameters
    ----------
    bytes_per_token : of the context in all layers, sliding ones included; the draft's come on top.
    """
    all_of_it = Windows(block_size=block_size, bytes_per_token=bytes_per_token + draft_bytes_per_token)
    longest = rules.longest or arch.max_model_len
    if not arch.sliding_window or not bytes_per_token or arch.sliding_window >= longest or rules.keeps_all:
        return all_of_it
    if (ratio := memory.window_pool_ratio(arch)) is not None:
        ratio = ratio if rules.pool_ratio is None else rules.pool_ratio
        windowed = bytes_per_token * windowed_share(arch, layout.tensor_parallel_size)
        return Windows(block_size=block_size,
                       bytes_per_token=bytes_per_token - (1 - ratio) * windowed + draft_bytes_per_token)
    pages = memory.window_pages(arch, block_size, kv_bytes_per_element, layout.tensor_parallel_size,
                                layout.pipeline_parallel_size, rules.version)
    if pages is None:
        return all_of_it
    chunk = memory.tokens_in_flight(rules.max_num_batched_tokens, rules.num_batches, rules.version)
    return Windows(block_size=pages.block_size,
                   bytes_per_token=pages.block_bytes / pages.block_size + draft_bytes_per_token,
                   window_tokens=arch.sliding_window, window_chunk=chunk, window_page_size=pages.page_size,
                   window_page_bytes=pages.page_bytes)
