"""The small kernels of a forward pass: norms, rotary embedding and activation; how many, and what they move."""

from typing import NamedTuple

from planner.catalog.architecture import Architecture
from planner.catalog.parameters import compressor_widths
from planner.engines import ENGINES

LAYER_KERNELS = 4  # small ones of a dense layer: two norms, the rotary embedding and the activation
# What each takes of them: on two cards 22 and 24 %, 25 %, 27 to 31 % (LLMServingSim's tables).
NORM_SHARE, ROTARY_SHARE, ACTIVATION_SHARE = 0.24, 0.24, 0.28
# And what takes residual streams together and apart. Of one token AIConfigurator's tables (`mhc_module_perf`, SGLang
# 0.5.14, vLLM 0.24 and TensorRT-LLM 1.3.0rc20 on H200 and B200) have 14 to 21 µs, the product included, and 6 to 9.
MIX_SHARE, SPREAD_SHARE = 1.0, 0.7


class Small(NamedTuple):
    """Small kernels of one kind.

    Parameters
    ----------
    num : of them in a forward pass [1].
    share : of the floors of a dense layer's, that one's takes [1].
    elements : of a token, that one reads or writes [1].
    distinct : of these, those that are not the same ones again [1].
    """

    num: int
    share: float
    elements: float
    distinct: float


def small_kernels(arch: Architecture, engine: str, ranks: int) -> tuple[Small, ...]:
    """Return the small kernels of all layers, norms of the hidden state first.

    Parameters
    ----------
    arch, engine : the model, and the name of the engine whose kernels run.
    ranks : that a layer's width is spread over [1].

    Notes
    -----
    A norm adds its input to the residual and writes both back. The rotary embedding turns queries and keys in place,
    under TensorRT-LLM without a launch, in the attention kernel (`rope_fusion` of its Attention); linear attention is
    charged a launch instead. The activation reads gate and up and writes their product, but is among routed experts
    where these are a layer's MLP alone. A norm of query and key over all heads is two kernels, one before the ranks add
    up and one after (`MiniMaxText01RMSNormTP` in vLLM). Residual streams are FP32: they are read to make a half's
    normalised input of them, and, as far as a product in 16 bit leaves it out, to weigh them (`mhc_pre`); and read and
    written with its output (`mhc_post`). A compressor keeps its rows and makes entries of them. Where attention over
    earlier hidden states stands for the residual, each half reads those kept so far and its own (AttnRes).

    >>> from planner.catalog.catalog_files import load_model
    >>> [kernel[:3] for kernel in small_kernels(load_model("llama-3.1-8b"), "vllm", 1) if kernel.num]
    [(64, 0.24, 16384), (32, 0.24, 10240.0), (32, 0.28, 43008.0)]
    """
    hidden, streams = arch.hidden_size, arch.num_residual_streams
    in_attention = ENGINES[engine].rotates_in_attention and arch.attention == "gqa"
    turned = [(count, 0.0 if arch.attention != "gqa"
               else (kind.num_attention_heads + kind.num_kv_heads) * kind.head_dim / ranks)
              for count, kind in arch.attention_kinds]
    dense, shared = (arch.num_mlp_matrices * width / ranks
                     for width in (arch.intermediate_size, arch.shared_intermediate_size))
    kept = arch.attn_res_block_size
    halves = ([Small(arch.num_halves, NORM_SHARE, 4 * hidden, 2 * hidden)] if streams == 1 else
              [Small(arch.num_halves, MIX_SHARE, (3 * streams + 1) * hidden, (2 * streams + 1) * hidden),
               Small(arch.num_halves, SPREAD_SHARE, (4 * streams + 1) * hidden, (2 * streams + 1) * hidden)])
    own = (Small(arch.num_layers, ACTIVATION_SHARE, 3 * arch.per_layer_input_size, 3 * arch.per_layer_input_size),
           Small(arch.num_layers, NORM_SHARE, 4 * hidden, 2 * hidden))  # of layers' own inputs
    read = sum(layer // kept + 1 for layer in range(arch.num_layers)) / arch.num_layers if kept else 0.0
    return (*halves,
            Small(arch.num_halves if kept else 0, NORM_SHARE, (read + 1) * hidden, (read + 1) * hidden),
            Small(sum(count for count, _ in compressor_widths(arch)), NORM_SHARE, 0.0, 0.0),
            *(Small(count, 0.0 if in_attention else ROTARY_SHARE, 2 * width, width) for count, width in turned),
            Small(arch.num_linear_layers, ROTARY_SHARE, 0.0, 0.0),
            Small(arch.num_dense_layers - arch.num_wide_layers, ACTIVATION_SHARE, dense, dense),
            Small(arch.num_wide_layers, ACTIVATION_SHARE, 2 * dense, 2 * dense),
            Small(arch.num_moe_layers if shared else 0, ACTIVATION_SHARE, shared, shared),
            *(own if arch.per_layer_input_size else ()),
            Small(2 * arch.num_attention_layers if arch.qk_norm_over_heads else 0, NORM_SHARE, 0.0, 0.0))


def sampler(arch: Architecture) -> Small:
    """Return what samples a token: 16-bit logits are widened to 32 bit, and the likeliest is looked for in these.

    Its launches come beside the step's, by the host. Source: `Sampler.forward` of vLLM's v1/sample/sampler.py; SGLang's
    LogitsProcessor and TensorRT-LLM's TorchSampler widen them as well.

    >>> from planner.catalog.catalog_files import load_model
    >>> sampler(load_model("llama-3.1-8b"))[2:]
    (641280, 384768)
    """
    return Small(1, 0.0, 5 * arch.vocab_size, 3 * arch.vocab_size)
