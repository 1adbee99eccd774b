"""KV reserved at admission for output to come: all of it, or a share.

TensorRT-LLM's GUARANTEED_NO_EVICT admits a request while all that run could reach their largest outputs. SGLang leaves
free only a share of that, the new-token ratio: it starts at 0.7 · schedule_conservativeness, falls in 600 decode steps
to 0.14 of that, and is set anew when requests have to be retracted; an idle engine starts over. The prompts of the step
count too, in whole pages, with a page and the whole output each. Sources: sglang/srt/managers/schedule_policy.py,
scheduler.py, schedule_batch.py; tensorrt_llm/_torch/pyexecutor/scheduler (`NoEvictScheduledBlocksManager`).
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.decodes import CLIP_MAX_NEW_TOKENS, num_seen_tokens
from planner.loop.memory.beside_context import most_beside
from planner.loop.memory.blocks import ceil_div, most_blocks
from planner.loop.state.engine_state import (
    COMPLETED,
    NONE,
    PROMISE_ALL,
    PROMISE_NOTHING,
    PROMISE_SHARE,
    PROMPT,
    State,
)
from planner.loop.step_shape import pending_tokens

RETRACT_DECODE_STEPS = 20  # decode steps that the ratio is to last for after a retraction


@jit
def fits_reservation(s: State, request: Any, hit_blocks: int, unused_hits: int) -> bool:
    """Tell whether a waiting request can be admitted without breaking the reservations of running ones."""
    e = s.engine
    if s.settings.promise == PROMISE_NOTHING:
        return True
    if s.settings.promise == PROMISE_ALL:
        needed_blocks = most_blocks(s, request) - hit_blocks + unused_hits
        promised = e.promised_blocks - e.shared_blocks + e.step_passed_blocks
        return bool(promised + needed_blocks <= s.settings.num_gpu_blocks)
    needed_tokens = room_to_enter(s, request) - hit_blocks * s.settings.block_size
    return bool(needed_tokens < left_tokens(s, unused_hits))


@jit
def left_tokens(s: State, unused_hits: int) -> float:
    """Return the tokens left to promise, without some free blocks; a step's prompts take theirs when it is whole."""
    return float((s.engine.num_free_blocks - unused_hits) * s.settings.block_size - s.engine.promised_tokens)


@jit
def never_fits_reservation(s: State, request: Any) -> bool:
    """Tell whether a waiting request is too large for an engine in which nothing else runs."""
    all_tokens = s.settings.num_gpu_blocks * s.settings.block_size
    return bool(s.settings.promise == PROMISE_SHARE and room_to_enter(s, request) >= all_tokens)


@jit
def room_to_enter(s: State, request: Any) -> int:
    """Return the tokens of KV that SGLang wants to be free for a newcomer: its own, its output to come, and a page."""
    to_emit = min(max(request.max_output_tokens - request.num_output_tokens, 0), CLIP_MAX_NEW_TOKENS)
    beside = most_beside(s, request) * s.settings.block_size
    return int(request.input_tokens + request.num_output_tokens + to_emit + s.settings.block_size + beside)


@jit
def reserve_for(s: State, request: Any) -> None:
    """Reserve for a newly admitted request; by shares, shut the queue if no memory is left."""
    e = s.engine
    if s.settings.promise == PROMISE_ALL:
        e.promised_blocks += most_blocks(s, request)
    elif s.settings.promise == PROMISE_SHARE:
        charge(s, request)
        if left_tokens(s, 0) <= 0:
            e.is_full = 1


@jit
def charge(s: State, request: Any) -> None:
    """Charge a prompt of the step, in whole pages, to the budgets and to the memory."""
    e = s.engine
    n = int(request.num_scheduled_tokens)
    if n == 0:
        return
    paged = whole_pages(s, n)
    e.prompt_budget -= paged - n
    e.input_budget -= paged
    add_charge(s, request, paged)


@jit
def add_charge(s: State, request: Any, paged: int) -> None:
    """Add to the reservations: a prompt of the step, a page, and its whole output if the step completes the prompt."""
    taken = paged + s.settings.block_size
    is_whole = request.num_scheduled_tokens == pending_tokens(request)
    s.engine.promised_tokens += taken + (min(request.max_output_tokens, CLIP_MAX_NEW_TOKENS) if is_whole else 0)


@jit
def whole_pages(s: State, tokens: int) -> int:
    """Return tokens as whole pages of them."""
    return int(ceil_div(tokens, s.settings.block_size) * s.settings.block_size)


@jit
def sum_reservations(s: State, num_along: int) -> None:
    """Add up the reservations: the decodes' share, a token for each that goes along, and the step's prompts so far."""
    e = s.engine
    if s.settings.promise != PROMISE_SHARE:
        return
    ratio, promised = new_token_ratio(s), 0.0
    i = e.running_head
    while i != NONE:
        if s.requests[i].state != PROMPT:
            promised += promised_output(s, s.requests[i]) * ratio
        i = s.requests[i].next
    promised += e.lingering_output * ratio
    e.promised_tokens = num_along + promised
    for k in range(e.num_prompts):
        request = s.requests[s.prompts[k]]
        if request.num_scheduled_tokens > 0:
            add_charge(s, request, whole_pages(s, int(request.num_scheduled_tokens)))


@jit
def promised_output(s: State, request: Any) -> int:
    """Return the output to come that counts of a decode."""
    return int(min(max(request.max_output_tokens - num_seen_tokens(s, request), 0), CLIP_MAX_NEW_TOKENS))


@jit
def new_token_ratio(s: State) -> float:
    """Return the share of the output to come that is promised."""
    e = s.engine
    if e.ratio_steps == 0:
        return float(e.ratio)
    return float(max(e.ratio - e.ratio_steps * s.settings.ratio_decay, s.settings.least_ratio))


@jit
def age_promises(s: State, steps: int) -> None:
    """Lower the ratio by decode steps; set it anew if a request was retracted for the step."""
    e = s.engine
    if s.settings.promise != PROMISE_SHARE:
        return
    if e.step_preempted == e.step_displaced:
        e.ratio_steps += steps
        return
    count = emitted = largest = 0
    i = e.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state != COMPLETED or request.runs_on:
            count += 1
            emitted += num_seen_tokens(s, request)
            largest += request.max_output_tokens
        i = request.next
    e.ratio = min((emitted + RETRACT_DECODE_STEPS * count) / (largest + 1), 1.0)
    e.ratio_steps = 0


@jit
def forget_promises(s: State) -> None:
    """Start over with the first ratio, as an idle engine does, or a pass that has nothing to run."""
    s.engine.ratio = s.settings.first_ratio
    s.engine.ratio_steps = 0
