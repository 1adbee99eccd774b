"""A Hugging Face config as the readers of its parts ask it: integers, layers, and blocks of hybrid models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.catalog.layers.layer_group import Attention, LayerGroup
from planner.errors import CatalogError

_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}  # as Transformers 5 saves them


@dataclass(frozen=True, slots=True)
class Keys:
    """A config and the file that it came from."""

    config: Mapping[str, object]
    where: str
    renamed: Mapping[str, str]  # the file's name of a key -> its usual name, under which it is in `config`

    def integer(self, key: str, default: int | None = None) -> int:
        """Return the positive integer at `key`, the same in all layers; `default` if it is absent or null."""
        value = self.config.get(key)
        named = next((file_key for file_key, usual in self.renamed.items() if usual == key), key)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                raise CatalogError(f"{self.where}: {named} differs from layer to layer, which is not supported")
            value = value[0]
        if value is None and default is not None:
            return default
        if value is None:
            raise CatalogError(f"{self.where}: {named} is missing; copy it from the model's config.json")
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if default == 0 else 1):
            raise CatalogError(f"{self.where}: {named} = {value!r}; must be a positive integer")
        return value


class Depth(NamedTuple):
    """How many layers a model has, and how many of them slide.

    Parameters
    ----------
    num_layers : all that the config lists [1].
    num_cached : layers with a KV cache; the others have linear attention [1].
    window, num_sliding : the window [tokens], and the layers that have it [1]; zeros without one.
    """

    num_layers: int
    num_cached: int
    window: int
    num_sliding: int

    def groups(self, attention: Attention) -> tuple[LayerGroup, ...]:
        """Return layers that all have one attention: first with a view of all tokens, then sliding ones."""
        return (LayerGroup(self.num_cached - self.num_sliding, attention),
                LayerGroup(self.num_sliding, attention, window=self.window))


def block_counts(keys: Keys) -> dict[str, int]:
    """Return how many blocks of each kind a Nemotron-H has."""
    pattern = keys.config.get("hybrid_override_pattern")
    listed = keys.config.get("layers_block_type")
    kinds = ([_BLOCKS.get(letter) for letter in pattern] if isinstance(pattern, str)
             else [_NAMES.get(str(kind), kind) for kind in listed] if isinstance(listed, list) else listed)
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(_BLOCKS.values()):
        raise CatalogError(f"{keys.where}: layers_block_type = {kinds!r}; must be a list of "
                           f"{', '.join(sorted(_BLOCKS.values()))}, or hybrid_override_pattern a text of M, *, - and E")
    return {kind: kinds.count(kind) for kind in _BLOCKS.values()}
