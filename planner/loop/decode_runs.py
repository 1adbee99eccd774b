"""Runs of decode steps without other events: a few nanoseconds a step, and no request is touched."""

import math
from typing import Any

from planner.loop.api_server import next_arrival_s, next_event_s
from planner.loop.compiled.jit import jit
from planner.loop.decode_room import (
    has_blocks,
    may_have_found,
    steps_in_memory,
)
from planner.loop.decodes import blocks_needed, next_finish
from planner.loop.emission import see_decodes
from planner.loop.longest import longest_context
from planner.loop.memory.blocks import ceil_div
from planner.loop.memory.tiers import write_filled
from planner.loop.overlap import forget_lingering, grant_over_rows, land_ends, over_blocks
from planner.loop.recording import record_step, tally_queue
from planner.loop.serving import advance_decode_blocks, enter_decode_content
from planner.loop.state.engine_state import WRITE_BACK, State
from planner.loop.steady_steps import Run, take_steps
from planner.loop.step import enter_decode_contents, finish_due
from planner.loop.step_shape import begin_step, free_seats
from planner.loop.timing import (
    adapters_s,
    composition_bytes,
    context_s,
    context_slopes,
    decode_attention_bytes,
    decodes_s,
    hidden_s,
    is_graph,
    overhead_s,
    tile_part,
    uneven_growth_s,
    uneven_s,
)
from planner.policies.policy import NO_LIMIT

ROUNDING = 1.0 - 1e-9  # of sums of step times


@jit
def may_run_decodes(s: State) -> bool:
    """Tell whether the coming steps can only be decodes, for any plan of the policy."""
    e = s.engine
    if e.num_decodes == 0 or e.num_decodes + e.num_ended != e.num_running or e.num_stalled > 0 or e.is_paused:
        return False
    if not s.settings.aggregates_decodes or s.settings.records_schedule or e.step_swapped > 0:
        return False
    if e.step_adapter_s > 0.0:
        return False
    if e.num_decodes + e.num_over > min(s.settings.max_batch_seqs, s.settings.max_num_batched_tokens):
        return False
    if s.settings.has_tiers and s.settings.write_policy == WRITE_BACK:  # an eviction makes a step longer
        return False
    if e.num_ended > 0 and (e.num_waiting > 0 or s.settings.records_steps or finds_ends(s)):
        return False  # it decides which requests wait, and why
    if e.num_arrived > 0 or (e.num_lingering > 0 and e.num_waiting > 0):
        return False
    if e.num_waiting == 0:
        return True
    if is_guarded(s) or s.settings.is_first_fit or s.settings.limits_batch_only or s.settings.displaces:
        return False
    return not may_have_found(s)


@jit
def finds_ends(s: State) -> bool:
    """Tell whether the last block of a request that ends becomes findable one step later."""
    return bool(s.settings.has_placeholders and s.settings.enable_prefix_caching)


@jit
def is_guarded(s: State) -> bool:
    """Tell whether waiting alone may force an admission."""
    return bool(s.settings.max_wait_s < math.inf or s.settings.max_decode_only_steps < NO_LIMIT)


@jit
def watched_arrival_s(s: State) -> float:
    """Return the next arrival that could change the running batch: one that cannot be admitted is no event."""
    e = s.engine
    if s.settings.scheduler_recv_interval > 1:  # `steps_to_look` ends the stretch at the engine's poll
        return math.inf
    could_enter = (free_seats(s) > 0 or s.settings.displaces) and (e.num_waiting == 0 or s.settings.is_keyed)
    limit = min(s.settings.max_concurrency, s.settings.max_queued_requests, s.settings.max_num_queued_reqs,
                s.settings.max_num_queued_tokens)
    is_counted = s.settings.records_steps or s.settings.may_cancel or limit < NO_LIMIT
    if could_enter or is_counted or is_guarded(s):
        return next_arrival_s(s)
    return math.inf


