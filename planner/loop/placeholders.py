"""Tokens that count before they are there, as in ATOM: a step's tokens are handed over when the next one has started.

All is told from the end of step k, as in `overlap`. Until its tokens are handed over, a request has placeholders. It is
scheduled on, so each end costs one more row, if the next step is one of decodes. Step k + 1 is composed when the call
that launches step k returns: with the tokens of the last step that had any. A step in which every prompt is cut has no
tokens, so its call does not wait. The tokens of the step before stay in flight until the call of a step with tokens.
A request that is preempted loses the tokens in flight; their placeholders stay and are computed again with the prompt.

Sources: atom/model_engine/scheduler.py (`postprocess`, `preempt`, `_passed_delay`), model_runner.py
(`tokenIDProcessor`), block_manager.py (`hash_blocks`, `can_append`).
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import first_waiting, remove_prompt
from planner.loop.decodes import depart, last_token_s
from planner.loop.emission import add_gap_row, emit_tokens, remove_gap
from planner.loop.memory.blocks import enter_contents, enter_filled, is_aggregated, num_computed_tokens, num_held
from planner.loop.overlap import land_ends, let_go
from planner.loop.state.engine_state import COMPLETED, DECODE, NONE, PROMPT, State
from planner.loop.step_shape import before_through

MOST_ROUNDS = 10_000  # preemptions of one request


@jit
def count_as_computed(s: State, request: Any) -> None:
    """Count a complete prompt as computed, with the generated tokens that the budget cut off."""
    request.num_computed_tokens = request.input_tokens + request.num_output_tokens
    if s.settings.num_speculative_tokens > 0:
        request.num_flying_tokens = 1
        request.num_known_refused = s.settings.num_speculative_tokens + request.num_refused_tokens
        request.num_refused_tokens = 0


@jit
def hand_over(s: State, duration_s: float) -> None:
    """Process the call that launches the composed step. A step with tokens brings the tokens of the last such step."""
    e = s.engine
    if s.settings.enable_prefix_caching:
        for k in range(e.num_prompts):
            request = s.requests[s.prompts[k]]
            computed = int(request.num_computed_tokens)
            enter_contents(s, s.prompts[k], computed, computed + request.num_scheduled_tokens)
    has_tokens = e.step_decodes + e.step_sampled > 0
    returned_s = max(e.composed_s, e.last_start_s)
    if has_tokens:
        if returned_s > e.late_s:
            delay_tokens(s, float(returned_s))
        returned_s = max(returned_s, e.late_s)
    if e.num_arrived > 0:
        settle_losses(s, has_tokens)
    if has_tokens:
        know_tokens(s, float(returned_s))
        land_ends(s)
        e.late_start_s, e.late_s = e.now_s, e.now_s + duration_s
    if e.step_prompts > 0:
        e.prompt_latency_s = returned_s - e.composed_s
    e.composed_s = returned_s


@jit
def know_tokens(s: State, came_s: float) -> None:
    """Let the engine know the tokens in flight: blocks that they fill are findable from now on."""
    if not s.settings.enable_prefix_caching and s.settings.aggregates_decodes:
        return
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == COMPLETED or (request.state == DECODE and has_tokens_in_flight(s, request, came_s)):
            if s.settings.enable_prefix_caching:
                enter_filled(s, i, min(num_computed_tokens(s, request) + 1, room_held(s, request)))
            request.num_flying_tokens = 0
            request.num_known_refused = request.num_refused_tokens
        i = request.next


@jit
def room_held(s: State, request: Any) -> int:
    """Return the tokens that a request's blocks have room for; an aggregated decode has just taken its row's."""
    has_row = request.num_scheduled_tokens > 0 if s.engine.step_marks_decodes else s.engine.step_decodes > 0
    more = 1 if has_row and is_aggregated(s, request) else 0
    return int(max(num_held(s, request) * s.settings.block_size, num_computed_tokens(s, request) + more))


@jit
def has_tokens_in_flight(s: State, request: Any, came_s: float) -> bool:
    """Tell whether tokens of a decode are handed over now, which `came_s`."""
    return bool(last_token_s(s, request) == came_s if s.settings.aggregates_decodes else request.num_flying_tokens > 0)


@jit
def delay_tokens(s: State, to_s: float) -> None:
    """Let the tokens of the last step with any come later than its end: middle chunks ran in the meantime."""
    e = s.engine
    i = e.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE and last_token_s(s, request) == e.late_s:
            delay_token(s, i, to_s)
        elif request.state == COMPLETED and request.finished_s == e.late_s:
            delay_token(s, i, to_s)
            request.finished_s = to_s
        i = request.next
    if e.last_decode_s == e.late_s:
        e.last_decode_s = to_s


@jit
def delay_token(s: State, i: int, to_s: float) -> None:
    """Let a request's last token come later, and the gap before it be longer."""
    request, e = s.requests[i], s.engine
    if request.first_token_s == e.late_s:
        request.first_token_s = to_s
    elif s.settings.stream_interval == 1:
        is_even = is_aggregated(s, request) and e.is_even and request.last_token_s < e.late_s
        before_s = e.late_start_s if is_even else s.token_before_s[i]
        remove_gap(s, float(e.late_s - before_s))
        add_gap_row(s, float(to_s - before_s), 1)
    if request.last_token_s == e.late_s:
        request.last_token_s = to_s


