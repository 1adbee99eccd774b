"""Overlap: step k + 1 is composed while step k runs, so an end takes effect one composition later.

All is told from the end of step k, when its tokens are known. A request that ends in step k still has its place in
`running`, its blocks and its adapter while step k + 1 is composed. They return when the result of step k is processed,
before step k + 2 is composed. The scheduler knows an end by length ahead and gives the request no row in step k + 1. It
does not know an end by end-of-sequence: the request has one more row, whose token is dropped.

Sources: vLLM, `AsyncScheduler` and `EngineCore.step_with_batch_queue`; TensorRT-LLM, `_executor_loop_overlap`; SGLang,
`event_loop_overlap`.
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import remove_running
from planner.loop.decodes import CLIP_MAX_NEW_TOKENS, depart
from planner.loop.drafts import slots_needed
from planner.loop.memory.adapters import drop_adapter
from planner.loop.memory.blocks import (
    ceil_div,
    enter_filled,
    is_aggregated,
    num_computed_tokens,
    release_blocks,
    reserves_ahead,
    take_blocks,
)
from planner.loop.memory.radix import keep
from planner.loop.state.engine_state import COMPLETED, DECODE, NONE, State
from planner.loop.step_shape import count_dropped
from planner.policies.policy import NO_LIMIT


@jit
def complete(s: State, i: int) -> None:
    """Let a request end that has emitted all its tokens, `num_offered_tokens` of them in its last step."""
    request = s.requests[i]
    request.state = COMPLETED
    request.finished_s = s.engine.now_s
    request.num_scheduled_tokens = 0
    request.num_flying_tokens = request.num_offered_tokens
    request.input_tokens += request.num_skipped_tokens
    request.num_skipped_tokens = 0
    if keeps_blocks(s, i):
        s.engine.num_held += 1
    if not s.settings.defers_ends:
        let_go(s, i)
        depart(s, i)
        return
    depart(s, i)
    e = s.engine
    s.ended[e.num_ended] = i
    e.num_ended += 1
    is_known = request.output_tokens >= request.max_output_tokens and request.num_offered_tokens <= 1
    request.runs_on = s.settings.ends_wait or s.settings.has_placeholders or not is_known
    if request.runs_on:
        e.num_over += 1
        e.over_context += request.num_computed_tokens


@jit
def arrive(s: State, i: int) -> None:
    """Let a prompt enter the radix tree that the last step completed, once its result is processed."""
    if not s.settings.defers_ends:
        keep(s, i, num_computed_tokens(s, s.requests[i]))
        return
    s.arrived[s.engine.num_arrived] = i
    s.engine.num_arrived += 1


@jit
def let_go(s: State, i: int) -> None:
    """Take a request that has ended out of the running ones; its blocks return, unless another engine fetches them.

    In older releases of SGLang it counts as running until decodes are composed, if its last step has no prompts.
    """
    is_full = s.engine.is_full
    forget_missing(s.requests[i])
    remove_running(s, i)
    drop_adapter(s, i)
    if not keeps_blocks(s, i):
        release_blocks(s, i)
    has_row = not s.settings.defers_ends or s.requests[i].num_scheduled_tokens > 0  # in the step that is composed
    if s.settings.ends_wait and not (has_row and s.engine.step_prompts > 0):
        s.engine.is_full = is_full
        s.engine.num_lingering += 1
        left = s.requests[i].max_output_tokens - s.requests[i].num_output_tokens
        s.engine.lingering_output += min(max(left, 0), CLIP_MAX_NEW_TOKENS)


@jit
def forget_missing(request: Any) -> None:
    """Let the tokens that a request lost no longer count as its prompt's, as it leaves."""
    request.input_tokens, request.num_missing_tokens = request.input_tokens - request.num_missing_tokens, 0


@jit
def forget_lingering(s: State) -> bool:
    """Let requests that ended in the meantime no longer count as running; tell whether there were any."""
    if s.engine.num_lingering == 0:
        return False
    s.engine.num_lingering = 0
    s.engine.lingering_output = 0
    s.engine.is_full = 0
    return True


@jit
def keeps_blocks(s: State, i: int) -> bool:
    """Tell whether the blocks of a request stay until another engine has fetched its KV."""
    return bool(s.settings.holds_kv and s.pulls[i].is_held)


@jit
def process_result(s: State) -> None:
    """Process the result of the last step, once the next is composed."""
    e = s.engine
    if s.settings.enters_late and (e.step_marks_decodes or e.step_decodes == e.step_dropped):
        enter_left_out(s)
    if e.num_ended + e.num_arrived > 0:
        land_ends(s)
    if s.settings.num_speculative_tokens > 0:
        know_all(s)


@jit
def waits_for_step(s: State) -> bool:
    """Tell whether a pass without a step waits for the step that runs, and composes again with its results."""
    if not s.settings.defers_ends or s.settings.has_placeholders:
        return False
    return bool(s.engine.num_ended > 0 or s.engine.last_start_s < s.engine.now_s)


