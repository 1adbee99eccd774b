"""How many parameters a model has, by their purpose; each kind of layer has its own count."""

from planner.catalog.architecture import Architecture
from planner.catalog.layers.dense_gemm import Gemm, over_groups
from planner.catalog.layers.mlps import Experts


def attention_gemms(arch: Architecture, tensor_parallel_size: int) -> tuple[Gemm, ...]:
    """The dense products of attention on one rank over all layers, with indexers, compressors and linear attention.

    >>> from planner.catalog.catalog_files import load_model
    >>> sum(gemm.parameters for gemm in attention_gemms(load_model("llama-3.1-8b"), 2)) / 32
    20971520.0
    """
    hidden = arch.hidden_size
    return tuple(gemm for attention, groups in arch.by_attention for gemm in over_groups(
        (group.count, attention.projections(group, hidden, tensor_parallel_size)) for group in groups))


def mlp_gemms(arch: Architecture, tensor_parallel_size: int) -> tuple[Gemm, ...]:
    """The dense products of MLPs on one rank over all layers: dense MLPs, then the MLPs beside routed experts."""
    return tuple(gemm for group in arch.mlps for gemm in over_groups(
        [(group.count, group.mlp.projections(arch.hidden_size, tensor_parallel_size))]))


def compressor_parameters(arch: Architecture) -> int:
    """Parameters of all layers' compressors, which every rank has and which stay 16-bit; 0 without CSA."""
    return sum(gemm.parameters for gemm in attention_gemms(arch, 1) if gemm.part == "unquantized")


def mixing_width(arch: Architecture) -> int:
    """Return the width of the projection of residual streams before each half of a layer; 0 with one stream [1].

    One weight for each stream read, one for each written, and a matrix from streams to streams.

    Source: Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025.
    """
    return arch.num_residual_streams * (2 + arch.num_residual_streams) if arch.num_residual_streams > 1 else 0


def mixing_parameters(arch: Architecture) -> int:
    """Parameters of all halves' mixing of residual streams, which every rank has; 0 with one stream."""
    return arch.num_halves * arch.num_residual_streams * arch.hidden_size * mixing_width(arch)


def embedding_parameters(arch: Architecture) -> int:
    """Parameters of the input embeddings and the LM head, counted once if they are tied.

    >>> from planner.catalog.catalog_files import load_model
    >>> embedding_parameters(load_model("llama-3.1-8b"))
    1050673152
    """
    return arch.vocab_size * arch.hidden_size * arch.num_tables + per_layer_embeddings(arch)


def per_layer_embeddings(arch: Architecture) -> int:
    """Parameters of the embeddings that each layer has of its own: layers · vocabulary · width; 0 without them.

    The vocabulary is that of the input embedding.

    >>> from planner.catalog.catalog_files import load_model
    >>> per_layer_embeddings(load_model("gemma-4-e2b"))
    2348810240
    """
    return arch.num_layers * arch.vocab_size * arch.per_layer_input_size


def per_layer_parameters(arch: Architecture) -> int:
    """Parameters of the layers' own inputs and their addition: 3 · layers · hidden_size · width; 0 without them.

    A gate and a projection back in each layer, and one projection to the inputs of all.

    Source: transformers' `modeling_gemma4.py`; vLLM's `gemma4.py`.
    """
    return 3 * arch.num_layers * arch.hidden_size * arch.per_layer_input_size


def num_parameters(arch: Architecture) -> int:
    """All parameters of the model, without norms, biases and convolutions: too low by < 0.1 %.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(num_parameters(load_model("llama-3.1-8b")) / 1e9, 2)
    8.03
    """
    routed = sum(count * experts.num_experts * experts.expert_parameters(arch.hidden_size)
                 for count, experts in arch.mlps_of(Experts))
    return embedding_parameters(arch) + _shared_by_tokens(arch) + routed


def num_active_parameters(arch: Architecture) -> int:
    """Parameters that one token is multiplied with: its experts only, the LM head, not the embedding look-up.

    Publishers that count the embedding table too (Qwen) state vocab_size · hidden_size more.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(num_active_parameters(load_model("gpt-oss-120b")) / 1e9, 1)
    5.1
    """
    visited = sum(count * experts.num_experts_per_tok * experts.expert_parameters(arch.hidden_size)
                  for count, experts in arch.mlps_of(Experts))
    return arch.vocab_size * arch.hidden_size + _shared_by_tokens(arch) + visited


def _shared_by_tokens(arch: Architecture) -> int:
    """Parameters of all layers that every token is multiplied with: all but the routed experts."""
    gemms = (*attention_gemms(arch, 1), *mlp_gemms(arch, 1))
    return sum(gemm.parameters for gemm in gemms) + mixing_parameters(arch) + per_layer_parameters(arch)
