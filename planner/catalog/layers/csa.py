"""Compressed sparse attention (DeepSeek-V4): one entry for several tokens, beside a window of the last ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.indexers import unranked
from planner.catalog.layers.layer_group import Attention, LayerGroup, undivided_heads

SCALED_TOGETHER = 64  # values of an FP8 entry that share an 8-bit scale
COMPRESSOR_BYTES_PER_ELEMENT = 4  # engines keep values in FP32 until compressors have made entries of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Csa(Attention):
    """Compressed sparse attention: an entry is key and value of all heads.

    Layers with an indexer choose among entries of few tokens; the others read all entries of many tokens, or have the
    window alone (`LayerGroup.tokens_per_entry`).

    Source: DeepSeek-V4, 2026, section 2.3; vLLM's `DeepseekCompressor`.

    Parameters
    ----------
    num_heads, head_dim : of the query; an entry has the width of a head [1].
    qk_rope_head_dim : rotary part of an entry [1].
    q_lora_rank : rank of the query's projection [1].
    o_groups, o_lora_rank : groups of heads whose outputs are projected by themselves, and their rank [1].
    window : last tokens that every layer reads as they are [tokens].
    is_sparse : whether prompts run the kernel that multiplies chosen entries.
    """

    num_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    window: int
    is_sparse: bool = True

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the query's down-projection and the entry in one, the queries, and the output, by groups of heads.

        Then the indexer, and the compressors' projections, values and gates in one.
        """
        heads, groups = -(-self.num_heads // ranks), -(-self.o_groups // ranks)
        indexer = group.indexer.projections(hidden, self.q_lora_rank) if group.indexer else ()
        return (Gemm("fused_wqa_wkv", self.q_lora_rank + self.head_dim, hidden, 1, "attention"),
                Gemm("wq_b", heads * self.head_dim, self.q_lora_rank, 1, "attention"),
                Gemm("wo_a", groups * self.o_lora_rank, heads * self.head_dim // groups, 1, "attention"),
                Gemm("wo_b", hidden, groups * self.o_lora_rank, 1, "attention"), *indexer,
                *(Gemm("fused_wkv_wgate", width, hidden, 1, "unquantized") for width in compressor_widths(group)))

    def kv_bytes(self, kv_bytes_per_element: float, ranks: int) -> float:
        """Return one entry, which every rank has [bytes].

        An FP8 entry has an 8-bit scale for every 64 values and one more, and its rotary part in 16 bit (584 B).
        """
        rotary, rest = self.qk_rope_head_dim, self.head_dim - self.qk_rope_head_dim
        return (rest + rest // SCALED_TOGETHER + 1 + 2 * rotary if kv_bytes_per_element == 1
                else self.head_dim * kv_bytes_per_element)

    def state_bytes(self, groups: Sequence[LayerGroup], kv_bytes_per_element: float, ranks: int, stages: int) -> int:
        """Return the window of a sequence, and the rows that are no entry yet, on every rank [bytes]."""
        window = sum(group.count for group in groups) * self.window * self.kv_bytes(kv_bytes_per_element, 1)
        rows = sum(group.count * kept_tokens(group) * sum(compressor_widths(group)) for group in groups)
        return -int(-(window + COMPRESSOR_BYTES_PER_ELEMENT * rows) // stages)

    @property
    def recent_entries(self) -> int:
        """Entries of the window [1]."""
        return self.window

    def flops_per_pair(self, *, is_decode: bool) -> float:
        """Return QK^T and PV, 4 · heads · head_dim [FLOP]."""
        return 4.0 * self.num_heads * self.head_dim

    @property
    def activation_width(self) -> int:
        """Query and output of a token, and its entry as key and value [1]."""
        return (2 * self.num_heads + 2) * self.head_dim

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the groups of heads, or the heads, that cannot be divided over ranks."""
        if self.o_groups % ranks:
            return f"{self.o_groups} groups of heads (o_groups)", self.o_groups
        return undivided_heads("attention", self.num_heads, 1, ranks)

    def num_small_kernels(self, group: LayerGroup) -> int:
        """Return the compressors, which keep their rows and make entries of them [1]."""
        return len(compressor_widths(group))

    def fault(self, group: LayerGroup) -> str | None:
        """Return whether groups divide the heads, and the queries have their projection."""
        if self.num_heads % self.o_groups:
            return f"o_groups = {self.o_groups} must divide num_attention_heads = {self.num_heads}"
        return None if self.q_lora_rank or group.indexer is None else unranked(group.indexer)

    def drafting_layer(self, groups: Sequence[LayerGroup], *, keeps_indexer: bool) -> LayerGroup:
        """Return one layer that drafts tokens, over its window alone."""
        return LayerGroup(1, self if keeps_indexer else replace(self, is_sparse=False), tokens_per_entry=0)


def compressor_widths(group: LayerGroup) -> tuple[int, ...]:
    """Return the widths of the compressors' projections of a layer; none if it has the window alone [1].

    An entry is a mean of its tokens' values, weighted by their gates: two projections of a head's width. If an
    indexer chooses, entries overlap, which takes both twice, and its keys are compressed in the same way.
    """
    attention, indexer = group.attention, group.indexer
    assert isinstance(attention, Csa)
    if indexer is not None:
        return 4 * attention.head_dim, 4 * indexer.head_dim
    return (2 * attention.head_dim,) if group.tokens_per_entry else ()


def kept_tokens(group: LayerGroup) -> int:
    """Return the tokens whose rows a compressor keeps at most: an entry's, or two's if entries overlap [tokens]."""
    return group.tokens_per_entry * (2 if group.indexer is not None else 1)
