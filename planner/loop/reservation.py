"""KV reserved at admission for output to come: all of it, or a share.

TensorRT-LLM's GUARANTEED_NO_EVICT admits a request while all that run could reach their largest outputs. SGLang leaves
free only a share of that, the new-token ratio: it starts at 0.7 · schedule_conservativeness, falls in 600 decode steps
to 0.14 of that, and is set anew when requests have to be retracted; an idle engine starts over. Once a request did not
fit, nobody is looked at until one leaves (`batch_is_full`). Sources: sglang/srt/managers/schedule_policy.py,
scheduler.py, schedule_batch.py; tensorrt_llm/_torch/pyexecutor/scheduler (`NoEvictScheduledBlocksManager`).
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.memory.blocks import most_blocks, num_output_tokens
from planner.loop.state.engine_state import DECODE, NONE, PROMISE_ALL, PROMISE_NOTHING, PROMISE_SHARE, State
from planner.loop.step_shape import pending_tokens

CLIP_MAX_NEW_TOKENS = 4096  # of one request's output to come, SGLang considers no more
RETRACT_DECODE_STEPS = 20  # decode steps that the ratio is to last for after a retraction


@jit
def fits_reservation(s: State, request: Any, hit_blocks: int, unused_hits: int) -> bool:
    """Tell whether a waiting request can be admitted without breaking what was promised to those that run."""
    e = s.engine
    if s.settings.promise == PROMISE_NOTHING:
        return True
    if s.settings.promise == PROMISE_ALL:
        needed_blocks = most_blocks(s, request) - hit_blocks + unused_hits
        return bool(e.promised_blocks - e.shared_blocks + needed_blocks <= s.settings.num_gpu_blocks)
    needed_tokens = room_to_enter(s, request) - hit_blocks * s.settings.block_size
    free_tokens = (e.num_free_blocks - unused_hits) * s.settings.block_size
    return bool(needed_tokens < free_tokens - e.promised_tokens)


@jit
def never_fits_reservation(s: State, request: Any) -> bool:
    """Tell whether a waiting request is too large for an engine in which nothing else runs."""
    all_tokens = s.settings.num_gpu_blocks * s.settings.block_size
    return bool(s.settings.promise == PROMISE_SHARE and room_to_enter(s, request) >= all_tokens)


@jit
def room_to_enter(s: State, request: Any) -> int:
    """Return the tokens of KV that SGLang wants to be free for a newcomer: its own, its output to come, and a page."""
    to_emit = min(max(largest_output(s, request) - request.num_output_tokens, 0), CLIP_MAX_NEW_TOKENS)
    return int(request.input_tokens + request.num_output_tokens + to_emit + s.settings.block_size)


@jit
def reserve_for(s: State, request: Any) -> None:
    """Take a request that has just been admitted into account."""
    e = s.engine
    if s.settings.promise == PROMISE_ALL:
        e.promised_blocks += most_blocks(s, request)
    elif s.settings.promise == PROMISE_SHARE:
        e.promised_tokens += charge(s, request)
        if e.num_free_blocks == 0 or e.num_free_blocks * s.settings.block_size <= e.promised_tokens:
            e.is_full = 1


@jit
def sum_reservations(s: State) -> None:
    """Add up the share that is promised to decodes, and all that is to prompts of this step that it completes."""
    if s.settings.promise != PROMISE_SHARE:
        return
    to_emit = charged = 0
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE:
            left = max(largest_output(s, request) - num_output_tokens(s, request), 0)
            to_emit += min(left, CLIP_MAX_NEW_TOKENS)
        else:
            charged += charge(s, request)
        i = request.next
    s.engine.promised_tokens = new_token_ratio(s) * to_emit + charged


@jit
def charge(s: State, request: Any) -> int:
    """Return what a prompt in this step counts for besides its own tokens: a page, and its output if it is through."""
    if request.num_scheduled_tokens == 0:
        return 0
    page = s.settings.block_size
    if request.num_scheduled_tokens < pending_tokens(request):
        return int(page)
    return int(min(largest_output(s, request), CLIP_MAX_NEW_TOKENS) + page)


@jit
def largest_output(s: State, request: Any) -> int:
    """Return the output that a request may reach; SGLang lowers it so that every request fits alone."""
    alone = (s.settings.num_gpu_blocks - 1) * s.settings.block_size - 1 - request.input_tokens
    return int(max(min(request.max_output_tokens, alone), 0))


@jit
def new_token_ratio(s: State) -> float:
    """Return the share of the output to come that is promised."""
    e = s.engine
    if e.ratio_steps == 0:
        return float(e.ratio)
    return float(max(e.ratio - e.ratio_steps * s.settings.ratio_decay, s.settings.least_ratio))


@jit
def age_promises(s: State, steps: int) -> None:
    """Lower the ratio by decode steps; set it anew where somebody had to yield in the step."""
    e = s.engine
    if s.settings.promise != PROMISE_SHARE:
        return
    if e.step_preempted == 0:
        e.ratio_steps += steps
        return
    count = emitted = largest = 0
    i = e.running_head
    while i != NONE:
        request = s.requests[i]
        count += 1
        emitted += num_output_tokens(s, request)
        largest += largest_output(s, request)
        i = request.next
    e.ratio = min((emitted + RETRACT_DECODE_STEPS * count) / (largest + 1), 1.0)
    e.ratio_steps = 0


@jit
def forget_promises(s: State) -> None:
    """Start over with the first ratio, as an idle engine does."""
    s.engine.ratio = s.settings.first_ratio
    s.engine.ratio_steps = 0
