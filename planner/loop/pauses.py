"""Pauses under TensorRT-LLM's MAX_UTILIZATION: requests get seats and memory in order of arrival.

Before each step the policy goes through all requests: waiting ones, running ones, and requests whose end is in flight.
If one has no seat or no blocks, the last request that runs behind it pauses, until it has both or no request behind it
runs. The policy then stops there, and it does not reach the requests behind a paused one. A prompt without a chunk
keeps its seat and its blocks. Source: `MaxUtilizationPolicy` in tensorrt_llm/_torch/pyexecutor/scheduler, which follows
capacityScheduler.cpp.
"""

from planner.loop.admissible import blocks_at_entry, look_up
from planner.loop.compiled.jit import jit
from planner.loop.decodes import blocks_needed
from planner.loop.drafts import slots_needed
from planner.loop.memory.blocks import ceil_div, num_held
from planner.loop.overlap import kept_blocks, over_blocks
from planner.loop.preemption import preempt
from planner.loop.state.engine_state import NONE, PROMPT, WAITING, State


@jit
def pause_for_room(s: State, max_new_seqs: int) -> int:
    """Let requests pause until all before them fit; return how many waiting ones may enter the step."""
    e = s.engine
    e.step_passed_blocks = kept_blocks(s)
    if all_fit(s):
        return max_new_seqs
    taken, seats, num_waiting = 0, int(s.settings.max_batch_seqs), 0
    running, waiting, paused = int(e.running_head), int(e.waiting_head), NONE
    while running != NONE or stands_before(s, waiting, paused):
        waits = running == NONE or stands_before(s, waiting, running)
        need = blocks_to_go_on(s, waiting if waits else running)
        if seats == 0 or taken + need > e.num_free_blocks:
            if running == NONE:
                break
            paused = int(e.running_tail)
            running = NONE if paused == running else running
            preempt(s, paused)
            continue
        taken += need
        seats -= 1
        if waits:
            num_waiting += 1
            waiting = int(s.requests[waiting].next)
        else:
            running = int(s.requests[running].next)
    e.step_passed_blocks = kept_blocks(s)
    return min(max_new_seqs, num_waiting) if e.step_preempted > 0 else max_new_seqs


@jit
def all_fit(s: State) -> bool:
    """Tell whether no request waits before one that runs, and there are blocks for all that run."""
    e = s.engine
    if not s.settings.aggregates_decodes or stands_before(s, int(e.waiting_head), int(e.running_tail)):
        return False
    return bool(blocks_needed(s) + over_blocks(s) + e.step_passed_blocks <= e.num_free_blocks)


@jit
def stands_before(s: State, waiting: int, running: int) -> bool:
    """Tell whether a waiting request arrived before one that runs; NONE did not."""
    if waiting == NONE or running == NONE:
        return False
    return bool(s.requests[waiting].admission_order < s.requests[running].admission_order)


@jit
def blocks_to_go_on(s: State, i: int) -> int:
    """Return the blocks that a request needs for its next step; a prompt needs the blocks of all its tokens at once."""
    request = s.requests[i]
    if request.state == WAITING:
        hit_blocks, unused_hits, _, computed = look_up(s, i)
        return int(blocks_at_entry(s, request, computed) - hit_blocks + unused_hits)
    if request.state == PROMPT:
        return 0
    slots = slots_needed(s, request, int(1 + s.engine.num_drafts))
    return int(max(ceil_div(slots, s.settings.block_size) - num_held(s, request), 0))
