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
    attention : of the layers that have a KV cache: "gqa" (multi-head and multi-query included), "mla" (multi-head
        latent attention) or "csa" (compressed sparse attention: one entry for several tokens is key and value of all
        heads, beside a window of the last tokens).
    qk_norm_over_heads : whether query and key are normalised over all heads together, not head by head.
    attn_output_gate : whether attention's output has a gate: in GQA the query projection is twice as wide for it, MLA
        has a projection more.
    q_lora_rank : rank of the query projection of MLA and CSA, 0 where the query is not compressed [1].
    o_groups, o_lora_rank : groups of heads whose outputs CSA projects by themselves, and to what rank; 0 without [1].
    kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim : MLA's shapes, 0 without MLA [1]; of CSA the third.
    num_sparse_layers : layers that attend to what an indexer chose: all with DeepSeek sparse attention (DSA), most with
        MiniMax's, which chooses blocks of keys for GQA; 0 without an indexer, and in CSA [1].
    index_n_heads, index_head_dim : shapes of the indexer, 0 without one [1].
    index_topk : tokens that the indexer leaves to a query of the main attention, 0 without one [tokens].
    num_index_layers : layers that run an indexer; the others of a DSA model reuse its choice [1].
    index_rate : tokens that one entry stands for where an indexer chooses among entries: 4 in CSA, else 1 [tokens].
    num_hca_layers, hca_rate : CSA layers that attend to all entries, of so many tokens each ("heavily compressed"); the
        rest have the window alone; 0 without CSA [1], [tokens].
    num_residual_streams : hidden states side by side from layer to layer: 4 in DeepSeek-V4 (mHC), else 1 [1].
    attn_res_block_size : layers after which the hidden state is kept, for attention over these states in place of a
        residual (Kimi-K3), 0 without [1].
    num_mlp_layers : layers with a dense MLP or routed experts: all in most models; fewer in Nemotron-H, more where
        layers have lost their attention (Nemotron-NAS) [1].
    num_linear_layers : layers with linear attention instead, a state of fixed size and no KV cache [1].
    linear_attention : its kind: "gdn" (gated delta net), "kda" (Kimi delta attention, whose decay differs by channel),
        or "mamba" (Mamba-2, whose groups are keys and whose state size is their width); "" without any.
    linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim :
        their shapes, 0 without them [1].
    linear_decay_rank, linear_gate_rank : ranks of the projections to KDA's decays and output gates, 0 where a gate's is
        full [1].
    linear_state_bytes_per_element : of their recurrent state, 4 where the config asks for FP32 [B].
    sliding_window : window of the local layers, 0 where every layer sees all tokens [tokens].
    num_sliding_layers : layers with that window; Llama 4's chunked layers count as such [1].
    sliding_num_heads, sliding_num_kv_heads, sliding_head_dim : of the local layers where they differ, else 0 [1].
    num_kv_shared_layers, num_kv_shared_sliding_layers : layers that read the KV cache of an earlier layer of their kind
        and keep none, those with a window apart (Gemma 4's E2B and E4B) [1].
    key_is_value : whether layers that see all tokens take their keys, projected once, as values too (Gemma 4).
    intermediate_size : width of a dense MLP, the mean where layers differ, 0 where all are MoE layers and the
        config names none [1].
    adds_up_once : whether tensor-parallel ranks add up attention and MLP of a layer together, which read one hidden
        state: so do vLLM and TensorRT-LLM with Falcon, and with no other whose halves are parallel (`falcon.py` of
        vLLM, models/falcon/model.py of TensorRT-LLM).
    num_wide_layers : layers whose dense MLP is twice as wide [1].
    per_layer_input_size : width of what each layer has of a token in an embedding of its own, 0 without one [1].
    num_mlp_matrices : 3 in a gated MLP (gate, up, down), 2 otherwise [1].
    num_experts, num_experts_per_tok : routed experts of an MoE layer, and how many a token visits; 0 if dense [1].
    moe_intermediate_size, shared_intermediate_size : width of one routed expert; of all shared ones together [1].
    moe_latent_size : width of the latent that routed experts work on, projected to and back, 0 without one [1].
    num_moe_layers : layers with routed experts [1].
    quantization : weight format of the published checkpoint, None where it is 16-bit.
    expert_quantization : of its routed experts, None where it is the same.
    attention_quantization : of its attention, linear attention included, None where it is the same; "bf16" in gpt-oss.
    kv_cache_dtype : of the KV cache that the published checkpoint has scales for, None where it names none.

    Raises
    ------
    CatalogError
        Where the shapes contradict each other.
    """

    name: str
    model_type: str
    num_layers: int
    num_mlp_layers: int
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
    o_groups: int
    o_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    num_sparse_layers: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    num_index_layers: int
    index_rate: int
    num_hca_layers: int
    hca_rate: int
    num_residual_streams: int
    attn_res_block_size: int
    num_linear_layers: int
    linear_attention: str
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    linear_decay_rank: int
    linear_gate_rank: int
    linear_state_bytes_per_element: int
    sliding_window: int
    num_sliding_layers: int
    sliding_num_heads: int
    sliding_num_kv_heads: int
    sliding_head_dim: int
    num_kv_shared_layers: int
    num_kv_shared_sliding_layers: int
    key_is_value: bool
    intermediate_size: int
    adds_up_once: bool
    num_wide_layers: int
    per_layer_input_size: int
    num_mlp_matrices: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int
    moe_latent_size: int
    num_moe_layers: int
    quantization: str | None
    expert_quantization: str | None
    attention_quantization: str | None
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
        if self.o_groups and self.num_attention_heads % self.o_groups:
            raise CatalogError(f"{self.name}: o_groups = {self.o_groups} must divide num_attention_heads = "
                               f"{self.num_attention_heads}; check the config")
        if self.index_topk and self.attention != "gqa" and not self.q_lora_rank:
            raise CatalogError(f"{self.name}: index_topk = {self.index_topk} needs q_lora_rank, which the indexer's "
                               "queries come from; check the config")

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
    def num_halves(self) -> int:
        """Attention and MLPs, two a layer in most models; a norm precedes each."""
        return self.num_layers + self.num_mlp_layers

    @property
    def is_block_sparse(self) -> bool:
        """Whether an indexer chooses blocks of keys for GQA (MiniMax sparse attention)."""
        return self.attention == "gqa" and self.index_topk > 0

    @property
    def has_even_layers(self) -> bool:
        """Whether all layers keep as much of each token, however long the context is: no windows, no states."""
        return not self.num_sliding_layers and not self.num_linear_layers and self.attention != "csa"

    @property
    def linear_scalars_per_head(self) -> int:
        """What is projected for each value head: decay and rate, in KDA the rate and in Mamba-2 the step alone [1]."""
        return {"": 0, "gdn": 2}.get(self.linear_attention, 1)

    @property
    def linear_key_width(self) -> int:
        """Width of a linear layer's query, and of its key [1]."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_width(self) -> int:
        """Width of a linear layer's value, and of its output gate [1]."""
        return self.linear_num_value_heads * self.linear_value_head_dim
