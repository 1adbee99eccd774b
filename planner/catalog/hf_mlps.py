"""MLPs in a Hugging Face config: dense ones, and routed experts with the layers that have them."""

from collections.abc import Sequence
from dataclasses import replace

from planner.catalog import families
from planner.catalog.hf_attention import num_sharing
from planner.catalog.hf_keys import Keys, block_counts
from planner.catalog.layers.mlps import Dense, Experts, MlpGroup

_LISTS = ("mlp_layer_types", "is_moe_layer", "moe_layer_freq")  # of every layer, whether it has experts
_STEP_KEYS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")


def mlps_of(keys: Keys, model_type: str, num_layers: int, num_mlp_layers: int) -> tuple[tuple[MlpGroup, ...], Dense]:
    """Return the layers with an MLP, dense ones first, and the dense MLP that the config describes."""
    num_moe = _num_moe_layers(keys, model_type, num_layers)
    num_dense = num_mlp_layers - num_moe
    dense = Dense(width=_dense_width(keys, model_type, is_needed=num_dense != 0),
                  num_matrices=2 if model_type in families.UNGATED else 3)
    num_wide = _num_wide_layers(keys, model_type, num_layers)
    groups = [MlpGroup(num_dense - num_wide, dense), MlpGroup(num_wide, replace(dense, width=2 * dense.width))]
    if num_moe:
        groups.append(MlpGroup(num_moe, _experts(keys, model_type, dense.num_matrices)))
    return tuple(group for group in groups if group.count > 0), dense


def _num_wide_layers(keys: Keys, model_type: str, num_layers: int) -> int:
    """Return the layers with a dense MLP of twice the width: layers of Gemma 4's small models that share caches."""
    is_wide = model_type == "gemma4_text" and keys.config.get("use_double_wide_mlp") is True
    return num_sharing(keys, num_layers) if is_wide else 0


def _dense_width(keys: Keys, model_type: str, *, is_needed: bool) -> int:
    """Width of a dense MLP; 0 if the config names none and no layer needs it."""
    key = families.DENSE_WIDTH.get(model_type, "intermediate_size")
    if model_type == "lfm2" and keys.config.get("block_auto_adjust_ff_dim") is True:
        return _adjusted(keys, keys.integer(key))
    if model_type in families.FOUR_FOLD:
        return keys.integer(key, 4 * keys.integer("hidden_size"))
    return keys.integer(key, None if is_needed else 0)


def _adjusted(keys: Keys, width: int) -> int:
    """Return LFM2's width: two thirds of the stated one by a factor, rounded up to a multiple."""
    factor, multiple = keys.config.get("block_ffn_dim_multiplier", 1.0), keys.integer("block_multiple_of")
    scaled = int((factor if isinstance(factor, int | float) else 1.0) * int(2 * width / 3))
    return multiple * -(-scaled // multiple)


def _experts(keys: Keys, model_type: str, num_matrices: int) -> Experts:
    """Return the experts of an MoE layer."""
    count_key, width_key = families.MOE_KEYS[model_type]
    width = keys.integer(width_key)
    shared_width = keys.integer("shared_expert_intermediate_size", 0)
    shared = (keys.integer("intermediate_size") if model_type in families.BESIDE_MLP
              else keys.integer("n_shared_experts", 1 if shared_width else 0) * (shared_width or width))
    count, chosen = keys.integer(count_key), keys.integer("num_experts_per_tok")
    if zero := keys.integer("zero_expert_num", 0):  # LongCat's, which return their input, are a part of the chosen
        chosen = max(round(chosen * count / (count + zero)), 1)
    return Experts(num_experts=count, num_experts_per_tok=chosen, width=width, shared_width=shared,
                   latent_width=keys.integer("moe_latent_size", 0), num_matrices=num_matrices)


def _num_moe_layers(keys: Keys, model_type: str, num_layers: int) -> int:
    """Layers with routed experts: the listed ones, else all at a step from the first on; 0 without experts."""
    if model_type not in families.MOE_KEYS or keys.config.get("enable_moe_block", True) is not True:
        return 0
    if keys.config.get(families.MOE_KEYS[model_type][0]) == 0:  # Granite 4's small ones
        return 0
    if model_type == "nemotron_h":
        return block_counts(keys)["moe"]
    if model_type == "longcat_flash":
        return num_layers // 2
    if model_type == "jamba":
        period, offset = keys.integer("expert_layer_period", 2), keys.integer("expert_layer_offset", 1)
        is_moe = keys.integer("num_experts") > 1
        return sum(layer % period == offset for layer in range(num_layers)) if is_moe else 0
    kinds = next((keys.config[key] for key in _LISTS if isinstance(keys.config.get(key), list)), None)
    if isinstance(kinds, list):
        return sum(kind in ("sparse", "moe", "hash_moe", 1) for kind in kinds[:num_layers])
    numbers = keys.config.get("moe_layers_enum")
    if isinstance(numbers, str):
        return sum(number.strip().isdigit() and int(number) < num_layers for number in numbers.split(","))
    step = keys.integer(next((key for key in _STEP_KEYS if key in keys.config), "moe_layer_freq"), 1)
    dense_only = keys.config.get("mlp_only_layers")
    dense = set(dense_only) if isinstance(dense_only, Sequence) else set()
    first = keys.integer("first_k_dense_replace", 0)
    offset = 0 if model_type.startswith(("deepseek", "kimi", "glm")) else 1  # others start at the step's last layer
    return sum((layer + offset) % step == 0 for layer in range(first, num_layers) if layer not in dense)
