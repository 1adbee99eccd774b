"""The effects of a composed step: it takes time, its requests emit tokens, and finished requests leave."""

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import heap_pop
from planner.loop.decodes import (
    enter_decode,
    gather_ring,
    last_token_s,
    leave_decode,
    list_in_order,
    next_finish,
    postpone,
)
from planner.loop.drafts import set_drafts
from planner.loop.emission import add_gap, emit_tokens, see_decodes
from planner.loop.memory.blocks import enter_contents
from planner.loop.memory.tiers import write_filled
from planner.loop.overlap import arrive, complete, process_result
from planner.loop.pipeline import launch
from planner.loop.placeholders import count_as_computed, hand_over
from planner.loop.prefill_first import open_queue
from planner.loop.recording import record_schedule, record_step, tally_queue
from planner.loop.reservation import age_promises
from planner.loop.serving import enter_decode_content
from planner.loop.state.engine_state import COMPLETED, DECODE, NONE, State
from planner.loop.step_shape import advance_prompt, before_through
from planner.loop.timing import composition_bytes, decode_attention_bytes, own_step_s, step_drafts, step_tokens


@jit
def rows_left(s: State) -> bool:
    """Tell whether the buffers have room for the rows of one more step."""
    e = s.engine
    most = s.settings.most_running
    if e.num_gap_rows + most > s.settings.most_gap_rows:
        return False
    if s.settings.records_steps and e.num_step_rows == s.settings.most_step_rows:
        return False
    if not s.settings.records_schedule:
        return True
    return bool(max(e.num_schedule_rows, e.num_preemption_rows) + most <= s.settings.most_schedule_rows)


@jit
def take_step(s: State) -> None:
    """Let the composed step run, or send it into the pipeline."""
    run_step(s, own_step_s(s), step_tokens(s))


@jit
def run_step(s: State, duration_s: float, shared: int) -> None:
    """Run the composed step for `duration_s`; see `timing` for the tokens that are shared."""
    engine = s.engine
    if s.settings.records_steps:
        record_step(s, duration_s, s.settings.num_gpu_blocks - s.engine.num_free_blocks)
    if s.settings.records_schedule:
        record_schedule(s)
    tally_queue(s, duration_s)
    tally_step(s, shared)
    if s.settings.has_placeholders:
        hand_over(s, duration_s)
    elif s.settings.defers_ends:
        process_result(s)
    if s.settings.pipeline_parallel_size > 1:
        launch(s, duration_s)
        return
    start_s = engine.now_s
    used_blocks = s.settings.num_gpu_blocks - engine.num_free_blocks
    engine.last_start_s = start_s
    engine.now_s += duration_s
    engine.busy_s += duration_s
    engine.kv_block_s += used_blocks * duration_s
    if s.settings.enable_prefix_caching and s.settings.cache_latest and not s.settings.has_placeholders:
        enter_step_contents(s)
    if s.settings.has_tiers:
        write_filled(s, float(engine.now_s))
    finished = 0
    if not s.settings.aggregates_decodes:
        finished = emit_each_decode(s, start_s)
    else:
        emit_decodes(s, start_s, duration_s)
        if engine.step_decodes > 0:
            see_decodes(s)
    finish_due(s, emit_prompts(s, duration_s, finished))


@jit
def tally_step(s: State, shared: int) -> None:
    """Add the step to the totals."""
    e = s.engine
    if e.step_prompts > 0:
        e.last_prompt_step = e.num_steps
    e.num_steps += 1
    e.last_step_had_prompts = 1 if e.step_prompts > 0 else 0
    e.num_decode_only_steps = 0 if e.step_prompts > 0 else e.num_decode_only_steps + 1
    e.steps_to_poll -= 1000 if e.step_prompts > 0 else 1
    if e.step_prompts == 0:
        age_promises(s, 1)
    else:
        open_queue(s)
    e.total_prompt_tokens += e.step_prompt_tokens
    e.total_decode_tokens += e.step_decodes - e.step_dropped + e.step_accepted
    e.total_dropped += e.step_dropped
    e.total_accepted_tokens += e.step_accepted
    set_drafts(s)
    e.total_context_tokens += e.step_decode_context
    e.total_prompt_pairs += e.step_prompt_pairs
    e.total_window_pairs += e.step_window_pairs
    sampled = e.step_sampled + e.step_decodes
    e.total_sampled += sampled + e.step_accepted
    e.step_swapped = 0
    e.step_adapter_s = 0.0
    e.total_hbm_bytes += composition_bytes(
        s.step_time, s.curve, shared, e.step_prompt_tokens, e.step_prompt_context, e.step_decodes,
        sampled + step_drafts(s), step_drafts(s)
    )
    e.total_hbm_bytes += decode_attention_bytes(s.step_time, e.step_decodes, e.step_decode_context)
    e.peak_blocks = max(e.peak_blocks, s.settings.num_gpu_blocks - e.num_free_blocks)
    e.max_running = max(e.max_running, e.num_running)


