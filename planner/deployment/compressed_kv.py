"""Where engines keep the windows of compressed sparse attention, and what its compressors have not made entries of."""

import math

from planner.catalog.architecture import Architecture
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu, layer_kv_bytes

# vLLM: one pool whose blocks hold 256 tokens of entries, or of each other group of layers as many tokens as fill a page
# of the same size: a window's 64, and 4 or 8 of a compressor's rows.
BLOCK_SIZE, WINDOW_PAGE = 256, 64
OVERLAPPING_PAGE, PLAIN_PAGE = 4, 8
# SGLang: windows have a pool of their own, a tenth as many tokens as that of entries (swa_full_tokens_ratio); and for
# every page of 128 of its tokens, 8 of a compressor's rows where entries overlap.
SWA_FULL_TOKENS_RATIO, ROWS_PER_TOKEN = 0.1, 8 / 128
ROW_BYTES_PER_ELEMENT = 4
SGLANG_MAX_NUM_SEQS = 256  # of all ranks, where the user gives none (`apply_deepseek_v4_defaults`)


def compressed_pages(arch: Architecture, engine: str, block_size: int) -> tuple[int, int]:
    """Return the tokens of a block [tokens], and the blocks that a running sequence has besides those of entries [1].

    vLLM and SGLang make blocks of 256 tokens, and vLLM has windows in them. A window that ends within a page touches
    one page more than it fills. Layers' windows are in two groups, since half of the layers have as large entries.
    What a prompt's chunk takes for a moment, before its window has moved on, is left out: a block for every 2 or 3
    tokens.

    Source: vLLM's `DeepseekV4SWACache` and `CompressorStateCache`; issues 42948 and 51041 have the groups.

    >>> from planner.catalog.catalog_files import load_model
    >>> compressed_pages(load_model("deepseek-v4-pro"), "vllm", 16)
    (256, 26)
    """
    if engine == "trtllm":
        return block_size, 0
    if engine == "sglang":
        return max(block_size, BLOCK_SIZE), 0
    groups = round(arch.num_attention_layers / arch.num_index_layers)
    windows = groups * _touched(arch.sliding_window, WINDOW_PAGE)
    return max(block_size, BLOCK_SIZE), (windows + _touched(2 * arch.index_rate, OVERLAPPING_PAGE)
                                         + _touched(arch.hca_rate, PLAIN_PAGE))


def pool_bytes_per_token(arch: Architecture, kv_bytes_per_element: float, pipeline_parallel_size: int) -> float:
    """Return what SGLang's pools take for a token of context, those of windows included, on one GPU [B].

    Source: SGLang's `DeepSeekV4TokenToKVPool`; its 7,705 B a token of DeepSeek-V4-Flash.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(pool_bytes_per_token(load_model("deepseek-v4-flash"), 1, 1), 2)
    7705.45
    """
    window = arch.num_attention_layers * layer_kv_bytes(arch, kv_bytes_per_element, 1)
    row = 4 * (arch.head_dim + arch.index_head_dim) * ROW_BYTES_PER_ELEMENT
    rows = arch.num_index_layers * row * ROWS_PER_TOKEN
    return (kv_bytes_per_token_per_gpu(arch, kv_bytes_per_element, 1, pipeline_parallel_size)
            + SWA_FULL_TOKENS_RATIO * (window + rows) / pipeline_parallel_size)


def _touched(window: int, page: int) -> int:
    """Pages that a window of the last tokens touches at most [1]."""
    return math.ceil((window - 1) / page) + 1
