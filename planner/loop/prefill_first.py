"""Steps as SGLang composes them: prompts while shares of the output to come stay free, else decodes.

The prompt that was cut goes on first, with the rest of the chunk. Then waiting requests enter while the memory, and
after it the step's tokens, have room for them. Tokens are charged in whole pages. Blocks are taken when all prompts of
the step are known; with mixed chunks the decodes go along if theirs are free then. Sources:
sglang/srt/managers/scheduler.py (`get_next_batch_to_run`, `_get_new_batch_prefill_raw`), schedule_policy.py
(`PrefillAdder`).
"""

from planner.loop.admissible import has_budget, is_shut
from planner.loop.admission import admit
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import move_running, sort_waiting
from planner.loop.decodes import blocks_needed
from planner.loop.displacement import admit_displacing, free_ahead
from planner.loop.memory.blocks import ceil_div
from planner.loop.memory.queue_prefixes import keep_chunks, order_by_prefix, touch_queue
from planner.loop.memory.radix import make_free
from planner.loop.overlap import forget_lingering, over_blocks
from planner.loop.preemption import choose_victim, order_by_output, preempt
from planner.loop.reservation import charge, left_tokens, sum_reservations
from planner.loop.serving import DECODES, grant_prompt, make_room, serve, take_for_prompt
from planner.loop.state.engine_state import BY_PREFIX, BY_RANK, NONE, PROMISE_SHARE, State
from planner.loop.step_shape import count_images, count_prompt, free_seats, has_place, pending_tokens
from planner.policies.policy import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST

LOOK_EVERY, LOOK_AT = 32, 128  # looks at the queue, and requests of it


@jit
def compose_by_share(s: State, order: int, max_new_seqs: int) -> None:
    """Fill the step, in the order of the plan, with decodes and prompts."""
    if s.settings.caches_in_tree:
        keep_chunks(s)
    if s.engine.passes_to_hold > 0 and s.engine.step_prompts == 0:  # else a request was forced in
        s.engine.passes_to_hold -= 1
        s.engine.is_held = 1
        serve_decodes(s)
        return
    if order in (IN_ORDER, DECODES_FIRST):
        serve_decodes(s)
    compose_prompts(s, max_new_seqs)
    if order == PROMPTS_FIRST or (order == PROMPTS_ALONE and s.engine.step_prompts == 0):
        serve_decodes(s)
    if s.engine.step_prompts > 0:
        s.engine.passes_to_hold = s.settings.prefill_decode_interval


@jit
def compose_prompts(s: State, max_new_seqs: int) -> None:
    """Put prompts in the step: first prompts that were cut, then new ones."""
    mixes = s.settings.mixes and s.engine.step_decodes == 0
    if may_look(s):
        num_along = int(s.engine.num_decodes + s.engine.num_ended + s.engine.num_lingering) if mixes else 0
        order_queue(s)
        s.engine.prompt_budget -= num_along
        s.engine.input_budget -= num_along
        sum_reservations(s, num_along)
        go_on(s)
        if has_budget(s) and s.settings.displaces:
            admit_displacing(s, max_new_seqs)
        elif has_budget(s):
            admit(s, max_new_seqs)
    take_memory(s)
    if mixes and s.engine.step_prompts > 0:
        forget_lingering(s)
        if s.engine.num_decodes + s.engine.num_over > 0:
            take_along(s)


@jit
def may_look(s: State) -> bool:
    """Tell whether the queue is looked at: a request waits and the queue is not shut, or a prompt goes on."""
    e = s.engine
    if e.num_running + e.num_lingering == 0 or s.settings.displaces:
        e.is_full = 0
    if e.num_prompts > 0:
        return True
    return bool(e.num_waiting > 0 and (free_seats(s) > 0 or s.settings.displaces) and not is_shut(s))


@jit
def order_queue(s: State) -> None:
    """Order the waiting requests; in the first look and every 32nd after it, the tree touches their prefixes."""
    e = s.engine
    if s.settings.queue_order == BY_PREFIX and e.num_waiting <= LOOK_AT:
        order_by_prefix(s)
        sort_waiting(s)
        return
    if s.settings.queue_order == BY_RANK:
        sort_waiting(s)
    if e.num_waiting == 0:
        return
    if s.settings.caches_in_tree and e.num_looks % LOOK_EVERY == 0:
        touch_queue(s)
    e.num_looks += 1


