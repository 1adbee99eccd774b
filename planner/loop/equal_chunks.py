"""Prompts that share a step's budget, a chunk each in turn: EQUAL_PROGRESS of TensorRT-LLM's micro-batch scheduler."""

from planner.loop.admissible import PASSED, admissible_tokens, has_seat, look_up, pass_over, wanted_tokens
from planner.loop.admission import enter_running, is_passed_over, is_still_blocked
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import remove_listed
from planner.loop.memory.adapters import lacks_adapter_slot
from planner.loop.serving import grant_prompt
from planner.loop.state.engine_state import NONE, PROMPT, WAITING, State
from planner.loop.step_shape import lets_in, pending_tokens


@jit
def serve_equally(s: State, max_new_seqs: int) -> None:
    """Give running prompts their chunks, and admit waiting ones with theirs."""
    size, _ = share_out(s, max_new_seqs, int(min(s.engine.budget, s.engine.prompt_budget)))
    for k in range(size):
        i = s.scratch[k]
        request = s.requests[i]
        n = int(request.num_scheduled_tokens)
        request.num_scheduled_tokens = 0
        if n == 0:
            continue
        if request.state == PROMPT:
            grant_prompt(s, i, n)
        elif not lacks_adapter_slot(s, i):
            hit_blocks, _, _, computed = look_up(s, i)
            remove_listed(s, i)
            enter_running(s, i, min(n, wanted_tokens(s, request, computed)), hit_blocks, computed)


@jit
def offered_equally(s: State, max_new_seqs: int, left: int) -> int:
    """Return the tokens that prompts would get of the `left` ones, and give them none."""
    size, offered = share_out(s, max_new_seqs, left)
    for k in range(size):
        s.requests[s.scratch[k]].num_scheduled_tokens = 0
    return offered


@jit
def share_out(s: State, max_new_seqs: int, left: int) -> tuple[int, int]:
    """List the prompts in `scratch` and set the tokens of each, up to `left` ones; return how many of both."""
    size = list_prompts(s, max_new_seqs, left)
    rest, granted = left, 1
    while granted > 0 and rest > 0:
        granted = 0
        for k in range(size):
            request = s.requests[s.scratch[k]]
            n = min(s.settings.chunk_tokens, request.num_offered_tokens - request.num_scheduled_tokens)
            if n <= rest:
                request.num_scheduled_tokens += n
                rest -= n
                granted += n
    if rest == left and size > 0 and s.engine.step_prompts + s.engine.step_decodes == 0:  # a budget below a chunk
        request = s.requests[s.scratch[0]]
        request.num_scheduled_tokens = min(rest, request.num_offered_tokens)
        rest -= request.num_scheduled_tokens
    return size, left - rest


@jit
def list_prompts(s: State, max_new_seqs: int, left: int) -> int:
    """List running prompts, then the waiting ones that there is room for, until a chunk each leaves nothing over."""
    size, room = 0, s.settings.max_batch_seqs - s.engine.step_prompts - s.engine.step_decodes
    for k in range(s.engine.num_prompts):
        request = s.requests[s.prompts[k]]
        if size < room and request.flight == NONE and request.num_scheduled_tokens == 0:
            request.num_offered_tokens = min(pending_tokens(request), s.engine.max_tokens_per_prompt)
            left -= first_chunk(s, int(request.num_offered_tokens), left)
            s.scratch[size] = s.prompts[k]
            size += 1
    kept = int(s.engine.step_passed_blocks)
    i = s.engine.waiting_head if lets_in(s) else NONE
    while i != NONE and left > 0 and size < room and s.engine.step_passed < max_new_seqs and has_seat(s):
        if is_still_blocked(s, i):
            break
        request, following = s.requests[i], s.requests[i].next
        n, _, computed = admissible_tokens(s, i, True)
        if n == PASSED:
            pass_over(s, i)
            request.num_offered_tokens = wanted_tokens(s, request, computed)
            left -= first_chunk(s, int(request.num_offered_tokens), left)
            s.scratch[size] = i
            size += 1
        elif request.state != WAITING:
            remove_listed(s, i)
        elif not is_passed_over(s, i, n):
            break
        i = following
    s.engine.step_passed = 0
    s.engine.step_passed_blocks = kept
    return size


@jit
def first_chunk(s: State, wanted: int, left: int) -> int:
    """Return the chunk that a prompt gets of `left` tokens in the first round."""
    n = min(s.settings.chunk_tokens, wanted)
    return int(n) if n <= left else 0
