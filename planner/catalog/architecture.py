"""The architecture of a language model: its shapes, and the parameters that follow from them."""

from dataclasses import dataclass, replace

from planner.errors import CatalogError


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The shapes of a decoder-only transformer.

    Parameters
    ----------
    name : catalog name, or the name of the user's file.
    model_type : Hugging Face `model_type` of the text model.
    num_layers, hidden_size, num_attention_heads, num_kv_heads, head_dim, vocab_size : as in the config [1];
        `head_dim` need not be hidden_size / num_attention_heads.
    max_model_len : longest context that the positions reach [tokens].
    tie_word_embeddings : whether the LM head is the input embedding.
    attention : of the layers that have a KV cache: "gqa" (multi-head and multi-query included) or "mla" (multi-head
        latent attention).
    qk_norm_over_heads : whether query and key are normalised over all heads together, not head by head.
    attn_output_gate : whether the query projection also gives a gate for attention's output, so is twice as wide.
    q_lora_rank : rank of MLA's query projection, 0 where the query is not compressed or not MLA [1].
    kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim : MLA's shapes, 0 without MLA [1].
    index_n_heads, index_head_dim : shapes of the indexer of DeepSeek sparse attention (DSA), 0 without one [1].
    index_topk : tokens that the indexer leaves to a query of the main attention, 0 without one [tokens].
    num_index_layers : layers that run an indexer; the others of a DSA model reuse its choice [1].
    num_bare_layers : layers with attention of either kind and no MLP behind it (Nemotron-H) [1].
    num_linear_layers : layers with linear attention instead, a state of fixed size and no KV cache: gated delta net, or
        Mamba-2, whose groups are keys and whose state size is their width [1].
    linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim :
        their shapes, 0 without them [1].
    linear_scalars_per_head : that are projected for each value head: decay and rate, in Mamba-2 the step alone [1].
    linear_state_bytes_per_element : of their recurrent state, 4 where the config asks for FP32 [B].
    sliding_window : window of the local layers, 0 where every layer sees all tokens [tokens].
    num_sliding_layers : layers with that window; Llama 4's chunked layers count as such [1].
    sliding_num_heads, sliding_num_kv_heads, sliding_head_dim : of the local layers where they differ, else 0 [1].
    key_is_value : whether layers that see all tokens take their keys, projected once, as values too (Gemma 4).
    intermediate_size : width of a dense MLP, 0 where every layer is an MoE and the config names none [1].
    num_mlp_matrices : 3 in a gated MLP (gate, up, down), 2 otherwise [1].
    num_experts, num_experts_per_tok : routed experts of an MoE layer, and how many a token visits; 0 if dense [1].
    moe_intermediate_size, shared_intermediate_size : width of one routed expert; of all shared ones together [1].
    moe_latent_size : width of the latent that routed experts work on, projected to and back, 0 without one [1].
    num_moe_layers : layers with routed experts [1].
    quantization : weight format of the published checkpoint, None where it is 16-bit.
    quantized_attention : whether the published checkpoint's attention, linear attention included, has that format too
        (not in gpt-oss).
    kv_cache_dtype : of the KV cache that the published checkpoint has scales for, None where it names none.

    Raises
    ------
    CatalogError
        Where the shapes contradict each other.
    """

    name: str
    model_type: str
    num_layers: int
    num_bare_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    tie_word_embeddings: bool
    attention: str
    qk_norm_over_heads: bool
    attn_output_gate: bool
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    num_index_layers: int
    num_linear_layers: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    linear_scalars_per_head: int
    linear_state_bytes_per_element: int
    sliding_window: int
    num_sliding_layers: int
    sliding_num_heads: int
    sliding_num_kv_heads: int
    sliding_head_dim: int
    key_is_value: bool
    intermediate_size: int
    num_mlp_matrices: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int
    moe_latent_size: int
    num_moe_layers: int
    quantization: str | None
    quantized_attention: bool
    kv_cache_dtype: str | None

    def __post_init__(self) -> None:
        if self.attention == "gqa" and self.num_attention_heads % self.num_kv_heads:
            raise CatalogError(f"{self.name}: num_key_value_heads = {self.num_kv_heads} must divide "
                               f"num_attention_heads = {self.num_attention_heads}; check the config")
        if self.num_experts_per_tok > self.num_experts:
            raise CatalogError(f"{self.name}: num_experts_per_tok = {self.num_experts_per_tok} must be <= the number "
                               f"of experts, {self.num_experts}; check the config")
        if self.num_linear_layers >= self.num_layers:
            raise CatalogError(f"{self.name}: {self.num_linear_layers} of {self.num_layers} layers are linear; at "
                               "least one must have full attention; check layer_types")
        if self.num_linear_layers and self.linear_num_value_heads % self.linear_num_key_heads:
            raise CatalogError(f"{self.name}: linear_num_key_heads = {self.linear_num_key_heads} must divide "
                               f"linear_num_value_heads = {self.linear_num_value_heads}; check the config")
        if self.index_topk and not self.q_lora_rank:
            raise CatalogError(f"{self.name}: index_topk = {self.index_topk} needs MLA with q_lora_rank, which the "
                               "indexer's queries come from; check the config")

    @property
    def num_mlp_layers(self) -> int:
        """Layers with a dense MLP or routed experts: all, in most models."""
        return self.num_layers - self.num_bare_layers

    @property
    def num_dense_layers(self) -> int:
        """Layers with a dense MLP instead of routed experts."""
        return self.num_mlp_layers - self.num_moe_layers

    @property
    def moe_hidden_size(self) -> int:
        """Width of what routed experts multiply: the hidden state, or a latent [1]."""
        return self.moe_latent_size or self.hidden_size

    @property
    def router_in_fp32(self) -> bool:
        """Whether engines keep the routers in 32 bit, whatever the weights are.

        So do vLLM, SGLang and TensorRT-LLM with MiniMax-M2, vLLM with GLM-4.5 (`gate` of minimax_m2.py, glm4_moe.py).
        """
        return self.model_type in ("minimax_m2", "glm4_moe")

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention over a KV cache, sliding ones included; the others are linear."""
        return self.num_layers - self.num_linear_layers

    @property
    def attention_kinds(self) -> tuple[tuple[int, "Architecture"], ...]:
        """Layers that have a KV cache, by their heads: how many, and the architecture as if all layers had these."""
        if not self.sliding_head_dim:
            return ((self.num_attention_layers, self),)
        full = replace(self, sliding_num_heads=0, sliding_num_kv_heads=0, sliding_head_dim=0)
        local = replace(full, num_attention_heads=self.sliding_num_heads, num_kv_heads=self.sliding_num_kv_heads,
                        head_dim=self.sliding_head_dim, key_is_value=False)
        return (self.num_attention_layers - self.num_sliding_layers, full), (self.num_sliding_layers, local)

    @property
    def runs_mamba(self) -> bool:
        """Whether linear layers are Mamba-2 and not a gated delta net."""
        return self.linear_scalars_per_head == 1

    @property
    def linear_key_width(self) -> int:
        """Width of a linear layer's query, and of its key [1]."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_width(self) -> int:
        """Width of a linear layer's value, and of its output gate [1]."""
        return self.linear_num_value_heads * self.linear_value_head_dim


