"""How much of a waiting request may be admitted in a step: seats, budget, cached prefix and memory."""

import math
from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.decodes import depart
from planner.loop.drafts import slots_after
from planner.loop.memory.adapters import lacks_adapter_slot
from planner.loop.memory.beside_context import blocks_to_enter
from planner.loop.memory.blocks import (
    ceil_div,
    find_hit,
    most_blocks,
)
from planner.loop.memory.radix import find_depth, num_unlocked, walk
from planner.loop.memory.tiers import find_below
from planner.loop.overlap import forget_missing
from planner.loop.preemption import leave_cpu
from planner.loop.reservation import fits_reservation, left_tokens, never_fits_reservation, whole_pages
from planner.loop.state.engine_state import (
    CUT_FIRST,
    CUT_NONE,
    FAILED,
    NONE,
    PROMISE_ALL,
    PROMISE_SHARE,
    REJECTED,
    RESERVE_CHUNK,
    RESERVE_MODEL_LEN,
    RESERVE_OUTPUT,
    State,
)
from planner.loop.step_shape import chunk_tokens, free_seats, has_place

PASSED = -1  # in place of a number of tokens


@jit
def is_shut(s: State) -> bool:
    """Tell whether SGLang skips its queue (`batch_is_full`): a request did not fit, and nothing has opened it since.

    The queue opens when a request leaves, when a prompt is cut, and if no decode ran before the batch that shut it.
    """
    e = s.engine
    runs = e.num_running + e.num_lingering > 0
    return bool(s.settings.promise == PROMISE_SHARE and e.is_full and runs and e.num_prompts == 0)


@jit
def has_seat(s: State) -> bool:
    """Tell whether one more request may enter this step's batch."""
    is_closed = s.settings.promise == PROMISE_SHARE and s.engine.is_full
    return bool(not is_closed and free_seats(s) > s.engine.step_passed and has_budget(s))


@jit
def has_budget(s: State) -> bool:
    """Tell whether the step has tokens left for a further prompt.

    SGLang looks at one without memory too, and the look shuts the queue.
    """
    if s.settings.promise == PROMISE_SHARE and left_tokens(s, 0) <= 0:
        return True
    return bool(s.engine.prompt_budget > 0 and s.engine.input_budget > 0 and has_place(s))


@jit
def is_delayed(s: State) -> bool:
    """Tell whether new prompts wait while others run: ATOM's scheduler_delay_factor times the last prompts' latency.

    The latency is the time between the composition of the last step with prompts and the next composition; the wait is
    that of the request that came first.
    """
    e = s.engine
    if e.num_running == 0:
        return False
    first_s = math.inf
    i = e.waiting_head
    while i != NONE:
        first_s = min(first_s, s.requests[i].reached_s)
        i = s.requests[i].next
    for k in range(e.num_heaped):
        first_s = min(first_s, s.requests[s.waiting_heap[k].request].reached_s)
    return bool(e.composed_s - first_s <= s.settings.scheduler_delay_factor * e.prompt_latency_s)


