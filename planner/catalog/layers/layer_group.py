"""Groups of equal layers, and the properties of one layer by its kind of attention."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.indexers import Indexer


class Attention(ABC):
    """An attention: its shapes, and the properties of one layer that follow from them.

    The methods here hold for most kinds; a kind overrides the others.
    """

    __slots__ = ()

    @abstractmethod
    def projections(self, group: "LayerGroup", hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the dense products of one layer on one of `ranks` GPUs, an indexer's included, `count` 1 each."""

    @property
    def has_cache(self) -> bool:
        """Whether a layer has a KV cache; otherwise it has a state of fixed size."""
        return True

    def kv_bytes(self, kv_bytes_per_element: float, ranks: int) -> float:
        """Return the KV cache of one entry on one GPU, without the indexer's keys [bytes]."""
        return 0.0

    def state_bytes(self, groups: Sequence["LayerGroup"], kv_bytes_per_element: float, ranks: int,
                    stages: int) -> int:
        """Return the state of a sequence of any length for all these layers on the GPU with the most of it [bytes]."""
        return 0

    @property
    def recent_entries(self) -> int:
        """Entries that a query reads beside its context's, the same for any length [1]."""
        return 0

    def flops_per_pair(self, *, is_decode: bool) -> float:
        """Return the arithmetic of one query token attending to one entry, all heads [FLOP]."""
        return 0.0

    @property
    @abstractmethod
    def activation_width(self) -> int:
        """Elements that a token has in the attention: query, key, value and output, and gate [1]."""

    @property
    def rotary_width(self) -> int:
        """Elements of a token that a separate rotary kernel turns; 0 if it is counted by its launch alone [1]."""
        return 0

    @property
    def is_rotated_inside(self) -> bool:
        """Whether the attention kernel of an engine may apply the rotary embedding."""
        return False

    @property
    def norms_all_heads(self) -> bool:
        """Whether query and key are normalised over all heads together, not head by head."""
        return False

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the size that no engine divides over the ranks, in words and in number; None if all can be divided."""
        return None

    def num_small_kernels(self, group: "LayerGroup") -> int:
        """Return the number of other kernels of a norm's size, without norms and rotary embedding, of one layer [1]."""
        return 0

    def fault(self, group: "LayerGroup") -> str | None:
        """Return the contradiction in the shapes; None without one."""
        return None

    def drafting_layer(self, groups: Sequence["LayerGroup"], *, keeps_indexer: bool) -> "LayerGroup":
        """Return one layer that drafts tokens, with attention over all of its context or through an indexer.

        Parameters
        ----------
        groups : the target's layers with this attention.
        keeps_indexer : whether it has an indexer if the target has one.
        """
        indexer = next((group.indexer for group in groups if group.indexer is not None), None)
        return LayerGroup(1, self, indexer=indexer if keeps_indexer else None)


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Equal layers, wherever they are in the model.

    Parameters
    ----------
    count : layers [1].
    attention : of each.
    window : tokens that a sliding layer sees at most, 0 if it sees all [tokens]; Llama 4's chunks count as such.
    indexer : chooses the entries that a query attends to, None without one.
    reuses_choice : whether the layer attends to the choice of an earlier layer's indexer, and runs none.
    shares_cache : whether the layer reads the KV cache of an earlier one, and keeps none (Gemma 4's E2B and E4B).
    tokens_per_entry : tokens in one entry of the cache, 0 if the cache has the recent ones alone
        [tokens].
    """

    count: int
    attention: Attention
    window: int = 0
    indexer: Indexer | None = None
    reuses_choice: bool = False
    shares_cache: bool = False
    tokens_per_entry: int = 1

    @property
    def runs_indexer(self) -> bool:
        """Whether the layer has an indexer of its own."""
        return self.indexer is not None and not self.reuses_choice

    @property
    def seen_tokens(self) -> int:
        """Context that a query attends to at most, beside the recent entries; 0 for all of it [tokens]."""
        return self.window if self.indexer is None else self.indexer.topk * self.tokens_per_entry

    @property
    def entries_per_token(self) -> float:
        """Entries that the layers of the group have of one token of the context, together [1]."""
        if self.tokens_per_entry == 1:
            return self.count
        return self.count / self.tokens_per_entry if self.tokens_per_entry else 0


def undivided_heads(name: str, heads: int, shared: int, ranks: int) -> tuple[str, int] | None:
    """Return the heads that cannot be divided over ranks, in words and in number; a KV head may be on several ranks."""
    if heads % ranks or (shared % ranks and ranks % shared):
        return f"{heads} heads of {name} on {shared} KV heads or keys", heads
    return None
