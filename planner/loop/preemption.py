"""Preemption: the victim when KV blocks run out, and its return."""

import math
from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import append_waiting, insert_running, prepend_waiting, remove_prompt, remove_running
from planner.loop.decodes import leave_decode, num_seen_tokens
from planner.loop.emission import remove_gap
from planner.loop.memory.adapters import drop_adapter
from planner.loop.memory.blocks import ceil_div, enter_filled, num_output_tokens, release_blocks, reserves_ahead
from planner.loop.memory.tiers import shrink_cpu
from planner.loop.overlap import withdraw_ended, yield_ended
from planner.loop.state.engine_state import (
    COMPLETED,
    DECODE,
    NONE,
    VICTIM_FEWEST_GENERATED,
    VICTIM_LEAST_OUTPUT,
    VICTIM_NEWEST,
    WAITING,
    State,
)
from planner.loop.step_shape import count_decode, count_images, count_prompt, is_padded
from planner.policies.policy import NO_LIMIT

MOST_REVIVALS = 64  # ends of a request that can be taken back if each may cost a row more


@jit
def choose_victim(s: State) -> int:
    """Return the running request to preempt when KV blocks run out, by the victim rule.

    The rules choose the newest request, the first request with the largest key, or the request with the fewest output
    tokens.
    """
    if s.settings.victim == VICTIM_NEWEST:
        return int(s.engine.running_tail)
    if s.settings.victim == VICTIM_LEAST_OUTPUT:
        return least_output(s)
    best = s.engine.running_head
    v = s.requests[best].next
    while v != NONE:
        rank = s.ranks[v].victim
        best_rank = s.ranks[best].victim
        if rank > best_rank or (
            s.settings.victim == VICTIM_FEWEST_GENERATED
            and rank == best_rank
            and num_output_tokens(s, s.requests[v]) <= num_output_tokens(s, s.requests[best])
        ):
            best = v
        v = s.requests[v].next
    return int(best)


@jit
def least_output(s: State) -> int:
    """Return the running request with the fewest output tokens; of equals the longest prompt, then the newest.

    None that is known to end, unless there is no other.
    """
    best = s.engine.running_head
    v = s.requests[best].next
    while v != NONE:
        fewer = num_seen_tokens(s, s.requests[best]) - num_seen_tokens(s, s.requests[v])
        longer = s.requests[v].input_tokens - s.requests[best].input_tokens
        is_better = not is_leaving(s, v) and (fewer > 0 or (fewer == 0 and longer >= 0))
        if is_better or is_leaving(s, best):
            best = v
        v = s.requests[v].next
    return int(best)


@jit
def order_by_output(s: State) -> None:
    """Put running requests in the order in which SGLang retracts them from the end: most output tokens first.

    Of equals the shortest prompt is first. The running batch and the requests that end in one step keep this order.
    """
    i = s.engine.running_head
    while i != NONE:
        following, before = int(s.requests[i].next), int(s.requests[i].previous)
        remove_running(s, i)
        while before != NONE and has_more_output(s, i, before):
            before = int(s.requests[before].previous)
        insert_running(s, i, before)
        i = following
    i = s.engine.running_head
    while i != NONE:
        s.requests[i].admission_order = s.engine.num_admissions
        s.engine.num_admissions += 1
        i = s.requests[i].next


@jit
def has_more_output(s: State, a: int, b: int) -> bool:
    more = num_seen_tokens(s, s.requests[a]) - num_seen_tokens(s, s.requests[b])
    return bool(more > 0 or (more == 0 and s.requests[a].input_tokens < s.requests[b].input_tokens))


@jit
def is_leaving(s: State, i: int) -> bool:
    """Tell whether a request has ended, and would not come back if it had to yield."""
    request = s.requests[i]
    return bool(request.state == COMPLETED and not (request.runs_on and may_revive(s)))


@jit
def may_revive(s: State) -> bool:
    """Tell whether an end in flight can be taken back: neither client nor router has heard of it."""
    is_told = s.settings.is_routed or s.settings.max_concurrency < NO_LIMIT or s.settings.stream_interval > 1
    return bool(s.settings.drops_tokens and not is_told)


