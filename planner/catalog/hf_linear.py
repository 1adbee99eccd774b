"""Linear attention in a Hugging Face config."""

from collections.abc import Mapping, Sequence

from planner.catalog import families
from planner.catalog.hf_keys import Keys, block_counts
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.linear_layers import GatedDeltaNet, KimiDelta, LinearAttention, Mamba2
from planner.errors import CatalogError


def linear_layers(keys: Keys, model_type: str, num_layers: int) -> LayerGroup | None:
    """Return the layers with linear attention, None where a model has none.

    Their state has the type that the config asks for (`mamba_ssm_dtype`: FP32 in Qwen3.5), else the model's 16 bit, as
    in vLLM; SGLang keeps FP32 there, so for Qwen3-Next its states are twice as large.
    """
    if model_type in families.KDA:
        return _kimi_delta_attention(keys)
    if model_type in families.DELTA_NET:
        return LayerGroup(_num_layers(keys, model_type, num_layers), GatedDeltaNet(**_shapes(keys)))
    if model_type in families.MAMBA:
        return LayerGroup(_num_layers(keys, model_type, num_layers), Mamba2(**_shapes(keys)))
    return None


def _num_layers(keys: Keys, model_type: str, num_layers: int) -> int:
    """Return how many layers are linear: blocks, or those that are listed, or all but one at each interval."""
    layer_types = keys.config.get("layer_types")
    if model_type == "nemotron_h":
        return block_counts(keys)["mamba"]
    if isinstance(layer_types, Sequence):
        return sum(kind in ("linear_attention", "mamba") for kind in layer_types)
    return num_layers - num_layers // keys.integer("full_attention_interval", 4)


def _shapes(keys: Keys) -> dict[str, int]:
    return {"num_key_heads": keys.integer("linear_num_key_heads"),
            "num_value_heads": keys.integer("linear_num_value_heads"),
            "key_head_dim": keys.integer("linear_key_head_dim"),
            "value_head_dim": keys.integer("linear_value_head_dim"),
            "conv_kernel_dim": keys.integer("linear_conv_kernel_dim"),
            "state_bytes_per_element": 4 if keys.config.get("mamba_ssm_dtype") == "float32" else 2}


def _kimi_delta_attention(keys: Keys) -> LayerGroup:
    """Return the layers with Kimi delta attention, whose state is in FP32.

    What projects decays has a head's width as its rank, and so has what projects gates unless that is full (Kimi-K3).
    """
    given = keys.config.get("linear_attn_config")
    layers = given.get("kda_layers") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(layers, list):
        raise CatalogError(f"{keys.where}: linear_attn_config = {given!r}; must have kda_layers, num_heads, head_dim "
                           "and short_conv_kernel_size; copy it from the model's config.json")
    own = Keys(given, f"{keys.where}: linear_attn_config", {})
    heads, width = own.integer("num_heads"), own.integer("head_dim")
    attention: LinearAttention = KimiDelta(
        num_key_heads=heads, num_value_heads=heads, key_head_dim=width, value_head_dim=width,
        conv_kernel_dim=own.integer("short_conv_kernel_size"), state_bytes_per_element=4, decay_rank=width,
        gate_rank=0 if given.get("use_full_rank_gate") is True else width)
    return LayerGroup(len(layers), attention)
