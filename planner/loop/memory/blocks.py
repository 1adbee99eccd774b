"""KV blocks: counted, or, with prefix caching, followed one by one as vLLM's block pool does.

Without prefix caching only the number of free blocks matters. With it, every block has a place in the free queue, a
number of users and, once full, a content: an integer that stands for all tokens from the start of the request to the
end of the block (`planner.replays.block_ids` assigns them). `entries[content]` lists the blocks that hold it.
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.memory.beside_context import blocks_to_return, most_beside
from planner.loop.memory.radix import ROOT, leave_tree, make_free, stand_on
from planner.loop.memory.tiers import note_filled, note_hits, use_all, write_back
from planner.loop.state.engine_state import DECODE, NONE, PROMISE_ALL, RESERVE_MODEL_LEN, RESERVE_OUTPUT, WAITING, State


@jit
def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


@jit
def is_aggregated(s: State, request: Any) -> bool:
    """Tell whether a request decodes with the others, its progress held by the engine's counters."""
    return bool(request.state == DECODE and s.settings.aggregates_decodes)


@jit
def num_output_tokens(s: State, request: Any) -> int:
    """Return the tokens that a request has emitted."""
    if is_aggregated(s, request):
        return int(s.engine.decode_step - request.decode_offset)
    return int(request.num_output_tokens)


@jit
def num_computed_tokens(s: State, request: Any) -> int:
    """Return the tokens of a request whose KV is in memory."""
    if is_aggregated(s, request):  # all but the last emitted one
        return int(request.input_tokens + (s.engine.decode_step - request.decode_offset) - 1)
    return int(request.num_computed_tokens)


@jit
def reserves_ahead(s: State) -> bool:
    """Tell whether requests hold all the blocks that they will ever need."""
    return bool(s.settings.reserve == RESERVE_OUTPUT or s.settings.reserve == RESERVE_MODEL_LEN)


@jit
def num_held(s: State, request: Any) -> int:
    """Return the blocks that a request holds."""
    if is_aggregated(s, request) and not reserves_ahead(s):
        return ceil_div(num_computed_tokens(s, request), s.settings.block_size)
    return int(request.num_blocks)


@jit
def most_blocks(s: State, request: Any) -> int:
    """Return the blocks that a request holds at its largest output, all there are at most."""
    largest = ceil_div(request.input_tokens + request.max_output_tokens, s.settings.block_size)
    largest += most_beside(s, request)
    return int(min(largest, s.settings.num_gpu_blocks))


@jit
def take_blocks(s: State, i: int, held: int, count: int) -> None:
    """Give `count` free blocks to a request that holds `held`; the caller has seen that they are there."""
    if s.settings.caches_in_tree:
        make_free(s, count)
    s.engine.num_free_blocks -= count
    if s.settings.enable_prefix_caching:
        start = s.prefixes[i].slot_start + held
        for k in range(count):
            b = s.engine.free_head
            unlink_free(s, b)
            forget_content(s, b)
            s.blocks[b].users = 1
            s.slots[start + k].block = b
    s.requests[i].num_blocks = held + count


@jit
def take_beside(s: State, i: int, count: int) -> None:
    """Give an admitted request the blocks beside its context's; they lose their contents and cannot be found."""
    if count == 0:
        return
    if s.settings.caches_in_tree:
        make_free(s, count)
    s.engine.num_free_blocks -= count
    s.requests[i].num_beside = count
    if s.settings.enable_prefix_caching:
        for _ in range(count):
            b = s.engine.free_head
            unlink_free(s, b)
            forget_content(s, b)
            s.blocks[b].next = s.engine.beside_head
            s.engine.beside_head = b


@jit
def return_beside(s: State, i: int, count: int) -> None:
    """Take blocks beside its context's from a request; they are the first that others get, since they are empty."""
    if count == 0:
        return
    return_blocks(s, count)
    s.requests[i].num_beside -= count
    if s.settings.enable_prefix_caching:
        for _ in range(count):
            b = s.engine.beside_head
            s.engine.beside_head = s.blocks[b].next
            link_free_front(s, b)


@jit
def return_chunk(s: State, i: int) -> None:
    """Take from a request with a computed prompt the blocks that sliding layers kept beside their windows."""
    if s.settings.window_tokens > 0:
        return_beside(s, i, blocks_to_return(s, s.requests[i]))


@jit
def return_blocks(s: State, count: int) -> None:
    """Make `count` blocks free; a blocked head lacks as many fewer."""
    s.engine.num_free_blocks += count
    s.engine.blocked_lack -= count


@jit
def release_blocks(s: State, i: int) -> None:
    """Take all blocks from a request. Full ones join the end of the free queue, the last one first, still findable."""
    request = s.requests[i]
    held = num_held(s, request)
    request.num_blocks = 0
    s.engine.is_full = 0
    return_beside(s, i, int(request.num_beside))
    if s.settings.promise == PROMISE_ALL:
        s.engine.promised_blocks -= most_blocks(s, request)
    if s.settings.caches_in_tree:
        leave_tree(s, i, held, request.state != WAITING)
        return
    if not s.settings.enable_prefix_caching:
        return_blocks(s, held)
        return
    if s.settings.has_tiers:
        use_all(s, i, held)
    for k in range(held - 1, -1, -1):
        b = s.slots[s.prefixes[i].slot_start + k].block
        s.blocks[b].users -= 1
        if s.blocks[b].users == 0:
            return_blocks(s, 1)
            if s.blocks[b].content == NONE and (s.settings.empty_first or not s.settings.cache_latest):
                link_free_front(s, b)
            else:
                link_free_back(s, b)
        else:
            s.engine.shared_blocks -= 1


