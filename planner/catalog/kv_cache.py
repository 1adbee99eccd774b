"""Memory of the KV cache of a token, and of the recurrent states of a sequence."""

from planner.catalog.architecture import Architecture
from planner.catalog.attention_reads import Reading, readings

INDEX_BLOCK = 128  # values of an indexer's key, and of a sparse FP8 latent, that share one FP32 scale
ENTRY_BLOCK = 64  # values of an FP8 entry of CSA that share an 8-bit scale
CONV_STATE_BYTES_PER_ELEMENT = 2  # engines keep the convolution's last inputs in 16 bit
COMPRESSOR_BYTES_PER_ELEMENT = 4  # and what CSA's compressors have not made entries of in FP32


def kv_bytes_per_token(arch: Architecture, kv_bytes_per_element: float) -> float:
    """KV cache of one token over all layers and GPUs, each value stored once, the indexer's keys included [bytes].

    GQA: 2 · layers · kv_heads · head_dim · bytes. MLA: layers · (kv_lora_rank + qk_rope_head_dim) · bytes. CSA: an
    entry of head_dim for every 4 or 128 tokens. Linear layers have none, nor those that read an earlier layer's.
    Sliding layers count in full, so for a context beyond the window it is too high.

    With sparse attention an FP8 latent also has a scale for every 128 values, and keeps its rotary part in 16 bit
    (vLLM's `fp8_ds_mla`, 656 B a layer; of CSA 584, with an 8-bit scale for every 64), and the indexer's keys add
    `index_bytes_per_token`.

    Source: Kwon et al., PagedAttention, 2023; DeepSeek-V2, 2024, table 1; vLLM's `MLAAttentionSpec`.

    >>> from planner.catalog.catalog_files import load_model
    >>> kv_bytes_per_token(load_model("llama-3.1-8b"), 2)
    131072.0
    """
    return (sum(each.layers * _entries_kept(each) * layer_kv_bytes(each.kind, kv_bytes_per_element, 1)
                for each in readings(arch)) + index_bytes_per_token(arch))


