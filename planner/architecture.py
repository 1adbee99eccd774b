"""The architecture of a language model, read from its Hugging Face config, and its parameter and KV counts."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    attention : "gqa" (multi-head and multi-query included) or "mla" (multi-head latent attention).
    q_lora_rank : rank of MLA's query projection, 0 where the query is not compressed or not MLA [1].
    kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim : MLA's shapes, 0 without MLA [1].
    sliding_window : window of the local layers, 0 where every layer sees all tokens [tokens].
    num_sliding_layers : layers with that window; Llama 4's chunked layers count as such [1].
    intermediate_size : width of a dense MLP [1].
    num_mlp_matrices : 3 in a gated MLP (gate, up, down), 2 otherwise [1].
    num_experts, num_experts_per_tok : routed experts of an MoE layer, and how many a token visits; 0 if dense [1].
    moe_intermediate_size, shared_intermediate_size : width of one routed expert; of all shared ones together [1].
    num_moe_layers : layers with routed experts [1].
    quantization : weight format of the published checkpoint, None where it is 16-bit.
    quantized_attention : whether the published checkpoint's attention has that format too (not in gpt-oss).

    Raises
    ------
    CatalogError
        Where the shapes contradict each other.
    """

    name: str
    model_type: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    tie_word_embeddings: bool
    attention: str
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    sliding_window: int
    num_sliding_layers: int
    intermediate_size: int
    num_mlp_matrices: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int
    num_moe_layers: int
    quantization: str | None
    quantized_attention: bool

    def __post_init__(self) -> None:
        if self.attention == "gqa" and self.num_attention_heads % self.num_kv_heads:
            raise CatalogError(f"{self.name}: num_key_value_heads = {self.num_kv_heads} must divide "
                               f"num_attention_heads = {self.num_attention_heads}; check the config")
        if self.num_experts_per_tok > self.num_experts:
            raise CatalogError(f"{self.name}: num_experts_per_tok = {self.num_experts_per_tok} must be <= the number "
                               f"of experts, {self.num_experts}; check the config")

    @property
    def num_dense_layers(self) -> int:
        """Layers with a dense MLP instead of routed experts."""
        return self.num_layers - self.num_moe_layers


