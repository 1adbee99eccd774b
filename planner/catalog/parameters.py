"""How many parameters a model has, by what they are for."""

from planner.catalog.architecture import Architecture


def attention_parameters(arch: Architecture) -> int:
    """Parameters of one layer's attention projections, of a layer that has a KV cache; without the indexer's.

    Of a layer that sees all tokens, where sliding ones differ.

    GQA: h·d·(2·H + 2·K), and h·d·H more for an output gate. MLA: the query (h·r_q + r_q·H·(d_nope + d_rope), or
    h·H·(d_nope + d_rope) uncompressed), h·(r_kv + d_rope), r_kv·H·(d_nope + d_v), H·d_v·h and that again for a gate.
    CSA: h·(r_q + d), r_q·H·d, H·d·r_o and g·r_o·h, with g groups of heads, each of rank r_o; its compressors are apart.
    Biases and norms are left out: too low by < 0.1 %.

    Source: Ainslie et al., GQA, 2023; DeepSeek-V2, 2024, section 2.1; DeepSeek-V4, 2026, section 2.3.

    >>> from planner.catalog.catalog_files import load_model
    >>> attention_parameters(load_model("llama-3.1-8b"))
    41943040
    """
    if arch.attention == "gqa":
        query_heads = (2 + arch.attn_output_gate) * arch.num_attention_heads
        return arch.hidden_size * arch.head_dim * (query_heads + (2 - arch.key_is_value) * arch.num_kv_heads)
    if arch.attention == "csa":
        width = arch.num_attention_heads * arch.head_dim
        return (arch.hidden_size * (arch.q_lora_rank + arch.head_dim) + arch.q_lora_rank * width
                + arch.o_lora_rank * (width + arch.o_groups * arch.hidden_size))
    query_width = arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim)
    query = (arch.q_lora_rank * (arch.hidden_size + query_width) if arch.q_lora_rank
             else arch.hidden_size * query_width)
    latent = arch.hidden_size * (arch.kv_lora_rank + arch.qk_rope_head_dim)
    expansion = arch.kv_lora_rank * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.v_head_dim)
    output = (1 + arch.attn_output_gate) * arch.num_attention_heads * arch.v_head_dim * arch.hidden_size
    return query + latent + expansion + output


def indexer_parameters(arch: Architecture) -> int:
    """Parameters of one layer's indexer: r_q·H_i·d_i + h·d_i + h·H_i; 0 without sparse attention.

    CSA's has a compressor of its own in place of h·d_i; that of GQA takes the hidden state, h·H_i·d_i + h·d_i.

    Source: DeepSeek-V3.2-Exp, 2025, section 2.1, and its inference code.

    >>> from planner.catalog.catalog_files import load_model
    >>> indexer_parameters(load_model("glm-5"))
    9371648
    """
    width = arch.index_n_heads * arch.index_head_dim
    if arch.is_block_sparse:
        return arch.hidden_size * (width + arch.index_head_dim)
    key = 0 if arch.attention == "csa" else arch.index_head_dim
    return arch.q_lora_rank * width + arch.hidden_size * (key + arch.index_n_heads)


def compressor_widths(arch: Architecture) -> tuple[tuple[int, int], ...]:
    """Return what CSA's compressors project a token to: how many layers, and their width [1]; none without CSA.

    An entry is a mean of its tokens' values, weighted by their gates: two projections of a head's width. Where an
    indexer chooses, entries overlap, which takes both twice, and its keys are compressed in the same way.

    Source: DeepSeek-V4, 2026, section 2.3; vLLM's `DeepseekCompressor`.
    """
    if arch.attention != "csa":
        return ()
    return ((arch.num_index_layers, 4 * arch.head_dim), (arch.num_index_layers, 4 * arch.index_head_dim),
            (arch.num_hca_layers, 2 * arch.head_dim))


def compressor_parameters(arch: Architecture) -> int:
    """Parameters of all layers' compressors, which every rank has and which stay 16-bit; 0 without CSA."""
    return arch.hidden_size * sum(count * width for count, width in compressor_widths(arch))


def mixing_width(arch: Architecture) -> int:
    """Return what the residual streams are projected to before each half of a layer; 0 where there is one [1].

    One weight for each stream read, one for each written, and a matrix from streams to streams.

    Source: Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025.
    """
    return arch.num_residual_streams * (2 + arch.num_residual_streams) if arch.num_residual_streams > 1 else 0


def mixing_parameters(arch: Architecture) -> int:
    """Parameters of all halves' mixing of residual streams, which every rank has; 0 where there is one stream."""
    return arch.num_halves * arch.num_residual_streams * arch.hidden_size * mixing_width(arch)