def kv_bytes_per_token_per_gpu(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int,
                               pipeline_parallel_size: int) -> float:
    """KV cache of one token on the GPU that holds most of it, the indexer's keys included [bytes].

    Layers are split over pipeline stages and KV heads over tensor-parallel ranks, both rounded up. A KV head is
    replicated where there are more ranks than heads, and so are MLA's latent and the indexer's keys on every rank.

    >>> from planner.catalog.catalog_files import load_model
    >>> kv_bytes_per_token_per_gpu(load_model("llama-3.1-8b"), 2, 16, 1)  # 8 KV heads: two ranks hold each
    16384.0
    """
    num_index_layers = -(-arch.num_index_layers // pipeline_parallel_size)
    return num_index_layers * _index_bytes(arch) / arch.index_rate + sum(
        -(-each.layers // pipeline_parallel_size) * _entries_kept(each)
        * layer_kv_bytes(each.kind, kv_bytes_per_element, tensor_parallel_size) for each in readings(arch))


def windowed_share(arch: Architecture, tensor_parallel_size: int) -> float:
    """Return what of a token's KV cache on a GPU sliding layers hold, without the indexer's keys [1].

    >>> from planner.catalog.catalog_files import load_model
    >>> windowed_share(load_model("gpt-oss-120b"), 1)
    0.5
    """
    if not arch.sliding_head_dim:
        return arch.num_sliding_layers / arch.num_attention_layers
    full, local = (each.layers * _entries_kept(each) * layer_kv_bytes(each.kind, 1.0, tensor_parallel_size)
                   for each in readings(arch))
    return local / (full + local)


def index_bytes_per_token(arch: Architecture) -> float:
    """What the indexers read of one token of context, over all layers; every rank holds and reads all of it [bytes].

    layers · (index_head_dim + 4 · index_head_dim / 128): an FP8 key and its FP32 scale, whatever the KV cache's type;
    of CSA, one for every 4 tokens; of GQA, a key in 16 bit.

    Source: vLLM's `DeepseekV32IndexerCache`, DeepGEMM's `fp8_paged_mqa_logits`.

    >>> from planner.catalog.catalog_files import load_model
    >>> index_bytes_per_token(load_model("deepseek-v3.2")) / 61
    132.0
    """
    return arch.num_index_layers * _index_bytes(arch) / arch.index_rate


def state_bytes_per_seq(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int,
                        pipeline_parallel_size: int) -> int:
    """What one sequence keeps on the GPU that holds most of it, however long the sequence is [bytes].

    A linear layer has a recurrent state: V·d_v·d_k elements of state, and (kernel - 1)·(2·K·d_k + V·d_v) inputs of the
    convolution, which are 16-bit. Heads are split over tensor-parallel ranks, layers over stages. Speculative decoding
    and prefix caching keep further copies, which are left out. CSA has the window's tokens, on every rank, and what its
    compressors have not made entries of: of a sequence's last 8 or 128 tokens, projected.

    Source: vLLM's `MambaStateShapeCalculator.gated_delta_net_state_shape`.

    >>> from planner.catalog.catalog_files import load_model
    >>> state_bytes_per_seq(load_model("qwen3.5-397b-a17b"), 2, 1, 1) // 45  # FP32: 64 heads of 128 x 128
    4268032
    """
    if arch.attention == "csa":
        return _recent_bytes(arch, kv_bytes_per_element, pipeline_parallel_size)
    if not arch.num_linear_layers:
        return 0
    num_layers = -(-arch.num_linear_layers // pipeline_parallel_size)
    state = arch.linear_value_width * arch.linear_key_head_dim * arch.linear_state_bytes_per_element
    inputs = (arch.linear_conv_kernel_dim - 1) * (2 * arch.linear_key_width + arch.linear_value_width)
    return num_layers * -(-(state + inputs * CONV_STATE_BYTES_PER_ELEMENT) // tensor_parallel_size)


def layer_kv_bytes(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int) -> float:
    """KV cache of one entry, layer and tensor-parallel rank, without the indexer's keys [bytes]."""
    if arch.attention == "csa":
        rotary, rest = arch.qk_rope_head_dim, arch.head_dim - arch.qk_rope_head_dim
        return (rest + rest // ENTRY_BLOCK + 1 + 2 * rotary if kv_bytes_per_element == 1
                else arch.head_dim * kv_bytes_per_element)
    if arch.attention != "mla":
        return 2 * -(-arch.num_kv_heads // tensor_parallel_size) * arch.head_dim * kv_bytes_per_element
    if arch.index_topk and kv_bytes_per_element == 1:
        return arch.kv_lora_rank + 4 * arch.kv_lora_rank // INDEX_BLOCK + 2 * arch.qk_rope_head_dim
    return (arch.kv_lora_rank + arch.qk_rope_head_dim) * kv_bytes_per_element


def _recent_bytes(arch: Architecture, kv_bytes_per_element: float, pipeline_parallel_size: int) -> int:
    """The window of a CSA sequence, and its compressors' rows, on one rank [bytes]."""
    window = arch.num_attention_layers * arch.sliding_window * layer_kv_bytes(arch, kv_bytes_per_element, 1)
    overlapping = arch.num_index_layers * 2 * arch.index_rate * 4 * (arch.head_dim + arch.index_head_dim)
    rows = overlapping + arch.num_hca_layers * arch.hca_rate * 2 * arch.head_dim
    return -int(-(window + COMPRESSOR_BYTES_PER_ELEMENT * rows) // pipeline_parallel_size)


def _entries_kept(reading: Reading) -> float:
    """Entries that a layer of a kind keeps of a token in the mean: none where it reads an earlier layer's [1]."""
    if not reading.layers:
        return 0.0
    return (reading.context + reading.window) / reading.layers * (1 - reading.shared / reading.layers)


def _index_bytes(arch: Architecture) -> int:
    """The indexer's key of one token and layer [bytes]."""
    if arch.is_block_sparse:
        return 2 * arch.index_head_dim
    return arch.index_head_dim + 4 * arch.index_head_dim // INDEX_BLOCK
