"""Grouped-query attention, multi-head and multi-query attention included."""

from dataclasses import dataclass

from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.layer_group import Attention, LayerGroup, undivided_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Gqa(Attention):
    """Grouped-query attention.

    Source: Ainslie et al., GQA, 2023.

    Parameters
    ----------
    num_heads, num_kv_heads, head_dim : as in the config [1]; `head_dim` need not be hidden_size / num_heads.
    has_output_gate : whether the output has a gate, for which the query's projection is twice as wide.
    key_is_value : whether keys, projected once, are values too (Gemma 4).
    norms_all_heads : whether query and key are normalised over all heads together.
    has_sinks : whether each head has an attention sink, a learned logit in addition to the keys' logits (gpt-oss).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    has_output_gate: bool = False
    key_is_value: bool = False
    norms_all_heads: bool = False
    has_sinks: bool = False

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return query (with its gate), key and value in one, with an indexer's query and key; then the output."""
        heads, kv_heads = -(-self.num_heads // ranks), -(-self.num_kv_heads // ranks)
        width = self.head_dim * ((1 + self.has_output_gate) * heads + (2 - self.key_is_value) * kv_heads)
        if group.runs_indexer and group.indexer is not None:
            width += group.indexer.fused_width(ranks)
        return (Gemm("qkv_proj", width, hidden, 1, "attention"),
                Gemm("o_proj", hidden, self.head_dim * heads, 1, "attention"))

    def kv_bytes(self, kv_bytes_per_element: float, ranks: int) -> float:
        """Return the keys and values of one token; a KV head is on several ranks if ranks outnumber heads [bytes]."""
        return 2 * -(-self.num_kv_heads // ranks) * self.head_dim * kv_bytes_per_element

    def flops_per_pair(self, *, is_decode: bool) -> float:
        """Return QK^T and PV, 4 · heads · head_dim [FLOP]."""
        return 4.0 * self.num_heads * self.head_dim

    @property
    def activation_width(self) -> int:
        """Query, key, value and output of a token, and gate [1]."""
        return ((2 + self.has_output_gate) * self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def rotary_width(self) -> int:
        """Query and key, turned in place [1]."""
        return (self.num_heads + self.num_kv_heads) * self.head_dim

    @property
    def is_rotated_inside(self) -> bool:
        """Whether the attention kernel of an engine may apply the rotary embedding (`rope_fusion` of TensorRT-LLM)."""
        return True

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the heads that cannot be divided over ranks."""
        return undivided_heads("attention", self.num_heads, self.num_kv_heads, ranks)

    def fault(self, group: LayerGroup) -> str | None:
        """Return whether KV heads divide the heads."""
        if self.num_heads % self.num_kv_heads:
            return (f"num_key_value_heads = {self.num_kv_heads} must divide num_attention_heads = {self.num_heads}")
        return None
