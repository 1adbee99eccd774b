"""Priority scheduling of SGLang: if seats or memory are taken, running requests of much lower priority yield.

Source: `PrefillAdder.preempt_to_schedule` in sglang/srt/managers/schedule_policy.py.
"""

from planner.loop.admissible import admissible_tokens, has_budget
from planner.loop.admission import enter_running
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import remove_listed
from planner.loop.decodes import CLIP_MAX_NEW_TOKENS
from planner.loop.memory.blocks import ceil_div
from planner.loop.memory.radix import make_free
from planner.loop.preemption import may_revive, queue_again, take_down
from planner.loop.reservation import RETRACT_DECODE_STEPS, left_tokens, new_token_ratio, promised_output
from planner.loop.state.engine_state import COMPLETED, DECODE, NONE, WAITING, State
from planner.loop.step_shape import free_seats


@jit
def admit_displacing(s: State, max_new_seqs: int) -> None:
    """Admit in order of urgency; displaced requests wait behind all others, until the next step at least."""
    admitted = yielded = 0
    i = s.engine.waiting_head
    while i != NONE and admitted < max_new_seqs and has_budget(s):
        following = s.requests[i].next
        if free_seats(s) <= 0:
            s.engine.is_full = 1
        if s.engine.is_full:
            more = displace(s, i, yielded)
            if more == 0:
                break
            yielded += more
            s.engine.is_full = 1
        n, hit_blocks, computed = admissible_tokens(s, i, False)
        if n == 0 and s.requests[i].state == WAITING:
            break
        remove_listed(s, i)
        if n > 0:
            enter_running(s, i, n, hit_blocks, computed)
            admitted += 1
            if left_tokens(s, 0) <= 0:
                break
        i = following
    for k in range(yielded):  # SGLang queues a set, in no order; here the least urgent is first
        queue_again(s, int(s.scratch[k]))


@jit
def displace(s: State, i: int, yielded: int) -> int:
    """Let running requests yield until `i` fits; return how many did, listed in `scratch` behind earlier ones."""
    request, ratio = s.requests[i], new_token_ratio(s)
    wanted = request.input_tokens + request.num_output_tokens + min(request.max_output_tokens, CLIP_MAX_NEW_TOKENS)
    missing = wanted - left_tokens(s, 0)
    chosen, last = 0, NONE
    while chosen == 0 or missing > 0:
        last = next_to_yield(s, last)
        if last == NONE or not yields_to(s, last, i):
            break
        s.scratch[yielded + chosen] = last
        chosen += 1
        missing -= promised_output(s, s.requests[last]) * ratio
    if chosen == 0 or missing > 0:
        return 0
    v = s.engine.running_head
    while v != NONE:
        following = s.requests[v].next
        if is_listed(s, v, yielded, chosen):
            s.engine.promised_tokens -= promised_output(s, s.requests[v]) * ratio
            s.engine.step_displaced += 1
            take_down(s, v)
            free_ahead(s, int(s.engine.num_decodes + s.engine.num_ended + s.engine.num_lingering))
        v = following
    return chosen


@jit
def free_ahead(s: State, rows: int) -> None:
    """Let the tree free 20 tokens for each request that stays, once another has yielded."""
    if s.settings.caches_in_tree:
        make_free(s, int(ceil_div(RETRACT_DECODE_STEPS * rows, s.settings.block_size)))


@jit
def next_to_yield(s: State, last: int) -> int:
    """Return the running decode that yields after `last`: the least urgent, of equals the last to be queued."""
    best = NONE
    v = s.engine.running_head
    while v != NONE:
        is_running = s.requests[v].state == DECODE or (s.requests[v].state == COMPLETED and may_revive(s))
        may_yield = is_running and s.requests[v].flight == NONE
        if may_yield and (last == NONE or yields_before(s, last, v)) and (best == NONE or yields_before(s, v, best)):
            best = v
        v = s.requests[v].next
    return int(best)


@jit
def yields_before(s: State, a: int, b: int) -> bool:
    one, other = s.ranks[a], s.ranks[b]
    return bool(one.urgency > other.urgency or (one.urgency == other.urgency and one.entered > other.entered))


@jit
def yields_to(s: State, v: int, i: int) -> bool:
    """Tell whether a running request yields: a waiting one is more urgent than it by more than the threshold."""
    return bool(s.ranks[v].urgency - s.ranks[i].urgency > s.settings.priority_scheduling_preemption_threshold)


@jit
def is_listed(s: State, v: int, first: int, count: int) -> bool:
    k = first
    while k < first + count and s.scratch[k] != v:
        k += 1
    return bool(k < first + count)
