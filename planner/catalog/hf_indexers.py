"""Indexers in a Hugging Face config: their shapes, and the layers that have one."""

from collections.abc import Mapping, Sequence

from planner.catalog.hf_keys import Keys
from planner.catalog.layers.csa import Csa
from planner.catalog.layers.indexers import BlockIndexer, EntryIndexer, Indexer
from planner.catalog.layers.layer_group import LayerGroup
from planner.errors import CatalogError

_BLOCK_KEYS = {"sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
               "sparse_topk_blocks": "index_topk_blocks", "sparse_block_size": "index_block_size"}
_COMPRESS_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def latent_indexer(keys: Keys, num_layers: int) -> tuple[int, Indexer]:
    """Return how many layers run an indexer of DeepSeek sparse attention, and its shapes; the others share a choice.

    They do if `indexer_types` says "shared", or by `index_topk_freq` (GLM-5.2).
    """
    types, kinds = keys.config.get("indexer_types"), keys.config.get("layer_types")
    sparse = [layer for layer in range(num_layers)
              if not isinstance(kinds, list) or kinds[layer:layer + 1] != ["linear_attention"]]
    if isinstance(types, Sequence):
        count = sum(types[layer:layer + 1] == ["full"] for layer in sparse)
    else:
        frequency, offset = keys.integer("index_topk_freq", 1), keys.integer("index_skip_topk_offset", 2)
        count = sum(max(layer - offset + 1, 0) % frequency == 0 for layer in sparse)
    return count, Indexer(**_index_shapes(keys))


def _index_shapes(keys: Keys) -> dict[str, int]:
    return {"num_heads": keys.integer("index_n_heads"), "head_dim": keys.integer("index_head_dim"),
            "topk": keys.integer("index_topk")}


def block_indexer(keys: Keys, num_layers: int) -> tuple[int, BlockIndexer]:
    """Return how many layers have an indexer that chooses blocks of keys, by the list of sparse ones, and its shapes.

    Transformers 5 lists them as `layer_types`, with keys of its own for the rest.
    """
    sparse, kinds = keys.config.get("sparse_attention_config"), keys.config.get("layer_types")
    if not isinstance(sparse, Mapping) and isinstance(kinds, list):
        sparse = {"sparse_attention_freq": [int(kind == "minimax_m3_sparse") for kind in kinds],
                  **{key: keys.config.get(name) for key, name in _BLOCK_KEYS.items()}}
    listed = sparse.get("sparse_attention_freq") if isinstance(sparse, Mapping) else None
    if not isinstance(sparse, Mapping) or not isinstance(listed, list) or len(listed) < num_layers:
        raise CatalogError(f"{keys.where}: sparse_attention_config = {sparse!r}; must have sparse_attention_freq, a "
                           f"list of 0 and 1 for each of {num_layers} layers; copy it from the model's config.json")
    sparse_keys = Keys(sparse, f"{keys.where}: sparse_attention_config", {})
    count = sum(kind == 1 for kind in listed[:num_layers])
    topk = sparse_keys.integer("sparse_topk_blocks") * sparse_keys.integer("sparse_block_size")
    return count, BlockIndexer(num_heads=sparse_keys.integer("sparse_num_index_heads"),
                               head_dim=sparse_keys.integer("sparse_index_dim"), topk=topk)


def compressed_layers(keys: Keys, attention: Csa, num_layers: int) -> tuple[LayerGroup, ...]:
    """Return the layers with compressed sparse attention: with an indexer, without one, and with their window alone.

    `compress_ratios` has tokens an entry for each layer, 0 or 1 if it keeps its window alone, and goes on for the
    layers that draft; transformers' `layer_types` names the kinds, with their `compress_rates`.
    """
    indexer = EntryIndexer(**_index_shapes(keys))
    ratios, kinds = keys.config.get("compress_ratios"), keys.config.get("layer_types")
    if not isinstance(ratios, list) and isinstance(kinds, list):
        compress_rates = keys.config.get("compress_rates")
        rate_of = {**_COMPRESS_RATES, **(compress_rates if isinstance(compress_rates, Mapping) else {})}
        ratios = [rate_of.get(kind, 0) for kind in kinds]
    if not isinstance(ratios, list) or len(ratios) < num_layers or not all(isinstance(ratio, int) for ratio in ratios):
        raise CatalogError(f"{keys.where}: compress_ratios = {ratios!r}; must be a list with a number of tokens for "
                           f"each of {num_layers} layers")
    layer_ratios = ratios[:num_layers]
    rates = sorted({ratio for ratio in layer_ratios if ratio > 1})
    if len(rates) != 2:
        raise CatalogError(f"{keys.where}: compress_ratios has the ratios {rates}; must be two, that of layers with an "
                           "indexer and a larger one")
    few, many = layer_ratios.count(rates[0]), layer_ratios.count(rates[1])
    return (LayerGroup(few, attention, indexer=indexer, tokens_per_entry=rates[0]),
            LayerGroup(many, attention, tokens_per_entry=rates[1]),
            LayerGroup(num_layers - few - many, attention, tokens_per_entry=0))
