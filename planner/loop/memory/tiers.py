"""KV tiers below the GPU: host memory, an engine's own, and a remote store that all engines share.

A tier holds full blocks by their content; the one that was used least recently makes room. A request uses its blocks
when it is admitted and when it leaves, its last block first, so that a prefix outlives its continuations, as in vLLM's
`OffloadingManager.touch`. Blocks are written when the step that computes them ends (write through), once they are used
again (SGLang's write_through_selective), or when the GPU evicts them (write back). Blocks for the remote store go
through host memory if there is some.
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import CPU, NONE, REMOTE, WRITE_BACK, WRITE_SELECTIVE, WRITE_THROUGH, State


@jit
def find_below(s: State, i: int, hits: int, limit: int) -> int:
    """Look up the blocks after the GPU's hits, each in host memory, else in the remote store; count the hits."""
    e = s.engine
    e.found_cpu = e.found_remote = 0
    start = s.prefixes[i].slot_start
    for k in range(hits, limit):
        content = int(s.slots[start + k].content)
        if holds(s.cpu[0], s.cpu_blocks, s.cpu_places, content, e.now_s):
            e.found_cpu += 1
        elif holds(s.remote[0], s.remote_blocks, s.remote_places, in_remote(s, content), e.now_s):
            e.found_remote += 1
        else:
            break
    return int(e.found_cpu + e.found_remote)


@jit
def in_remote(s: State, content: int) -> int:
    """Return a content's number in the remote store; engines with other blocks have contents of their own there."""
    return int(content + s.settings.first_remote)


@jit
def holds(tier: Any, blocks: Any, places: Any, content: int, now_s: float) -> bool:
    """Tell whether a tier has a content, written and ready."""
    if tier.capacity == 0:
        return False
    b = places[content].block
    return bool(b != NONE and blocks[b].ready_s <= now_s)


@jit
def begin_load(s: State, i: int, hits: int) -> float:
    """Let the blocks come that the lookup found below the GPU; return when all are there that the request starts from.

    Transfers of one engine follow each other on each tier's link. Of the GPU's own hits some may still be on their way
    for another request.
    """
    e, start = s.engine, s.prefixes[i].slot_start
    loaded_s = 0.0
    if e.last_load_s > e.now_s:
        for k in range(hits):
            b = s.entries[s.slots[start + k].content].first
            loaded_s = max(loaded_s, s.filled[b].ready_s)
    if e.found_cpu > 0:
        loaded_s = max(loaded_s, read(s, CPU, int(e.found_cpu)))
    if e.found_remote > 0:
        loaded_s = max(loaded_s, read(s, REMOTE, int(e.found_remote)))
    e.last_load_s = max(e.last_load_s, loaded_s)
    return float(loaded_s)


@jit
def read(s: State, tier: int, count: int) -> float:
    """Put a transfer to the GPU on a tier's link; return when it is there."""
    link = s.links[tier]
    link.read_free_s = max(s.engine.now_s, link.read_free_s) + count * link.s_per_block
    link.num_read_blocks += count
    return float(link.read_free_s + link.latency_s)


@jit
def use_prefix(s: State, i: int, hits: int, loaded: int, limit: int, loaded_s: float) -> None:
    """Count the use of a prompt's blocks in the tiers, the last one first; remote blocks stay on the way.

    Parameters
    ----------
    hits, loaded : blocks from the GPU, and from the tiers.
    limit : blocks of the prompt.
    loaded_s : when the loaded ones are there.
    """
    start = s.prefixes[i].slot_start
    for k in range(limit - 1, -1, -1):
        content = int(s.slots[start + k].content)
        use(s, content)
        if hits <= k < hits + loaded:
            s.filled[s.slots[start + k].block].ready_s = loaded_s
            if cpu_lacks(s, content):
                put_in_cpu(s, content, loaded_s)


@jit
def use_all(s: State, i: int, held: int) -> None:
    """Count the use of a leaving request's blocks in the tiers, the last one first."""
    start = s.prefixes[i].slot_start
    for k in range(held - 1, -1, -1):
        use(s, int(s.slots[start + k].content))


@jit
def use(s: State, content: int) -> None:
    if s.cpu[0].capacity > 0 and s.cpu_places[content].block != NONE:
        make_newest(s.cpu[0], s.cpu_blocks, int(s.cpu_places[content].block))
    if s.remote[0].capacity > 0 and s.remote_places[in_remote(s, content)].block != NONE:
        make_newest(s.remote[0], s.remote_blocks, int(s.remote_places[in_remote(s, content)].block))


@jit
def note_filled(s: State, i: int, first: int, last: int) -> None:
    """List the blocks from `first` to before `last` of a request, just filled, if they are to be written."""
    start = s.prefixes[i].slot_start
    for k in range(first, last):
        b = int(s.slots[start + k].block)
        s.filled[b].ready_s = 0.0
        is_again = s.settings.write_policy == WRITE_SELECTIVE and s.blocks[b].twin_previous != NONE
        if s.settings.write_policy == WRITE_THROUGH or is_again:
            list_filled(s, b)


