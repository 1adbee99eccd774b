"""MiniMax sparse attention: GQA over key blocks that an indexer chose."""

from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.layer_group import LayerGroup
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.steptime.fused_norms import nvlink_generation
from planner.steptime.step_context import StepContext

# `Kernels.block_sparse_frac` is the share of the 16-bit peak that a prompt's tiles reach; a tile is the queries of one
# token and one KV head over one key. It is from AIConfigurator's tables of whole attention modules
# (`msa_context_module_perf`, aiconfigurator-core 0.12.0; vLLM 0.24, SGLang 0.5.16), 28 to 306 shapes for each of five
# GPUs, 1 to 8 ranks and both engines: 0.117 to 0.128, 0.077 to 0.080, 0.18 to 0.34 and 0.027 to 0.043. vLLM has its
# own kernel on Blackwell; elsewhere both run Triton's, so other GPUs take Hopper's shares.
# The indexer's heads, of the 16-bit peak: 0.7 ps a head, query and key on H200 (same tables).
INDEX_FLOPS_FRAC = 0.34
TILE = 16  # rows that Triton multiplies at least, for the queries of a group's heads


def sparse_pair_s(stack: StepContext, attention: Gqa) -> float:
    """Return a layer's time for one query and one chosen key, all heads of a GPU [s].

    Raises
    ------
    UsageError : under TensorRT-LLM, whose kernels (1.3.0rc23) take up to hundreds of times as long.
    """
    arch, ranks = stack.arch, stack.layout.tensor_parallel_size
    engine, of_generation = ENGINES[stack.engine], nvlink_generation(stack.gpu) or "hopper"
    if of_generation not in engine.kernels.block_sparse_frac:
        raise UsageError(f"{arch.name} under {stack.engine}: its kernels of block-sparse attention are not modelled; "
                         "use --engine vllm or sglang")
    groups = -(-attention.num_kv_heads // ranks)
    heads = -(-attention.num_heads // (ranks * groups))
    rows = heads if of_generation in engine.kernels.block_sparse_unpadded else max(TILE, heads)
    reached = stack.gpu.flops_per_s["bf16"] * engine.kernels.block_sparse_frac[of_generation]
    return 4.0 * groups * rows * attention.head_dim / reached


def block_index_pair_s(stack: StepContext, group: LayerGroup) -> float:
    """Return the time of an indexer's heads on a GPU for one query and one key [s]."""
    indexer = group.indexer
    assert indexer is not None
    heads = -(-indexer.num_heads // stack.layout.tensor_parallel_size)
    return 2.0 * heads * indexer.head_dim / (stack.gpu.flops_per_s["bf16"] * INDEX_FLOPS_FRAC)