@jit
def run_decodes(s: State) -> bool:
    """Take decode steps until something else may happen; False if not even one could be taken."""
    engine, settings = s.engine, s.settings
    forget_lingering(s)
    decodes = engine.num_decodes + engine.num_over
    terms = own_decode_terms(s, int(decodes))
    gpu_s, slopes, least_s, extra_s = terms
    steps = min(steps_to_look(s), steps_to_bend(s, gpu_s, slopes, least_s))
    if not has_blocks(s):
        return False
    used = settings.num_gpu_blocks - engine.num_free_blocks
    if settings.enable_prefix_caching:
        move_decode_blocks(s)
    first_context = int(engine.decode_context_tokens + engine.over_context)
    if engine.num_over > 0:  # their rows are in the first step only
        steps = 1
    if engine.num_ended > 0:
        used -= run_over(s, int(used))
    arrival_s = watched_arrival_s(s)
    stop_s = min(engine.until_s, s.cancels[0].key if engine.num_cancel_entries > 0 else math.inf)
    stop_s = float(min(stop_s, s.loads[0].key if engine.num_loads > 0 else math.inf))
    first_step, begin_s = engine.decode_step, engine.now_s
    run = Run(0, int(used), first_context, 0, float(engine.last_start_s), float(begin_s), 0.0, 0.0, False)
    while not run.is_over:
        if run.taken > 0:  # its decodes reach a block's end
            engine.decode_step, engine.last_start_s = first_step + run.taken, run.start_s
            engine.now_s = engine.last_decode_s = run.end_s
            move_decode_blocks(s)
        if settings.enable_prefix_caching and may_have_found(s):
            steps = run.taken + 1
        run = take_steps(s, run, int(decodes), terms, int(steps), int((first_step + run.taken) % settings.block_size),
                         arrival_s, stop_s)
    first_s = max(gpu_s + context_s(s.step_time, slopes, decodes, first_context), least_s) + extra_s
    engine.kv_block_s += run.block_s
    engine.decode_step, engine.now_s = first_step, begin_s
    end_stretch(s, run.taken, decodes, decodes, first_s, run.last_s, run.start_s, run.end_s, run.used,
                run.total_context)
    return True


@jit
def run_over(s: State, used: int) -> int:
    """Give ended requests their rows and process the result of the last step; return how many blocks come back net.

    Parameters
    ----------
    used : blocks in use before the step [1].
    """
    e = s.engine
    e.peak_blocks = max(e.peak_blocks, used + blocks_needed(s) + over_blocks(s))
    free = e.num_free_blocks
    e.step_prompts = 0
    if s.settings.enable_prefix_caching:  # else the blocks of a row return at once
        grant_over_rows(s)
    for k in range(e.num_ended if s.settings.caches_in_tree else 0):  # the row's token enters the tree
        s.requests[s.ended[k]].num_scheduled_tokens = s.requests[s.ended[k]].runs_on
    land_ends(s)
    return int(e.num_free_blocks - free)


@jit
def end_stretch(s: State, taken: int, rows: int, shared: int, first_s: float, last_s: float, start_s: float,
                end_s: float, used: int, total_context: int) -> None:
    """Account for a stretch of decode steps; see `timing` for the tokens that are shared.

    Parameters
    ----------
    taken : steps [1].
    rows : rows of each step, including the rows of ended requests [1].
    first_s, last_s : duration of the first and the last of them [s].
    start_s, end_s : of the last [s].
    used : blocks in use then [1].
    total_context : of all steps [tokens].
    """
    engine, settings, decodes = s.engine, s.settings, s.engine.num_decodes
    if settings.records_steps or engine.num_waiting > 0:
        begin_step(s)
        tally_queue(s, end_s - engine.now_s)
    if settings.records_steps:
        record_decode_step(s, last_s, used)
    growth_s = (last_s - first_s) / (taken - 1) if taken > 1 else 0.0
    add_gaps(s, first_s, growth_s, decodes, taken)
    engine.busy_s += end_s - engine.now_s
    engine.last_start_s = engine.composed_s = engine.late_start_s = start_s
    engine.now_s = engine.late_s = end_s
    engine.last_decode_s = end_s
    engine.is_even = 1
    engine.step_marks_decodes = 0
    engine.step_prompts = 0
    if settings.enable_prefix_caching and settings.cache_latest:
        enter_decode_contents(s)
    if settings.has_tiers:
        write_filled(s, end_s)
    engine.decode_step += taken
    engine.decode_context_tokens += taken * decodes
    engine.num_free_blocks = settings.num_gpu_blocks - used
    tally_stretch(s, taken, rows, shared, total_context)
    see_decodes(s)
    finish_due(s, 0)


