"""The reads of attention from a sequence's context, and its arithmetic, by kind of layer."""

from collections.abc import Iterable
from typing import NamedTuple

from planner.catalog.architecture import Architecture
from planner.catalog.layers.layer_group import Attention, LayerGroup


class ContextReading(NamedTuple):
    """The reads of one attention's layers from a sequence's context.

    Parameters
    ----------
    layers : with this attention [1].
    context : entries read of each context token, over all of these layers [1].
    window : the same of the last `window_tokens`, or of as many that an indexer chooses [1].
    recent : other entries read, the same for any context [1].
    shared : of these, layers that read an earlier layer's cache [1].
    attention : its kind and shapes.
    """

    layers: int
    context: float
    window: float
    recent: int
    shared: int
    attention: Attention


def readings(arch: Architecture) -> list[ContextReading]:
    """Return the kinds of attention with a KV cache, with the reads of their layers.

    An entry is a token, except in CSA, which keeps one for several tokens: its layers with an indexer choose among the
    entries of 4 tokens, the others read all entries of 128, and all of them read the last 128 tokens too, as they are.

    >>> from planner.catalog.catalog_files import load_model
    >>> [reading[:4] for reading in readings(load_model("gpt-oss-120b"))]
    [(36, 18, 18, 0)]
    >>> [reading[:4] for reading in readings(load_model("deepseek-v4-flash"))]
    [(43, 0.15625, 5.25, 5504)]
    """
    return [reading_of(attention, groups) for attention, groups in arch.by_attention if attention.has_cache]


def reading_of(attention: Attention, groups: Iterable[LayerGroup]) -> ContextReading:
    """Return the reads of the layers of one attention."""
    groups = tuple(groups)
    layers = sum(group.count for group in groups)
    return ContextReading(layers, sum(group.entries_per_token for group in groups if not group.seen_tokens),
                          sum(group.entries_per_token for group in groups if group.seen_tokens),
                          layers * attention.recent_entries, sum(group.count for group in groups if group.shares_cache),
                          attention)


def window_tokens(arch: Architecture) -> int:
    """Return the most context that layers with a window, or an indexer, see; 0 without such layers [tokens].

    >>> from planner.catalog.catalog_files import load_model
    >>> [window_tokens(load_model(name)) for name in ("llama-3.1-8b", "gpt-oss-120b", "glm-5", "deepseek-v4-flash")]
    [0, 128, 2048, 2048]
    """
    return max(group.seen_tokens for group in arch.layers)