@jit
def is_known_blocked(s: State, i: int) -> bool:
    """Tell, without a look at the head, that it still cannot fit.

    It cannot fit until as many blocks have come back as it lacked, unless the first content that it missed in the
    cache is there. Blocks taken meanwhile never help: if an idle block of its own prefix comes into use, it needs one
    block fewer, and one fewer is free. So returned blocks are counted. The number of free blocks does not tell, because
    another request may take them in the same step, idle blocks of that prefix included.
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
def admissible_tokens(s: State, i: int, is_shared: bool) -> tuple[int, int, int]:
    """Return how many tokens of a waiting request fit this step, 0 for none; refuse a request that can never run.

    Returns also the hit blocks and computed tokens that it would start from. PASSED: it has room but no chunk, or the
    budget `is_shared` among all requests that have room.
    """
    request = s.requests[i]
    if lacks_adapter_slot(s, i):
        return 0, 0, 0
    hit_blocks, unused_hits, missing, computed = look_up(s, i)
    if never_fits(s, request, computed):
        refuse(s, i)
        return 0, 0, 0
    if s.settings.promise == PROMISE_SHARE:
        if s.settings.caches_in_tree:
            walk(s, i, hit_blocks)
        return tokens_by_share(s, i, hit_blocks, unused_hits, computed), hit_blocks, computed
    n = PASSED if is_shared else tokens_within_budget(s, request, computed)
    if n == 0 and s.settings.passes_over and s.settings.cut != CUT_NONE:
        n = PASSED
    if n == 0:
        return 0, 0, 0
    if has_room(s, request, n, hit_blocks, unused_hits, computed):
        return n, hit_blocks, computed
    if s.engine.step_passed > 0:  # requests that were passed over keep blocks in this step only
        return 0, 0, 0
    if s.engine.num_running + s.engine.num_loading + s.engine.num_held == 0:  # nothing will ever be freed for it
        refuse(s, i)
    s.engine.blocked_request = i
    lack = lacking_blocks(s, request, n, hit_blocks, unused_hits, computed)
    # Without the watermark, which does not hold once nothing runs, and without blocks that a request gives up now.
    s.engine.blocked_lack = max(lack - s.engine.step_passed_blocks, 1)
    s.engine.blocked_content = missing
    s.engine.is_full = 1
    return 0, 0, 0


@jit
def tokens_by_share(s: State, i: int, hit_blocks: int, unused_hits: int, computed: int) -> int:
    """Return how many of a waiting request's tokens SGLang takes; one that the memory has no room for shuts the queue.

    Memory comes before the step's tokens. A chunk ends after a whole page; if a chunk has less and nothing else
    runs, after any token.
    """
    request, page = s.requests[i], int(s.settings.chunk_tokens)
    n = wanted_tokens(s, request, computed)
    if not fits_reservation(s, request, hit_blocks, unused_hits):
        if s.engine.num_running + s.engine.num_loading + s.engine.num_held + s.engine.num_lingering == 0:
            refuse(s, i)  # nothing will ever be freed for it
        s.engine.is_full = 1
        return 0
    is_strict = s.settings.cut == CUT_NONE or s.settings.strict_prefill
    if is_strict and s.engine.step_prompts > 0 and whole_pages(s, n) >= s.engine.input_budget:
        return 0
    left = int(min(s.engine.prompt_budget, s.engine.budget))
    if whole_pages(s, n) <= left or (s.settings.cut == CUT_NONE and n <= left):
        return n
    if s.settings.cut == CUT_NONE:
        return 0
    whole = (computed + left - left % page) // page * page - computed
    e = s.engine
    is_alone = e.step_prompts + e.step_decodes + e.num_decodes + e.num_ended + e.num_lingering == 0
    return min(n, left) if is_alone and whole <= 0 else max(whole, 0)


@jit
def pass_over(s: State, i: int) -> None:
    """Keep a seat and blocks in this step for a waiting prompt that fits but has no chunk."""
    request = s.requests[i]
    hit_blocks, unused_hits, _, computed = look_up(s, i)
    whole = blocks_at_entry(s, request, computed)
    s.engine.step_passed += 1
    s.engine.step_passed_blocks += whole - hit_blocks + unused_hits


@jit
def tests_chunk_only(s: State) -> bool:
    """Tell whether room for a request's first chunk is enough to admit it."""
    return bool(s.settings.reserve == RESERVE_CHUNK and not s.settings.scheduler_reserve_full_isl)


@jit
def lacking_blocks(s: State, request: Any, n: int, hit_blocks: int, unused_hits: int, computed: int) -> int:
    """Return the blocks that a waiting request needs for its next `n` tokens, less the free blocks."""
    tested = 0 if tests_chunk_only(s) else num_reserved(s, request)
    if s.settings.reserve == RESERVE_CHUNK:
        tested = max(tested, ceil_div(slots_after(s, computed, n), s.settings.block_size))
    kept = s.engine.step_passed_blocks - s.engine.num_free_blocks
    return int(tested - hit_blocks + unused_hits + blocks_to_enter(s, request, computed) + kept)


@jit
def has_room(s: State, request: Any, n: int, hit_blocks: int, unused_hits: int, computed: int) -> bool:
    """Tell whether the memory has room for a waiting request, beside the watermark and all that was promised."""
    watermark = s.settings.watermark_blocks if s.engine.num_running > 0 or s.settings.watermark_when_idle else 0
    fits = lacking_blocks(s, request, n, hit_blocks, unused_hits, computed) + watermark <= 0
    return bool(fits and fits_reservation(s, request, hit_blocks, unused_hits))


