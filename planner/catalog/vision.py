"""The vision encoder of a multimodal model: a transformer over the patches of an image."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import CatalogError

# The configs' names of a size: Qwen-VL, SigLIP and CLIP, Llama 4, Kimi's MoonViT, InternVL.
LAYERS = ("depth", "num_hidden_layers", "vt_num_hidden_layers")
WIDTHS = ("embed_dim", "vt_hidden_size", "hidden_size")  # Qwen2-VL's hidden_size is the language model's
MLPS = ("intermediate_size", "vt_intermediate_size")
HEADS = ("num_heads", "num_attention_heads", "vt_num_attention_heads")
MERGES = ("spatial_merge_size", "merge_kernel_size", "pooling_kernel_size")
MLP_RATIO = "mlp_ratio"  # Qwen2-VL gives the MLP's width over the hidden size
FULL_LAYERS = "fullatt_block_indexes"  # of Qwen2.5-VL
GATED = ("qwen2_5", "pixtral", "gemma4_vision")  # model types whose MLP has three matrices
WITH_VIDEOS = ("gemma4_vision", "intern")  # model types that encode videos, too, as all with patches over time do


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """A vision encoder; attention is over all patches of an image, in 16 bit.

    Parameters
    ----------
    num_layers, hidden_size, mlp_width, num_heads : of its transformer [1].
    num_matrices : of its MLP: 3 if it is gated, else 2 [1].
    patches_per_token : patches that become one token of the language model [1].
    tile_tokens : tokens of an image or of a tile of it, if all have one size (SigLIP, CLIP, Llama 4); 0 if images
        keep theirs [tokens].
    num_full_layers : layers whose attention is over all patches of an image or tile; the others have small windows [1].
    has_videos : whether engines encode videos with it.

    Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021.
    """

    num_layers: int
    hidden_size: int
    mlp_width: int
    num_heads: int
    num_matrices: int
    patches_per_token: int
    tile_tokens: int
    num_full_layers: int
    has_videos: bool

    @property
    def parameters(self) -> int:
        """Weights of its layers: 4 · hidden² + matrices · hidden · width each [1].

        Left out: the embedding of patches and the projector, 1 to 10 % of the layers.
        """
        return self.num_layers * self.hidden_size * (4 * self.hidden_size + self.num_matrices * self.mlp_width)


def vision_of(config: Mapping[str, object], where: str) -> Vision | None:
    """Return the vision encoder in the keys of a `config.json`; None if `vision_config` lacks a size of it.

    Some configs leave sizes to the defaults of their class in Transformers, which are not known here.

    Raises
    ------
    CatalogError : a size of the encoder is no positive integer.
    """
    stated = config.get("vision_config")
    if not isinstance(stated, Mapping) or not all(any(stated.get(key) is not None for key in keys)
                                                  for keys in (LAYERS, WIDTHS, (*MLPS, MLP_RATIO), HEADS)):
        return None
    hidden = _size(stated, WIDTHS, where)
    ratio = stated.get(MLP_RATIO)
    is_ratio = isinstance(ratio, int | float) and not isinstance(ratio, bool) and not any(key in stated for key in MLPS)
    width = round(float(ratio) * hidden) if is_ratio and isinstance(ratio, int | float) else _size(stated, MLPS, where)
    layers, merged, full = _size(stated, LAYERS, where), _merged(config, stated, where), stated.get(FULL_LAYERS)
    tile = _patches(stated, where) // merged if _has_tiles(stated) else 0
    return Vision(num_layers=layers, hidden_size=hidden, mlp_width=width, num_heads=_size(stated, HEADS, where),
                  num_matrices=3 if _is_one_of(stated, GATED) else 2, patches_per_token=merged, tile_tokens=tile,
                  num_full_layers=min(len(full), layers) if isinstance(full, list) and full else layers,
                  has_videos="temporal_patch_size" in stated or _is_one_of(stated, WITH_VIDEOS))


def left_out(config: Mapping[str, object], vision: Vision | None) -> tuple[str, ...]:
    """Return the encoders of a config that cannot be computed: "vision" if its sizes are not given, and "audio"."""
    named = {"vision": vision is None and config.get("vision_config"), "audio": config.get("audio_config")}
    return tuple(name for name, stated in named.items() if isinstance(stated, Mapping) and stated)


def _has_tiles(stated: Mapping[str, object]) -> bool:
    """Tell whether images come in one size: the config states it, and merges no patches by their place."""
    return _has_patches(stated) and not any(key in stated for key in MERGES) and stated.get("model_type") != "pixtral"


def _has_patches(stated: Mapping[str, object]) -> bool:
    return all(type(stated.get(key)) is int for key in ("image_size", "patch_size"))


def _patches(stated: Mapping[str, object], where: str) -> int:
    return (_size(stated, ("image_size",), where) // _size(stated, ("patch_size",), where)) ** 2


def _is_one_of(stated: Mapping[str, object], model_types: tuple[str, ...]) -> bool:
    return str(stated.get("model_type", "")).startswith(model_types)


def _merged(config: Mapping[str, object], stated: Mapping[str, object], where: str) -> int:
    """Return how many patches become one token: a square of patches, or all of an image over its tokens."""
    for source in (stated, config):
        for key in MERGES:
            value = source.get(key)
            if isinstance(value, list) and len(value) == 2 and all(isinstance(side, int) for side in value):
                return int(value[0] * value[1])
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value * value
    ratio = stated.get("pixel_shuffle_ratio", config.get("downsample_ratio"))
    if isinstance(ratio, float) and 0 < ratio <= 1:
        return round(1 / ratio**2)
    tokens = config.get("mm_tokens_per_image")
    if isinstance(tokens, int) and tokens > 0 and _has_patches(stated):
        return max(_patches(stated, where) // tokens, 1)
    return 1


def _size(stated: Mapping[str, object], names: tuple[str, ...], where: str) -> int:
    """Return the first of several keys as a positive integer."""
    for name in names:
        value = stated.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise CatalogError(f"{where}: vision_config.{name} = {value!r}; must be a positive integer")
        return value
    raise CatalogError(f"{where}: vision_config has no {names[0]}; copy it from the model's config.json")