@jit
def own_decode_terms(s: State, decodes: int) -> tuple[float, tuple[float, float], float, float]:
    """Return the time of a step with `decodes` decodes of this rank alone [s]: see `decode_terms`; keep the last."""
    e, t = s.engine, s.step_time
    keep_terms(s, decodes, int(decodes - e.step_spared))
    gpu_s, slopes = e.terms_gpu_s, (float(e.terms_slope_s), float(e.terms_window_slope_s))
    if t.own_s_per_token > 0.0:
        gpu_s, slopes = with_longest(s, decodes, gpu_s, slopes)
    return gpu_s, slopes, float(e.terms_least_s), float(e.terms_extra_s)


@jit
def keep_terms(s: State, decodes: int, shared: int) -> None:
    """Keep the terms of a step with `decodes` decodes: the number rarely changes between two stretches."""
    e, t = s.engine, s.step_time
    if e.terms_decodes == decodes and e.terms_shared == shared and e.terms_adapters == e.num_adapters:
        return
    e.terms_decodes, e.terms_shared, e.terms_adapters = decodes, shared, e.num_adapters
    e.terms_gpu_s, slopes, e.terms_least_s, e.terms_extra_s = even_terms(
        s, decodes, decodes, shared, is_graph(t, 0, decodes, decodes))
    e.terms_slope_s, e.terms_window_slope_s = slopes
    e.terms_bytes = composition_bytes(t, s.curve, shared, 0, 0, decodes, decodes, 0)


@jit
def decode_terms(s: State, decodes: int, run: int, shared: int,
                 as_graph: bool) -> tuple[float, tuple[float, float], float, float]:
    """Return the terms of a decode step [s]: without context, per token of context, the least time, the extra time."""
    gpu_s, slopes, least_s, extra_s = even_terms(s, decodes, run, shared, as_graph)
    if s.step_time.own_s_per_token > 0.0:
        gpu_s, slopes = with_longest(s, decodes, gpu_s, slopes)
    return gpu_s, slopes, least_s, extra_s


@jit
def even_terms(s: State, decodes: int, run: int, shared: int,
               as_graph: bool) -> tuple[float, tuple[float, float], float, float]:
    """Return `decode_terms` without the longest context's part."""
    t = s.step_time
    gpu_s = decodes_s(t, s.curve, run, shared, decodes, decodes)
    gpu_s += adapters_s(t, s.engine.num_adapters, decodes)
    slopes = context_slopes(t, s.curve, decodes)
    return gpu_s, slopes, hidden_s(t, 0, decodes, as_graph), overhead_s(t, decodes)


@jit
def with_longest(s: State, n: int, gpu_s: float,
                 slopes: tuple[float, float]) -> tuple[float, tuple[float, float]]:
    """Return the first two of `decode_terms` with `uneven_s`, which is a straight line up to `steps_to_share`."""
    t, e, longest = s.step_time, s.engine, longest_context(s)
    context = e.decode_context_tokens + (e.over_context if n > e.num_decodes else 0)
    part = tile_part(t, s.curve, n)
    per_token = uneven_growth_s(t, part, n, context, longest) / n
    more_s = uneven_s(t, part, n, context, longest) - per_token * context
    return gpu_s + more_s, (slopes[0] + per_token, slopes[1])


@jit
def quiet_until_s(s: State) -> float:
    """Return an instant before which no request can leave, for any arrivals after the requests known now.

    It is exact enough to be asked seldom: steps of the same decodes never get shorter. So the next finish is not before
    the steps to it, each as long as the coming one, have passed; and only while memory lasts.
    """
    e = s.engine
    event_s = max(next_event_s(s), e.now_s)
    if e.num_running == 0 and e.num_waiting == 0 and e.num_loads == 0:
        return float(max(next_arrival_s(s), e.now_s))
    if not may_run_decodes(s) or s.remote[0].capacity > 0:  # other replicas may hit blocks that a step writes there
        return float(e.now_s)
    gpu_s, slopes, least_s, extra_s = own_decode_terms(s, int(e.num_decodes))
    step_s = max(gpu_s + context_s(s.step_time, slopes, e.num_decodes, e.decode_context_tokens), least_s) + extra_s
    steps = steps_in_memory(s, next_finish(s) - e.decode_step)
    return float(min(event_s, e.now_s + steps * step_s * ROUNDING))


