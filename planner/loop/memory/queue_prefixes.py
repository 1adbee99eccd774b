"""Prefixes of waiting requests in the radix tree, and of prompts that are being computed.

Source: `SchedulePolicy` in sglang/srt/managers/schedule_policy.py.
"""

from planner.loop.compiled.jit import jit
from planner.loop.memory.radix import find_depth, keep, walk
from planner.loop.state.engine_state import NONE, State

MOST_TOUCHED = 128  # waiting requests
SHORT_PREFIX = 32  # tokens: a request with no longer prefix in the tree waits for one that shares as many with it
LAST = 2**31 - 1


@jit
def keep_chunks(s: State) -> None:
    """Put the computed part of each prompt in progress in the tree."""
    for k in range(s.engine.num_prompts):
        i = s.prompts[k]
        if s.requests[i].num_computed_tokens > s.stands[i].num_kept:
            keep(s, i, int(s.requests[i].num_computed_tokens))


@jit
def look_at_prefix(s: State, i: int) -> int:
    """Touch the tree's part of a waiting request, all its known tokens; return the number of its tokens."""
    known = s.requests[i].input_tokens + s.requests[i].num_output_tokens
    depth = find_depth(s, i, int(known // s.settings.block_size))
    walk(s, i, depth)
    return int(depth * s.settings.block_size)


@jit
def touch_queue(s: State) -> None:
    """Touch the prefixes of the first waiting requests, the head's last."""
    count, i, last = 0, s.engine.waiting_head, NONE
    while i != NONE and count < MOST_TOUCHED:
        last = i
        count += 1
        i = s.requests[i].next
    while last != NONE:
        look_at_prefix(s, int(last))
        last = s.requests[last].previous


@jit
def order_by_prefix(s: State) -> None:
    """Rank the queue by the longest prefix in the tree; of several that share a new one, one goes first, others last.

    They are found by their stems: the first 32 tokens.
    """
    s.engine.num_prefix_looks += 1
    look = s.engine.num_prefix_looks
    i = s.engine.waiting_head
    while i != NONE:
        request, tokens = s.requests[i], look_at_prefix(s, int(i))
        known = request.input_tokens + request.num_output_tokens
        s.ranks[i].admit = -min(tokens, known - 1)
        if tokens <= SHORT_PREFIX and known >= SHORT_PREFIX:
            if s.stem_looks[s.stems[i]] == look:
                s.ranks[i].admit = LAST
            s.stem_looks[s.stems[i]] = look
        i = request.next
