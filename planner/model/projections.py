"""The dense matrix products of one forward pass on one GPU: their shapes, as vLLM fuses and shards them."""

from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.parameters import compressor_widths, mixing_width


@dataclass(frozen=True, slots=True)
class Gemm:
    """One kind of dense matrix product, tokens x k times k x n, and how many layers have it.

    Parameters
    ----------
    name : vLLM's name of the module.
    n, k : output and input features on one GPU [1].
    count : layers that have it [1].
    part : "attention" (linear attention included) or "mlp", of which a checkpoint may have each in a format of its
        own, or "kept": what it keeps in 16 bit.
    """

    name: str
    n: int
    k: int
    count: int
    part: str

    @property
    def parameters(self) -> int:
        """Weights of all its layers on one GPU [1]."""
        return self.n * self.k * self.count


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
        In the order of a layer: attention, indexer, linear attention, compressors, dense MLP, router, shared experts,
        what mixes residual streams, and what adds layers' own inputs. At one rank the sum of n · k · count is all of
        `num_parameters` but embeddings and routed experts (tested).

    Notes
    -----
    Column-parallel (n split): qkv_proj, q_b_proj, kv_b_proj, in_proj_*, gate_up_proj. Row-parallel (k split):
    o_proj, out_proj, down_proj. On every rank in full: the down-projections of MLA and CSA, the indexer, compressors,
    the router, what mixes residual streams; a KV head where there are more ranks than heads. Sizes that do not divide
    are rounded up.

    Decodes, and all tokens of sparse attention, do not run kv_b_proj but multiply its halves, head by head, with the
    query and with the output (absorbed): as many weights read, products of H matrices.

    >>> from planner.catalog.catalog_files import load_model
    >>> projections(load_model("llama-3.1-8b"), 2)[0]
    Gemm(name='qkv_proj', n=3072, k=4096, count=32, part='attention')
    """
    gemms = (*attention_projections(arch, tensor_parallel_size), *_compressors(arch),
             *_mlps(arch, tensor_parallel_size), *_mixing(arch), *_layer_inputs(arch, tensor_parallel_size))
    return tuple(gemm for gemm in gemms if gemm.parameters)


def attention_projections(arch: Architecture, tensor_parallel_size: int) -> tuple[Gemm, ...]:
    """Those of `projections` that attention has, with an indexer's and linear attention's; without compressors.

    >>> from planner.catalog.catalog_files import load_model
    >>> sum(gemm.parameters for gemm in attention_projections(load_model("llama-3.1-8b"), 2)) / 32
    20971520.0
    """
    attention = {"gqa": _grouped_attention, "mla": _latent_attention, "csa": _compressed_attention}[arch.attention]
    return attention(arch, tensor_parallel_size) + _indexer(arch) + _linear_attention(arch, tensor_parallel_size)


def _grouped_attention(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """Query (with its gate), key and value in one, and an indexer's query and key; then the output; of each kind."""
    gemms: list[Gemm] = []
    indexed = arch.num_index_layers if arch.is_block_sparse else 0
    index_width = (-(-arch.index_n_heads // ranks) + 1) * arch.index_head_dim
    for count, kind in arch.attention_kinds:
        heads, kv_heads = -(-kind.num_attention_heads // ranks), -(-kind.num_kv_heads // ranks)
        width = kind.head_dim * ((1 + arch.attn_output_gate) * heads + (2 - kind.key_is_value) * kv_heads)
        gemms += [Gemm("qkv_proj", width, arch.hidden_size, count - indexed, "attention"),
                  Gemm("qkv_proj", width + index_width, arch.hidden_size, indexed, "attention"),
                  Gemm("o_proj", arch.hidden_size, kind.head_dim * heads, count, "attention")]
    return tuple(gemms)


def _latent_attention(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """Both down-projections in one where the query has one, the up-projections, a gate, and the output."""
    heads = -(-arch.num_attention_heads // ranks)
    hidden, latent = arch.hidden_size, arch.kv_lora_rank + arch.qk_rope_head_dim
    query_width = heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim)
    count = arch.num_attention_layers
    if arch.q_lora_rank:
        inputs = (Gemm("fused_qkv_a_proj", arch.q_lora_rank + latent, hidden, count, "attention"),
                  Gemm("q_b_proj", query_width, arch.q_lora_rank, count, "attention"))
    else:
        inputs = (Gemm("q_proj", query_width, hidden, count, "attention"),
                  Gemm("kv_a_proj_with_mqa", latent, hidden, count, "attention"))
    expanded = heads * (arch.qk_nope_head_dim + arch.v_head_dim)
    return (*inputs, Gemm("kv_b_proj", expanded, arch.kv_lora_rank, count, "attention"),
            Gemm("g_proj", heads * arch.v_head_dim if arch.attn_output_gate else 0, hidden, count, "attention"),
            Gemm("o_proj", hidden, heads * arch.v_head_dim, count, "attention"))


def _compressed_attention(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """The query's down-projection and the entry in one, the queries, and the output, a group of heads at a time."""
    heads, groups = -(-arch.num_attention_heads // ranks), -(-arch.o_groups // ranks)
    count = arch.num_attention_layers
    return (Gemm("fused_wqa_wkv", arch.q_lora_rank + arch.head_dim, arch.hidden_size, count, "attention"),
            Gemm("wq_b", heads * arch.head_dim, arch.q_lora_rank, count, "attention"),
            Gemm("wo_a", groups * arch.o_lora_rank, heads * arch.head_dim // groups, count, "attention"),
            Gemm("wo_b", arch.hidden_size, groups * arch.o_lora_rank, count, "attention"))


def _compressors(arch: Architecture) -> tuple[Gemm, ...]:
    """What compressors make entries of, values and gates in one; 16-bit."""
    return tuple(Gemm("fused_wkv_wgate", width, arch.hidden_size, count, "kept")
                 for count, width in compressor_widths(arch))


def _mixing(arch: Architecture) -> tuple[Gemm, ...]:
    """The weights of residual streams before each half of a layer, of all streams together."""
    width = arch.num_residual_streams * arch.hidden_size
    return (Gemm("hc_fn", mixing_width(arch), width, arch.num_halves, "kept"),)


def _indexer(arch: Architecture) -> tuple[Gemm, ...]:
    """The indexer's queries, its key and the weights of its heads, which stay 16-bit; GQA's are in its own product."""
    if arch.is_block_sparse:
        return ()
    width, count = arch.index_n_heads * arch.index_head_dim, arch.num_index_layers
    key = 0 if arch.attention == "csa" else arch.index_head_dim  # CSA's has a compressor
    return (Gemm("indexer.wq_b", width, arch.q_lora_rank, count, "attention"),
            Gemm("indexer.wk", key, arch.hidden_size, count, "attention"),
            Gemm("indexer.weights_proj", arch.index_n_heads, arch.hidden_size, count, "kept"))


def _linear_attention(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """Query, key, value and gate in one; scalars of a value head and what has a low rank, in 16 bit; then the output.

    What goes to a low rank is on every rank in full.
    """
    decay, gate = arch.linear_decay_rank, arch.linear_gate_rank
    width = -(-(2 * arch.linear_key_width + (1 if gate else 2) * arch.linear_value_width) // ranks)
    scalars = -(-arch.linear_scalars_per_head * arch.linear_num_value_heads // ranks)
    value_width = -(-arch.linear_value_width // ranks)
    count = arch.num_linear_layers
    return (Gemm("in_proj_qkvz", width, arch.hidden_size, count, "attention"),
            Gemm("in_proj_ba", scalars + decay + gate, arch.hidden_size, count, "kept"),
            Gemm("f_b_proj", -(-arch.linear_key_width // ranks), decay, count, "kept"),
            Gemm("g_b_proj", value_width, gate, count, "kept"),
            Gemm("out_proj", arch.hidden_size, value_width, count, "attention"))


def _mlps(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """The dense MLPs, the routers, which stay 16-bit, projections to a latent and back, and the shared experts."""
    hidden, inputs = arch.hidden_size, arch.num_mlp_matrices - 1  # gate and up in one
    dense, shared = -(-arch.intermediate_size // ranks), -(-arch.shared_intermediate_size // ranks)
    wide, usual = arch.num_wide_layers, arch.num_dense_layers - arch.num_wide_layers
    return (Gemm("gate_up_proj", inputs * dense, hidden, usual, "mlp"),
            Gemm("down_proj", hidden, dense, usual, "mlp"),
            Gemm("gate_up_proj", 2 * inputs * dense, hidden, wide, "mlp"),
            Gemm("down_proj", hidden, 2 * dense, wide, "mlp"),
            Gemm("router", arch.num_experts, hidden, arch.num_moe_layers, "kept"),
            Gemm("latent_down_proj", arch.moe_latent_size, hidden, arch.num_moe_layers, "mlp"),
            Gemm("latent_up_proj", hidden, arch.moe_latent_size, arch.num_moe_layers, "mlp"),
            Gemm("shared_gate_up_proj", inputs * shared, hidden, arch.num_moe_layers, "mlp"),
            Gemm("shared_down_proj", hidden, shared, arch.num_moe_layers, "mlp"))


def _layer_inputs(arch: Architecture, ranks: int) -> tuple[Gemm, ...]:
    """Layers' own inputs, of all layers in one product; in each layer their gate and what adds them."""
    hidden, width, count = arch.hidden_size, arch.per_layer_input_size, arch.num_layers
    return (Gemm("per_layer_model_projection", -(-count * width // ranks), hidden, 1, "mlp"),
            Gemm("per_layer_input_gate", width, hidden, count, "mlp"),
            Gemm("per_layer_projection", hidden, width, count, "mlp"))
