"""Admission of waiting requests while a seat, token budget and memory are free."""


from planner.loop.admissible import (
    PASSED,
    admissible_tokens,
    has_seat,
    is_delayed,
    is_known_blocked,
    look_up,
    never_fits,
    num_reserved,
    pass_over,
    refuse,
)
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import (
    append_prompt,
    append_running,
    append_waiting,
    first_waiting,
    heap_pop,
    heap_push,
    prepend_waiting,
    remove_first_waiting,
    remove_listed,
)
from planner.loop.drafts import slots_after
from planner.loop.kv_loading import await_load, begin_pull
from planner.loop.memory.adapters import claim_adapter, lacks_adapter_slot
from planner.loop.memory.beside_context import blocks_to_enter
from planner.loop.memory.blocks import ceil_div, claim_hit, enter_blocks, enter_contents, take_beside, take_blocks
from planner.loop.memory.tiers import begin_load, use_prefix
from planner.loop.preemption import cross_host_link, least_urgent_decode, leave_cpu, preempt
from planner.loop.reservation import reserve_for, sum_reservations
from planner.loop.serving import grant_prompt
from planner.loop.state.engine_state import CPU, NONE, PROMISE_SHARE, REMOTE, RESERVE_CHUNK, WAITING, State
from planner.loop.step_shape import lets_in


@jit
def admit(s: State, max_new_seqs: int) -> None:
    """Admit waiting requests, if any may enter the step."""
    if s.engine.num_waiting == 0 or not lets_in(s):
        return
    if s.settings.is_first_fit or s.settings.max_loras > 0 or s.settings.passes_over:
        admit_first_fit(s, max_new_seqs)
    else:
        admit_head_of_line(s, max_new_seqs)


@jit
def admit_head_of_line(s: State, max_new_seqs: int) -> None:
    """Admit in order; the first that does not fit blocks all behind it."""
    admitted = 0
    while admitted < max_new_seqs and has_seat(s):
        i = first_waiting(s)
        if i == NONE or is_known_blocked(s, i) or (s.settings.scheduler_delay_factor > 0.0 and is_delayed(s)):
            return
        n, hit_blocks, computed = admissible_tokens(s, i, False)
        if n == 0 and s.requests[i].state == WAITING:
            return
        remove_first_waiting(s, i)
        if n > 0:
            enter_running(s, i, n, hit_blocks, computed)
            admitted += 1


@jit
def admit_first_fit(s: State, max_new_seqs: int) -> None:
    """Admit in order and pass over requests that do not fit: all, or all without an adapter slot or a chunk."""
    admitted = 0
    i = s.engine.waiting_head
    while i != NONE and admitted + s.engine.step_passed < max_new_seqs and has_seat(s):
        following = s.requests[i].next
        if is_still_blocked(s, i) or (s.settings.scheduler_delay_factor > 0.0 and is_delayed(s)):
            return
        n, hit_blocks, computed = admissible_tokens(s, i, False)
        if n <= 0 and s.requests[i].state == WAITING and not is_passed_over(s, i, n):
            return
        if n > 0 or s.requests[i].state != WAITING:
            remove_listed(s, i)
        if n > 0:
            enter_running(s, i, n, hit_blocks, computed)
            admitted += 1
        i = following
    passed = 0
    while s.engine.num_heaped > 0 and admitted < max_new_seqs and has_seat(s):
        i = s.waiting_heap[0].request
        s.engine.num_heaped = heap_pop(s.waiting_heap, s.engine.num_heaped)
        if s.requests[i].state != WAITING:  # cancelled
            continue
        n, hit_blocks, computed = admissible_tokens(s, i, False)
        if n <= 0 and s.requests[i].state == WAITING:
            s.scratch[passed] = i
            passed += 1
            if not is_passed_over(s, i, n):
                break
            continue
        s.engine.num_waiting -= 1
        if n > 0:
            enter_running(s, i, n, hit_blocks, computed)
            admitted += 1
    for k in range(passed):
        rank = s.ranks[s.scratch[k]].admit
        s.engine.num_heaped = heap_push(s.waiting_heap, s.engine.num_heaped, rank, s.scratch[k])


@jit
def is_still_blocked(s: State, i: int) -> bool:
    """Tell, without a look at it, that a waiting request blocks all behind it."""
    return bool(not s.settings.is_first_fit and s.settings.max_loras == 0 and is_known_blocked(s, i))


@jit
def is_passed_over(s: State, i: int, n: int) -> bool:
    """Tell whether a waiting request that gets no tokens lets later ones in; `n` is 0, or PASSED for no chunk."""
    if n == PASSED:
        pass_over(s, i)
        return True
    return bool(s.settings.is_first_fit or lacks_adapter_slot(s, i))


