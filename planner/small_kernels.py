"""The small kernels of a forward pass: norms, rotary embedding and activation; how many, and what they move."""

from planner.architecture import Architecture

# What each takes of a dense layer's small kernels, two norms, the rotary embedding and the activation: on two cards 22
# and 24 %, 25 %, 27 to 31 % (LLMServingSim's tables).
NORM_SHARE, ROTARY_SHARE, ACTIVATION_SHARE = 0.24, 0.24, 0.28


def layers_of_small_kernels(arch: Architecture, engine: str) -> float:
    """Return how many dense layers have as many small kernels as all of a model's layers [1].

    Parameters
    ----------
    arch, engine : the model, and whose kernels run: "vllm", "sglang" or "trtllm".

    Notes
    -----
    A layer whose MLP is routed experts alone has its activation among them. TensorRT-LLM turns queries and keys in the
    attention kernel (`rope_fusion` of its Attention), whose benchmark has it. A norm of query and key over all heads is
    two kernels, one before the ranks add up and one after (`MiniMaxText01RMSNormTP` in vLLM).

    >>> from planner.catalog import load_model
    >>> [round(layers_of_small_kernels(load_model("gpt-oss-120b"), engine), 2) for engine in ("vllm", "trtllm")]
    [25.92, 17.28]
    """
    layers = float(arch.num_layers)
    if not arch.shared_intermediate_size:
        layers -= ACTIVATION_SHARE * arch.num_moe_layers
    if engine == "trtllm" and arch.attention == "gqa":
        layers -= ROTARY_SHARE * arch.num_attention_layers
    if arch.qk_norm_over_heads:
        layers += 2 * NORM_SHARE * arch.num_attention_layers
    return layers


def layers_routed_apart(arch: Architecture, engine: str) -> int:
    """Return the MoE layers whose routing is not in the experts' benchmark [1].

    TensorRT-LLM's was measured as a whole module, from the router's logits on (`create_moe` with its routing method in
    AIConfigurator's collector); what `moe_layer_s` is for is in it.
    """
    return 0 if engine == "trtllm" else arch.num_moe_layers


def small_kernels(arch: Architecture, ranks: int) -> tuple[tuple[int, float, float], ...]:
    """Return, for each kind of small kernel: how many, elements of a token that one reads or writes, distinct ones [1].

    A norm adds its input to the residual and writes both back; the rotary embedding turns queries and keys in place;
    the activation reads gate and up and writes their product.

    >>> from planner.catalog import load_model
    >>> small_kernels(load_model("llama-3.1-8b"), 1)
    ((64, 16384, 8192), (32, 10240.0, 5120.0), (32, 43008.0, 43008.0), (0, 0.0, 0.0))
    """
    rotated = 0.0 if arch.attention == "mla" else (arch.num_attention_heads + arch.num_kv_heads) * arch.head_dim / ranks
    dense, shared = (arch.num_mlp_matrices * width / ranks
                     for width in (arch.intermediate_size, arch.shared_intermediate_size))
    return ((2 * arch.num_layers, 4 * arch.hidden_size, 2 * arch.hidden_size),
            (arch.num_attention_layers, 2 * rotated, rotated),
            (arch.num_dense_layers, dense, dense), (arch.num_moe_layers, shared, shared))
