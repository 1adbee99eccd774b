"""Tokens for running requests: for all at once if memory and budget suffice, else in the order of admission."""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.decodes import blocks_needed, gather_ring, list_in_order
from planner.loop.drafts import draw_emitted, slots_needed, tokens_of_decode
from planner.loop.memory.blocks import (
    ceil_div,
    enter_contents,
    enter_filled,
    num_computed_tokens,
    num_held,
    take_blocks,
)
from planner.loop.overlap import enter_known, grant_over_row, grant_over_rows, over_blocks
from planner.loop.preemption import choose_victim, preempt
from planner.loop.state.engine_state import COMPLETED, DECODE, NONE, PROMISE_SHARE, PROMPT, State
from planner.loop.step_shape import chunk_tokens, count_decode, count_images, count_prompt, has_place, pending_tokens

DECODES, PROMPTS = 1, 2  # the kinds of requests for `serve`, as bits


@jit
def serve(s: State, kinds: int) -> None:
    """Serve running requests of the asked kinds."""
    if s.settings.aggregates_decodes and everyone_fits(s, kinds):
        serve_together(s, kinds)
    else:
        serve_in_order(s, kinds)


@jit
def everyone_fits(s: State, kinds: int) -> bool:
    """Tell whether the order of service cannot matter, and share the prompt budget out if so."""
    need = 0
    left = s.engine.budget
    if kinds & DECODES:
        rows = s.engine.num_decodes + s.engine.num_over
        if rows > min(left, s.settings.max_batch_seqs):
            return False
        left -= rows
        need = blocks_needed(s) + over_blocks(s)
        if s.settings.fits_with_spare and (s.engine.num_decodes > 0 or s.settings.has_placeholders):
            need += 1
    if kinds & PROMPTS:
        left = max(min(left, s.engine.prompt_budget), 0)
        taken = s.engine.step_prompts + s.engine.step_decodes
        short = False
        for k in range(s.engine.num_prompts):
            request = s.requests[s.prompts[k]]
            if request.num_scheduled_tokens > 0:  # it was admitted ahead of its turn
                continue
            wanted = min(pending_tokens(request), s.engine.max_tokens_per_prompt)
            n = chunk_tokens(s, wanted, left, taken == 0)
            request.num_offered_tokens = n
            short = short or n < wanted
            left -= n
            taken += n
            need += max(0, ceil_div(request.num_computed_tokens + n, s.settings.block_size) - request.num_blocks)
        if short and kinds & DECODES and not decodes_lead(s):
            return False
    return bool(need <= s.engine.num_free_blocks)


@jit
def decodes_lead(s: State) -> bool:
    """Tell whether all decodes stand before all prompts in the running order."""
    i = s.engine.running_tail
    count = 0
    while i != NONE and s.requests[i].state == PROMPT:
        count += 1
        i = s.requests[i].previous
    return bool(count == s.engine.num_prompts)


@jit
def serve_together(s: State, kinds: int) -> None:
    """Give every running request of the asked kinds its tokens; `everyone_fits` has shared them out."""
    num_filling = 0
    if kinds & DECODES:
        s.engine.budget -= s.engine.num_decodes
        s.engine.step_decodes = s.engine.num_decodes
        s.engine.step_decode_context = s.engine.decode_context_tokens
        num_filling = advance_decode_blocks(s)
        if s.engine.num_over > 0:
            grant_over_rows(s)
    entered = 0
    if kinds & PROMPTS:
        for k in range(s.engine.num_prompts):
            i = s.prompts[k]
            place = s.requests[i].admission_order
            while entered < num_filling and s.requests[s.scratch[entered]].admission_order < place:
                enter_decode_content(s, s.scratch[entered])
                entered += 1
            if s.requests[i].num_scheduled_tokens == 0:
                grant_prompt(s, i, int(s.requests[i].num_offered_tokens))
    for k in range(entered, num_filling):
        enter_decode_content(s, s.scratch[k])


@jit
def advance_decode_blocks(s: State) -> int:
    """Give every decode at a block's end its next block; list decodes that fill a block in `scratch` and count them."""
    place = s.ring[s.engine.decode_step % s.settings.block_size]
    if not s.settings.enable_prefix_caching:
        s.engine.num_free_blocks -= place.count
        return 0
    i = place.head
    while i != NONE:
        take_blocks(s, i, num_held(s, s.requests[i]), 1)
        i = s.prefixes[i].ring_next
    if s.settings.cache_latest:
        return 0
    if s.settings.enters_late:
        size = gather_ring(s, s.engine.decode_step % s.settings.block_size, 0)
        if (s.engine.num_stalled > 0 or s.engine.is_paused) and s.settings.block_size > 1:  # else they are the same
            size = gather_ring(s, (s.engine.decode_step + 1) % s.settings.block_size, size)
        return list_ended_filling(s, size)
    return gather_ring(s, (s.engine.decode_step + 1) % s.settings.block_size, 0)


@jit
def enter_decode_content(s: State, i: int) -> None:
    """Make the block findable that a decode fills in this step; under overlap, the one that it filled in the last."""
    computed = num_computed_tokens(s, s.requests[i])
    if s.settings.enters_late:
        enter_known(s, i, 1)
    elif s.settings.has_placeholders:
        enter_filled(s, i, computed + 1)
    else:
        enter_contents(s, i, computed, computed + 1)


