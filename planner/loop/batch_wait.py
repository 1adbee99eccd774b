"""Prompts held back while decodes run: TensorRT-LLM's batch waiting and balance of ranks, vLLM's interval."""

from planner.loop.admissible import blocks_at_entry, is_known_blocked, look_up, wanted_tokens
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import first_waiting
from planner.loop.equal_chunks import offered_equally
from planner.loop.state.engine_state import CUT_NONE, NONE, PROMISE_ALL, State
from planner.loop.step_shape import chunk_tokens, free_seats, lets_in, pending_tokens


@jit
def holds_prompts_back(s: State, max_new_seqs: int) -> bool:
    """Tell whether the step leaves its prompts out: `_waiting_requests` in TensorRT-LLM's py_executor.py.

    It does while its tokens, decodes included, are fewer than batch_wait_max_tokens_ratio · max_num_batched_tokens, in
    at most batch_wait_timeout_iters steps in a row; never if no decode runs, and never if either setting is 0.
    """
    e = s.engine
    if s.settings.attention_dp_timeout_iters > 0 and waits_for_ranks(s):
        return True
    if s.settings.batch_wait_timeout_iters == 0 or s.settings.batch_wait_max_tokens == 0.0:
        return False
    if e.num_decodes + e.step_decodes == 0:
        return False
    coming = 0 if e.step_decodes > 0 else int(e.num_decodes * s.step_time.tokens_per_decode)
    offered = offered_tokens(s, max_new_seqs, coming)
    if offered == 0:
        return False
    waits = e.num_held_steps < s.settings.batch_wait_timeout_iters
    taken = s.settings.max_num_batched_tokens - e.budget
    if waits and taken + coming + offered < s.settings.batch_wait_max_tokens:
        return True
    e.num_held_steps = 0
    return False


@jit
def is_between_prompts(s: State) -> bool:
    """Tell whether vLLM's prefill_schedule_interval holds prompts back: fewer steps have run since the last with some.

    It holds nothing back if no decode runs, or after a composition that left requests in the queue.
    """
    e, interval = s.engine, s.settings.prefill_schedule_interval
    if interval <= 1 or e.left_waiting or e.num_decodes + e.num_ended == 0:
        return False
    return bool(e.num_steps - e.last_prompt_step < interval)


@jit
def waits_for_ranks(s: State) -> bool:
    """Tell whether prompts wait for prompts of other attention ranks: `_balance_adp_requests` in py_executor.py.

    All ranks take prompts in the steps in which all have some, and in every attention_dp_timeout_iters-th step since
    the last of these; at any time while a rank has no decode. One rank is replayed, so the others are estimated from
    its history: their mean backlog is the prompts that its own rate of admissions brings in that time, and the prompts
    that wait behind its own next prompt.
    """
    e = s.engine
    waiting = e.num_prompts + e.num_waiting
    if e.num_decodes == 0 or waiting == 0:
        return False
    since = e.num_steps - e.released_step
    if since % s.settings.attention_dp_timeout_iters == 0:
        return False
    backlog = since % s.settings.attention_dp_timeout_iters * e.num_admissions / e.num_steps + waiting - 1
    if backlog < s.settings.attention_dp_backlog:
        return True
    e.released_step = e.num_steps
    return False


@jit
def offered_tokens(s: State, max_new_seqs: int, coming: int) -> int:
    """Return the prompt tokens that the step would have beside `coming` ones of decodes.

    Of a queue ordered by a key, only its head is looked at.
    """
    e = s.engine
    left = int(max(min(e.budget - coming, e.prompt_budget), 0))
    if s.settings.chunks_equally:
        return offered_equally(s, max_new_seqs, left)
    offered = 0
    for k in range(e.num_prompts):
        request = s.requests[s.prompts[k]]
        if request.flight == NONE:
            wanted = min(pending_tokens(request), e.max_tokens_per_prompt)
            offered += chunk_tokens(s, wanted, left - offered, False)
    promises_all = s.settings.promise == PROMISE_ALL
    room = s.settings.num_gpu_blocks - e.promised_blocks + e.shared_blocks if promises_all else e.num_free_blocks
    room -= e.step_passed_blocks
    seats = min(free_seats(s), max_new_seqs)
    i = first_waiting(s) if seats > 0 and lets_in(s) else NONE
    if i != NONE and is_known_blocked(s, i):
        i = NONE
    while i != NONE and seats > 0 and offered < left:
        request = s.requests[i]
        hit_blocks, unused_hits, _, computed = look_up(s, i)
        room -= blocks_at_entry(s, request, computed) - hit_blocks + unused_hits
        wanted = wanted_tokens(s, request, computed)
        n = chunk_tokens(s, wanted, left - offered, False)
        if room < 0 or (n == 0 and not s.settings.passes_over) or (s.settings.cut == CUT_NONE and n < wanted):
            break
        offered += n
        seats -= 1
        i = NONE if s.settings.is_keyed else request.next
    return int(offered)
