"""Preemption: the victim when KV blocks run out, and its return."""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import append_waiting, prepend_waiting, remove_prompt, remove_running
from planner.loop.decodes import leave_decode
from planner.loop.memory.adapters import drop_adapter
from planner.loop.memory.blocks import ceil_div, num_output_tokens, release_blocks, reserves_ahead
from planner.loop.memory.tiers import shrink_cpu
from planner.loop.state.engine_state import (
    DECODE,
    NONE,
    VICTIM_FEWEST_GENERATED,
    VICTIM_LEAST_OUTPUT,
    VICTIM_NEWEST,
    WAITING,
    State,
)
from planner.loop.step_shape import count_decode, count_prompt


@jit
def choose_victim(s: State) -> int:
    """Return who yields: the newest running request, the first with the largest key, or who has emitted least."""
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
    """Return the running request with the fewest output tokens, of those the longest prompt, of those the newest."""
    best = s.engine.running_head
    v = s.requests[best].next
    while v != NONE:
        fewer = num_output_tokens(s, s.requests[best]) - num_output_tokens(s, s.requests[v])
        longer = s.requests[v].input_tokens - s.requests[best].input_tokens
        if fewer > 0 or (fewer == 0 and longer >= 0):
            best = v
        v = s.requests[v].next
    return int(best)


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
    """Take all blocks from a running request and queue it again; what it had in this step is withdrawn."""
    request = s.requests[i]
    if request.state == DECODE:
        withdraw_decode(s, i)
    else:
        if request.num_scheduled_tokens > 0:
            count_prompt(s, request, int(request.num_scheduled_tokens), -1)
        remove_prompt(s, i)
    request.num_scheduled_tokens = 0
    remove_running(s, i)
    drop_adapter(s, i)
    request.state = WAITING
    swap = move_to_cpu(s, i)
    if not swap:
        request.num_lost_tokens = request.num_computed_tokens
        request.num_computed_tokens = 0
    release_blocks(s, i)
    request.waiting_since_s = s.engine.now_s
    request.num_preemptions += 1
    s.engine.num_preemptions += 1
    s.engine.step_preempted += 1
    if (s.settings.is_keyed and not swap) or (s.settings.requeues_last and not s.settings.is_keyed):
        append_waiting(s, i)
    else:
        prepend_waiting(s, i)
    if s.settings.records_schedule:
        row = s.preemptions[s.engine.num_preemption_rows]
        row.step = s.engine.num_steps
        row.request = i
        row.replica = 0
        s.engine.num_preemption_rows += 1


@jit
def withdraw_decode(s: State, i: int) -> None:
    """Take a decode out of the aggregate, and out of the step where it is in it, with the block it took for it."""
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
    """Copy a victim's KV to the host; False where it is to be recomputed, as when the host has no room."""
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
