"""Gated delta net, linear attention (Qwen3-Next, Qwen3.5): prompts and decodes of a step, one layer, one GPU.

Mamba-2 keeps a state of the same form, V heads of d_v by d_k, its groups being keys, and reads and writes it alike. Its
scan of prompts is simpler than the delta rule's; it was not measured, so this stands in.
"""

from dataclasses import dataclass
from typing import Any

from planner.steptime.operators.attention import smooth_max
from planner.steptime.operators.constant_ranges import KernelConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPrompt(KernelConstants):
    """Constants of the causal convolution and chunked delta rule; `linear_attention.toml`, phase "context".

    Parameters
    ----------
    floor_s : launches of both [s].
    bandwidth_frac : share of the HBM bandwidth for their inputs and outputs [1].
    s_per_serial_token : time of a token along one sequence, whose chunks follow one another [s].
    """

    floor_s: float
    bandwidth_frac: float
    s_per_serial_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearDecode(KernelConstants):
    """Constants of the convolution and recurrence of one token; `linear_attention.toml`, phase "generation".

    Parameters
    ----------
    floor_s : launches of both [s].
    bandwidth_frac : share of the HBM bandwidth for reading and writing the states [1].
    """

    floor_s: float
    bandwidth_frac: float


def state_traffic_bytes(
    *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int, conv_kernel_dim: int,
    state_bytes_per_element: float,
) -> float:
    """Return the state traffic of one sequence in one layer [B].

        2 · (v_heads · k_dim · v_dim · element + 2 · channels · kernel)

    The recurrent state, and the convolution's last inputs in 16 bit.

    `state_bytes_per_element` : mean of reading and writing the recurrent state. The tables show 4, fp32, in today's
    vLLM and SGLang, and 3 in TensorRT-LLM and SGLang 0.5.10, as if read in fp32 and written in 16 bit [B].

    >>> state_traffic_bytes(num_k_heads=16, num_v_heads=64, head_k_dim=128, head_v_dim=128, conv_kernel_dim=4,
    ...                     state_bytes_per_element=4)
    8585216.0
    """
    recurrent = state_bytes_per_element * num_v_heads * head_k_dim * head_v_dim
    channels = 2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim
    return 2.0 * (recurrent + 2.0 * channels * conv_kernel_dim)


def linear_decode_s(
    num_decodes: Any, *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int, conv_kernel_dim: int,
    state_bytes_per_element: float, bandwidth_bytes_per_s: float, constants: LinearDecode,
) -> Any:
    """Return the time of a step's decodes in one layer, for any context [s].

        floor + decodes · state traffic / (bandwidth_frac · bandwidth)

    Parameters
    ----------
    num_decodes : sequences of the step; a number or array [1].
    num_k_heads, num_v_heads : on this GPU [1].

    Notes
    -----
    Convolution update and recurrence, without the projections, norm and gate. Below 16 sequences the tables' states
    stay in the L2 cache, and this is too high by up to a third.

    >>> seconds = linear_decode_s(256, num_k_heads=16, num_v_heads=64, head_k_dim=128, head_v_dim=128,
    ...     conv_kernel_dim=4, state_bytes_per_element=4, bandwidth_bytes_per_s=3.35e12,
    ...     constants=LinearDecode(floor_s=5e-6, bandwidth_frac=0.9))
    >>> round(1e6 * seconds)
    734
    """
    traffic = state_traffic_bytes(num_k_heads=num_k_heads, num_v_heads=num_v_heads, head_k_dim=head_k_dim,
                                  head_v_dim=head_v_dim, conv_kernel_dim=conv_kernel_dim,
                                  state_bytes_per_element=state_bytes_per_element)
    return constants.floor_s + num_decodes * traffic / (bandwidth_bytes_per_s * constants.bandwidth_frac)


def linear_prompt_s(
    num_tokens: Any, num_prompts: Any, *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int,
    conv_kernel_dim: int, state_bytes_per_element: float, bandwidth_bytes_per_s: float, constants: LinearPrompt,
) -> Any:
    """Return the time of a step's prompt chunks in one layer, for any context [s].

        floor + prompts · state traffic / bandwidth
        + smooth max of tokens · traffic / (bandwidth_frac · bandwidth) and tokens / prompts · s_per_serial_token

    Traffic of a token: the convolution's channels in and out, the rule's channels in and values out, in 16 bit. The
    chunks of one sequence wait for one another, so that one long prompt on few heads is bound by its length.

    Parameters
    ----------
    num_tokens, num_prompts : of the step; numbers or arrays, at least one prompt [1].

    Notes
    -----
    Grows with the tokens; the same tokens in more prompts may take less. The mean length stands for the longest, so
    a long prompt among short ones is too low. Fitted to 1 to 16 prompts of 128 to 16,384 tokens.

    >>> seconds = linear_prompt_s(4096, 1, num_k_heads=2, num_v_heads=8, head_k_dim=128, head_v_dim=128,
    ...     conv_kernel_dim=4, state_bytes_per_element=4, bandwidth_bytes_per_s=3.35e12,
    ...     constants=LinearPrompt(floor_s=1.1e-5, bandwidth_frac=0.56, s_per_serial_token=5.5e-8))
    >>> round(1e6 * seconds)
    237
    """
    traffic = state_traffic_bytes(num_k_heads=num_k_heads, num_v_heads=num_v_heads, head_k_dim=head_k_dim,
                                  head_v_dim=head_v_dim, conv_kernel_dim=conv_kernel_dim,
                                  state_bytes_per_element=state_bytes_per_element)
    values = num_v_heads * head_v_dim
    channels = 2 * num_k_heads * head_k_dim + values
    stream = num_tokens * 2.0 * (3.0 * channels + values) / (bandwidth_bytes_per_s * constants.bandwidth_frac)
    serial = num_tokens / num_prompts * constants.s_per_serial_token
    return constants.floor_s + num_prompts * traffic / bandwidth_bytes_per_s + smooth_max(stream, serial)
