"""Indexers of sparse attention in a step: their time for each query and entry, and for each layer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from planner.catalog.gpus import Gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.indexers import BlockIndexer, EntryIndexer, Indexer
from planner.catalog.layers.layer_group import LayerGroup
from planner.engines import ENGINES
from planner.steptime.block_sparse import block_index_pair_s, sparse_pair_s
from planner.steptime.contribution import Contribution
from planner.steptime.step_context import StepContext

# Share of the FP8 peak for the indexer with its choice of entries, `compressed_attention.FLOPS_FRAC`, and
# `Kernels.index_share` of `index_layer_s`: from AIConfigurator's tables of whole attention modules (`dsv4_csa_*` and
# `dsv4_hca_*`; SGLang 0.5.14, vLLM 0.24.0, TensorRT-LLM 1.3.0rc23), whose time grows by 24 ps an entry and query on
# H100 and H200, by 15 to 17 on B200, B300 and GB200, under all engines.
INDEX_FLOPS_FRAC = {"hopper": 0.34, "blackwell": 0.23}


class IndexKernel(NamedTuple):
    """How an indexer runs.

    Parameters
    ----------
    pair_s : of one query and one token, of (step context, group of layers) [s].
    layer_share : of `index_layer_s`, a layer's extra time, of the engine's name [1].
    """

    pair_s: Callable[[StepContext, LayerGroup], float]
    layer_share: Callable[[str], float]


def indexers(stack: StepContext, groups: Sequence[LayerGroup]) -> Iterator[Contribution]:
    """Yield the time of indexers to read one small key for each entry, and to multiply their heads with it."""
    c = stack.constants
    for group in groups:
        if group.indexer is None or group.reuses_choice:
            continue
        key_bytes = group.indexer.key_bytes / group.tokens_per_entry
        multiply_s = INDEX_KERNELS[type(group.indexer)].pair_s(stack, group)
        least_s = max(key_bytes / stack.gpu.hbm_bandwidth_bytes_per_s, multiply_s)
        yield Contribution("indexer", {
            "prompt_s_per_pair": group.count * max(c.prompt_attention_ratio, 1.0) * multiply_s,
            "kv_bytes_per_token": group.count * group.indexer.key_bytes / group.tokens_per_entry,
        }, {"decode_s_per_context_token": group.count * max(c.decode_attention_ratio, 1.0) * least_s})


def index_layers_s(stack: StepContext) -> float:
    """Return the extra time of all layers with an indexer [s]."""
    engine, layer_s = stack.engine, stack.constants.index_layer_s
    return sum(group.count * INDEX_KERNELS[type(group.indexer)].layer_share(engine) * layer_s
               for group in stack.arch.layers if group.runs_indexer)


def chosen_pair_s(stack: StepContext, attention: Gqa, groups: Sequence[LayerGroup]) -> float | None:
    """Return a layer's time for one query and one key that its indexer chose [s]; None without an indexer."""
    return sparse_pair_s(stack, attention) if any(group.indexer is not None for group in groups) else None


def entry_pair_s(stack: StepContext, group: LayerGroup) -> float:
    """Return an indexer's time for one query and one token, its choice included [s], CSA's and DSA's alike."""
    indexer, peaks = group.indexer, stack.gpu.flops_per_s
    assert indexer is not None
    products = 2.0 * indexer.num_heads * indexer.head_dim / group.tokens_per_entry
    return products / peaks.get("fp8", peaks["bf16"]) / INDEX_FLOPS_FRAC[kernel_generation(stack.gpu)]


def padded_heads(gpu: Gpu, num_heads: int) -> int:
    """Return the heads that FlashMLA's sparse kernel for prompts multiplies for a rank's heads [1].

    It runs 64 at once on Hopper and 128 on Blackwell (`prefill_padding` of FlashMLASparseImpl in vLLM).
    """
    at_once = 128 if kernel_generation(gpu) == "blackwell" else 64
    return -(-num_heads // at_once) * at_once


def kernel_generation(gpu: Gpu) -> str:
    """Return the generation whose kernels a GPU runs: Blackwell's if it multiplies FP4."""
    return "blackwell" if "fp4" in gpu.flops_per_s else "hopper"


INDEX_KERNELS: dict[type[Any], IndexKernel] = {
    Indexer: IndexKernel(entry_pair_s, lambda _: 1.0),
    EntryIndexer: IndexKernel(entry_pair_s, lambda engine: ENGINES[engine].kernels.index_share),
    BlockIndexer: IndexKernel(block_index_pair_s, lambda _: 0.0),  # whose tables show none
}