@jit
def serve_in_order(s: State, kinds: int) -> None:
    """Serve running requests one by one; the last may go short, or yield."""
    if kinds & DECODES:
        mark_decodes(s)
    i = s.engine.running_head
    while i != NONE and has_place(s):
        request = s.requests[i]
        following = request.next
        n = 0
        if request.flight == NONE:
            if request.state == PROMPT and kinds & PROMPTS and request.num_scheduled_tokens == 0:
                wanted = min(pending_tokens(request), s.engine.max_tokens_per_prompt)
                is_alone = s.engine.step_prompts + s.engine.step_decodes == 0
                n = chunk_tokens(s, wanted, min(s.engine.prompt_budget, s.engine.budget), is_alone)
            elif kinds & DECODES and (request.state == DECODE or is_over(request)):
                n = tokens_of_decode(s, request)
        if n > 0:
            state = request.state
            if not make_room(s, i, n):
                following = s.engine.next_in_order
            else:
                following = request.next  # later ones may have yielded
                if state == DECODE:
                    grant_decode(s, i, n)
                elif state == COMPLETED:
                    enter_over(s, i, n)
                else:
                    grant_prompt(s, i, n)
        i = following


@jit
def is_over(request: Any) -> bool:
    """Tell whether a request has ended, is due one more row, and does not have it yet."""
    return bool(request.state == COMPLETED and request.runs_on and request.num_scheduled_tokens == 0)


@jit
def enter_over(s: State, i: int, n: int) -> None:
    """Give an ended request its row, and make findable the block that it filled in the last step."""
    grant_over_row(s, i, n)
    if s.settings.enters_late:
        enter_known(s, i, n)


@jit
def list_ended_filling(s: State, size: int) -> int:
    """Add the ended requests with a row to the decodes listed in `scratch`, in running order."""
    for e in range(s.engine.num_ended):
        i = s.ended[e]
        if s.requests[i].runs_on:
            size = list_in_order(s, i, size)
    return size


@jit
def mark_decodes(s: State) -> None:
    """From here on each decode says for itself whether it is in the step."""
    s.engine.step_marks_decodes = 1
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE and request.flight == NONE:
            request.num_scheduled_tokens = 0
        i = request.next


@jit
def make_room(s: State, i: int, n: int) -> bool:
    """Free the blocks for `n` more tokens, by preemption if necessary.

    False if `i` itself had to yield, or has to wait for a victim whose batch is in flight.
    """
    request = s.requests[i]
    more = n if s.settings.has_placeholders and request.state != PROMPT else 0  # ATOM's can_append: the next row's room
    need = max(0, ceil_div(slots_needed(s, request, n) + more, s.settings.block_size) - num_held(s, request))
    if request.state == DECODE and s.settings.needs_spare_block:  # sarathi-serve's can_append_slot
        need = max(need, 1)
    while need > s.engine.num_free_blocks:
        victim = choose_victim(s)
        s.engine.next_in_order = request.next
        if s.requests[victim].flight != NONE:
            return False
        preempt(s, victim)
        if victim == i:
            return False
    return True


@jit
def grant_decode(s: State, i: int, n: int) -> None:
    """Put a decode in the step, with the drafted ones `n` tokens, and take the blocks that it may need."""
    request = s.requests[i]
    computed = num_computed_tokens(s, request)
    held = num_held(s, request)
    need = ceil_div(slots_needed(s, request, n), s.settings.block_size) - held
    if need > 0:
        take_blocks(s, i, held, need)
    emitted = draw_emitted(s, i, n - 1)
    if s.settings.enters_late:
        enter_known(s, i, n)
    elif s.settings.enable_prefix_caching and not s.settings.cache_latest:
        enter_contents(s, i, computed, computed + emitted)
    request.num_scheduled_tokens = n
    request.num_offered_tokens = emitted
    count_decode(s, request, n, emitted - 1, 1)


@jit
def grant_prompt(s: State, i: int, n: int) -> None:
    """Put `n` prompt tokens in the step, and take the blocks that they need, if it is not composed by shares."""
    request = s.requests[i]
    if n == 0:
        return
    request.num_scheduled_tokens = n
    if s.settings.promise != PROMISE_SHARE:  # else once the step's prompts are known
        take_for_prompt(s, i, n)
    if n > pending_tokens(request):  # padded to a decode with drafts
        request.num_offered_tokens = draw_emitted(s, i, n - pending_tokens(request))
        s.engine.step_accepted += request.num_offered_tokens - 1
    count_prompt(s, request, n, 1)
    count_images(s, i, n, 1)


@jit
def take_for_prompt(s: State, i: int, n: int) -> None:
    """Take the blocks that a prompt's next `n` tokens need."""
    request = s.requests[i]
    after = request.num_computed_tokens + min(n, pending_tokens(request))
    need = ceil_div(slots_needed(s, request, n), s.settings.block_size) - request.num_blocks
    if need > 0:
        take_blocks(s, i, int(request.num_blocks), need)
    if s.settings.hashes_next_token and s.settings.enters_late:
        enter_filled(s, i, min(after, request.input_tokens + request.num_output_tokens - 1))
    elif s.settings.enable_prefix_caching and not s.settings.cache_latest:
        enter_contents(s, i, int(request.num_computed_tokens), after)