@jit
def find_hit(s: State, i: int, limit: int) -> tuple[int, int, int]:
    """Look up a request's first `limit` blocks: hits, unused hits, and the first content that is missing."""
    start = s.prefixes[i].slot_start
    unused = 0
    for k in range(limit):
        content = s.slots[start + k].content
        b = s.entries[content].first
        if b == NONE:
            return k, unused, int(content)
        if s.blocks[b].users == 0:
            unused += 1
    return limit, unused, NONE


@jit
def claim_hit(s: State, i: int, hits: int) -> None:
    """Make a request a user of the blocks that its lookup found."""
    if s.settings.caches_in_tree:
        n = ROOT if hits == 0 else int(s.entries[s.slots[s.prefixes[i].slot_start + hits - 1].content].first)
        stand_on(s, i, n, hits)
        s.stands[i].num_kept = hits * s.settings.block_size
        return
    if hits == 0:
        return
    start = s.prefixes[i].slot_start
    for k in range(hits):
        b = s.entries[s.slots[start + k].content].first
        if s.blocks[b].users == 0:
            unlink_free(s, b)
            s.engine.num_free_blocks -= 1
        else:
            s.engine.shared_blocks += 1
        s.blocks[b].users += 1
        s.slots[start + k].block = b
    if s.settings.has_tiers:
        note_hits(s, i, hits)


@jit
def enter_contents(s: State, i: int, before: int, after: int) -> None:
    """Make the blocks findable that a request fills by going from `before` to `after` computed tokens."""
    first, last = before // s.settings.block_size, after // s.settings.block_size
    enter_blocks(s, i, first, last)
    if s.settings.has_tiers:
        note_filled(s, i, first, last)


@jit
def enter_filled(s: State, i: int, computed: int) -> None:
    """Make the blocks findable that a request has filled with `computed` tokens, and that are not findable yet."""
    last = max(computed, 0) // s.settings.block_size
    first, start = last, s.prefixes[i].slot_start
    while first > 0 and s.blocks[s.slots[start + first - 1].block].content == NONE:
        first -= 1
    enter_blocks(s, i, first, last)
    if s.settings.has_tiers:
        note_filled(s, i, first, last)


@jit
def enter_blocks(s: State, i: int, first: int, last: int) -> None:
    """Make the blocks of a request from `first` to before `last` findable."""
    start = s.prefixes[i].slot_start
    for k in range(first, last):
        b = s.slots[start + k].block
        content = s.slots[start + k].content
        entry = s.entries[content]
        s.blocks[b].content = content
        if s.settings.cache_latest:
            if entry.first != NONE:  # a blocked request's idle hit may be one in use now
                s.engine.blocked_request = NONE
            entry.first = b
            continue
        s.blocks[b].twin_previous = entry.last
        s.blocks[b].twin_next = NONE
        if entry.last == NONE:
            entry.first = b
        else:
            s.blocks[entry.last].twin_next = b
        entry.last = b


@jit
def forget_content(s: State, b: int) -> None:
    """Remove a block that is about to be reused from the table."""
    block = s.blocks[b]
    if block.content == NONE:
        return
    content = int(block.content)
    entry = s.entries[content]
    block.content = NONE
    if s.settings.has_tiers and entry.first == b and (s.settings.cache_latest or entry.last == b):
        write_back(s, content)
    if s.settings.cache_latest:
        if entry.first == b:
            entry.first = NONE
        return
    if block.twin_previous == NONE:
        entry.first = block.twin_next
    else:
        s.blocks[block.twin_previous].twin_next = block.twin_next
    if block.twin_next == NONE:
        entry.last = block.twin_previous
    else:
        s.blocks[block.twin_next].twin_previous = block.twin_previous


@jit
def unlink_free(s: State, b: int) -> None:
    """Take a block out of the free queue; the head has no predecessor, even if its record names one."""
    block, e = s.blocks[b], s.engine
    if b == e.free_head:  # mostly, and the next one's record is not touched
        e.free_head = block.next
        if block.next == NONE:
            e.free_tail = NONE
        return
    s.blocks[block.previous].next = block.next
    if block.next == NONE:
        e.free_tail = block.previous
    else:
        s.blocks[block.next].previous = block.previous


@jit
def link_free_front(s: State, b: int) -> None:
    s.blocks[b].previous = NONE
    s.blocks[b].next = s.engine.free_head
    if s.engine.free_head == NONE:
        s.engine.free_tail = b
    else:
        s.blocks[s.engine.free_head].previous = b
    s.engine.free_head = b


@jit
def link_free_back(s: State, b: int) -> None:
    s.blocks[b].next = NONE
    s.blocks[b].previous = s.engine.free_tail
    if s.engine.free_tail == NONE:
        s.engine.free_head = b
    else:
        s.blocks[s.engine.free_tail].next = b
    s.engine.free_tail = b
