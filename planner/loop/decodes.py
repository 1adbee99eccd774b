"""Decodes in the aggregate: between two events a batch of decodes only grows its context, so no request is touched.

Every decode that runs in a step emits one token, so a decode's progress is the engine's `decode_step` less its own
`decode_offset`. It finishes when the counter reaches `offset + output_tokens` (a heap), and needs a block when its
context crosses a block's end, every `block_size` steps (a ring). A decode that is left out of a step has its offset
raised by one.
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import heap_pop, heap_push
from planner.loop.longest import forget_longest, note_longest
from planner.loop.memory.blocks import (
    ceil_div,
    enter_filled,
    is_aggregated,
    num_computed_tokens,
    num_output_tokens,
    reserves_ahead,
    return_chunk,
)
from planner.loop.state.engine_state import DECODE, NONE, State
from planner.policies.policy import NO_LIMIT

CLIP_MAX_NEW_TOKENS = 4096  # of one request's output to come, SGLang considers no more


@jit
def enter_decode(s: State, i: int) -> None:
    """Let a request that has just emitted a token decode from the next step on."""
    request = s.requests[i]
    request.state = DECODE
    if s.settings.records_steps:
        add_decode_time(s, i, -1.0)
    s.engine.num_decodes += 1
    return_chunk(s, i)
    if not is_aggregated(s, request):
        return
    request.decode_offset = s.engine.decode_step - request.num_output_tokens
    s.engine.decode_context_tokens += request.input_tokens + request.num_output_tokens - 1
    note_longest(s, request)
    link_ring(s, i)
    if s.engine.num_finish_entries == s.settings.most_finishes:
        rebuild_finishes(s)
    else:
        key = request.decode_offset + request.output_tokens
        s.engine.num_finish_entries = heap_push(s.finishes, s.engine.num_finish_entries, key, i)


@jit
def add_decode_time(s: State, i: int, sign: float) -> None:
    """Take the clock and the engine's totals off a request that begins to decode, or add them at its end."""
    phases = s.phases[i]
    phases.decode_s += sign * s.engine.now_s
    phases.interference_s += sign * s.engine.interference_s
    phases.transfer_s += sign * s.engine.transfer_s


@jit
def leave_decode(s: State, i: int) -> None:
    """Give a decode its own progress back, before it finishes, yields or is cancelled."""
    request = s.requests[i]
    if s.settings.records_steps:
        add_decode_time(s, i, 1.0)
    s.engine.num_decodes -= 1
    if not is_aggregated(s, request):
        return
    computed = num_computed_tokens(s, request)
    s.engine.decode_context_tokens -= computed
    forget_longest(s, request)
    unlink_ring(s, i)
    request.last_token_s = last_token_s(s, request)
    if request.is_stalled:
        request.is_stalled = 0
        s.engine.num_stalled -= 1
    if not reserves_ahead(s):
        request.num_blocks = ceil_div(computed, s.settings.block_size)
    elif s.settings.enable_prefix_caching and not s.settings.enters_late:  # no ring lists the blocks that it filled
        enter_filled(s, i, computed)
    request.num_output_tokens = num_output_tokens(s, request)
    request.num_computed_tokens = computed


@jit
def last_token_s(s: State, request: Any) -> float:
    """Return when an aggregated decode emitted its last token."""
    if request.is_stalled:
        return float(request.last_token_s)
    return float(max(request.last_token_s, s.engine.last_decode_s))


@jit
def num_seen_tokens(s: State, request: Any) -> int:
    """Return the tokens that a scheduler which composes ahead knows of: one in flight is not among them."""
    e = s.engine
    is_flying = s.settings.defers_ends and e.last_start_s < e.now_s and last_token_s(s, request) == e.now_s
    return int(num_output_tokens(s, request) - (1 if is_flying else 0))


