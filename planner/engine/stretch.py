"""A stretch of decode steps in which nothing else can happen: a few nanoseconds a step, and nobody is touched."""

import math

from planner.engine.admission import is_known_blocked
from planner.engine.arrivals import next_arrival_s, visible_until_s
from planner.engine.decodes import next_finish
from planner.engine.jit import jit
from planner.engine.queues import first_waiting
from planner.engine.serving import advance_decode_blocks, enter_decode_content
from planner.engine.state import State
from planner.engine.step import finish_due
from planner.engine.timing import composition_bytes, composition_s, decode_attention_bytes, decode_attention_s
from planner.policy import NO_LIMIT


@jit
def may_run_decodes(s: State) -> bool:
    """Tell whether the coming steps can only be decodes, whatever the policy plans."""
    e = s.engine
    if e.num_decodes == 0 or e.num_decodes != e.num_running or e.num_stalled > 0 or e.is_paused:
        return False
    if s.settings.pipeline_depth > 1 or s.settings.records_schedule:
        return False
    if e.num_decodes > min(s.settings.max_decode_seqs, s.settings.max_num_batched_tokens):
        return False
    if e.num_waiting == 0:
        return True
    if is_guarded(s) or s.settings.is_first_fit or s.settings.limits_batch_only:
        return False
    return bool(e.num_running >= s.settings.max_num_seqs or is_known_blocked(s, first_waiting(s)))


@jit
def is_guarded(s: State) -> bool:
    """Tell whether waiting alone may force an admission."""
    return bool(s.settings.max_wait_s < math.inf or s.settings.max_decode_only_steps < NO_LIMIT)


@jit
def watched_arrival_s(s: State) -> float:
    """Return the next arrival that could change what runs: one that cannot be admitted is no event."""
    e = s.engine
    has_seat = e.num_running < s.settings.max_num_seqs or s.settings.limits_batch_only
    could_enter = has_seat and (e.num_waiting == 0 or s.settings.is_keyed)
    if could_enter or is_guarded(s) or s.settings.records_steps:
        return next_arrival_s(s)
    return math.inf


@jit
def run_decodes(s: State) -> bool:
    """Take decode steps until something else may happen; False if not even one could be taken."""
    engine, settings, gaps = s.engine, s.settings, s.gaps
    decodes = engine.num_decodes
    composition = composition_s(s.step_time, 0, 0, 0, 0, 0, decodes, decodes)
    spare = 1 if settings.needs_spare_block else 0
    steps = min(next_finish(s) - engine.decode_step, settings.most_gap_rows - engine.num_gap_rows)
    if settings.records_steps:
        steps = min(steps, s.settings.most_step_rows - engine.num_step_rows)
    arrival_s = watched_arrival_s(s)
    cancel_s = s.cancels[0].key if engine.num_cancel_entries > 0 else math.inf
    start_s, end_s = engine.last_start_s, engine.now_s
    context, free = engine.decode_context_tokens, engine.num_free_blocks
    total_context, block_s = 0, 0.0
    place = engine.decode_step % settings.block_size
    row = engine.num_gap_rows
    taken = 0
    while taken < steps:
        need = s.ring[place].count
        if need + spare > free:
            break
        if taken > 0 and (arrival_s <= (start_s if settings.is_async else end_s) or cancel_s <= end_s):
            break
        if settings.is_caching and not move_decode_blocks(s):
            break
        free -= need
        duration_s = composition + decode_attention_s(s.step_time, decodes, context)
        gaps[row].gap_s = duration_s
        gaps[row].count = decodes
        if settings.records_steps:
            record_decode_step(s, taken, end_s, duration_s, context, settings.num_gpu_blocks - free)
        start_s = end_s
        end_s += duration_s
        block_s += (settings.num_gpu_blocks - free) * duration_s
        total_context += context
        context += decodes
        row += 1
        taken += 1
        place += 1
        if place == settings.block_size:
            place = 0
        engine.decode_step += 1
    if taken == 0:
        return False
    engine.busy_s += end_s - engine.now_s
    engine.kv_block_s += block_s
    engine.last_start_s = start_s
    engine.now_s = end_s
    engine.last_decode_s = end_s
    engine.decode_context_tokens = context
    engine.num_free_blocks = free
    engine.num_gap_rows = row
    tally_stretch(s, taken, decodes, total_context)
    finish_due(s, 0)
    return True


@jit
def move_decode_blocks(s: State) -> bool:
    """Move the decodes' blocks one step on, block by block; False once the waiting head may have found its prefix."""
    if s.engine.num_waiting > 0 and s.engine.num_running < s.settings.max_num_seqs:
        if not is_known_blocked(s, first_waiting(s)):
            return False
    num_filling = advance_decode_blocks(s)
    for k in range(num_filling):
        enter_decode_content(s, s.scratch[k])
    return True


@jit
def tally_stretch(s: State, taken: int, decodes: int, total_context: int) -> None:
    """Add a stretch to the totals."""
    e = s.engine
    e.num_steps += taken
    e.num_decode_only_steps += taken
    e.last_step_had_prompts = 0
    e.total_decode_tokens += taken * decodes
    e.total_context_tokens += total_context
    e.total_sampled += taken * decodes
    e.total_hbm_bytes += taken * composition_bytes(s.step_time, 0, 0, decodes, decodes)
    e.total_hbm_bytes += decode_attention_bytes(s.step_time, taken * decodes, total_context)
    e.peak_blocks = max(e.peak_blocks, s.settings.num_gpu_blocks - e.num_free_blocks)


@jit
def record_decode_step(s: State, taken: int, start_s: float, duration_s: float, context: int, used_blocks: int) -> None:
    """Write the row of one step of a stretch."""
    e = s.engine
    row = s.steps[e.num_step_rows]
    row.start_s = start_s
    row.duration_s = duration_s
    row.num_prompts = 0
    row.num_prompt_tokens = 0
    row.prompt_context_tokens = 0
    row.prompt_pairs = 0
    row.window_pairs = 0
    row.num_decodes = e.num_decodes
    row.decode_context_tokens = context
    row.num_sampled = e.num_decodes
    row.num_swapped_tokens = 0
    row.num_running = e.num_running
    row.num_waiting = e.num_waiting
    row.num_used_blocks = used_blocks
    row.num_preempted = 0
    e.num_step_rows += 1