@jit
def has_room_to_go_on(s: State, request: Any) -> bool:
    """Tell whether a request whose end is taken back has places for one row more in the block table."""
    return bool(not s.settings.has_placeholders or request.num_preemptions <= MOST_REVIVALS)


@jit
def least_urgent_decode(s: State) -> int:
    """Return the running decode with the largest key, the newest of equals, or NONE."""
    best = NONE
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        may_yield = request.state == DECODE and request.flight == NONE
        if may_yield and (best == NONE or s.ranks[i].victim >= s.ranks[best].victim):
            best = i
        i = request.next
    return int(best)


@jit
def preempt(s: State, i: int) -> None:
    """Take all blocks from a running request and queue it again; its part of this step is withdrawn."""
    take_down(s, i)
    if s.requests[i].state == WAITING:
        queue_again(s, i)


@jit
def queue_again(s: State, i: int) -> None:
    """Let a request wait that was taken down."""
    swapped = s.requests[i].is_swapped
    if (s.settings.is_keyed and not swapped) or (s.settings.requeues_last and not s.settings.is_keyed):
        append_waiting(s, i)
    else:
        prepend_waiting(s, i)


@jit
def take_down(s: State, i: int) -> None:
    """Take all blocks from a running request, and its part of this step; an ended request does not come back."""
    request = s.requests[i]
    note_preemption(s, i)
    if request.state == COMPLETED and may_revive(s) and has_room_to_go_on(s, request):
        revive(s, i)
        return
    if request.state == COMPLETED:
        yield_ended(s, i)
        return
    num_flying = 0
    if request.state == DECODE:
        num_flying = num_output_tokens(s, request) - num_seen_tokens(s, request)
        is_dropped = s.settings.drops_tokens and num_flying > 0
        before_s = token_before_s(s, i) if is_dropped else 0.0
        withdraw_decode(s, i)
        if s.settings.enters_late and reserves_ahead(s):  # no ring lists the blocks that it filled
            enter_filled(s, i, int(request.num_computed_tokens - num_flying - s.settings.hashes_next_token))
        if is_dropped and s.settings.has_placeholders:
            request.runs_on = 0
            lose_tokens(s, i, before_s)
        elif is_dropped:
            drop_token(s, request, before_s)
    else:
        if request.num_scheduled_tokens > 0:
            if is_padded(request):
                s.engine.step_accepted -= request.num_offered_tokens - 1
            count_prompt(s, request, int(request.num_scheduled_tokens), -1)
            count_images(s, i, int(request.num_scheduled_tokens), -1)
        remove_prompt(s, i)
    if s.settings.skips_tokens:
        request.input_tokens += request.num_skipped_tokens - num_flying
        request.num_skipped_tokens = num_flying
    request.num_scheduled_tokens = 0
    request.num_refused_tokens = 0
    if not s.settings.has_placeholders:
        request.num_flying_tokens = 0
    remove_running(s, i)
    drop_adapter(s, i)
    request.state = WAITING
    swap = move_to_cpu(s, i)
    if not swap:
        request.num_lost_tokens = request.num_computed_tokens
        request.num_computed_tokens = 0
    release_blocks(s, i)
    request.waiting_since_s = s.engine.now_s


@jit
def revive(s: State, i: int) -> None:
    """Take back the end of a victim, with the token in flight that was its last."""
    request = s.requests[i]
    withdraw_ended(s, i)
    remove_running(s, i)
    drop_adapter(s, i)
    if s.settings.has_placeholders:
        lose_tokens(s, i, token_before_s(s, i))
    else:
        drop_token(s, request, token_before_s(s, i))
    request.state = WAITING
    request.finished_s = math.nan
    s.engine.num_done -= 1
    request.num_lost_tokens = request.num_computed_tokens
    request.num_computed_tokens = 0
    release_blocks(s, i)
    request.waiting_since_s = s.engine.now_s


