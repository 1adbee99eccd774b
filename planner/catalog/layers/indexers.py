"""Indexers of sparse attention, which choose the entries that a query attends to."""

from dataclasses import dataclass

from planner.catalog.layers.dense_gemm import Gemm

INDEX_BLOCK = 128  # values of an indexer's key that share one FP32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """DeepSeek sparse attention's: an FP8 key of each token, multiplied with some heads of the query.

    Parameters
    ----------
    num_heads, head_dim : its shapes [1].
    topk : entries that it leaves to a query [1].
    """

    num_heads: int
    head_dim: int
    topk: int

    @property
    def key_bytes(self) -> int:
        """Key of one entry and layer, with its FP32 scale for every 128 values [bytes].

        Source: vLLM's `DeepseekV32IndexerCache`, DeepGEMM's `fp8_paged_mqa_logits`.
        """
        return self.head_dim + 4 * self.head_dim // INDEX_BLOCK

    @property
    def key_width(self) -> int:
        """Width of the key's own projection [1]."""
        return self.head_dim

    @property
    def least_block_tokens(self) -> int:
        """Tokens that a block of the KV cache must have at least [tokens]."""
        return 1

    def projections(self, hidden: int, query_rank: int) -> tuple[Gemm, ...]:
        """Return its queries, its key and the weights of its heads, which stay 16-bit; every rank has them in full.

        Source: DeepSeek-V3.2-Exp, 2025, section 2.1, and its inference code.
        """
        return (Gemm("indexer.wq_b", self.num_heads * self.head_dim, query_rank, 1, "attention"),
                Gemm("indexer.wk", self.key_width, hidden, 1, "attention"),
                Gemm("indexer.weights_proj", self.num_heads, hidden, 1, "kept"))

    def fused_width(self, ranks: int) -> int:
        """Return the width of its query and key in the attention's own product, on one GPU [1]."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryIndexer(Indexer):
    """Compressed sparse attention's, which chooses among entries and whose keys a compressor makes."""

    @property
    def key_width(self) -> int:
        """Width of the key's own projection: none."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIndexer(Indexer):
    """MiniMax sparse attention's, which chooses blocks of 128 keys together, by 16-bit keys of its own."""

    @property
    def key_bytes(self) -> int:
        """Key of one token and layer, in 16 bit [bytes]."""
        return 2 * self.head_dim

    @property
    def least_block_tokens(self) -> int:
        """Least tokens of a block of the KV cache: the tokens that are chosen together [tokens]."""
        return 128

    def projections(self, hidden: int, query_rank: int) -> tuple[Gemm, ...]:
        """Return none: query and key are in the attention's own product."""
        return ()

    def fused_width(self, ranks: int) -> int:
        """Return the width of its query, whose heads are divided over the ranks, and of its key [1]."""
        return (-(-self.num_heads // ranks) + 1) * self.head_dim


def unranked(indexer: Indexer) -> str:
    """Return the fault of an indexer whose attention has no rank of queries."""
    return f"index_topk = {indexer.topk} needs q_lora_rank, which the indexer's queries come from"
