"""The architecture of a language model: groups of layers, and the model's parts around them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from planner.catalog.layers.layer_group import Attention, LayerGroup
from planner.catalog.layers.mlps import Dense, Experts, Mlp, MlpGroup
from planner.catalog.pooling import Pooling
from planner.catalog.vision import Vision
from planner.errors import CatalogError

M = TypeVar("M", bound=Mlp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The shapes of a transformer of one stack, a decoder or an encoder: a list of layers.

    Parameters
    ----------
    name : as the user asked for it, or the name of the user's file.
    profile : catalog name, if the user asked for the model by another one; else empty.
    model_type : Hugging Face `model_type` of the text model.
    hidden_size, vocab_size : as in the config [1].
    max_model_len : longest context that the positions reach [tokens].
    original_model_len : of it before LongRoPE extends the positions; 0 without LongRoPE [tokens].
    tie_word_embeddings : whether the LM head is the input embedding.
    layers : groups of layers with attention of any kind: first with a KV cache, of these first with a view of all
        tokens.
    mlps : groups of layers with an MLP, dense ones first: all layers in most models; fewer in Nemotron-H, more where
        layers have lost their attention (Nemotron-NAS). Which MLP stands behind which attention changes no number.
    dense_mlp : the dense MLP that the config describes, whether layers have it or not; its width is 0 if the config
        has none.
    num_residual_streams : hidden states side by side from layer to layer: 4 in DeepSeek-V4 (mHC), else 1 [1].
    attn_res_block_size : layers after which the hidden state is kept, for attention over these states in place of a
        residual (Kimi-K3), 0 without [1].
    adds_up_once : whether tensor-parallel ranks add up attention and MLP of a layer together, which read one hidden
        state: only in Falcon under vLLM and TensorRT-LLM, in no other model with parallel halves (`falcon.py` of
        vLLM, models/falcon/model.py of TensorRT-LLM).
    per_layer_input_size : width of each layer's own embedding of a token, 0 without one [1].
    quantization : weight format of the published checkpoint, None if it is 16-bit.
    expert_quantization : of its routed experts, None if it is the same.
    attention_quantization : of its attention, None if it is the same; "bf16" in gpt-oss.
    linear_quantization : of its linear attention, None if it is the attention's.
    head_quantization : of its LM head, None if it is 16-bit.
    vision : encoder of images; None if the model has none, or the config does not describe it.
    encoders_left_out : "vision" or "audio" if the model has such an encoder whose sizes are not known.
    kv_cache_dtype : of the KV cache that the published checkpoint has scales for, None if it has none.
    pooling : result of a pooling model, "embed" or "score"; None if the model generates text.
    is_bidirectional : whether a token attends to all tokens of its prompt, as in an encoder.
    pools_whole : whether the pooling reads the hidden states of all tokens, or the first token's, as a mean does.

    Raises
    ------
    CatalogError
        If the shapes contradict each other.
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    max_model_len: int
    tie_word_embeddings: bool
    layers: tuple[LayerGroup, ...]
    mlps: tuple[MlpGroup, ...]
    dense_mlp: Dense
    num_residual_streams: int
    attn_res_block_size: int
    adds_up_once: bool
    per_layer_input_size: int
    quantization: str | None
    expert_quantization: str | None
    attention_quantization: str | None
    linear_quantization: str | None = None
    head_quantization: str | None = None
    original_model_len: int = 0
    kv_cache_dtype: str | None
    pooling: Pooling | None = None
    is_bidirectional: bool = False
    pools_whole: bool = False
    vision: Vision | None = None
    encoders_left_out: tuple[str, ...] = ()
    profile: str = ""

    def __post_init__(self) -> None:
        faults = (*(group.attention.fault(group) for group in self.layers), *(group.mlp.fault() for group in self.mlps))
        fault = next(filter(None, faults), None)
        if fault is not None:
            raise CatalogError(f"{self.name}: {fault}; check the config")
        windows = {group.seen_tokens for group in self.layers} - {0}
        if len(windows) > 1:
            raise CatalogError(f"{self.name}: layers have windows of {sorted(windows)} tokens, and only one length is "
                               "supported; check the config")

    @property
    def profile_name(self) -> str:
        """The catalog name of the shapes, which models of several names can have."""
        return self.profile or self.name

    @property
    def num_tables(self) -> int:
        """Tables of the vocabulary: the input embedding, and the LM head if the model has one of its own."""
        return 1 if self.tie_word_embeddings or self.pooling else 2

    @property
    def needs_whole_prompts(self) -> bool:
        """Whether a prompt must run in one step, so that it has no chunks and no cached prefix."""
        return self.is_bidirectional or self.pools_whole

    @property
    def by_attention(self) -> tuple[tuple[Attention, tuple[LayerGroup, ...]], ...]:
        """The kinds of attention, each with its groups of layers."""
        kinds: dict[Attention, list[LayerGroup]] = {}
        for group in self.layers:
            kinds.setdefault(group.attention, []).append(group)
        return tuple((attention, tuple(groups)) for attention, groups in kinds.items())

    def mlps_of(self, kind: type[M]) -> Iterator[tuple[int, M]]:
        """Yield the MLPs of a kind, dense or experts: how many layers have them, and their shapes."""
        yield from ((group.count, group.mlp) for group in self.mlps if isinstance(group.mlp, kind))

    @property
    def num_layers(self) -> int:
        """Layers with attention of any kind."""
        return sum(group.count for group in self.layers)

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention over a KV cache, sliding ones included; the others are linear."""
        return sum(group.count for group in self.layers if group.attention.has_cache)

    @property
    def num_linear_layers(self) -> int:
        """Layers with a state of fixed size and no KV cache."""
        return self.num_layers - self.num_attention_layers

    @property
    def num_layers_normed_over_heads(self) -> int:
        """Layers that normalise query and key over all heads together."""
        return sum(group.count for group in self.layers if group.attention.norms_all_heads)

    @property
    def num_mlp_layers(self) -> int:
        """Layers with a dense MLP or routed experts."""
        return sum(group.count for group in self.mlps)

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts."""
        return sum(count for count, _ in self.mlps_of(Experts))

    @property
    def num_dense_layers(self) -> int:
        """Layers with a dense MLP instead of routed experts."""
        return self.num_mlp_layers - self.num_moe_layers

    @property
    def num_halves(self) -> int:
        """Attention and MLPs, two a layer in most models; a norm precedes each."""
        return self.num_layers + self.num_mlp_layers

    @property
    def router_in_fp32(self) -> bool:
        """Whether engines keep the routers in 32 bit, for any format of the weights.

        vLLM, SGLang and TensorRT-LLM do with MiniMax-M2, vLLM with GLM-4.5 (`gate` of minimax_m2.py, glm4_moe.py).
        """
        return self.model_type in ("minimax_m2", "glm4_moe")

    @property
    def sliding_window(self) -> int:
        """The window of sliding layers, 0 without them [tokens]."""
        return max(group.window for group in self.layers)

    @property
    def has_even_layers(self) -> bool:
        """Whether all layers keep as much of each token, however long the context is: no windows, no states."""
        return all(group.attention.has_cache and not group.window and group.tokens_per_entry == 1
                   for group in self.layers)

    @property
    def keeps_recent_entries(self) -> bool:
        """Whether layers keep the last tokens apart from the entries of the context (compressed sparse attention)."""
        return any(group.attention.recent_entries for group in self.layers)