@jit
def settle_losses(s: State, has_tokens: bool) -> None:
    """Let preempted requests have lost their tokens in flight, unless they run again, in one piece, when these come.

    A request that yields alone leaves its step empty, so it is composed again at once.
    """
    e = s.engine
    kept = 0
    for k in range(e.num_arrived):
        i = s.arrived[k]
        request = s.requests[i]
        if request.state == PROMPT and request.num_scheduled_tokens > 0:
            if request.num_scheduled_tokens >= before_through(s, request, int(request.num_computed_tokens)):
                keep_tokens(s, i)
            request.runs_on = 0
        elif not has_tokens:
            s.arrived[kept] = i
            kept += 1
    e.num_arrived = kept


@jit
def keep_tokens(s: State, i: int) -> None:
    """Let a request have the tokens that it was to lose; the engine then takes refused drafts off a second time."""
    request, flying = s.requests[i], int(s.requests[i].num_flying_tokens)
    less = flying + int(request.num_known_refused)
    if s.settings.enable_prefix_caching and s.settings.num_speculative_tokens > 0:
        forget_overwritten(s, i)
    request.input_tokens -= less
    request.num_missing_tokens -= less
    request.num_refused_tokens = request.num_known_refused
    emit_tokens(s, i, flying)
    request.output_tokens = max(request.output_tokens + less - flying, request.num_output_tokens + 1)
    if request.runs_on and s.settings.num_speculative_tokens == 0:
        end_at_once(s, i)


@jit
def forget_overwritten(s: State, i: int) -> None:
    """Let no request find the blocks in which tokens that come late are written over others."""
    request, size = s.requests[i], s.settings.block_size
    known = int(request.input_tokens + request.num_output_tokens)
    first = max(known - 2 * s.settings.num_speculative_tokens - 1, 0) // size
    for k in range(first, known // size):
        s.entries[s.slots[s.prefixes[i].slot_start + k].content].first = NONE


@jit
def end_at_once(s: State, i: int) -> None:
    """Let a request end whose last token comes while it is computed again; that row's token is dropped."""
    request = s.requests[i]
    remove_prompt(s, i)
    request.state = COMPLETED
    request.finished_s = s.engine.now_s
    let_go(s, i)
    depart(s, i)


@jit
def goes_round(s: State) -> bool:
    """Tell whether a request yields again and again, alone, and no token of it is kept."""
    i = first_waiting(s)
    return bool(s.settings.has_placeholders and i != NONE and s.requests[i].num_preemptions > MOST_ROUNDS)
