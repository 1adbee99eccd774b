"""The small kernels of a forward pass: norms, rotary embedding and activation; how many, and what they move."""

from typing import NamedTuple

from planner.catalog.architecture import Architecture

# What each takes of a dense layer's small kernels, two norms, the rotary embedding and the activation: on two cards 22
# and 24 %, 25 %, 27 to 31 % (LLMServingSim's tables).
NORM_SHARE, ROTARY_SHARE, ACTIVATION_SHARE = 0.24, 0.24, 0.28


def layers_routed_apart(arch: Architecture, engine: str) -> int:
    """Return the MoE layers whose routing is not in the experts' benchmark [1].

    TensorRT-LLM's was measured as a whole module, from the router's logits on (`create_moe` with its routing method in
    AIConfigurator's collector); what `moe_layer_s` is for is in it.
    """
    return 0 if engine == "trtllm" else arch.num_moe_layers


class Small(NamedTuple):
    """Small kernels of one kind.

    Parameters
    ----------
    num : of them in a forward pass [1].
    share : of `layer_s`, that one's launch takes [1].
    elements : of a token, that one reads or writes [1].
    distinct : of these, those that are not the same ones again [1].
    """

    num: int
    share: float
    elements: float
    distinct: float


def small_kernels(arch: Architecture, engine: str, ranks: int) -> tuple[Small, ...]:
    """Return the small kernels of all layers, norms of the hidden state first.

    Parameters
    ----------
    arch, engine : the model, and whose kernels run: "vllm", "sglang" or "trtllm".
    ranks : that a layer's width is spread over [1].

    Notes
    -----
    A norm adds its input to the residual and writes both back. The rotary embedding turns queries and keys in place,
    under TensorRT-LLM without a launch, in the attention kernel (`rope_fusion` of its Attention); linear attention is
    charged a launch instead. The activation reads gate and up and writes their product, but is among routed experts
    where these are a layer's MLP alone. A norm of query and key over all heads is two kernels, one before the ranks add
    up and one after (`MiniMaxText01RMSNormTP` in vLLM).

    >>> from planner.catalog.entries import load_model
    >>> [kernel[:3] for kernel in small_kernels(load_model("llama-3.1-8b"), "vllm", 1) if kernel.num]
    [(64, 0.24, 16384), (32, 0.24, 10240.0), (32, 0.28, 43008.0)]
    """
    in_attention = engine == "trtllm" and arch.attention == "gqa"
    turned = [(count, 0.0 if arch.attention == "mla"
               else (kind.num_attention_heads + kind.num_kv_heads) * kind.head_dim / ranks)
              for count, kind in arch.attention_kinds]
    dense, shared = (arch.num_mlp_matrices * width / ranks
                     for width in (arch.intermediate_size, arch.shared_intermediate_size))
    return (Small(arch.num_layers + arch.num_mlp_layers, NORM_SHARE, 4 * arch.hidden_size, 2 * arch.hidden_size),
            *(Small(count, 0.0 if in_attention else ROTARY_SHARE, 2 * width, width) for count, width in turned),
            Small(arch.num_linear_layers, ROTARY_SHARE, 0.0, 0.0),
            Small(arch.num_dense_layers, ACTIVATION_SHARE, dense, dense),
            Small(arch.num_moe_layers if shared else 0, ACTIVATION_SHARE, shared, shared),
            Small(2 * arch.num_attention_layers if arch.qk_norm_over_heads else 0, NORM_SHARE, 0.0, 0.0))