@jit
def go_on(s: State) -> None:
    """Give prompts that were cut the tokens that the chunk and the memory leave; if none are left, the whole chunk."""
    for k in range(s.engine.num_prompts):
        request = s.requests[s.prompts[k]]
        if request.num_scheduled_tokens > 0 or request.flight != NONE or not has_place(s):
            continue
        chunk = max(min(s.engine.prompt_budget, s.engine.budget), 0)
        most = int(min(chunk, left_tokens(s, 0)))
        most = most if most > 0 else chunk
        n = min(pending_tokens(request), most, s.engine.max_tokens_per_prompt)
        if n > 0:
            grant_prompt(s, s.prompts[k], n)
            charge(s, request)


@jit
def take_memory(s: State) -> None:
    """Take the blocks of the step's prompts. The tree makes room for all, and with pages for one more each."""
    if s.settings.caches_in_tree and s.engine.step_prompts > 0:
        size = int(s.settings.block_size)
        spare = s.engine.step_prompts if size > 1 else 0
        make_free(s, int(ceil_div(s.engine.step_prompt_tokens, size) + spare))
    k = 0
    while k < s.engine.num_prompts:
        i = s.prompts[k]
        n = int(s.requests[i].num_scheduled_tokens)
        if s.requests[i].flight == NONE and n > 0:
            if make_room(s, i, n):
                take_for_prompt(s, i, n)
            elif s.requests[i].num_scheduled_tokens > 0:  # it waits for a victim that is in flight
                count_prompt(s, s.requests[i], n, -1)
                count_images(s, i, n, -1)
                s.requests[i].num_scheduled_tokens = 0
        k += 1 if k < s.engine.num_prompts and s.prompts[k] == i else 0


@jit
def take_along(s: State) -> None:
    """Let all decodes go along with the step's prompts, if their blocks are free; else they sit out.

    If they fit, decodes go along behind the prompts in the running batch; else they stand before them.
    """
    fits = fit_together(s)
    count = int(s.engine.num_prompts)
    for k in range(count):
        i = s.prompts[count - 1 - k if fits else k]
        if s.requests[i].num_scheduled_tokens > 0:
            move_running(s, i, fits)
    if fits:
        if s.settings.caches_in_tree:
            make_free(s, int(s.engine.num_decodes + s.engine.num_over))
        serve(s, DECODES)


@jit
def fit_together(s: State) -> bool:
    """Tell whether there are blocks for one more token of every decode, once the tree has made room."""
    need = over_blocks(s) + (blocks_needed(s) if s.settings.aggregates_decodes else s.engine.num_decodes)
    if s.settings.caches_in_tree:
        make_free(s, int(need))
    return bool(need <= s.engine.num_free_blocks)


@jit
def serve_decodes(s: State) -> None:
    """Let the decodes take a step; if memory is short, the victims are retracted first and the others take it.

    If a request that ends by length is in flight, no request is retracted and no decode runs: its end makes room. The
    tree frees one page for each decode, even if it needs none, and at a retraction 20 tokens for each.
    """
    e = s.engine
    if forget_lingering(s) and e.num_running == 0:
        e.is_held = 1
    if s.settings.aggregates_decodes and e.step_prompts == 0 and e.num_decodes + e.num_over > 0:
        fits = fit_together(s)
        if not fits and e.num_ended > e.num_over:
            return
        while not fits and e.num_decodes + e.num_over > 1:
            preempt(s, choose_victim(s))
            free_ahead(s, int(e.num_decodes + e.num_over))
            fits = fit_together(s)
        if e.step_preempted > e.step_displaced:
            order_by_output(s)
        if s.settings.caches_in_tree:
            make_free(s, int(e.num_decodes + e.num_over))
    serve(s, DECODES)


@jit
def open_queue(s: State) -> None:
    """Let a queue that is shut be looked at after a step of prompts of which one was cut, or before which none ran.

    SGLang keeps the flag with the running batch: a batch that becomes the running one has its own flag, as has a batch
    with decodes along.
    """
    e = s.engine
    if s.settings.promise != PROMISE_SHARE or e.is_full == 0:
        return
    opens = e.num_decodes + e.num_ended + e.num_lingering == 0 or e.step_decodes > 0
    for k in range(e.num_prompts):
        request = s.requests[s.prompts[k]]
        opens = opens or request.num_scheduled_tokens < pending_tokens(request)
    if opens:
        e.is_full = 0
