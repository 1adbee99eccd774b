"""The parts of a step's time: a record of terms, and curves over counts."""

from typing import Any, NamedTuple

import numpy as np

# Seconds and bytes that `steptime.roofline` makes of the hardware, model and engine; `engine.timing` adds them up.
STEP_TIME = np.dtype(
    [
        ("is_linear", "i8"),
        ("base_s", "f8"),
        ("per_token_s", "f8"),
        ("per_context_token_s", "f8"),
        ("prompt_s", "f8"),  # prompt attention: kernel floors of a step with prompts
        ("prompt_s_per_token", "f8"),  # linear attention, and the cost of short chunks in full attention
        ("prompt_s_per_pair", "f8"),  # one query token attending to one key, full-attention layers
        ("prompt_s_per_window_pair", "f8"),  # the same in sliding-window layers
        ("prompt_s_per_context_token", "f8"),  # read cached KV for a prompt's chunk
        ("prompt_s_per_expanded_token", "f8"),  # MLA: keys and values made of the cached latent for a prompt's chunk
        ("mixed_s_per_context_token", "f8"),  # more for the decodes' context in a step with prompts, full attention
        ("mixed_s_per_window_token", "f8"),  # the same under a window
        ("own_s_per_token", "f8"),  # a decode's own context, which others wait for: FlashAttention-2's tile, MLA's
        ("decode_share", "f8"),  # tokens that each place for a tile gets, of one token of context: decodes alone,
        ("mixed_share", "f8"),  # and beside a prompt
        ("kv_bytes_per_token", "f8"),  # full-attention layers
        ("window_kv_bytes_per_token", "f8"),  # sliding-window layers
        ("window_tokens", "i8"),
        ("is_overlapped", "i8"),  # whether the host works on the next step while the GPU works on this one
        ("host_s", "f8"),  # the host's work on a step
        ("host_s_per_seq", "f8"),
        ("prompt_launch_s", "f8"),  # more of it if a step with prompts is no CUDA graph: kernels launched one by one
        ("decode_launch_s", "f8"),  # the same of decodes alone
        ("graph_seqs", "i8"),  # steps of at most this many decodes, or tokens with prompts, are graphs
        ("graph_tokens", "i8"),
        ("overhead_s", "f8"),  # the part that neither hides
        ("overhead_s_per_seq", "f8"),
        ("overhead_s_per_token", "f8"),  # the same for each token of a prompt, on a replica that only prefills
        ("tokens_per_decode", "i8"),  # that a decode has checked in a step: more than 1 under speculative decoding
        ("adapters_s", "f8"),  # kernels of LoRA adapters, in a step that has some
        ("adapters_s_per_token", "f8"),
        ("adapters_s_per_adapter", "f8"),
        ("frontend_s", "f8"),  # the API server's serial work on a request before the engine sees it
        ("frontend_s_per_token", "f8"),
        ("latency_s", "f8"),  # the rest of a request's way to the engine and of its first token's way back
        ("latency_s_per_token", "f8"),
        ("latency_s_per_seq", "f8"),  # more of it for each running sequence
    ],
    align=True,
)

# Times by the tokens, samples or decodes of a step, at the counts of `engine.curve`; linear in between.
CURVE = np.dtype(
    [
        ("tokens_s", "f8"),  # the sum of the five that follow, which depend on all tokens of the step
        ("linear_s", "f8"),  # dense GEMMs
        ("experts_s", "f8"),  # grouped GEMMs of the routed experts
        ("activations_s", "f8"),  # norms, residuals, rotary, quantisation: bound by memory or by their launch
        ("collectives_s", "f8"),
        ("draft_s", "f8"),  # the draft model's first pass, which all tokens of the step run through
        ("tokens_bytes", "f8"),  # HBM traffic of the same
        ("shared_s", "f8"),  # of tokens_s: experts, and gathering tokens for them, of ranks that share them
        ("head_s", "f8"),  # LM head and sampling, by the tokens that are sampled
        ("head_bytes", "f8"),
        ("decode_s", "f8"),  # decode attention, by the number of decodes: floors, recurrent states
        ("decode_bytes", "f8"),
        ("draft_decode_s", "f8"),  # other work of a draft model, by the number of decodes; in `decode_s`
        ("decode_s_per_context_token", "f8"),  # full-attention layers
        ("decode_s_per_window_token", "f8"),  # sliding-window and top-k layers
        ("decode_part", "f8"),  # FlashAttention-2: share of its context in a tile of one decode; else 0
    ],
    align=True,
)


class StepTime(NamedTuple):
    """How long steps take: a record of STEP_TIME, and records of CURVE, shape [engine.curve.NUM_NODES]."""

    terms: Any
    curve: Any
