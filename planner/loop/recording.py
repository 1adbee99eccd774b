"""Rows of a step: its content, the limit that stops its queue, and the waits of its decodes."""

from typing import Any

from planner.loop.admissible import has_room, is_known_blocked, look_up, tokens_within_budget
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import first_waiting
from planner.loop.longest import longest_context
from planner.loop.memory.adapters import lacks_adapter_slot
from planner.loop.rows import ADAPTERS, BLOCKS, NOBODY_WAITS, PLAN, SEATS, TOKENS
from planner.loop.state.engine_state import DECODE, NONE, PROMISE_SHARE, State
from planner.loop.step_shape import free_seats
from planner.loop.timing import decodes_alone_s, rows_of_step, step_drafts


@jit
def record_step(s: State, duration_s: float, used_blocks: int) -> None:
    """Write the row of the step that is about to run."""
    e = s.engine
    row = s.steps[e.num_step_rows]
    row.start_s = e.now_s
    row.duration_s = duration_s
    composed = rows_of_step(s)
    row.num_prompts = composed.prompts
    row.num_prompt_tokens = composed.prompt_tokens
    row.prompt_context_tokens = composed.prompt_context
    row.prompt_pairs = composed.prompt_pairs
    row.window_pairs = composed.window_pairs
    row.num_decodes = composed.decodes
    row.num_drafted_tokens = step_drafts(s)
    row.decode_context_tokens = composed.decode_context
    row.longest_context_tokens = longest_context(s) if e.step_decodes > 0 else 0
    row.num_sampled = e.step_sampled + e.step_decodes + e.step_accepted - e.step_dropped
    row.num_accepted_tokens = e.step_accepted
    row.num_dropped = e.step_dropped
    row.num_swapped_tokens = e.step_swapped
    row.num_adapters = e.num_adapters
    row.adapter_load_s = e.step_adapter_s
    row.image_s = e.step_image_s
    row.num_running = e.num_running
    row.num_ended = e.num_ended
    row.num_waiting = e.num_waiting
    row.num_used_blocks = used_blocks
    row.num_preempted = e.step_preempted
    row.rank_wait_s = e.step_wait_s
    row.num_spared_tokens = e.step_spared
    row.stopped_by = stopped_by(s)
    row.replica = 0
    share_time(s, row)
    e.num_step_rows += 1


@jit
def record_schedule(s: State) -> None:
    """Write a row for each request of the step, in running order."""
    engine = s.engine
    i = engine.running_head
    while i != NONE:
        request = s.requests[i]
        n = request.num_scheduled_tokens
        if request.state == DECODE and not engine.step_marks_decodes:
            n = 1 if engine.step_decodes > 0 else 0
        if n > 0 and request.flight == NONE:
            row = s.schedule[engine.num_schedule_rows]
            row.step = engine.num_steps
            row.request = i
            row.num_scheduled_tokens = n
            row.replica = 0
            engine.num_schedule_rows += 1
        i = request.next


@jit
def stopped_by(s: State) -> int:
    """Return why the head of the queue is not in the step that was composed, by the checks of admission in order."""
    e = s.engine
    i = first_waiting(s)
    if i == NONE:
        return NOBODY_WAITS
    if e.step_preempted > 0:
        return BLOCKS
    if free_seats(s) <= 0 or e.step_prompts + e.step_decodes >= s.settings.max_batch_seqs:
        return SEATS if s.settings.max_batch_seqs < s.settings.max_num_batched_tokens else TOKENS
    if lacks_adapter_slot(s, i):
        return ADAPTERS
    if s.settings.promise == PROMISE_SHARE:
        return BLOCKS if e.is_full else TOKENS
    if is_known_blocked(s, i):
        return BLOCKS
    if e.budget <= 0:
        return TOKENS
    if e.prompt_budget <= 0:
        return TOKENS if e.step_prompts > 0 and (not e.has_tight_plan or e.prompt_budget >= e.budget) else PLAN
    hit_blocks, unused_hits, _, computed = look_up(s, i)
    n = tokens_within_budget(s, s.requests[i], computed)
    if n == 0:
        return PLAN if e.has_tight_plan and e.prompt_budget < e.budget else TOKENS
    return PLAN if has_room(s, s.requests[i], n, hit_blocks, unused_hits, computed) else BLOCKS


@jit
def tally_queue(s: State, duration_s: float) -> None:
    """Add the queue's time during a step, or during steps of the same decodes, to the totals, by its cause."""
    if s.engine.num_waiting > 0:
        s.engine.total_stopped_s[stopped_by(s)] += s.engine.num_waiting * duration_s


@jit
def share_time(s: State, row: Any) -> None:
    """Divide the step's time from the view of its decodes: their own work, the host link, and the rest for prompts."""
    e = s.engine
    transfer_s = e.step_swapped * s.settings.swap_s_per_token
    if e.step_prompts == 0 and e.step_swapped == 0 and e.step_adapter_s == 0.0:
        row.decodes_alone_s = row.duration_s - e.step_wait_s
    else:
        row.decodes_alone_s = decodes_alone_s(s)
    e.transfer_s += transfer_s
    e.interference_s += row.duration_s - row.decodes_alone_s - transfer_s