@jit
def postpone(s: State, i: int) -> None:
    """Leave a decode out of the step that has just advanced `decode_step`."""
    request = s.requests[i]
    if not request.is_stalled:
        request.last_token_s = last_token_s(s, request)
        request.is_stalled = 1
        s.engine.num_stalled += 1
    unlink_ring(s, i)
    forget_longest(s, request)
    request.decode_offset += 1
    link_ring(s, i)


@jit
def ring_place(s: State, request: Any) -> int:
    """Return the place of the decode steps at whose start the request needs a new block."""
    return int((request.decode_offset + 1 - request.input_tokens) % s.settings.block_size)


@jit
def link_ring(s: State, i: int) -> None:
    if reserves_ahead(s):
        return
    request = s.requests[i]
    place = s.ring[ring_place(s, request)]
    place.count += 1
    if s.settings.enable_prefix_caching:
        s.prefixes[i].ring_previous = NONE
        s.prefixes[i].ring_next = place.head
        if place.head != NONE:
            s.prefixes[place.head].ring_previous = i
        place.head = i


@jit
def unlink_ring(s: State, i: int) -> None:
    if reserves_ahead(s):
        return
    request = s.requests[i]
    place = s.ring[ring_place(s, request)]
    place.count -= 1
    if s.settings.enable_prefix_caching:
        prefix = s.prefixes[i]
        if prefix.ring_previous == NONE:
            place.head = prefix.ring_next
        else:
            s.prefixes[prefix.ring_previous].ring_next = prefix.ring_next
        if prefix.ring_next != NONE:
            s.prefixes[prefix.ring_next].ring_previous = prefix.ring_previous


@jit
def blocks_needed(s: State) -> int:
    """Return the blocks that all decodes together need for one more step."""
    return int(s.ring[s.engine.decode_step % s.settings.block_size].count)


@jit
def gather_ring(s: State, place: int, size: int) -> int:
    """Add the decodes at one place of the ring to the `size` listed in `scratch`, in running order."""
    i = s.ring[place].head
    while i != NONE:
        size = list_in_order(s, i, size)
        i = s.prefixes[i].ring_next
    return size


@jit
def list_in_order(s: State, i: int, size: int) -> int:
    """Put a request among the `size` in `scratch`, which are in running order; return how many there are then."""
    k = size
    while k > 0 and s.requests[s.scratch[k - 1]].admission_order > s.requests[i].admission_order:
        s.scratch[k] = s.scratch[k - 1]
        k -= 1
    s.scratch[k] = i
    return size + 1


@jit
def next_finish(s: State) -> int:
    """Return the value of `decode_step` at which the next decode finishes, sweeping outdated entries off the heap."""
    while s.engine.num_finish_entries > 0:
        key = s.finishes[0].key
        i = s.finishes[0].request
        request = s.requests[i]
        if request.state == DECODE and request.decode_offset + request.output_tokens == key:
            return int(key)
        s.engine.num_finish_entries = heap_pop(s.finishes, s.engine.num_finish_entries)
        if request.state == DECODE:
            key = request.decode_offset + request.output_tokens
            s.engine.num_finish_entries = heap_push(s.finishes, s.engine.num_finish_entries, key, i)
    return NO_LIMIT


@jit
def rebuild_finishes(s: State) -> None:
    """Fill the heap anew with the running decodes, without the outdated entries that made it full."""
    size = 0
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE:
            size = heap_push(s.finishes, size, request.decode_offset + request.output_tokens, i)
        i = request.next
    s.engine.num_finish_entries = size


@jit
def depart(s: State, i: int) -> None:
    """Count a request that has left for good, and let a closed-loop client send its next one."""
    if s.settings.is_routed:
        s.left_before[i] = s.engine.last_to_leave
        s.engine.last_to_leave = i
    if s.settings.max_concurrency < NO_LIMIT:
        s.departed_s[s.engine.num_done] = s.engine.now_s
    s.engine.num_done += 1