@jit
def tokens_within_budget(s: State, request: Any, computed: int) -> int:
    """Return how many of a waiting request's tokens the step's budget has room for, by the rule for cutting prompts."""
    left = min(s.engine.budget, s.engine.prompt_budget)
    n = wanted_tokens(s, request, computed)
    if n == 1 and s.engine.step_pads and (computed > 0 or s.engine.step_prompts + s.engine.step_decodes > 0):
        n += s.settings.num_speculative_tokens  # so that the step is one of decodes with drafts
        return n if n <= left else 0
    if n <= left:
        return n
    if s.settings.cut == CUT_NONE:  # a prompt above max_prefill_tokens that must run whole runs alone
        runs_alone = s.engine.step_prompts == 0 and left == s.settings.max_prefill_tokens and n <= s.engine.budget
        return n if runs_alone else 0
    if s.settings.cut == CUT_FIRST and s.engine.step_prompts > 0:  # nano-vllm cuts the first of a batch only
        return 0
    return int(chunk_tokens(s, n, left, s.engine.step_prompts + s.engine.step_decodes == 0))


@jit
def look_up(s: State, i: int) -> tuple[int, int, int, int]:
    """Return a waiting request's hit blocks, its unused hits, the first missing content, and its computed tokens.

    With tiers below the GPU, the computed tokens include their hits.
    """
    request = s.requests[i]
    s.engine.found_cpu = s.engine.found_remote = 0
    if request.is_swapped:
        return 0, 0, NONE, int(request.num_computed_tokens)
    if s.settings.pulls_kv and s.pulls[i].tokens > 0 and request.num_cached_tokens < 0:
        return 0, 0, NONE, int(s.pulls[i].tokens)
    if s.settings.caches_in_tree:
        depth = find_depth(s, i, (request.input_tokens + request.num_output_tokens - 1) // s.settings.block_size)
        return depth, num_unlocked(s, i, depth), NONE, int(depth * s.settings.block_size)
    if not s.settings.enable_prefix_caching:
        return 0, 0, NONE, 0
    if s.prefixes[i].cached_tokens > 0 and request.num_cached_tokens < 0:
        return 0, 0, NONE, int(min(s.prefixes[i].cached_tokens, request.input_tokens - 1))
    # The last known token is always computed again, and with it its whole block.
    limit = (request.input_tokens + request.num_output_tokens - 1) // s.settings.block_size
    hits, unused, missing = find_hit(s, i, limit)
    in_tiers = find_below(s, i, hits, limit) if s.settings.has_tiers else 0
    return hits, unused, missing, int((hits + in_tiers) * s.settings.block_size)


@jit
def num_reserved(s: State, request: Any) -> int:
    """Return the blocks that must be there before a request is admitted."""
    if s.settings.reserve == RESERVE_MODEL_LEN:
        return ceil_div(s.settings.max_model_len, s.settings.block_size)
    if s.settings.reserve == RESERVE_OUTPUT:
        return ceil_div(request.input_tokens + request.max_output_tokens, s.settings.block_size)
    return ceil_div(request.input_tokens + request.num_output_tokens, s.settings.block_size)


@jit
def blocks_at_entry(s: State, request: Any, computed: int) -> int:
    """Return the blocks that a request that is passed over, or looked at ahead, will hold or be promised."""
    if s.settings.promise == PROMISE_ALL:
        return int(most_blocks(s, request))
    return int(num_reserved(s, request) + blocks_to_enter(s, request, computed))


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
    if s.settings.has_placeholders and request.input_tokens + request.num_output_tokens > min(
            s.settings.max_model_len, s.settings.max_num_batched_tokens if is_whole else s.settings.max_model_len):
        return True
    largest = num_reserved(s, request) + blocks_to_enter(s, request, computed)
    return bool(largest > s.settings.num_gpu_blocks or never_fits_reservation(s, request))


@jit
def refuse(s: State, i: int) -> None:
    """Mark a request that can never run; the caller takes it out of its queue."""
    request = s.requests[i]
    request.state = FAILED if request.num_output_tokens > 0 else REJECTED
    request.finished_s = s.engine.composed_s if s.settings.has_placeholders else s.engine.now_s
    forget_missing(request)
    leave_cpu(s, request)
    depart(s, i)