@jit
def steps_to_look(s: State) -> int:
    """Return the steps until something except memory must be checked: a finish, the queue, each decode."""
    if s.settings.has_tiers or s.settings.cache_latest or s.settings.records_steps or s.settings.stream_interval > 1:
        return 1
    steps = next_finish(s) - s.engine.decode_step
    if s.settings.scheduler_recv_interval > 1:
        steps = min(steps, max(s.engine.steps_to_poll, 1))
    return int(steps)


@jit
def steps_to_bend(s: State, gpu_s: float, slopes: tuple[float, float], least_s: float) -> int:
    """Return after how many steps their duration leaves its straight line.

    It bends at the edge of a sliding window, when the GPU's time exceeds the host's, and when a tile of the longest
    context has less than each place's share of all.
    """
    e, t = s.engine, s.step_time
    decodes, context = e.num_decodes, e.decode_context_tokens
    steps = NO_LIMIT
    room = decodes * t.window_tokens - context
    if room > 0:
        steps = int(ceil_div(room, decodes))
    if t.own_s_per_token > 0.0:
        steps = min(steps, steps_to_share(t, tile_part(t, s.curve, decodes), decodes, context, longest_context(s)))
    shortfall_s = least_s - gpu_s - context_s(t, slopes, decodes, context)
    if shortfall_s > 0.0:
        growth_s = slopes[0] * decodes + (slopes[1] * decodes if room > 0 else 0.0)
        if shortfall_s < growth_s * NO_LIMIT:
            steps = min(steps, int(shortfall_s / growth_s) + 1)
    return steps


@jit
def steps_to_share(t: Any, part: float, decodes: int, context: int, longest: int) -> int:
    """Return after how many steps a tile of the longest context, or of the mean, changes sides with the share of all.

    >>> from types import SimpleNamespace
    >>> steps_to_share.py_func(SimpleNamespace(decode_share=0.5), 1.0, 4, 400, 251)  # 251 against 200; 1 less a step
    52
    """
    steps = NO_LIMIT
    closing = decodes * t.decode_share - part  # a step
    for tile_tokens in (longest * part, context / decodes * part):
        ahead = tile_tokens - context * t.decode_share
        if ahead * closing > 0.0 and ahead < closing * NO_LIMIT:
            steps = min(steps, int(ahead / closing) + 1)
    return steps


@jit
def add_gaps(s: State, first_s: float, growth_s: float, decodes: int, steps: int) -> None:
    """Record the gaps between the tokens of a stretch: one row, since they grow by the same amount every step."""
    if s.settings.stream_interval > 1:  # `see_decodes` does
        return
    row = s.gaps[s.engine.num_gap_rows]
    row.gap_s = first_s
    row.growth_s = growth_s
    row.steps = steps
    row.count = decodes
    s.engine.num_gap_rows += 1


@jit
def move_decode_blocks(s: State) -> None:
    """Move the decodes' blocks one step on, block by block."""
    num_filling = advance_decode_blocks(s)
    for k in range(num_filling):
        enter_decode_content(s, s.scratch[k])


@jit
def tally_stretch(s: State, taken: int, rows: int, shared: int, total_context: int) -> None:
    """Add a stretch to the totals."""
    e, decodes = s.engine, s.engine.num_decodes
    e.num_steps += taken
    e.num_decode_only_steps += taken
    e.steps_to_poll -= taken
    e.ratio_steps += taken
    e.passes_to_hold = max(e.passes_to_hold - taken, 0)
    e.last_step_had_prompts = 0
    e.total_decode_tokens += taken * decodes
    e.total_dropped += taken * (rows - decodes)
    e.total_context_tokens += total_context
    e.total_sampled += taken * rows
    is_kept = e.terms_decodes == rows and e.terms_shared == shared
    own_bytes = e.terms_bytes if is_kept else composition_bytes(s.step_time, s.curve, shared, 0, 0, rows, rows, 0)
    e.total_hbm_bytes += taken * own_bytes
    e.total_hbm_bytes += decode_attention_bytes(s.step_time, taken * rows, total_context)
    e.peak_blocks = max(e.peak_blocks, s.settings.num_gpu_blocks - e.num_free_blocks)


@jit
def record_decode_step(s: State, duration_s: float, used_blocks: int) -> None:
    """Write the row of a stretch of one step."""
    s.engine.step_decodes = s.engine.num_decodes
    s.engine.step_decode_context = s.engine.decode_context_tokens
    record_step(s, duration_s, used_blocks)