@jit
def land_ends(s: State) -> None:
    """Let the requests that ended in the last step release their blocks and seats."""
    e = s.engine
    entered = 0
    for k in range(e.num_ended):
        i = s.ended[k]
        entered = enter_arrived(s, entered, int(s.requests[i].admission_order))
        if s.settings.caches_in_tree and s.requests[i].num_scheduled_tokens > 0:  # its row after the end
            s.requests[i].num_computed_tokens += 1
        if s.settings.enters_late and s.requests[i].num_blocks > 0:
            enter_filled(s, i, int(s.requests[i].num_computed_tokens))
        let_go(s, i)
    e.num_ended = 0
    e.num_over = 0
    e.over_context = 0
    enter_arrived(s, entered, NO_LIMIT)
    e.num_arrived = 0


@jit
def enter_arrived(s: State, first: int, before: int) -> int:
    """Put prompts in the radix tree, from the first on, that stand before a place in the running order."""
    k = first
    while k < s.engine.num_arrived and s.requests[s.arrived[k]].admission_order < before:
        i = s.arrived[k]
        if s.requests[i].state == DECODE:  # it has not been retracted meanwhile
            keep(s, i, num_computed_tokens(s, s.requests[i]))
        k += 1
    return k


@jit
def enter_left_out(s: State) -> None:
    """Make findable the last step's blocks of decodes without a row in the composed step, or with drafts."""
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        has_row = s.engine.step_marks_decodes and request.num_scheduled_tokens > 0
        if request.state == DECODE and (not has_row or s.settings.num_speculative_tokens > 0):
            enter_filled(s, i, num_computed_tokens(s, request))
        i = request.next


@jit
def know_all(s: State) -> None:
    """Leave no token in flight of requests without a row in the composed step."""
    i = s.engine.running_head
    while i != NONE:
        if s.requests[i].num_scheduled_tokens == 0:
            s.requests[i].num_flying_tokens = s.requests[i].num_refused_tokens = 0
        i = s.requests[i].next


@jit
def num_known_tokens(s: State, request: Any) -> int:
    """Return a decode's tokens that the scheduler knows when it composes: it does not know the running step's tokens.
    """
    computed = num_computed_tokens(s, request)
    if not s.settings.defers_ends:
        return computed + 1
    if is_aggregated(s, request):
        return computed + 1 if request.is_stalled or s.engine.is_paused else computed
    return int(computed + 1 - request.num_flying_tokens)


@jit
def enter_known(s: State, i: int, n: int) -> None:
    """Make the blocks findable that a decode fills with known tokens, once it has `n` more tokens in the step."""
    request = s.requests[i]
    known = num_known_tokens(s, request) - int(s.settings.hashes_next_token)
    enter_filled(s, i, min(num_computed_tokens(s, request) + n, known))


@jit
def over_blocks(s: State) -> int:
    """Return the blocks that the rows of ended requests need in the step that is composed."""
    return 0 if s.engine.num_over == 0 or reserves_ahead(s) else ended_blocks(s, 1)


@jit
def kept_blocks(s: State) -> int:
    """Return the blocks that TensorRT-LLM keeps for one token more of requests that are sure to end."""
    return ended_blocks(s, 0) if s.settings.keeps_order else 0


@jit
def ended_blocks(s: State, runs_on: int) -> int:
    """Return the blocks for one token more of the ended requests without a row that have one more, or of the others."""
    need = 0
    for k in range(s.engine.num_ended):
        request = s.requests[s.ended[k]]
        if request.runs_on == runs_on and request.num_scheduled_tokens == 0:
            need += max(ceil_div(request.num_computed_tokens + 1, s.settings.block_size) - request.num_blocks, 0)
    return int(need)


@jit
def grant_over_rows(s: State) -> None:
    """Give every ended request that runs on its row."""
    for k in range(s.engine.num_ended):
        i = s.ended[k]
        if s.requests[i].runs_on and s.requests[i].num_scheduled_tokens == 0:
            grant_over_row(s, i, 1)


@jit
def grant_over_row(s: State, i: int, n: int) -> None:
    """Put a row of `n` tokens in the step for a request whose end is not known yet."""
    request = s.requests[i]
    held = int(request.num_blocks)
    need = ceil_div(slots_needed(s, request, n), s.settings.block_size) - held
    if need > 0 and not reserves_ahead(s):
        take_blocks(s, i, held, need)
    request.num_scheduled_tokens = n
    count_dropped(s, request, n, 1)


@jit
def yield_ended(s: State, i: int) -> None:
    """Withdraw the row of a victim whose last token is in flight, and return its blocks; it never resumes."""
    withdraw_ended(s, i)
    let_go(s, i)


@jit
def is_end_in_flight(s: State, i: int) -> bool:
    """Tell whether a request has ended, and still has its place and its blocks."""
    k = 0
    while k < s.engine.num_ended and s.ended[k] != i:
        k += 1
    return bool(k < s.engine.num_ended)


@jit
def withdraw_ended(s: State, i: int) -> None:
    """Take a request whose last token is in flight off the ended ones, and its row out of the step."""
    request, e = s.requests[i], s.engine
    if request.num_scheduled_tokens > 0:
        count_dropped(s, request, int(request.num_scheduled_tokens), -1)
        request.num_scheduled_tokens = 0
    if request.runs_on:
        e.num_over -= 1
        e.over_context -= request.num_computed_tokens
    k = 0
    while s.ended[k] != i:
        k += 1
    e.num_ended -= 1
    for j in range(k, e.num_ended):
        s.ended[j] = s.ended[j + 1]
