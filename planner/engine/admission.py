"""Waiting requests are admitted while there is a seat, a budget and memory."""

from typing import Any

from planner.engine.adapters import claim_adapter, lacks_adapter_slot
from planner.engine.blocks import ceil_div, claim_hit, enter_blocks, enter_contents, find_hit, take_blocks, take_states
from planner.engine.decodes import depart
from planner.engine.jit import jit
from planner.engine.loading import await_load, begin_pull
from planner.engine.preemption import cross_host_link, least_urgent_decode, leave_cpu, preempt
from planner.engine.promises import keeps_promises, never_keeps_promises, promise_to, sum_promises
from planner.engine.queues import (
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
from planner.engine.serving import grant_prompt
from planner.engine.shape import chunk_tokens, free_seats, has_place
from planner.engine.state import (
    CPU,
    CUT_FIRST,
    CUT_NONE,
    FAILED,
    NONE,
    PROMISE_ALL,
    PROMISE_SHARE,
    REJECTED,
    REMOTE,
    RESERVE_CHUNK,
    RESERVE_MODEL_LEN,
    RESERVE_OUTPUT,
    WAITING,
    State,
)
from planner.engine.tiers import begin_load, find_below, use_prefix


@jit
def admit(s: State, max_new_seqs: int) -> None:
    """Admit waiting requests; nobody enters in a step in which someone had to yield."""
    if s.engine.step_preempted > 0 or s.engine.num_waiting == 0 or is_shut(s):
        return
    sum_promises(s)
    if s.settings.is_first_fit or s.settings.max_loras > 0:
        admit_first_fit(s, max_new_seqs)
    else:
        admit_head_of_line(s, max_new_seqs)


@jit
def is_shut(s: State) -> bool:
    """Tell whether SGLang leaves its queue alone: nobody has left since one did not fit, and no prompt goes on."""
    e = s.engine
    return bool(s.settings.promise == PROMISE_SHARE and e.is_full and e.num_running > 0 and e.step_prompts == 0)


@jit
def admit_head_of_line(s: State, max_new_seqs: int) -> None:
    """Admit in order; the first that does not fit blocks all behind it."""
    admitted = 0
    while admitted < max_new_seqs and has_seat(s):
        i = first_waiting(s)
        if i == NONE or is_known_blocked(s, i):
            return
        n, hit_blocks, computed = admissible_tokens(s, i)
        if n == 0 and s.requests[i].state == WAITING:
            return
        remove_first_waiting(s, i)
        if n > 0:
            enter_running(s, i, n, hit_blocks, computed)
            admitted += 1


@jit
def admit_first_fit(s: State, max_new_seqs: int) -> None:
    """Admit in order, passing over those that do not fit; where the head blocks, those whose adapter has no room."""
    admitted = 0
    i = s.engine.waiting_head
    while i != NONE and admitted < max_new_seqs and has_seat(s):
        following = s.requests[i].next
        n, hit_blocks, computed = admissible_tokens(s, i)
        if n == 0 and s.requests[i].state == WAITING and not is_passed_over(s, i):
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
        n, hit_blocks, computed = admissible_tokens(s, i)
        if n == 0 and s.requests[i].state == WAITING:
            s.scratch[passed] = i
            passed += 1
            if not is_passed_over(s, i):
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
def is_passed_over(s: State, i: int) -> bool:
    """Tell whether a waiting request that does not fit lets those behind it in."""
    return bool(s.settings.is_first_fit or lacks_adapter_slot(s, i))


@jit
def has_seat(s: State) -> bool:
    """Tell whether one more request may enter this step's batch."""
    return bool(free_seats(s) > 0 and s.engine.prompt_budget > 0 and has_place(s))


@jit
def is_known_blocked(s: State, i: int) -> bool:
    """Tell, without a look at the head, that it still cannot fit.

    It cannot before as many blocks have come back as it lacked, whatever has been taken since, unless the first content
    that it missed in the cache is there. A block that is taken never helps it: where an idle block of its own prefix
    comes into use it needs one block fewer, and one fewer is free. So blocks are counted as they come back; the number
    of free blocks does not tell, since another request may take them in the same step, idle blocks of that prefix too.
    """
    e = s.engine
    if s.settings.promise == PROMISE_SHARE:
        return is_shut(s)
    if tests_chunk_only(s):  # whose size is another in every step
        return False
    may_fit = e.is_full == 0 if s.settings.promise == PROMISE_ALL else e.blocked_lack <= 0
    if e.blocked_request != i or may_fit:
        return False
    return bool(e.blocked_content == NONE or s.entries[e.blocked_content].first == NONE)


@jit
def admissible_tokens(s: State, i: int) -> tuple[int, int, int]:
    """Return how many tokens of a waiting request fit this step, 0 for none; mark it where it can never run.

    Besides, the hit blocks and computed tokens that it would start from.
    """
    request = s.requests[i]
    if lacks_adapter_slot(s, i):
        return 0, 0, 0
    hit_blocks, unused_hits, missing, computed = look_up(s, i)
    if never_fits(s, request, computed):
        refuse(s, i)
        return 0, 0, 0
    n = tokens_within_budget(s, request, computed)
    if n == 0:
        return 0, 0, 0
    if has_room(s, request, n, hit_blocks, unused_hits, computed):
        return n, hit_blocks, computed
    if s.engine.num_running + s.engine.num_loading + s.engine.num_held == 0:  # nothing will ever be freed for it
        refuse(s, i)
    s.engine.blocked_request = i
    lack = lacking_blocks(s, request, n, hit_blocks, unused_hits, computed)
    s.engine.blocked_lack = max(lack, 1)  # without the watermark, which no longer holds once nothing runs
    s.engine.blocked_content = missing
    s.engine.is_full = 1
    return 0, 0, 0


@jit
def tests_chunk_only(s: State) -> bool:
    """Tell whether room for a request's first chunk is enough to admit it."""
    return bool(s.settings.reserve == RESERVE_CHUNK and not s.settings.reserves_full_isl)


@jit
def lacking_blocks(s: State, request: Any, n: int, hit_blocks: int, unused_hits: int, computed: int) -> int:
    """Return the blocks that a waiting request needs for its `n` tokens to come, less those that are free."""
    tested = ceil_div(computed + n, s.settings.block_size) if tests_chunk_only(s) else num_reserved(s, request)
    return int(tested - hit_blocks + unused_hits + s.settings.state_blocks - s.engine.num_free_blocks)


@jit
def has_room(s: State, request: Any, n: int, hit_blocks: int, unused_hits: int, computed: int) -> bool:
    """Tell whether the memory has room for a waiting request, beside the watermark and all that was promised."""
    watermark = s.settings.watermark_blocks if s.engine.num_running > 0 or s.settings.watermark_when_idle else 0
    fits = lacking_blocks(s, request, n, hit_blocks, unused_hits, computed) + watermark <= 0
    return bool(fits and keeps_promises(s, request, hit_blocks, unused_hits))


@jit
def tokens_within_budget(s: State, request: Any, computed: int) -> int:
    """Return how many of a waiting request's tokens the step's budget has room for, by the rule for cutting prompts."""
    left = min(s.engine.budget, s.engine.prompt_budget)
    n = wanted_tokens(s, request, computed)
    if n <= left:
        return n
    if s.settings.cut == CUT_NONE:  # SGLang: a prompt above max_prefill_tokens that must run whole runs alone
        runs_alone = s.engine.step_prompts == 0 and left == s.settings.max_prefill_tokens and n <= s.engine.budget
        return n if runs_alone else 0
    if s.settings.cut == CUT_FIRST and s.engine.step_prompts > 0:  # nano-vllm cuts the first of a batch only
        return 0
    return int(chunk_tokens(s, n, left, s.engine.step_prompts + s.engine.step_decodes == 0))


@jit
def look_up(s: State, i: int) -> tuple[int, int, int, int]:
    """Return a waiting request's hit blocks, those nobody uses, the first missing content, and its computed tokens.

    With tiers below the GPU the computed tokens are those that they have besides.
    """
    request = s.requests[i]
    s.engine.found_cpu = s.engine.found_remote = 0
    if request.is_swapped:
        return 0, 0, NONE, int(request.num_computed_tokens)
    if s.settings.pulls_kv and s.pulls[i].tokens > 0 and request.num_cached_tokens < 0:
        return 0, 0, NONE, int(s.pulls[i].tokens)
    if not s.settings.is_caching:
        return 0, 0, NONE, 0
    if s.prefixes[i].cached_tokens > 0 and request.num_cached_tokens < 0:
        return 0, 0, NONE, int(min(s.prefixes[i].cached_tokens, request.input_tokens - 1))
    # The last known token is always computed again, and with it its whole block.
    limit = (request.input_tokens + request.num_output_tokens - 1) // s.settings.block_size
    hits, unused, missing = find_hit(s, i, limit)
    found = find_below(s, i, hits, limit) if s.settings.has_tiers else 0
    return hits, unused, missing, int((hits + found) * s.settings.block_size)


@jit
def num_reserved(s: State, request: Any) -> int:
    """Return the blocks that must be there before a request is admitted."""
    if s.settings.reserve == RESERVE_MODEL_LEN:
        return ceil_div(s.settings.max_model_len, s.settings.block_size)
    if s.settings.reserve == RESERVE_OUTPUT:
        return ceil_div(request.input_tokens + request.max_output_tokens, s.settings.block_size)
    return ceil_div(request.input_tokens + request.num_output_tokens, s.settings.block_size)


@jit
def wanted_tokens(s: State, request: Any, computed: int) -> int:
    """Return how many tokens a waiting request would take in one step, if there were room."""
    known = request.input_tokens + request.num_output_tokens
    return int(min(known - computed, s.engine.max_tokens_per_prompt))


@jit
def never_fits(s: State, request: Any, computed: int) -> bool:
    """Tell whether a request needs more blocks, or as a whole more tokens in a step, than there are."""
    is_whole = s.settings.cut == CUT_NONE
    if is_whole and wanted_tokens(s, request, computed) > s.settings.max_num_batched_tokens:
        return True
    largest = num_reserved(s, request) + s.settings.state_blocks
    return bool(largest > s.settings.num_gpu_blocks or never_keeps_promises(s, request))


@jit
def refuse(s: State, i: int) -> None:
    """Mark a request that can never run; the caller takes it out of its queue."""
    request = s.requests[i]
    request.state = FAILED if request.num_output_tokens > 0 else REJECTED
    request.finished_s = s.engine.now_s
    leave_cpu(s, request)
    depart(s, i)


@jit
def enter_running(s: State, i: int, n: int, hit_blocks: int, computed: int) -> None:
    """Admit a request with its first `n` tokens after those that its lookup found computed."""
    request = s.requests[i]
    claim_adapter(s, i)
    take_states(s)
    if s.settings.pulls_kv and s.pulls[i].tokens > 0 and request.num_cached_tokens < 0:
        begin_pull(s, i)
        return
    claim_hit(s, i, hit_blocks)
    loaded_s = begin_load(s, i, hit_blocks) if s.settings.has_tiers else 0.0
    if loaded_s > s.engine.now_s:
        n = 0
    if s.settings.reserve == RESERVE_CHUNK:
        total = ceil_div(computed + n, s.settings.block_size)
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
    promise_to(s, request)


@jit
def count_hits(s: State, i: int) -> None:
    """Add what a prompt has from the tiers to the totals."""
    fetch, size = s.fetches[i], s.settings.block_size
    fetch.cpu_tokens = s.engine.found_cpu * size
    fetch.remote_tokens = s.engine.found_remote * size
    s.links[CPU].num_hit_tokens += fetch.cpu_tokens
    s.links[REMOTE].num_hit_tokens += fetch.remote_tokens


@jit
def take_loaded(s: State, i: int, hits: int, loaded_s: float) -> None:
    """Make the blocks findable that a request loads after its `hits`; who finds one before it is there waits for it."""
    request = s.requests[i]
    found = int(s.engine.found_cpu + s.engine.found_remote)
    limit = (request.input_tokens + request.num_output_tokens) // s.settings.block_size
    s.fetches[i].begun_s = s.engine.now_s
    enter_blocks(s, i, hits, hits + found)
    use_prefix(s, i, hits, found, int(limit), loaded_s)


@jit
def resume(s: State, i: int) -> None:
    """Account for the return of a preempted request; a swapped one brings its KV back over the host link."""
    request = s.requests[i]
    computed = int(request.num_computed_tokens)
    request.preempted_s += s.engine.now_s - request.waiting_since_s
    if request.is_swapped:
        leave_cpu(s, request)
        cross_host_link(s, computed)
        if s.settings.is_caching:
            enter_contents(s, i, 0, computed)
        return
    recomputed = max(0, request.num_lost_tokens - computed)
    request.num_recomputed_tokens += recomputed
    s.engine.num_recomputed_tokens += recomputed
    request.num_lost_tokens = 0


@jit
def must_force_admission(s: State) -> bool:
    """Tell whether the head has waited for longer than the guards of TTFT allow.

    Each request is forced in once at most: what yields again and again for the same head would never get on.
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
    is_listed = s.engine.waiting_head == i
    remove_first_waiting(s, i)
    _, _, _, computed = look_up(s, i)
    if never_fits(s, request, computed):
        refuse(s, i)
        return
    n = hit_blocks = 0
    while True:
        sum_promises(s)
        if has_seat(s):
            n, hit_blocks, computed = admissible_tokens(s, i)
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