def linear_attention_parameters(arch: Architecture) -> int:
    """Parameters of one linear layer's projections; 0 where there are none.

    Query, key, value and gate h·(2·K·d_k + 2·V·d_v), scalars s·h·V, output V·d_v·h. KDA's decays r·(h + K·d_k) more,
    and its gate r·(h + V·d_v) where it is not full. The convolution and the norms are left out: too low by < 0.1 %.

    Source: Yang et al., Gated Delta Networks, 2024; Kimi Linear, 2025; transformers' `modeling_qwen3_next.py`.

    >>> from planner.catalog.catalog_files import load_model
    >>> linear_attention_parameters(load_model("qwen3-next-80b-a3b"))
    33685504
    """
    scalars = arch.linear_scalars_per_head * arch.linear_num_value_heads
    values = (2 if arch.linear_gate_rank else 3) * arch.linear_value_width
    return (arch.hidden_size * (2 * arch.linear_key_width + values + scalars)
            + arch.linear_decay_rank * (arch.hidden_size + arch.linear_key_width)
            + arch.linear_gate_rank * (arch.hidden_size + arch.linear_value_width))


def mlp_parameters(arch: Architecture) -> int:
    """Parameters of one dense MLP, not of a wide one: matrices · hidden_size · intermediate_size.

    >>> from planner.catalog.catalog_files import load_model
    >>> mlp_parameters(load_model("llama-3.1-8b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.intermediate_size


def expert_parameters(arch: Architecture) -> int:
    """Parameters of one routed expert: matrices · hidden_size (or latent) · moe_intermediate_size; 0 in a dense model.

    >>> from planner.catalog.catalog_files import load_model
    >>> expert_parameters(load_model("mixtral-8x7b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.moe_hidden_size * arch.moe_intermediate_size


def shared_expert_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer that every token uses: its shared experts; 0 where there are none.

    The gate of Qwen's shared expert, hidden_size parameters, is left out.

    >>> from planner.catalog.catalog_files import load_model
    >>> shared_expert_parameters(load_model("deepseek-v3"))
    44040192
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.shared_intermediate_size


def latent_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer's projections to a latent and back, which every rank has; 0 without one.

    >>> from planner.catalog.catalog_files import load_model
    >>> latent_parameters(load_model("nemotron-3-nano-30b-a3b"))
    0
    """
    return 2 * arch.hidden_size * arch.moe_latent_size


def router_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer's router: hidden_size · num_experts.

    >>> from planner.catalog.catalog_files import load_model
    >>> router_parameters(load_model("mixtral-8x7b"))
    32768
    """
    return arch.hidden_size * arch.num_experts


def embedding_parameters(arch: Architecture) -> int:
    """Parameters of the input embeddings and the LM head, counted once where they are tied.

    >>> from planner.catalog.catalog_files import load_model
    >>> embedding_parameters(load_model("llama-3.1-8b"))
    1050673152
    """
    return arch.vocab_size * arch.hidden_size * (1 if arch.tie_word_embeddings else 2) + per_layer_embeddings(arch)


def per_layer_embeddings(arch: Architecture) -> int:
    """Parameters of the embeddings that each layer has of its own: layers · vocabulary · width; 0 without them.

    The vocabulary is that of the input embedding.

    >>> from planner.catalog.catalog_files import load_model
    >>> per_layer_embeddings(load_model("gemma-4-e2b"))
    2348810240
    """
    return arch.num_layers * arch.vocab_size * arch.per_layer_input_size


def per_layer_parameters(arch: Architecture) -> int:
    """Parameters of what makes layers' own inputs and adds them: 3 · layers · hidden_size · width; 0 without them.

    A gate and a projection back in each layer, and one projection to the inputs of all.

    Source: transformers' `modeling_gemma4.py`; vLLM's `gemma4.py`.
    """
    return 3 * arch.num_layers * arch.hidden_size * arch.per_layer_input_size


def num_parameters(arch: Architecture) -> int:
    """All parameters of the model, without norms and biases.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(num_parameters(load_model("llama-3.1-8b")) / 1e9, 2)
    8.03
    """
    return embedding_parameters(arch) + _layer_parameters(arch, arch.num_experts)


def num_active_parameters(arch: Architecture) -> int:
    """Parameters that one token is multiplied with: its experts only, the LM head, not the embedding look-up.

    Publishers who count the embedding table too (Qwen) state vocab_size · hidden_size more.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(num_active_parameters(load_model("gpt-oss-120b")) / 1e9, 1)
    5.1
    """
    return arch.vocab_size * arch.hidden_size + _layer_parameters(arch, arch.num_experts_per_tok)


def _layer_parameters(arch: Architecture, num_experts: int) -> int:
    """Parameters of all layers, with `num_experts` routed experts counted in each MoE layer."""
    moe_layer = (num_experts * expert_parameters(arch) + shared_expert_parameters(arch) + latent_parameters(arch)
                 + router_parameters(arch))
    return (sum(count * attention_parameters(kind) for count, kind in arch.attention_kinds)
            + arch.num_index_layers * indexer_parameters(arch) + compressor_parameters(arch) + mixing_parameters(arch)
            + arch.num_linear_layers * linear_attention_parameters(arch)
            + (arch.num_dense_layers + arch.num_wide_layers) * mlp_parameters(arch) + per_layer_parameters(arch)
            + arch.num_moe_layers * moe_layer)