@jit
def emit_decodes(s: State, start_s: float, duration_s: float) -> None:
    """Let every decode of the step emit a token; decodes left out fall one step behind."""
    engine = s.engine
    emitting = engine.step_decodes - engine.step_dropped
    if emitting == 0:
        engine.is_paused = 1 if engine.num_decodes > 0 else 0
        return
    if emitting == engine.num_decodes and engine.num_stalled == 0 and not engine.is_paused:
        add_gap(s, duration_s, emitting)
        engine.is_even = 1
    else:
        engine.is_even = 0
        i = engine.running_head
        while i != NONE:
            if s.requests[i].state == DECODE:
                emit_or_postpone(s, i, start_s, duration_s)
            i = s.requests[i].next
    engine.decode_step += 1
    engine.decode_context_tokens += emitting
    engine.last_decode_s = engine.now_s
    engine.is_paused = 0


@jit
def emit_or_postpone(s: State, i: int, start_s: float, duration_s: float) -> None:
    """Account for one decode of a step that some decodes were left out of, or that follows one."""
    request = s.requests[i]
    if s.engine.step_marks_decodes and request.num_scheduled_tokens == 0:
        postpone(s, i)
        return
    before_s = last_token_s(s, request)
    if s.settings.drops_tokens:
        s.token_before_s[i] = before_s
    stalled_s = start_s - before_s
    request.stalled_s += stalled_s
    add_gap(s, stalled_s + duration_s, 1)
    if request.is_stalled:
        request.is_stalled = 0
        s.engine.num_stalled -= 1


@jit
def emit_each_decode(s: State, start_s: float) -> int:
    """Let the decodes of the step emit their tokens one by one; return how many are through, listed in `scratch`."""
    finished = 0
    i = s.engine.running_head if s.engine.step_marks_decodes else NONE
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE and request.num_scheduled_tokens > 0:
            request.stalled_s += start_s - request.last_token_s
            emitted, computed = int(request.num_offered_tokens), int(request.num_computed_tokens)
            if s.settings.enable_prefix_caching and s.settings.cache_latest and not s.settings.has_placeholders:
                enter_contents(s, i, computed, computed + emitted)
            request.num_computed_tokens += emitted
            if s.settings.defers_ends:
                request.num_flying_tokens = emitted
                request.num_refused_tokens = request.num_scheduled_tokens - emitted
            if emit_tokens(s, i, emitted):
                leave_decode(s, i)
                request.state = COMPLETED
                finished = list_leaver(s, i, finished)
        i = request.next
    return finished


@jit
def list_leaver(s: State, i: int, size: int) -> int:
    """List a request that is through in `scratch`; the order in which blocks return decides which are reused first."""
    if s.settings.enable_prefix_caching or s.settings.caches_in_tree:
        return list_in_order(s, i, size)
    s.scratch[size] = i
    return size + 1


@jit
def emit_prompts(s: State, duration_s: float, finished: int) -> int:
    """Advance the prompts of the step; return how many requests are through, with the `finished` in `scratch`.

    With a radix tree, requests that decode next are listed too: their prompts enter it.
    """
    kept = 0
    for k in range(s.engine.num_prompts):
        i = s.prompts[k]
        request = s.requests[i]
        if request.num_scheduled_tokens == 0:
            request.stalled_s += duration_s
        before = int(request.num_computed_tokens)
        emitted = advance_prompt(request)
        is_cut = request.num_scheduled_tokens < before_through(s, request, before)
        if s.settings.has_placeholders and not is_cut:
            count_as_computed(s, request)
        elif s.settings.defers_ends and s.settings.num_speculative_tokens > 0:
            request.num_flying_tokens = emitted
            request.num_refused_tokens = before + request.num_scheduled_tokens - request.num_computed_tokens
        if is_cut:
            s.prompts[kept] = i
            kept += 1
        elif emit_tokens(s, i, emitted):
            request.num_offered_tokens = emitted
            request.state = COMPLETED
            finished = list_leaver(s, i, finished)
        else:
            enter_decode(s, i)
            if s.settings.caches_in_tree:
                finished = list_leaver(s, i, finished)
    s.engine.num_prompts = kept
    return finished


@jit
def finish_due(s: State, listed: int) -> None:
    """Let requests leave that have emitted all their tokens, in running order: decodes, and requests in `scratch`."""
    size = listed
    while next_finish(s) <= s.engine.decode_step:
        i = s.finishes[0].request
        s.engine.num_finish_entries = heap_pop(s.finishes, s.engine.num_finish_entries)
        leave_decode(s, i)
        s.requests[i].state = COMPLETED
        s.requests[i].num_offered_tokens = 1
        size = list_leaver(s, i, size)
    for k in range(size):
        i = s.scratch[k]
        if s.requests[i].state == COMPLETED:
            complete(s, i)
        else:
            arrive(s, i)


@jit
def enter_step_contents(s: State) -> None:
    """Make findable the blocks that the step filled: nano-vllm does so at the step's end, in batch order."""
    engine = s.engine
    for k in range(engine.num_prompts):
        request = s.requests[s.prompts[k]]
        computed = int(request.num_computed_tokens)
        enter_contents(s, s.prompts[k], computed, computed + request.num_scheduled_tokens)
    if engine.step_decodes > 0:
        enter_decode_contents(s)


@jit
def enter_decode_contents(s: State) -> None:
    """Make findable the blocks that the decodes of the step fill."""
    engine = s.engine
    num_filling = gather_ring(s, (engine.decode_step + 1) % s.settings.block_size, 0)
    for k in range(num_filling):
        if not engine.step_marks_decodes or s.requests[s.scratch[k]].num_scheduled_tokens > 0:
            enter_decode_content(s, s.scratch[k])
