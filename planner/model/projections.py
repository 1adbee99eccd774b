"""The dense matrix products of one forward pass on one GPU: their shapes, as vLLM fuses and shards them."""

from planner.catalog.architecture import Architecture
from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.parameters import attention_gemms, mixing_width, mlp_gemms


def projections(arch: Architecture, tensor_parallel_size: int) -> tuple[Gemm, ...]:
    """Every dense matrix product of one forward pass on one tensor-parallel rank, over all layers.

    Left out are the LM head, the routed experts, attention itself and the convolution of linear layers.

    Parameters
    ----------
    arch : the model.
    tensor_parallel_size : ranks that share a layer [1].

    Returns
    -------
    tuple[Gemm, ...]
        In the order of a layer: attention, indexer, compressors, linear attention, dense MLP, router, shared experts,
        the mixing of residual streams, and the addition of layers' own inputs. At one rank the sum of n · k · count is
        all of `num_parameters` except embeddings and routed experts (tested).

    Notes
    -----
    Column-parallel (n split): qkv_proj, q_b_proj, kv_b_proj, in_proj_*, gate_up_proj. Row-parallel (k split):
    o_proj, out_proj, down_proj. On every rank in full: the down-projections of MLA and CSA, the indexer, compressors,
    the router, the mixing of residual streams; a KV head if there are more ranks than heads. Sizes that do not divide
    are rounded up.

    Decodes, and all tokens of sparse attention, do not run kv_b_proj but multiply its halves, head by head, with the
    query and with the output (absorbed): as many weights read, products of H matrices.

    >>> from planner.catalog.catalog_files import load_model
    >>> projections(load_model("llama-3.1-8b"), 2)[0]
    Gemm(name='qkv_proj', n=3072, k=4096, count=32, part='attention')
    """
    gemms = (*attention_gemms(arch, tensor_parallel_size), *mlp_gemms(arch, tensor_parallel_size), *_mixing(arch),
             *_layer_inputs(arch, tensor_parallel_size))
    return tuple(gemm for gemm in gemms if gemm.parameters)


def _mixing(arch: Architecture) -> tuple[Gemm, ...]:
    """The weights of residual streams before each half of a layer, of all streams together."""
    width = arch.num_residual_streams * arch.hidden_size
    return (Gemm("hc_fn", mixing_width(arch), width, arch.num_halves, "kept"),)


def _layer_inputs(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """Layers' own inputs, of all layers in one product; in each layer their gate and the product that adds them."""
    hidden, width, count = arch.hidden_size, arch.per_layer_input_size, arch.num_layers
    return (Gemm("per_layer_model_projection", -(-count * width // ranks), hidden, 1, "mlp"),
            Gemm("per_layer_input_gate", width, hidden, count, "mlp"),
            Gemm("per_layer_projection", hidden, width, count, "mlp"))
