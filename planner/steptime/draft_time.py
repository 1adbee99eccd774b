"""The time of a draft in a step: drafting for all decodes, as terms and curves of the target's step."""

from collections.abc import Iterator

import numpy as np

from planner.catalog.architecture import Architecture
from planner.catalog.attention_reads import window_tokens
from planner.loop.state.count_table import node_counts
from planner.loop.state.terms import StepTime
from planner.steptime.contribution import Contribution
from planner.steptime.operators.gemm import Floats

PROMPT_TERMS = ("prompt_s", "prompt_s_per_token", "prompt_s_per_pair", "prompt_s_per_context_token",
                "prompt_s_per_expanded_token", "kv_bytes_per_token", "prompt_launch_s", "decode_launch_s")


def draft_passes(target: Architecture, draft: StepTime, joining_s: Floats, passes: Floats) -> Iterator[Contribution]:
    """Yield the `passes` of a draft with layers, in a step of its target.

    As in vLLM's proposers, the first pass runs all tokens of the step, so that the draft has the KV of prompts too, and
    each later one a token of each decode; each pass reads the context of the decodes and ends with an LM head.

    Parameters
    ----------
    draft : how long steps of the draft alone take.
    joining_s : product that joins the hidden states before its layer, at the counts of `engine.curve` [s].
    passes : k, by the number of decodes, shape of `node_counts` [1].

    Notes
    -----
    Left out: the passes' host work if they are no CUDA graph, later passes for prompts that end in the step, and of
    the HBM traffic the later passes' reads of the context.
    """
    c = draft.curve
    later_s = (passes - 1) * (c.tokens_s + joining_s) + passes * (c.decode_s + c.head_s)
    yield Contribution("draft", {name: float(draft.terms[name]) for name in PROMPT_TERMS}, {
        "draft_s": c.tokens_s + joining_s, "shared_s": c.shared_s, "draft_decode_s": later_s, "decode_s": later_s,
        "tokens_bytes": c.tokens_bytes,
        "decode_bytes": (passes - 1) * c.tokens_bytes + passes * (c.decode_bytes + c.head_bytes),
        "decode_s_per_context_token": passes * c.decode_s_per_context_token})
    yield _window_reads(target, draft, passes)


def draft_block(target: Architecture, draft: StepTime, context_s: Floats, markov_s: Floats, tokens: int
                ) -> Iterator[Contribution]:
    """Yield the one pass of DFlash or DSpark, in a step of its target.

    All tokens of the step get the draft's keys and values from the target's hidden states. Then the last token of each
    decode and k masked tokens run through its layers, which attend to the context and to each other, and an LM head
    draws k tokens. DSpark's second head goes through these one after the other.

    Parameters
    ----------
    draft : how long steps of the draft alone take, of 1 + k tokens a decode.
    context_s : the draft's keys and values of the step's tokens, at the counts of the curve [s].
    markov_s : the second head on a token of each decode, at the same counts [s]; 0 without one.
    tokens : k [1].

    Notes
    -----
    Left out: the masks of a shorter draft, which runs the whole block; the HBM traffic of the second head.
    """
    curve, counts = draft.curve, node_counts().astype(np.float64)
    block, drafted = counts * (1 + tokens), counts * tokens
    block_s = (np.interp(block, counts, curve.tokens_s) + curve.decode_s + np.interp(drafted, counts, curve.head_s)
               + tokens * markov_s)
    yield Contribution("draft", {"kv_bytes_per_token": float(draft.terms.kv_bytes_per_token)}, {
        "draft_s": context_s, "draft_decode_s": block_s, "decode_s": block_s,
        "decode_bytes": np.interp(block, counts, curve.tokens_bytes) + curve.decode_bytes
        + np.interp(drafted, counts, curve.head_bytes),
        "decode_s_per_context_token": curve.decode_s_per_context_token})
    yield _window_reads(target, draft, np.ones(len(counts)))


def _window_reads(target: Architecture, draft: StepTime, passes: Floats) -> Contribution:
    """Return the window reads of the draft's layers; if the target has another window, they count as all context."""
    pair_s, kv_bytes = float(draft.terms.prompt_s_per_window_pair), float(draft.terms.window_kv_bytes_per_token)
    read_s = passes * draft.curve.decode_s_per_window_token
    if int(draft.terms.window_tokens) == window_tokens(target):
        return Contribution("window of the draft", {"prompt_s_per_window_pair": pair_s,
                                                    "window_kv_bytes_per_token": kv_bytes},
                            {"decode_s_per_window_token": read_s})
    return Contribution("window of the draft", {"prompt_s_per_pair": pair_s, "kv_bytes_per_token": kv_bytes},
                        {"decode_s_per_context_token": read_s})


def draft_heads(heads_s: Floats, heads_bytes: float) -> Contribution:
    """Return the time of heads without context for the decodes: Medusa's.

    Parameters
    ----------
    heads_s : of all heads, at the counts of `engine.curve` [s].
    heads_bytes : their weights [bytes].
    """
    return Contribution("draft", curve={"draft_decode_s": heads_s, "decode_s": heads_s, "decode_bytes": heads_bytes})