def attention_parameters(arch: Architecture) -> int:
    """Parameters of one layer's attention projections, of a layer that has a KV cache; without the indexer's.

    Of a layer that sees all tokens, where sliding ones differ.

    GQA: h·d·(2·H + 2·K), and h·d·H more for an output gate. MLA: the query (h·r_q + r_q·H·(d_nope + d_rope), or
    h·H·(d_nope + d_rope) uncompressed), h·(r_kv + d_rope), r_kv·H·(d_nope + d_v) and H·d_v·h. Biases and norms are
    left out: too low by < 0.1 %.

    Source: Ainslie et al., GQA, 2023; DeepSeek-V2, 2024, section 2.1.

    >>> from planner.catalog.entries import load_model
    >>> attention_parameters(load_model("llama-3.1-8b"))
    41943040
    """
    if arch.attention == "gqa":
        query_heads = (2 + arch.attn_output_gate) * arch.num_attention_heads
        return arch.hidden_size * arch.head_dim * (query_heads + (2 - arch.key_is_value) * arch.num_kv_heads)
    query_width = arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim)
    query = (arch.q_lora_rank * (arch.hidden_size + query_width) if arch.q_lora_rank
             else arch.hidden_size * query_width)
    latent = arch.hidden_size * (arch.kv_lora_rank + arch.qk_rope_head_dim)
    expansion = arch.kv_lora_rank * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.v_head_dim)
    return query + latent + expansion + arch.num_attention_heads * arch.v_head_dim * arch.hidden_size


def indexer_parameters(arch: Architecture) -> int:
    """Parameters of one layer's indexer: r_q·H_i·d_i + h·d_i + h·H_i; 0 without sparse attention.

    Source: DeepSeek-V3.2-Exp, 2025, section 2.1, and its inference code.

    >>> from planner.catalog.entries import load_model
    >>> indexer_parameters(load_model("glm-5"))
    9371648
    """
    width = arch.index_n_heads * arch.index_head_dim
    return arch.q_lora_rank * width + arch.hidden_size * (arch.index_head_dim + arch.index_n_heads)


def linear_attention_parameters(arch: Architecture) -> int:
    """Parameters of one linear layer's projections; 0 where there are none.

    Query, key, value and gate h·(2·K·d_k + 2·V·d_v), scalars s·h·V, output V·d_v·h. The convolution, the decays and the
    norms are left out: too low by < 0.1 %.

    Source: Yang et al., Gated Delta Networks, 2024; transformers' `modeling_qwen3_next.py`.

    >>> from planner.catalog.entries import load_model
    >>> linear_attention_parameters(load_model("qwen3-next-80b-a3b"))
    33685504
    """
    scalars = arch.linear_scalars_per_head * arch.linear_num_value_heads
    return arch.hidden_size * (2 * arch.linear_key_width + 3 * arch.linear_value_width + scalars)