@jit
def enter_running(s: State, i: int, n: int, hit_blocks: int, computed: int) -> None:
    """Admit a request with its first `n` tokens after the `computed` tokens of its lookup."""
    request = s.requests[i]
    claim_adapter(s, i)
    beside = blocks_to_enter(s, request, computed)
    if s.settings.pulls_kv and s.pulls[i].tokens > 0 and request.num_cached_tokens < 0:
        take_beside(s, i, beside)
        begin_pull(s, i)
        return
    claim_hit(s, i, hit_blocks)
    take_beside(s, i, beside)  # after its hits, which may be unused blocks
    loaded_s = begin_load(s, i, hit_blocks) if s.settings.has_tiers else 0.0
    if loaded_s > s.engine.now_s:
        n = 0
    if s.settings.promise == PROMISE_SHARE and loaded_s <= s.engine.now_s:
        total = hit_blocks  # the others when the step is whole
    elif s.settings.reserve == RESERVE_CHUNK:
        total = ceil_div(slots_after(s, computed, n), s.settings.block_size)
    else:
        total = num_reserved(s, request)
    take_blocks(s, i, hit_blocks, total - hit_blocks)
    request.num_computed_tokens = computed
    if request.num_cached_tokens < 0:
        request.num_cached_tokens = computed
        request.first_scheduled_s = s.engine.now_s
        s.engine.num_queried_tokens += request.input_tokens
        s.engine.num_hit_tokens += computed
        if s.settings.has_tiers:
            count_hits(s, i)
    else:
        resume(s, i)
    if s.settings.has_tiers:
        take_loaded(s, i, hit_blocks, loaded_s)
    if n > 0:
        append_running(s, i)
        append_prompt(s, i)
        grant_prompt(s, i, n)
    else:
        await_load(s, i, loaded_s)
    reserve_for(s, request)


@jit
def count_hits(s: State, i: int) -> None:
    """Add a prompt's hits in the tiers to the totals."""
    fetch, size = s.fetches[i], s.settings.block_size
    fetch.cpu_tokens = s.engine.found_cpu * size
    fetch.remote_tokens = s.engine.found_remote * size
    s.links[CPU].num_hit_tokens += fetch.cpu_tokens
    s.links[REMOTE].num_hit_tokens += fetch.remote_tokens


@jit
def take_loaded(s: State, i: int, hits: int, loaded_s: float) -> None:
    """Make the blocks findable that a request loads after its `hits`; a request that hits one earlier waits for it."""
    request = s.requests[i]
    loaded = int(s.engine.found_cpu + s.engine.found_remote)
    limit = (request.input_tokens + request.num_output_tokens) // s.settings.block_size
    s.fetches[i].begun_s = s.engine.now_s
    enter_blocks(s, i, hits, hits + loaded)
    use_prefix(s, i, hits, loaded, int(limit), loaded_s)


@jit
def resume(s: State, i: int) -> None:
    """Account for the return of a preempted request; a swapped one brings its KV back over the host link."""
    request = s.requests[i]
    computed = int(request.num_computed_tokens)
    request.preempted_s += s.engine.now_s - request.waiting_since_s
    if request.is_swapped:
        leave_cpu(s, request)
        cross_host_link(s, computed)
        if s.settings.enable_prefix_caching:
            enter_contents(s, i, 0, computed)
        return
    recomputed = max(0, request.num_lost_tokens - computed)
    request.num_recomputed_tokens += recomputed
    s.engine.num_recomputed_tokens += recomputed
    request.num_lost_tokens = 0


@jit
def must_force_admission(s: State) -> bool:
    """Tell whether the head has waited for longer than the guards of TTFT allow.

    Each request is forced in once at most: a victim that yields repeatedly to the same head would make no progress.
    """
    if s.engine.num_waiting == 0 or s.engine.prompt_budget == 0:
        return False
    i = first_waiting(s)
    if i == NONE or s.requests[i].num_cached_tokens >= 0:
        return False
    waited_s = s.engine.now_s - s.requests[i].waiting_since_s
    return bool(s.engine.num_decode_only_steps >= s.settings.max_decode_only_steps or waited_s > s.settings.max_wait_s)


@jit
def force_admission(s: State) -> None:
    """Admit the head; decodes yield until it has a seat and its blocks, the least urgent and newest first."""
    i = first_waiting(s)
    request = s.requests[i]
    s.engine.is_full = 0
    is_listed = s.engine.waiting_head == i
    remove_first_waiting(s, i)
    _, _, _, computed = look_up(s, i)
    if never_fits(s, request, computed):
        refuse(s, i)
        return
    n = hit_blocks = 0
    while True:
        sum_reservations(s, 0)
        if has_seat(s):
            n, hit_blocks, computed = admissible_tokens(s, i, False)
        if n > 0 or request.state != WAITING:
            break
        victim = least_urgent_decode(s)
        if victim == NONE:
            break
        preempt(s, victim)
    if n > 0:
        enter_running(s, i, n, hit_blocks, computed)
    elif request.state == WAITING and is_listed:
        prepend_waiting(s, i)
    elif request.state == WAITING:
        append_waiting(s, i)
