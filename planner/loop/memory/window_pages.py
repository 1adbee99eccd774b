"""Blocks of the windows of sliding layers, as vLLM lays them out: for the loop, and for plans that compile nothing."""

from typing import Any


def window_blocks(t: Any, length: int, new_tokens: int) -> int:
    """Return the blocks of a request's windows while `new_tokens` tokens are computed [1].

    A window that begins within a page touches one page more than it fills.

    Parameters
    ----------
    t : settings of the engine, or `sliding_windows.Windows`.
    length : of the request [tokens].
    """
    if t.window_tokens == 0:
        return 0
    page = t.window_page_size
    pages = min((length + page - 1) // page, (t.window_tokens + new_tokens + page - 2) // page + 1)
    return int((pages * t.window_page_bytes + t.block_bytes - 1) // t.block_bytes)