def mlp_parameters(arch: Architecture) -> int:
    """Parameters of one dense MLP: matrices · hidden_size · intermediate_size.

    >>> from planner.catalog.entries import load_model
    >>> mlp_parameters(load_model("llama-3.1-8b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.intermediate_size


def expert_parameters(arch: Architecture) -> int:
    """Parameters of one routed expert: matrices · hidden_size (or latent) · moe_intermediate_size; 0 in a dense model.

    >>> from planner.catalog.entries import load_model
    >>> expert_parameters(load_model("mixtral-8x7b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.moe_hidden_size * arch.moe_intermediate_size


def shared_expert_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer that every token uses: its shared experts; 0 where there are none.

    The gate of Qwen's shared expert, hidden_size parameters, is left out.

    >>> from planner.catalog.entries import load_model
    >>> shared_expert_parameters(load_model("deepseek-v3"))
    44040192
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.shared_intermediate_size


def latent_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer's projections to a latent and back, which every rank has; 0 without one.

    >>> from planner.catalog.entries import load_model
    >>> latent_parameters(load_model("nemotron-3-nano-30b-a3b"))
    0
    """
    return 2 * arch.hidden_size * arch.moe_latent_size


def router_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer's router: hidden_size · num_experts.

    >>> from planner.catalog.entries import load_model
    >>> router_parameters(load_model("mixtral-8x7b"))
    32768
    """
    return arch.hidden_size * arch.num_experts


def embedding_parameters(arch: Architecture) -> int:
    """Parameters of the input embedding and the LM head, counted once where they are tied.

    >>> from planner.catalog.entries import load_model
    >>> embedding_parameters(load_model("llama-3.1-8b"))
    1050673152
    """
    return arch.vocab_size * arch.hidden_size * (1 if arch.tie_word_embeddings else 2)


def num_parameters(arch: Architecture) -> int:
    """All parameters of the model, without norms and biases.

    >>> from planner.catalog.entries import load_model
    >>> round(num_parameters(load_model("llama-3.1-8b")) / 1e9, 2)
    8.03
    """
    return embedding_parameters(arch) + _layer_parameters(arch, arch.num_experts)


def num_active_parameters(arch: Architecture) -> int:
    """Parameters that one token is multiplied with: its experts only, the LM head, not the embedding look-up.

    Publishers who count the embedding table too (Qwen) state vocab_size · hidden_size more.

    >>> from planner.catalog.entries import load_model
    >>> round(num_active_parameters(load_model("gpt-oss-120b")) / 1e9, 1)
    5.1
    """
    return arch.vocab_size * arch.hidden_size + _layer_parameters(arch, arch.num_experts_per_tok)


def by_window(arch: Architecture) -> list[tuple[int, int, Architecture]]:
    """Return the kinds of layers with a KV cache: those that see all tokens, those with a window, and their heads.

    Layers with sparse attention have one, of the tokens that their indexer leaves.

    >>> from planner.catalog.entries import load_model
    >>> [(full, windowed, kind.name) for full, windowed, kind in by_window(load_model("gpt-oss-120b"))]
    [(18, 18, 'gpt-oss-120b')]
    """
    windowed = arch.num_attention_layers if arch.index_topk else arch.num_sliding_layers
    if not arch.sliding_head_dim:
        return [(arch.num_attention_layers - windowed, windowed, arch)]
    (full, of_full), (windowed, of_windowed) = arch.attention_kinds
    return [(full, 0, of_full), (0, windowed, of_windowed)]


def attention_flops_per_pair(arch: Architecture, *, is_decode: bool) -> float:
    """Return the arithmetic of one query token attending to one key in one layer, all heads [FLOP].

    GQA: QK^T and PV, 4 · heads · head_dim. MLA in prefill multiplies the expanded keys and values; in decode the
    latent itself (absorbed projections), 2 · heads · (2 · kv_lora_rank + qk_rope_head_dim).

    >>> from planner.catalog.entries import load_model
    >>> attention_flops_per_pair(load_model("llama-3.1-8b"), is_decode=True)
    16384.0
    """
    if arch.attention != "mla":
        return 4.0 * arch.num_attention_heads * arch.head_dim
    if is_decode:
        return 2.0 * arch.num_attention_heads * (2 * arch.kv_lora_rank + arch.qk_rope_head_dim)
    return 2.0 * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim + arch.v_head_dim)


def _layer_parameters(arch: Architecture, num_experts: int) -> int:
    """Parameters of all layers, with `num_experts` routed experts counted in each MoE layer."""
    moe_layer = (num_experts * expert_parameters(arch) + shared_expert_parameters(arch) + latent_parameters(arch)
                 + router_parameters(arch))
    return (sum(count * attention_parameters(kind) for count, kind in arch.attention_kinds)
            + arch.num_index_layers * indexer_parameters(arch)
            + arch.num_linear_layers * linear_attention_parameters(arch)
            + arch.num_dense_layers * mlp_parameters(arch) + arch.num_moe_layers * moe_layer)