@jit
def lose_tokens(s: State, i: int, before_s: float) -> None:
    """Let a request lose the tokens in flight: their placeholders, as many as the row before brought, stay as prompt.

    If its last token is among them, it goes on to its next. The blocks of these placeholders have contents of their
    own.
    """
    request, e = s.requests[i], s.engine
    flying = 1 if s.settings.aggregates_decodes else int(request.num_flying_tokens)
    lost = 1 + s.settings.num_speculative_tokens - request.num_known_refused
    request.num_output_tokens -= flying
    known = int(request.input_tokens + request.num_output_tokens)
    if request.num_output_tokens == 0:
        request.first_token_s = math.nan
    elif s.settings.stream_interval == 1:
        remove_gap(s, float(e.now_s - before_s))
        request.last_token_s = before_s
    request.num_flying_tokens = flying
    request.num_known_refused, request.num_refused_tokens = request.num_refused_tokens, 0
    request.input_tokens += lost
    request.num_missing_tokens += lost
    request.output_tokens = max(request.output_tokens - lost, request.num_output_tokens + 1)
    s.arrived[e.num_arrived] = i
    e.num_arrived += 1
    if s.settings.enable_prefix_caching:
        start = int(s.prefixes[i].slot_start)
        for k in range(start + known // s.settings.block_size, start + s.prefixes[i].num_slots):
            s.slots[k].content = s.settings.first_own_content + k


@jit
def drop_token(s: State, request: Any, before_s: float) -> None:
    """Take back a token that SGLang drops because its request is retracted while it is in flight.

    If tokens are sent in groups, the one that comes in its place counts as sent.
    """
    request.num_output_tokens -= 1
    if request.num_output_tokens == 0:
        request.first_token_s = math.nan
    elif s.settings.stream_interval > 1:
        request.is_seen = 1
    else:
        remove_gap(s, float(s.engine.now_s - before_s))
        request.last_token_s = before_s


@jit
def token_before_s(s: State, i: int) -> float:
    """Return when a request emitted the token before the one that it emitted in the last step."""
    if s.engine.is_even and s.requests[i].last_token_s < s.engine.now_s:
        return float(s.engine.last_start_s)
    return float(s.token_before_s[i])


@jit
def note_preemption(s: State, i: int) -> None:
    """Count a preemption, and write its row."""
    s.requests[i].num_preemptions += 1
    s.engine.num_preemptions += 1
    s.engine.step_preempted += 1
    if s.settings.records_schedule:
        row = s.preemptions[s.engine.num_preemption_rows]
        row.step = s.engine.num_steps
        row.request = i
        row.replica = 0
        s.engine.num_preemption_rows += 1


@jit
def withdraw_decode(s: State, i: int) -> None:
    """Take a decode out of the aggregate, and out of the step if it is in it, with the block that it took for it."""
    request = s.requests[i]
    marks = s.engine.step_marks_decodes
    in_step = request.num_scheduled_tokens > 0 if marks else s.engine.step_decodes > 0
    leave_decode(s, i)
    if in_step and not s.settings.aggregates_decodes:
        count_decode(s, request, int(request.num_scheduled_tokens), int(request.num_offered_tokens - 1), -1)
    elif in_step:
        count_decode(s, request, 1, 0, -1)
        if not reserves_ahead(s):
            request.num_blocks = ceil_div(request.num_computed_tokens + 1, s.settings.block_size)


@jit
def leave_cpu(s: State, request: Any) -> None:
    """Return the host blocks of a swapped request, if it is one."""
    if request.is_swapped:
        request.is_swapped = 0
        s.engine.num_free_cpu_blocks += ceil_div(request.num_computed_tokens, s.settings.block_size)


@jit
def move_to_cpu(s: State, i: int) -> bool:
    """Copy a victim's KV to the host; False if it must be recomputed, as when the host has no room."""
    request = s.requests[i]
    needed = ceil_div(request.num_computed_tokens, s.settings.block_size)
    if not s.settings.is_swapping or needed == 0 or needed > s.engine.num_free_cpu_blocks:
        return False
    request.is_swapped = 1
    s.engine.num_free_cpu_blocks -= needed
    if s.settings.has_tiers:
        shrink_cpu(s, int(s.engine.num_free_cpu_blocks))
    cross_host_link(s, int(request.num_computed_tokens))
    return True


@jit
def cross_host_link(s: State, tokens: int) -> None:
    """Charge KV that goes to the host or comes back to the next step that runs: this one may turn out empty."""
    s.engine.step_swapped += tokens
    s.engine.num_swapped_tokens += tokens
