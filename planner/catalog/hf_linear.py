"""Linear attention in a Hugging Face config."""

from collections.abc import Mapping, Sequence

from planner.catalog import families
from planner.catalog.hf_keys import Keys, block_counts
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.linear_layers import (
    CHANNELS,
    GatedDeltaNet,
    KimiDelta,
    LinearAttention,
    Mamba1,
    Mamba2,
    ShortConv,
)
from planner.errors import CatalogError


def linear_layers(keys: Keys, model_type: str, num_layers: int) -> LayerGroup | None:
    """Return the layers with linear attention, None if a model has none.

    Their state has the type that the config asks for (`mamba_ssm_dtype`: FP32 in Qwen3.5), else the model's 16 bit, as
    in vLLM; SGLang keeps FP32 there, so for Qwen3-Next its states are twice as large.
    """
    if model_type in families.KDA:
        return _kimi_delta_attention(keys)
    if model_type in families.MAMBA_1:
        return LayerGroup(_num_layers(keys, model_type, num_layers), _mamba_1(keys))
    if model_type in families.SHORT_CONV:
        conv = ShortConv(width=keys.integer("hidden_size"), conv_kernel_dim=keys.integer("linear_conv_kernel_dim", 3))
        return LayerGroup(_num_layers(keys, model_type, num_layers), conv)
    if model_type in families.DELTA_NET:
        return LayerGroup(_num_layers(keys, model_type, num_layers), GatedDeltaNet(**_shapes(keys)))
    if model_type in families.MAMBA:
        return LayerGroup(_num_layers(keys, model_type, num_layers), Mamba2(**_shapes(keys)))
    return None


def _num_layers(keys: Keys, model_type: str, num_layers: int) -> int:
    """Return how many layers are linear: blocks, or the listed layers, or all except one at each interval."""
    layer_types = keys.config.get("layer_types")
    listed = keys.config.get("attn_layer_indices" if model_type == "bamba" else "full_attn_idxs")
    if model_type == "nemotron_h":
        return block_counts(keys)["mamba"]
    if model_type in families.SIDE_BY_SIDE:
        return num_layers
    if isinstance(layer_types, Sequence):
        return sum(kind in ("linear_attention", "mamba", "conv") for kind in layer_types)
    if isinstance(listed, list):
        return num_layers - len(listed)
    if model_type in families.MAMBA_1:
        period, offset = keys.integer("attn_layer_period", 8), keys.integer("attn_layer_offset", 4)
        return sum(layer % period != offset for layer in range(num_layers))
    if model_type in (*families.SHORT_CONV, "bamba"):
        raise CatalogError(f"{keys.where}: layer_types is missing; copy it from the model's config.json")
    return num_layers - num_layers // keys.integer("full_attention_interval", 4)


def _shapes(keys: Keys) -> dict[str, int]:
    return {"num_key_heads": keys.integer("linear_num_key_heads"),
            "num_value_heads": keys.integer("linear_num_value_heads"),
            "key_head_dim": keys.integer("linear_key_head_dim"),
            "value_head_dim": keys.integer("linear_value_head_dim"),
            "conv_kernel_dim": keys.integer("linear_conv_kernel_dim"),
            "state_bytes_per_element": 4 if keys.config.get("mamba_ssm_dtype") == "float32" else 2}


def _mamba_1(keys: Keys) -> Mamba1:
    """Return Mamba's layers: channels with a state each, whose steps come through a projection of low rank."""
    hidden, states = keys.integer("hidden_size"), keys.integer("mamba_d_state", 16)
    channels, rank = keys.integer("mamba_expand", 2) * hidden, keys.config.get("mamba_dt_rank")
    return Mamba1(num_key_heads=1, num_value_heads=channels // CHANNELS, key_head_dim=states, value_head_dim=CHANNELS,
                  conv_kernel_dim=keys.integer("linear_conv_kernel_dim", 4), state_bytes_per_element=2,
                  decay_rank=rank if isinstance(rank, int) else -(-hidden // 16))


def _kimi_delta_attention(keys: Keys) -> LayerGroup:
    """Return the layers with Kimi delta attention, whose state is in FP32.

    The projection of decays has a head's width as its rank, as has the projection of gates unless it is full (Kimi-K3).
    """
    kda, kinds = keys.config.get("linear_attn_config"), keys.config.get("layer_types")
    if not (isinstance(kda, Mapping) and "kda_layers" in kda) and isinstance(kinds, list):  # GLM-5.3-Flash
        kda = {"kda_layers": [k for k, kind in enumerate(kinds) if kind == "linear_attention"],
               "num_heads": keys.config.get("linear_num_key_heads"),
               "head_dim": keys.config.get("linear_key_head_dim"),
               "short_conv_kernel_size": keys.config.get("linear_conv_kernel_dim", 4),
               **(kda if isinstance(kda, Mapping) else {})}
    layers = kda.get("kda_layers") if isinstance(kda, Mapping) else None
    if not isinstance(kda, Mapping) or not isinstance(layers, list):
        raise CatalogError(f"{keys.where}: linear_attn_config = {kda!r}; must have kda_layers, num_heads, head_dim "
                           "and short_conv_kernel_size; copy it from the model's config.json")
    kda_keys = Keys(kda, f"{keys.where}: linear_attn_config", {})
    heads, width = kda_keys.integer("num_heads"), kda_keys.integer("head_dim")
    attention: LinearAttention = KimiDelta(
        num_key_heads=heads, num_value_heads=heads, key_head_dim=width, value_head_dim=width,
        conv_kernel_dim=kda_keys.integer("short_conv_kernel_size"), state_bytes_per_element=4, decay_rank=width,
        gate_rank=0 if kda.get("use_full_rank_gate") is True else width)
    return LayerGroup(len(layers), attention)