@jit
def note_hits(s: State, i: int, hits: int) -> None:
    """List the GPU's blocks that a request uses again."""
    if s.settings.write_policy != WRITE_SELECTIVE:
        return
    start = s.prefixes[i].slot_start
    for k in range(hits):
        list_filled(s, int(s.slots[start + k].block))


@jit
def list_filled(s: State, b: int) -> None:
    filled = s.filled[b]
    if not filled.is_listed:
        filled.is_listed = 1
        filled.next = s.engine.first_filled
        s.engine.first_filled = b


@jit
def write_filled(s: State, end_s: float) -> None:
    """Write the listed blocks when the step that filled them ends, except blocks that were lost in it."""
    b = s.engine.first_filled
    s.engine.first_filled = NONE
    while b != NONE:
        s.filled[b].is_listed = 0
        if s.blocks[b].content != NONE:
            write(s, int(s.blocks[b].content), end_s)
        b = s.filled[b].next


@jit
def write(s: State, content: int, begin_s: float) -> None:
    """Write a block to the tiers that do not have it, one after the other."""
    ready_s = begin_s
    if cpu_lacks(s, content):
        ready_s = sent_s(s.links[CPU], begin_s)
        put_in_cpu(s, content, ready_s)
    if remote_lacks(s, content):
        put_in_remote(s, content, ready_s)


@jit
def write_back(s: State, content: int) -> None:
    """Copy a block that the GPU evicts to the host; as in SGLang, the step waits for that."""
    if s.settings.write_policy == WRITE_BACK and cpu_lacks(s, content):
        s.links[CPU].num_written_blocks += 1
        s.engine.step_swapped += s.settings.block_size
        put_in_cpu(s, content, float(s.engine.now_s))


@jit
def cpu_lacks(s: State, content: int) -> bool:
    """Tell whether host memory could take a content: swapped requests leave some of it, and it is not there."""
    has_room = s.cpu[0].capacity > 0 and s.engine.num_free_cpu_blocks > 0
    return bool(has_room and s.cpu_places[content].block == NONE)


@jit
def remote_lacks(s: State, content: int) -> bool:
    """Tell whether there is a remote store that does not have a content."""
    return bool(s.remote[0].capacity > 0 and s.remote_places[in_remote(s, content)].block == NONE)


@jit
def sent_s(link: Any, begin_s: float) -> float:
    """Put a block on a link to a tier; return when it has been written."""
    link.write_free_s = max(begin_s, link.write_free_s) + link.s_per_block
    link.num_written_blocks += 1
    return float(link.write_free_s + link.latency_s)


@jit
def put_in_cpu(s: State, content: int, ready_s: float) -> None:
    """Enter a block that host memory lacks."""
    shrink_cpu(s, int(s.engine.num_free_cpu_blocks) - 1)
    put(s.cpu[0], s.cpu_blocks, s.cpu_places, content, 1, ready_s)


@jit
def shrink_cpu(s: State, most: int) -> None:
    """Let the oldest blocks go from host memory until `most` are left; written back, they go to the remote store."""
    while s.cpu[0].used > most:
        content = drop_oldest(s.cpu[0], s.cpu_blocks, s.cpu_places)
        if s.settings.write_policy == WRITE_BACK and remote_lacks(s, content):
            put_in_remote(s, content, float(s.engine.now_s))


@jit
def put_in_remote(s: State, content: int, begin_s: float) -> None:
    """Send a block to the remote store."""
    ready_s, units = sent_s(s.links[REMOTE], begin_s), s.settings.remote_units
    while s.remote[0].used + units > s.remote[0].capacity:
        drop_oldest(s.remote[0], s.remote_blocks, s.remote_places)
    put(s.remote[0], s.remote_blocks, s.remote_places, in_remote(s, content), int(units), ready_s)


@jit
def put(tier: Any, blocks: Any, places: Any, content: int, units: int, ready_s: float) -> None:
    """Enter a content in a free place, as the newest."""
    b = int(tier.free)
    tier.free = blocks[b].next
    tier.used += units
    blocks[b].content = content
    blocks[b].units = units
    blocks[b].ready_s = ready_s
    places[content].block = b
    link_newest(tier, blocks, b)


@jit
def drop_oldest(tier: Any, blocks: Any, places: Any) -> int:
    """Take the block out that was used least recently, and return its content."""
    b = int(tier.oldest)
    unlink(tier, blocks, b)
    tier.used -= blocks[b].units
    blocks[b].next = tier.free
    tier.free = b
    places[blocks[b].content].block = NONE
    return int(blocks[b].content)


@jit
def make_newest(tier: Any, blocks: Any, b: int) -> None:
    if tier.newest != b:
        unlink(tier, blocks, b)
        link_newest(tier, blocks, b)


@jit
def unlink(tier: Any, blocks: Any, b: int) -> None:
    block = blocks[b]
    if block.previous == NONE:
        tier.oldest = block.next
    else:
        blocks[block.previous].next = block.next
    if block.next == NONE:
        tier.newest = block.previous
    else:
        blocks[block.next].previous = block.previous


@jit
def link_newest(tier: Any, blocks: Any, b: int) -> None:
    blocks[b].next = NONE
    blocks[b].previous = tier.newest
    if tier.newest == NONE:
        tier.oldest = b
    else:
        blocks[tier.newest].next = b
    tier.newest = b