def architecture_from_config(config: Mapping[str, object], *, name: str, where: str) -> Architecture:
    """Read an architecture from the keys of a Hugging Face `config.json`.

    Parameters
    ----------
    config : the parsed file; the language model of a multimodal one is looked up in `text_config`.
    name : name that results will carry.
    where : file, for error messages.

    Raises
    ------
    CatalogError
        Where the architecture is unknown, or a key is missing or no positive integer.

    Notes
    -----
    Keys that Hugging Face's config class fills in (Gemma 3 omits most) take its value. Multi-token-prediction layers
    and vision towers are left out: the memory that they take is missing.
    """
    merged = _language_model(config)
    model_type = _model_type(merged, where)
    keys = _Keys({**_CLASS_DEFAULTS.get(model_type, {}), **merged}, where)
    num_layers, hidden_size = keys.integer("num_hidden_layers"), keys.integer("hidden_size")
    num_heads = keys.integer("num_attention_heads")
    max_model_len = _max_model_len(keys, model_type)
    window, num_sliding_layers = _sliding(keys, model_type, num_layers, max_model_len)
    quantization, quantized_attention = _native_quantization(keys)
    is_mla = "kv_lora_rank" in keys.config
    return Architecture(
        name=name, model_type=model_type, num_layers=num_layers, hidden_size=hidden_size,
        num_attention_heads=num_heads, num_kv_heads=keys.integer("num_key_value_heads", num_heads),
        head_dim=keys.integer("head_dim", hidden_size // num_heads), vocab_size=keys.integer("vocab_size"),
        max_model_len=max_model_len, tie_word_embeddings=bool(keys.config.get("tie_word_embeddings", False)),
        attention="mla" if is_mla else "gqa", q_lora_rank=keys.integer("q_lora_rank", 0) if is_mla else 0,
        **{key: keys.integer(key) if is_mla else 0 for key in _MLA_KEYS},
        sliding_window=window, num_sliding_layers=num_sliding_layers,
        intermediate_size=keys.integer("intermediate_size_mlp" if model_type == "llama4_text" else "intermediate_size"),
        num_mlp_matrices=2 if model_type == "phi" else 3,
        quantization=quantization, quantized_attention=quantized_attention, **_experts(keys, model_type, num_layers),
    )


def attention_parameters(arch: Architecture) -> int:
    """Parameters of one layer's attention projections.

    GQA: h·d·(2·H + 2·K). MLA: the query (h·r_q + r_q·H·(d_nope + d_rope), or h·H·(d_nope + d_rope) uncompressed),
    h·(r_kv + d_rope), r_kv·H·(d_nope + d_v) and H·d_v·h. Biases and norms are left out: too low by < 0.1 %.

    Source: Ainslie et al., GQA, 2023; DeepSeek-V2, 2024, section 2.1.

    >>> from planner.catalog import load_model
    >>> attention_parameters(load_model("llama-3.1-8b"))
    41943040
    """
    if arch.attention == "gqa":
        return 2 * arch.hidden_size * arch.head_dim * (arch.num_attention_heads + arch.num_kv_heads)
    query_width = arch.num_attention_heads * (arch.qk_nope_head_dim + arch.qk_rope_head_dim)
    query = (arch.q_lora_rank * (arch.hidden_size + query_width) if arch.q_lora_rank
             else arch.hidden_size * query_width)
    latent = arch.hidden_size * (arch.kv_lora_rank + arch.qk_rope_head_dim)
    expansion = arch.kv_lora_rank * arch.num_attention_heads * (arch.qk_nope_head_dim + arch.v_head_dim)
    return query + latent + expansion + arch.num_attention_heads * arch.v_head_dim * arch.hidden_size


def mlp_parameters(arch: Architecture) -> int:
    """Parameters of one dense MLP: matrices · hidden_size · intermediate_size.

    >>> from planner.catalog import load_model
    >>> mlp_parameters(load_model("llama-3.1-8b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.intermediate_size


def expert_parameters(arch: Architecture) -> int:
    """Parameters of one routed expert: matrices · hidden_size · moe_intermediate_size; 0 in a dense model.

    >>> from planner.catalog import load_model
    >>> expert_parameters(load_model("mixtral-8x7b"))
    176160768
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.moe_intermediate_size


def shared_expert_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer that every token uses: its shared experts; 0 where there are none.

    >>> from planner.catalog import load_model
    >>> shared_expert_parameters(load_model("deepseek-v3"))
    44040192
    """
    return arch.num_mlp_matrices * arch.hidden_size * arch.shared_intermediate_size


def router_parameters(arch: Architecture) -> int:
    """Parameters of one MoE layer's router: hidden_size · num_experts.

    >>> from planner.catalog import load_model
    >>> router_parameters(load_model("mixtral-8x7b"))
    32768
    """
    return arch.hidden_size * arch.num_experts


def embedding_parameters(arch: Architecture) -> int:
    """Parameters of the input embedding and the LM head, counted once where they are tied.

    >>> from planner.catalog import load_model
    >>> embedding_parameters(load_model("llama-3.1-8b"))
    1050673152
    """
    return arch.vocab_size * arch.hidden_size * (1 if arch.tie_word_embeddings else 2)


def num_parameters(arch: Architecture) -> int:
    """All parameters of the model, without norms and biases.

    >>> from planner.catalog import load_model
    >>> round(num_parameters(load_model("llama-3.1-8b")) / 1e9, 2)
    8.03
    """
    return embedding_parameters(arch) + _layer_parameters(arch, arch.num_experts)


def num_active_parameters(arch: Architecture) -> int:
    """Parameters that one token is multiplied with: its experts only, the LM head, not the embedding look-up.

    Publishers who count the embedding table too (Qwen) state vocab_size · hidden_size more.

    >>> from planner.catalog import load_model
    >>> round(num_active_parameters(load_model("gpt-oss-120b")) / 1e9, 1)
    5.1
    """
    return arch.vocab_size * arch.hidden_size + _layer_parameters(arch, arch.num_experts_per_tok)


def kv_bytes_per_token(arch: Architecture, kv_bytes_per_element: float) -> float:
    """KV cache of one token over all layers and GPUs, each value stored once [bytes].

    GQA: 2 · layers · kv_heads · head_dim · bytes. MLA: layers · (kv_lora_rank + qk_rope_head_dim) · bytes.
    Sliding layers count in full, so for a context beyond the window it is too high.

    Source: Kwon et al., PagedAttention, 2023; DeepSeek-V2, 2024, table 1.

    >>> from planner.catalog import load_model
    >>> kv_bytes_per_token(load_model("llama-3.1-8b"), 2)
    131072
    """
    return arch.num_layers * _kv_elements(arch, 1) * kv_bytes_per_element


def kv_bytes_per_token_per_gpu(arch: Architecture, kv_bytes_per_element: float, tensor_parallel_size: int,
                               pipeline_parallel_size: int) -> float:
    """KV cache of one token on the GPU that holds most of it [bytes].

    Layers are split over pipeline stages and KV heads over tensor-parallel ranks, both rounded up. A KV head is
    replicated where there are more ranks than heads, and so is MLA's latent on every rank.

    >>> from planner.catalog import load_model
    >>> kv_bytes_per_token_per_gpu(load_model("llama-3.1-8b"), 2, 16, 1)  # 8 KV heads: two ranks hold each
    16384
    """
    num_layers = -(-arch.num_layers // pipeline_parallel_size)
    return num_layers * _kv_elements(arch, tensor_parallel_size) * kv_bytes_per_element


def _kv_elements(arch: Architecture, tensor_parallel_size: int) -> int:
    """KV values of one token, layer and tensor-parallel rank [1]."""
    if arch.attention == "mla":
        return arch.kv_lora_rank + arch.qk_rope_head_dim
    return 2 * -(-arch.num_kv_heads // tensor_parallel_size) * arch.head_dim


def _layer_parameters(arch: Architecture, num_experts: int) -> int:
    """Parameters of all layers, with `num_experts` routed experts counted in each MoE layer."""
    moe_layer = num_experts * expert_parameters(arch) + shared_expert_parameters(arch) + router_parameters(arch)
    return (arch.num_layers * attention_parameters(arch) + arch.num_dense_layers * mlp_parameters(arch)
            + arch.num_moe_layers * moe_layer)


_MLA_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

_STEP_KEYS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")
_MOE_KEYS = {  # model_type -> keys of the number of experts and of one expert's width
    "mixtral": ("num_local_experts", "intermediate_size"), "minimax_m2": ("num_local_experts", "intermediate_size"),
    "gpt_oss": ("num_local_experts", "intermediate_size"), "llama4_text": ("num_local_experts", "intermediate_size"),
    "qwen2_moe": ("num_experts", "moe_intermediate_size"), "qwen3_moe": ("num_experts", "moe_intermediate_size"),
    "deepseek_v2": ("n_routed_experts", "moe_intermediate_size"),
    "deepseek_v3": ("n_routed_experts", "moe_intermediate_size"),
    "kimi_k2": ("n_routed_experts", "moe_intermediate_size"),
}
_SUPPORTED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", *_MOE_KEYS)
_WRAPPERS = {"gemma3": "gemma3_text", "llama4": "llama4_text", "kimi_k25": "kimi_k2", "mistral3": "mistral"}

_CLASS_DEFAULTS: dict[str, dict[str, object]] = {  # what Hugging Face's config classes fill in
    "gemma": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True},
    "gemma3_text": {"tie_word_embeddings": True, "vocab_size": 262208, "max_position_embeddings": 131072,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
}


@dataclass(frozen=True, slots=True)
class _Keys:
    """A config and the file that it came from."""

    config: Mapping[str, object]
    where: str

    def integer(self, key: str, default: int | None = None) -> int:
        """The positive integer at `key`; `default` where it is absent or null."""
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise CatalogError(f"{self.where}: {key} is missing; copy it from the model's config.json")
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if default == 0 else 1):
            raise CatalogError(f"{self.where}: {key} = {value!r}; must be a positive integer")
        return value


def _language_model(config: Mapping[str, object]) -> dict[str, object]:
    """The keys of the language model, those of a multimodal wrapper behind them."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, Mapping) else dict(config)


def _model_type(config: Mapping[str, object], where: str) -> str:
    """The supported model type of a config."""
    value = config.get("model_type")
    if value is None:
        raise CatalogError(f"{where}: model_type is missing; copy it from the model's config.json")
    model_type = _WRAPPERS.get(str(value), str(value))
    if model_type not in _SUPPORTED:
        close = difflib.get_close_matches(model_type, _SUPPORTED, n=1, cutoff=0.4)
        hint = f" (nearest: {close[0]!r}, if the layers are the same)" if close else ""
        raise CatalogError(f"{where}: model_type = {value!r} is not supported{hint}; "
                           f"supported: {', '.join(sorted(_SUPPORTED))}")
    return model_type


def _max_model_len(keys: _Keys, model_type: str) -> int:
    """Positions that the model reaches: YaRN counts from its original length, other scalings multiply [tokens]."""
    positions = keys.integer("max_position_embeddings")
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or model_type == "gemma3_text":  # Gemma 3 states the scaled length
        return positions
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        positions = int(scaling.get("original_max_position_embeddings", positions))
    return int(positions * float(scaling.get("factor", 1))) if kind in ("yarn", "linear", "dynamic") else positions


def _sliding(keys: _Keys, model_type: str, num_layers: int, max_model_len: int) -> tuple[int, int]:
    """Window [tokens] and number of the layers that have it."""
    window = keys.integer("attention_chunk_size" if model_type == "llama4_text" else "sliding_window", 0)
    layer_types = keys.config.get("layer_types")
    if isinstance(layer_types, Sequence):
        count = sum(kind in ("sliding_attention", "chunked_attention") for kind in layer_types)
    elif model_type in ("gemma2", "gpt_oss"):
        count = (num_layers + 1) // 2
    elif model_type in ("gemma3_text", "llama4_text"):
        count = num_layers - num_layers // keys.integer("sliding_window_pattern", 6 if model_type[:5] == "gemma" else 4)
    elif model_type.startswith("qwen"):
        first = keys.integer("max_window_layers", 0)
        count = max(0, num_layers - first) if keys.config.get("use_sliding_window") else 0
    else:
        count = num_layers
    return (window, count) if 0 < window < max_model_len and count else (0, 0)


def _experts(keys: _Keys, model_type: str, num_layers: int) -> dict[str, int]:
    """The MoE fields of an architecture, zeros where it is dense."""
    fields = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_intermediate_size",
              "num_moe_layers")
    if model_type not in _MOE_KEYS:
        return dict.fromkeys(fields, 0)
    count_key, width_key = _MOE_KEYS[model_type]
    width = keys.integer(width_key)
    shared = (width if model_type == "llama4_text" else keys.integer("shared_expert_intermediate_size", 0)
              + keys.integer("n_shared_experts", 0) * width)
    step = keys.integer(next((key for key in _STEP_KEYS if key in keys.config), "moe_layer_freq"), 1)
    dense_only = keys.config.get("mlp_only_layers")
    dense = set(dense_only) if isinstance(dense_only, Sequence) else set()
    first = keys.integer("first_k_dense_replace", 0)
    offset = 0 if model_type.startswith(("deepseek", "kimi")) else 1  # others start at the step's last layer
    num_moe = sum((layer + offset) % step == 0 for layer in range(first, num_layers) if layer not in dense)
    return dict(zip(fields, (keys.integer(count_key), keys.integer("num_experts_per_tok"), width, shared, num_moe),
                    strict=True))


def _native_quantization(keys: _Keys) -> tuple[str | None, bool]:
    """Weight format of the checkpoint, and whether its attention has it too."""
    given = keys.config.get("quantization_config")
    if not isinstance(given, Mapping):
        return None, True
    method = str(given.get("quant_method", given.get("quant_algo")))
    kept = [str(part) for key in ("modules_to_not_convert", "ignore") for part in given.get(key) or ()]
    attention = not any("self_attn" in part for part in kept)
    if method in ("fp8", "fbgemm_fp8", "mxfp4", "awq", "gptq"):
        return method.removeprefix("fbgemm_"), attention
    if method == "modelopt":
        return str(given.get("quant_algo")).lower(), attention
    groups = given.get("config_groups")
    for group in groups.values() if method == "compressed-tensors" and isinstance(groups, Mapping) else ():
        weights = group.get("weights", {})
        kind = (weights.get("num_bits"), weights.get("type"))
        names = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): "int4"}
        if kind in names:
            narrow = kind == (4, "int") and (weights.get("group_size") or 128) <= 32
            return "int4-g32" if narrow else names[kind], attention
    raise CatalogError(f"{keys.where}: quantization_config.quant_method = {method!r} is not supported; remove "
                       "quantization_config and give the weight format with --quantization")
