"""The small kernels of a forward pass: norms, rotary embedding and activation; their number and traffic."""

from typing import NamedTuple

from planner.catalog.architecture import Architecture
from planner.catalog.layers.mlps import Dense, Experts
from planner.engines import ENGINES

LAYER_KERNELS = 4  # small ones of a dense layer: two norms, the rotary embedding and the activation
# The share of each in their time: on two cards 22 and 24 %, 25 %, 27 to 31 % (LLMServingSim's tables).
NORM_SHARE, ROTARY_SHARE, ACTIVATION_SHARE = 0.24, 0.24, 0.28
# And of mixing and spreading residual streams. Of one token AIConfigurator's tables (`mhc_module_perf`, SGLang
# 0.5.14, vLLM 0.24 and TensorRT-LLM 1.3.0rc20 on H200 and B200) have 14 to 21 µs, the product included, and 6 to 9.
MIX_SHARE, SPREAD_SHARE = 1.0, 0.7


class Small(NamedTuple):
    """Small kernels of one kind.

    Parameters
    ----------
    num : of them in a forward pass [1].
    share : of the floors of a dense layer's, that one's takes [1].
    elements : of a token, that one reads or writes [1].
    distinct : of these, without repeats [1].
    """

    num: int
    share: float
    elements: float
    distinct: float


def small_kernels(arch: Architecture, engine: str, ranks: int, *, fuses_shared: bool = False) -> tuple[Small, ...]:
    """Return the small kernels of all layers, norms of the hidden state first.

    Parameters
    ----------
    arch, engine : the model, and the name of the engine whose kernels run.
    ranks : that a layer's width is spread over [1].
    fuses_shared : whether the kernel of routed experts activates the shared ones too.

    Notes
    -----
    A norm adds its input to the residual and writes both back. The rotary embedding turns queries and keys in place,
    under TensorRT-LLM without a launch, in the attention kernel (`rope_fusion` of its Attention); linear attention is
    charged a launch instead. The activation reads gate and up and writes their product, but is among routed experts
    if these are a layer's MLP alone. A norm of query and key over all heads is two kernels, one before the ranks add
    up and one after (`MiniMaxText01RMSNormTP` in vLLM). Residual streams are FP32: they are read to make a half's
    normalised input of them, and, as far as a product in 16 bit leaves it out, to weigh them (`mhc_pre`); and read and
    written with its output (`mhc_post`). A compressor keeps its rows and makes entries of them. If attention over
    earlier hidden states stands for the residual, each half reads the states kept before and its own (AttnRes).

    >>> from planner.catalog.catalog_files import load_model
    >>> [kernel[:3] for kernel in small_kernels(load_model("llama-3.1-8b"), "vllm", 1) if kernel.num]
    [(64, 0.24, 16384), (32, 0.24, 10240.0), (32, 0.28, 43008.0)]
    """
    hidden, streams = arch.hidden_size, arch.num_residual_streams
    kept = arch.attn_res_block_size
    halves = ([Small(arch.num_halves, NORM_SHARE, 4 * hidden, 2 * hidden)] if streams == 1 else
              [Small(arch.num_halves, MIX_SHARE, (3 * streams + 1) * hidden, (2 * streams + 1) * hidden),
               Small(arch.num_halves, SPREAD_SHARE, (4 * streams + 1) * hidden, (2 * streams + 1) * hidden)])
    inputs = (Small(arch.num_layers, ACTIVATION_SHARE, 3 * arch.per_layer_input_size, 3 * arch.per_layer_input_size),
              Small(arch.num_layers, NORM_SHARE, 4 * hidden, 2 * hidden))  # of layers' own inputs
    read = sum(layer // kept + 1 for layer in range(arch.num_layers)) / arch.num_layers if kept else 0.0
    return (*halves,
            Small(arch.num_halves if kept else 0, NORM_SHARE, (read + 1) * hidden, (read + 1) * hidden),
            Small(sum(group.count * group.attention.num_small_kernels(group) for group in arch.layers),
                  NORM_SHARE, 0.0, 0.0),
            *_rotary(arch, engine, ranks), *_activations(arch, ranks, fuses_shared=fuses_shared),
            *(inputs if arch.per_layer_input_size else ()),
            Small(2 * arch.num_layers_normed_over_heads, NORM_SHARE, 0.0, 0.0))


def _rotary(arch: Architecture, engine: str, ranks: int) -> list[Small]:
    """The kernels that rotate query and key, by kind of attention."""
    kernels = []
    for attention, groups in arch.by_attention:
        is_inside = ENGINES[engine].kernels.rotates_in_attention and attention.is_rotated_inside
        width = attention.rotary_width / ranks
        kernels.append(Small(sum(group.count for group in groups), 0.0 if is_inside else ROTARY_SHARE, 2 * width,
                             width))
    return kernels


def _activations(arch: Architecture, ranks: int, *, fuses_shared: bool) -> list[Small]:
    """The activations of dense MLPs and of shared experts."""
    kinds: tuple[type[Dense | Experts], ...] = (Dense,) if fuses_shared else (Dense, Experts)
    widths = [(group.count, group.mlp.activated_width / ranks) for group in arch.mlps if isinstance(group.mlp, kinds)]
    return [Small(count if width else 0, ACTIVATION_SHARE, width, width) for count, width in widths]


def sampler(arch: Architecture) -> Small:
    """Return the sampling of a token: 16-bit logits are widened to 32 bit, and the likeliest is looked for in these.

    Its launches come beside the step's, by the host. Source: `Sampler.forward` of vLLM's v1/sample/sampler.py; SGLang's
    LogitsProcessor and TensorRT-LLM's TorchSampler widen them as well.

    >>> from planner.catalog.catalog_files import load_model
    >>> sampler(load_model("llama-3.1-8b"))[2:]
    (641280, 384768)
    """
    return Small(1, 0.0, 5 * arch.vocab_size, 3 * arch.vocab_size)
