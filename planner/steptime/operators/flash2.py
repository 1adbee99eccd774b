"""FlashAttention-2 over a paged KV cache: how its grid of tiles fills a GPU, and how long a decode's own tiles take."""

import math

QUERIES = 64  # rows of a tile
ELEMENT_BYTES = 2  # of queries, keys and values


def keys_at_once(head_dim: int) -> int:
    """Return the keys that a tile multiplies at once [1]: kBlockN of `run_mha_fwd_splitkv_dispatch`."""
    return 256 if head_dim <= 64 else 128 if head_dim <= 128 else 64


def tiles_at_once(multiprocessors: int, shared_memory_bytes: float, head_dim: int) -> int:
    """Return how many tiles a GPU works on at a time [1]: as many as its shared memory holds with keys and values.

    Parameters
    ----------
    multiprocessors : of the GPU [1].
    shared_memory_bytes : of each of them [B].
    head_dim : size of a head [1].

    >>> tiles_at_once(108, 164 * 1024, 128), tiles_at_once(128, 100 * 1024, 128)  # A100, RTX 4090
    (216, 128)
    """
    tile_bytes = (QUERIES + 2 * keys_at_once(head_dim)) * head_dim * ELEMENT_BYTES
    return multiprocessors * max(int(shared_memory_bytes // tile_bytes), 1)


def num_splits(tiles: int, multiprocessors: int) -> int:
    """Return into how many parts long contexts are split if all queries are one token [1].

    Parameters
    ----------
    tiles : sequences times key-value heads [1].
    multiprocessors : of the GPU [1].

    Notes
    -----
    `num_splits_heuristic`: none if the tiles fill four fifths of two a multiprocessor, else the fewest parts whose
    last wave is filled to 85 % of the best. CUDA graphs are captured with `max_model_len`, so that the length of a
    context does not limit it.

    >>> [num_splits(8 * decodes, 188) for decodes in (1, 16, 37, 38)]
    [40, 5, 5, 1]
    """
    places = 2 * multiprocessors
    if tiles >= 0.8 * places:
        return 1
    filled = [tiles * parts / places / math.ceil(tiles * parts / places) for parts in range(1, min(128, places) + 1)]
    return next(k for k, share in enumerate(filled, start=1) if share >= 0.85 * max(filled))


def own_s(pair_s: float, num_heads: int, at_once: int) -> float:
    """Return a tile's time for each of its keys [s].

    Parameters
    ----------
    pair_s : one query and one key in all query heads, as prompts' tiles multiply them on the whole GPU [s].
    num_heads : query heads on this GPU [1].
    at_once : as `tiles_at_once` says [1].

    Notes
    -----
    A tile multiplies 64 queries with each key whether they count or not. On RTX 4090 and RTX PRO 6000 one decode of
    16,384 tokens beside a short prompt takes 31.7 and 21.9 ns a key (LLMServingSim); the prompts' constants say 30.9
    and 21.8.

    >>> round(1e9 * own_s(5.79e-11, 32, 188), 1)
    21.8
    """
    return QUERIES * pair_s * at_once / num_heads
