"""Multi-head latent attention, dense or with an indexer (DeepSeek sparse attention)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.indexers import unranked
from planner.catalog.layers.layer_group import Attention, LayerGroup, undivided_heads

SCALED_TOGETHER = 128  # values of a sparse FP8 latent that share one FP32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla(Attention):
    """Multi-head latent attention.

    Source: DeepSeek-V2, 2024, section 2.1.

    Parameters
    ----------
    num_heads : of the query [1].
    num_kv_heads, head_dim : as the config has them, for the size of activations [1].
    q_lora_rank : rank of the query's projection, 0 if the query is not compressed [1].
    kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim : as in the config [1].
    has_output_gate : whether the output has a gate, with a projection of its own.
    is_sparse : whether queries attend to an indexer's choice, so that prompts too multiply the latent itself.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    has_output_gate: bool = False
    is_sparse: bool = False

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return both down-projections in one if the query has one, the up-projections, a gate, and the output.

        Every rank has the down-projections and the indexer in full.
        """
        heads, latent = -(-self.num_heads // ranks), self.kv_lora_rank + self.qk_rope_head_dim
        query_width = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        if self.q_lora_rank:
            inputs = (Gemm("fused_qkv_a_proj", self.q_lora_rank + latent, hidden, 1, "attention"),
                      Gemm("q_b_proj", query_width, self.q_lora_rank, 1, "attention"))
        else:
            inputs = (Gemm("q_proj", query_width, hidden, 1, "attention"),
                      Gemm("kv_a_proj_with_mqa", latent, hidden, 1, "attention"))
        indexer = group.indexer.projections(hidden, self.q_lora_rank) if group.indexer and group.runs_indexer else ()
        expanded = heads * (self.qk_nope_head_dim + self.v_head_dim)
        return (*inputs, Gemm("kv_b_proj", expanded, self.kv_lora_rank, 1, "attention"),
                Gemm("g_proj", heads * self.v_head_dim if self.has_output_gate else 0, hidden, 1, "attention"),
                Gemm("o_proj", hidden, heads * self.v_head_dim, 1, "attention"), *indexer)

    def kv_bytes(self, kv_bytes_per_element: float, ranks: int) -> float:
        """Return the latent of one token, which every rank has [bytes].

        A sparse FP8 latent also has a scale for every 128 values, and its rotary part in 16 bit (vLLM's
        `fp8_ds_mla`).
        """
        if self.is_sparse and kv_bytes_per_element == 1:
            return self.kv_lora_rank + 4 * self.kv_lora_rank // SCALED_TOGETHER + 2 * self.qk_rope_head_dim
        return (self.kv_lora_rank + self.qk_rope_head_dim) * kv_bytes_per_element

    def flops_per_pair(self, *, is_decode: bool) -> float:
        """Return the expanded keys and values in prefill; in decode the latent itself (absorbed projections) [FLOP].

        In decode 2 · heads · (2 · kv_lora_rank + qk_rope_head_dim).
        """
        if is_decode:
            return 2.0 * self.num_heads * (2 * self.kv_lora_rank + self.qk_rope_head_dim)
        return 2.0 * self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim)

    @property
    def activation_width(self) -> int:
        """Query, key, value and output of a token, and gate [1]."""
        heads = (2 + self.has_output_gate) * self.num_heads + 2 * self.num_kv_heads
        return heads * max(self.head_dim, self.v_head_dim)

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the heads that cannot be divided over ranks."""
        return undivided_heads("attention", self.num_heads, self.num_kv_heads, ranks)

    def fault(self, group: LayerGroup) -> str | None:
        """Return whether an indexer's queries have their projection."""
        return None if self.q_lora_rank or group.indexer is None else unranked(group.indexer)

    def drafting_layer(self, groups: Sequence[LayerGroup], *, keeps_indexer: bool) -> LayerGroup:
        """Return one layer that drafts tokens, dense if it has no indexer."""
        layer = Attention.drafting_layer(self, groups, keeps_indexer=keeps_indexer)
        return layer if keeps_indexer else replace(layer, attention=replace(self, is_sparse=False))
