"""Batches in flight: at most as many as there are pipeline stages, and a request in one of them waits.

As in vLLM's `step_with_batch_queue`, the pipe is filled before results are read; if nothing more can be composed, the
scheduler blocks until the oldest batch is through, and sees arrivals only then.
"""

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import remove_prompt
from planner.loop.decodes import enter_decode, leave_decode
from planner.loop.emission import emit_tokens
from planner.loop.memory.tiers import write_filled
from planner.loop.overlap import complete
from planner.loop.state.engine_state import DECODE, NONE, State
from planner.loop.step_shape import advance_prompt, pending_tokens
from planner.loop.timing import step_drafts


@jit
def launch(s: State, duration_s: float) -> None:
    """Send the composed step into the pipeline; each stage takes its share of the time, one batch at a time."""
    engine = s.engine
    depth = s.settings.pipeline_parallel_size
    slot = (engine.oldest_flight + engine.num_flights) % depth
    leaves_s = engine.now_s
    for stage in range(depth):
        leaves_s = max(leaves_s, s.flights[stage].stage_free_s) + duration_s / depth
        if stage < depth - 1:
            tokens = engine.step_prompt_tokens + engine.step_decodes + step_drafts(s)
            leaves_s += tokens * s.settings.stage_transfer_s_per_token
            leaves_s += s.settings.stage_transfer_latency_s
        s.flights[stage].stage_free_s = leaves_s
    s.flights[slot].start_s = engine.now_s
    s.flights[slot].finish_s = leaves_s
    engine.num_flights += 1
    i = engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.flight == NONE and request.num_scheduled_tokens > 0:
            request.flight = slot
        i = request.next
    if s.settings.has_tiers:
        write_filled(s, float(leaves_s))


@jit
def land_flight(s: State) -> None:
    """Wait for the oldest batch in flight; its requests emit their tokens and may be scheduled again."""
    engine = s.engine
    slot = engine.oldest_flight
    flight = s.flights[slot]
    busy_s = flight.finish_s - max(engine.last_start_s, flight.start_s)
    engine.busy_s += busy_s
    engine.kv_block_s += (s.settings.num_gpu_blocks - engine.num_free_blocks) * busy_s
    engine.now_s = flight.finish_s
    engine.last_start_s = flight.finish_s  # here: when the last batch landed
    engine.oldest_flight = (slot + 1) % s.settings.pipeline_parallel_size
    engine.num_flights -= 1
    i = engine.running_head
    while i != NONE:
        following = s.requests[i].next
        if s.requests[i].flight == slot:
            land(s, i)
        i = following


@jit
def land(s: State, i: int) -> None:
    """Let one request of a landed batch go on."""
    request = s.requests[i]
    was_prompt = request.state != DECODE
    if was_prompt:
        emitted = advance_prompt(request)
    else:
        emitted = int(request.num_offered_tokens)
        request.num_computed_tokens += emitted
    request.num_scheduled_tokens = 0
    request.flight = NONE
    if pending_tokens(request) > 0:
        return
    if was_prompt:
        remove_prompt(s, i)
    is_through = emit_tokens(s, i, emitted)
    if is_through and not was_prompt:
        leave_decode(s, i)
    if is_through:
        complete(s, i)
    elif was_prompt:
        enter_decode(s, i)
