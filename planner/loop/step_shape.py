"""Totals of a step that its time depends on."""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.memory.blocks import num_computed_tokens
from planner.loop.state.engine_state import NONE, State
from planner.loop.timing import window_pairs


@jit
def begin_step(s: State) -> None:
    """Clear the counts of the last step."""
    e = s.engine
    e.budget = s.settings.max_num_batched_tokens
    e.step_decodes = 0
    e.step_decode_context = 0
    e.step_prompts = 0
    e.step_pulled = 0
    e.step_pulled_context = 0
    e.step_pulled_window = 0
    e.step_prompt_tokens = 0
    e.step_prompt_context = 0
    e.step_prompt_pairs = 0
    e.step_window_pairs = 0
    e.step_sampled = 0
    e.step_accepted = 0
    e.step_dropped = 0
    e.step_cut = 0
    e.step_image_s = 0.0
    e.step_passed = 0
    e.step_passed_blocks = 0
    e.step_preempted = 0
    e.step_displaced = 0
    e.is_held = 0
    e.step_marks_decodes = 0
    for k in range(e.num_prompts):
        request = s.requests[s.prompts[k]]
        if request.flight == NONE:
            request.num_scheduled_tokens = 0


@jit
def pending_tokens(request: Any) -> int:
    """Return the tokens of a prompt, or of a preempted request, that are still to be computed."""
    return int(request.input_tokens + request.num_output_tokens - request.num_computed_tokens)


@jit
def before_through(s: State, request: Any, computed: int) -> int:
    """Return the tokens that a prompt needs after `computed` ones until it emits.

    In ATOM it needs the prompt's only: the rest of a preempted request is never computed if the budget cuts it off.
    """
    more = -request.num_missing_tokens if s.settings.has_placeholders else request.num_output_tokens
    return int(request.input_tokens + more - computed)


@jit
def is_padded(request: Any) -> bool:
    """Tell whether a prompt of one token has the step's tokens of a decode with drafts."""
    return bool(request.num_scheduled_tokens > pending_tokens(request))


@jit
def advance_prompt(request: Any) -> int:
    """Count the tokens that a prompt's chunk computes; return the tokens that a last chunk emits, more if padded."""
    emitted = int(request.num_offered_tokens) if is_padded(request) else 1
    request.num_computed_tokens += min(int(request.num_scheduled_tokens), pending_tokens(request) + emitted - 1)
    return emitted


@jit
def free_seats(s: State) -> int:
    """Return how many more requests `max_num_seqs` lets in: a request has a seat while it runs, or its KV is loaded."""
    e = s.engine
    seated = e.num_prompts if s.settings.limits_batch_only else e.num_running + e.num_loading + e.num_lingering
    return int(s.settings.max_num_seqs - seated)


@jit
def lets_in(s: State) -> bool:
    """Tell whether requests may enter the step: none after a preemption, unless others paused for them."""
    return bool(s.engine.step_preempted == 0 or s.settings.keeps_order)


@jit
def has_place(s: State) -> bool:
    """Tell whether the step that is composed may take one more sequence."""
    e = s.engine
    return bool(e.budget > 0 and e.step_prompts + e.step_decodes + e.step_passed < s.settings.max_batch_seqs)


@jit
def chunk_tokens(s: State, wanted: int, left: int, is_alone: bool) -> int:
    """Return how many of the `wanted` prompt tokens a step takes that has room for `left`.

    TensorRT-LLM and SGLang cut after whole blocks; if that leaves a step with nothing to do, after any token.
    """
    if wanted <= left:
        return wanted
    whole = left - left % s.settings.chunk_tokens
    return left if whole == 0 and is_alone else whole


@jit
def count_prompt(s: State, request: Any, n: int, sign: int) -> None:
    """Add a chunk of `n` tokens to the step's totals, or take it out again with sign -1."""
    e = s.engine
    computed = int(request.num_computed_tokens)
    e.budget -= sign * n
    e.prompt_budget -= sign * n
    e.step_prompts += sign
    e.step_prompt_tokens += sign * n
    e.step_prompt_context += sign * computed
    e.step_prompt_pairs += sign * (n * computed + n * (n + 1) // 2)
    within = window_pairs(s.step_time.window_tokens, computed, n)
    e.step_window_pairs += sign * within
    if s.settings.pulls_kv and n == 1 and computed > 0:
        e.step_pulled += sign
        e.step_pulled_context += sign * computed
        e.step_pulled_window += sign * within
    if n >= before_through(s, request, computed):
        e.step_sampled += sign


@jit
def count_images(s: State, i: int, n: int, sign: int) -> None:
    """Add the vision encoder's time for `n` prompt tokens of a request, or take it out again with sign -1.

    An encoder runs over an image in the step that reaches it; here each token of the prompt has its share.
    """
    if s.settings.encodes_images:
        s.engine.step_image_s += sign * n * s.image_s_per_token[i]


@jit
def count_decode(s: State, request: Any, n: int, accepted: int, sign: int) -> None:
    """Add a decode's `n` tokens to the step's totals, or take them out again with sign -1; `accepted` were drafted."""
    s.engine.budget -= sign * n
    s.engine.step_decodes += sign
    s.engine.step_cut += sign * (1 + s.settings.num_speculative_tokens - n)
    s.engine.step_accepted += sign * accepted
    s.engine.step_decode_context += sign * num_computed_tokens(s, request)


@jit
def count_dropped(s: State, request: Any, n: int, sign: int) -> None:
    """Add `n` tokens of a request that has ended to the step's totals, or take them out again with sign -1."""
    count_decode(s, request, n, 0, sign)
    s.engine.step_dropped += sign
