"""The time of a draft in a step: what is drafted for all decodes, as terms and curves of the target's step."""

from typing import Any

from planner.loop.state.terms import StepTime
from planner.steptime.operators.gemm import Floats

PROMPT_TERMS = ("prompt_s", "prompt_s_per_token", "prompt_s_per_pair", "prompt_s_per_context_token",
                "prompt_s_per_expanded_token", "kv_bytes_per_token", "prompt_launch_s", "decode_launch_s")


def add_passes(step_time: StepTime, draft: StepTime, joining_s: Floats, passes: int) -> None:
    """Add the `passes` of a draft with layers to a step of its target.

    As in vLLM's proposers, the first pass runs all tokens of the step, so that the draft has the KV of prompts too, and
    each later one a token of each decode; each pass reads the context of the decodes and ends with an LM head.

    Parameters
    ----------
    draft : how long steps of the draft alone take.
    joining_s : what joins the hidden states before its layer, at the counts of `engine.curve` [s].
    passes : k [1].

    Notes
    -----
    Left out: the passes' host work where they are no CUDA graph, later passes for prompts that end in the step, and of
    the HBM traffic what later passes read of the context.
    """
    curve, own = step_time.curve, draft.curve
    curve.draft_s += own.tokens_s + joining_s
    curve.shared_s += own.shared_s
    later_s = (passes - 1) * (own.tokens_s + joining_s) + passes * (own.decode_s + own.head_s)
    curve.draft_decode_s += later_s
    curve.decode_s += later_s
    curve.tokens_bytes += own.tokens_bytes
    curve.decode_bytes += (passes - 1) * own.tokens_bytes + passes * (own.decode_bytes + own.head_bytes)
    _fold_context(step_time, draft, passes)


def _fold_context(step_time: StepTime, draft: StepTime, passes: int) -> None:
    """Add what the draft's attention reads; under a window that the target does not have it counts all."""
    terms, curve, own = step_time.terms, step_time.curve, draft.terms
    for name in PROMPT_TERMS:
        setattr(terms, name, getattr(terms, name) + getattr(own, name))
    window = "window_" if own.window_tokens == terms.window_tokens else ""
    _add(terms, f"prompt_s_per_{window}pair", own.prompt_s_per_window_pair)
    _add(terms, f"{window}kv_bytes_per_token", own.window_kv_bytes_per_token)
    curve.decode_s_per_context_token += passes * draft.curve.decode_s_per_context_token
    windowed = curve.decode_s_per_window_token if window else curve.decode_s_per_context_token
    windowed += passes * draft.curve.decode_s_per_window_token


def add_heads(step_time: StepTime, heads_s: Floats, heads_bytes: float) -> None:
    """Add what heads without context take for the decodes: Medusa's.

    Parameters
    ----------
    heads_s : of all heads, at the counts of `engine.curve` [s].
    heads_bytes : their weights [bytes].
    """
    curve = step_time.curve
    curve.draft_decode_s += heads_s
    curve.decode_s += heads_s
    curve.decode_bytes += heads_bytes
    curve[0].draft_decode_s = curve[0].decode_s = curve[0].decode_bytes = 0.0


def _add(record: Any, name: str, value: float) -> None:
    setattr(record, name, getattr(record, name) + value)
