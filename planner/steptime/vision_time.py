"""The time of a vision encoder for an image, its tokens and their pairs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.catalog.architecture import Architecture
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.layer_group import LayerGroup
from planner.catalog.layers.mlps import Dense, MlpGroup
from planner.catalog.vision import Vision
from planner.loop.state.count_table import node_counts
from planner.model.batch_overlap import BatchOverlap
from planner.steptime.roofline import roofline
from planner.steptime.step_context import StepContext

FEW, MANY = 4096, 16384  # patches between which the time of the products is taken as a line


class ImageTime(NamedTuple):
    """The time of images: seconds of an image or tile, of each of its tokens, and of each pair of its tokens [s]."""

    per_image_s: float = 0.0
    per_token_s: float = 0.0
    per_pair_s: float = 0.0


def image_time(stack: StepContext) -> ImageTime:
    """Return the time of the model's vision encoder; zeros without one.

    It is a transformer in 16 bit, with the kernels of the language model on this GPU: products over
    all patches, and attention over all pairs of patches of an image, in both directions. Engines split it over the
    tensor-parallel ranks, as the language model (vLLM: --mm-encoder-tp-mode weights).

    Notes
    -----
    Left out: the projector, the image processor on the host, and its batching over images.
    """
    vision = stack.arch.vision
    if vision is None:
        return ImageTime()
    layout = replace(stack.layout, pipeline_parallel_size=1, expert_parallel_size=1, decode_context_parallel_size=1,
                     prefill_context_parallel_size=1,
                     data_parallel_size=1, exchange=type(stack.layout)().exchange, enable_eplb=False,
                     num_redundant_experts=0, attention_dp_timeout_iters=0)
    alone = replace(stack, arch=_transformer(stack.arch, vision), quantization="bf16", draft=None, lora_rank=0,
                    layout=layout, kv_bytes_per_element=2.0, overlap=BatchOverlap())
    encoder = roofline(alone)
    few_s, many_s = np.interp((FEW, MANY), node_counts(), encoder.curve.tokens_s)
    per_patch_s = float(many_s - few_s) / (MANY - FEW)
    patches = vision.patches_per_token
    return ImageTime(per_image_s=max(float(few_s) - FEW * per_patch_s, 0.0) + float(encoder.terms.prompt_s),
                     per_token_s=patches * (per_patch_s + float(encoder.terms.prompt_s_per_token)),
                     per_pair_s=patches**2 * float(encoder.terms.prompt_s_per_pair)
                     * vision.num_full_layers / vision.num_layers)


def image_settings(stack: StepContext | None) -> dict[str, float]:
    """Return the fields of `EngineSettings` that follow from the vision encoder; none if steps are a line."""
    if stack is None or stack.arch.vision is None:
        return {}
    time = image_time(stack)
    return {"image_s": time.per_image_s, "image_s_per_token": time.per_token_s, "image_s_per_pair": time.per_pair_s,
            "image_tile_tokens": stack.arch.vision.tile_tokens}


def _transformer(arch: Architecture, vision: Vision) -> Architecture:
    """Return the encoder as the layers of a dense model."""
    attention = Gqa(num_heads=vision.num_heads, num_kv_heads=vision.num_heads,
                    head_dim=vision.hidden_size // vision.num_heads)
    mlp = Dense(width=vision.mlp_width, num_matrices=vision.num_matrices)
    return replace(arch, name=f"vision encoder of {arch.name}", hidden_size=vision.hidden_size, vocab_size=1,
                   layers=(LayerGroup(vision.num_layers, attention),), mlps=(MlpGroup(vision.num_layers, mlp),),
                   dense_mlp=mlp, num_residual_streams=1, attn_res_block_size=0, adds_up_once=False,
                   per_layer_input_size=0, quantization=None, attention_quantization=None, expert_quantization=None,
                   linear_quantization=None, vision=None)
