"""SGLang's radix cache: a tree of runs of pages, which stay until memory is short.

A node is a run of pages between two forks of contents, and an output is a node of its own. The content of a
page stands for all tokens up to its end (`planner.replays.block_ids`), so a prefix is in the tree as far as its pages'
contents are: `entries[content]` has the node of each. A running request locks the path that it stands on. Pages that
without a lock count as free blocks; `num_evictable` of them are in the tree. If the others are too few, whole leaves
go, the least recently touched first. Every lookup touches its path, every insertion the nodes that it walks.
Source: sglang/srt/mem_cache/radix_cache.py.
"""

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import NONE, State

ROOT = 0


@jit
def find_depth(s: State, i: int, limit: int) -> int:
    """Return how many of a request's first `limit` pages are in the tree. A prefix is in it as far as a page is."""
    start = s.prefixes[i].slot_start
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if s.entries[s.slots[start + middle - 1].content].first == NONE:
            high = middle - 1
        else:
            low = middle
    return int(low)


@jit
def num_unlocked(s: State, i: int, depth: int) -> int:
    """Return how many of a request's first `depth` pages, all in the tree, are not locked."""
    if depth == 0:
        return 0
    start = s.prefixes[i].slot_start
    n = int(s.entries[s.slots[start + depth - 1].content].first)
    last, count = depth, 0
    while n != ROOT and s.nodes[n].locks == 0:  # a lock on a node locks all above it
        count += last - s.nodes[n].start
        last = int(s.nodes[n].start)
        n = int(s.nodes[n].parent)
    return int(count)


@jit
def walk(s: State, i: int, depth: int) -> int:
    """Touch the path of a request's first `depth` pages, which are in the tree; return the node that ends there.

    The last node is split if the pages end within it.
    """
    e = s.engine
    e.tree_clock += 1
    now = e.tree_clock
    if depth == 0:
        return ROOT
    start = s.prefixes[i].slot_start
    last = int(s.entries[s.slots[start + depth - 1].content].first)
    n = last
    while n != ROOT:
        touch(s, n, now)
        n = int(s.nodes[n].parent)
    if s.nodes[last].start + s.nodes[last].length > depth:
        return split(s, last, depth)
    return last


@jit
def split(s: State, n: int, depth: int) -> int:
    """Cut a node at a depth; the upper part is new, and locked as often as the lower."""
    lower = s.nodes[n]
    upper = new_node(s, int(lower.parent), int(lower.start), int(depth - lower.start), int(lower.first_slot))
    s.nodes[upper].locks = lower.locks
    s.nodes[upper].num_children = 1
    lower.parent = upper
    lower.first_slot += s.nodes[upper].length
    lower.length -= s.nodes[upper].length
    lower.start = depth
    return upper


@jit
def new_node(s: State, parent: int, start: int, length: int, first_slot: int) -> int:
    """Make a node of a run of pages, whose contents are in the block table from `first_slot` on."""
    e = s.engine
    n = int(e.free_node)
    node = s.nodes[n]
    e.free_node = node.next
    node.parent = parent
    node.start = start
    node.length = length
    node.first_slot = first_slot
    node.locks = 0
    node.num_children = 0
    e.tree_clock += 1
    node.touched = e.tree_clock
    append_node(s, n)
    for k in range(length):
        s.entries[s.slots[first_slot + k].content].first = n
    return n


@jit
def insert(s: State, i: int, depth: int) -> tuple[int, int]:
    """Put a request's first `depth` pages in the tree; return the last node, and how many were there before."""
    known = find_depth(s, i, depth)
    n = walk(s, i, known)
    if known < depth:
        first_slot = int(s.prefixes[i].slot_start + known)
        s.nodes[n].num_children += 1
        n = new_node(s, n, known, depth - known, first_slot)
        s.engine.num_evictable += depth - known
        s.engine.num_free_blocks += depth - known
    return n, known


@jit
def lock(s: State, n: int, by: int) -> None:
    """Lock a node and all above it once more, or less; pages that are locked are no free blocks."""
    while n != ROOT:
        node = s.nodes[n]
        before = node.locks
        node.locks += by
        if before == 0 or node.locks == 0:
            s.engine.num_evictable -= by * node.length
            s.engine.num_free_blocks -= by * node.length
        n = int(node.parent)


@jit
def stand_on(s: State, i: int, n: int, depth: int) -> None:
    """Let a request lock the path to a node, whose pages are the first `depth` of its own."""
    stand = s.stands[i]
    lock(s, n, 1)
    lock(s, int(stand.node), -1)
    stand.node = n
    stand.num_pages = depth


@jit
def keep(s: State, i: int, computed: int) -> None:
    """Put a running request's computed pages in the tree; pages that the tree had already become free at once.

    Its prompt ends a node, also when output is computed together with it.
    """
    depth, prompt = computed // s.settings.block_size, int(s.requests[i].input_tokens // s.settings.block_size)
    _, known = insert(s, i, depth)
    if 0 < prompt < depth:
        walk(s, i, prompt)
    n = walk(s, i, depth)
    s.engine.num_free_blocks += known - s.stands[i].num_pages
    s.stands[i].num_kept = computed
    stand_on(s, i, n, depth)


@jit
def leave_tree(s: State, i: int, held: int, keeps: bool) -> None:
    """Take all pages from a request that holds `held`; its computed pages stay in the tree if it `keeps` them."""
    stand = s.stands[i]
    if keeps:
        keep(s, i, int(s.requests[i].num_computed_tokens))
    s.engine.num_free_blocks += held - stand.num_pages
    lock(s, int(stand.node), -1)
    stand.node = ROOT
    stand.num_pages = 0
    stand.num_kept = 0


@jit
def make_free(s: State, pages: int) -> None:
    """Evict until `pages` pages outside the tree are free, or nothing is left to evict."""
    missing = pages - (s.engine.num_free_blocks - s.engine.num_evictable)
    if missing > 0 and s.engine.num_evictable > 0:
        evict(s, int(missing))


@jit
def evict(s: State, pages: int) -> None:
    """Forget leaves without a lock, the least recently touched first, until `pages` pages are gone."""
    gone = 0
    n = int(s.engine.oldest_node)
    while gone < pages and n != NONE:
        following, parent, touched = int(s.nodes[n].next), int(s.nodes[n].parent), s.nodes[n].touched
        if is_evictable(s, n):
            gone += s.nodes[n].length
            forget(s, n)
            if is_evictable(s, parent) and s.nodes[parent].touched <= touched:  # it has just become a leaf
                following = parent
        n = following


@jit
def is_evictable(s: State, n: int) -> bool:
    return bool(n != ROOT and s.nodes[n].num_children == 0 and s.nodes[n].locks == 0)


@jit
def forget(s: State, n: int) -> None:
    """Take a leaf out of the tree."""
    node, e = s.nodes[n], s.engine
    for k in range(node.length):
        s.entries[s.slots[node.first_slot + k].content].first = NONE
    if node.parent != ROOT:
        s.nodes[node.parent].num_children -= 1
    e.num_evictable -= node.length
    unlink_node(s, n)
    node.next = e.free_node
    e.free_node = n


@jit
def touch(s: State, n: int, now: int) -> None:
    """Make a node the most recently touched."""
    s.nodes[n].touched = now
    unlink_node(s, n)
    append_node(s, n)


@jit
def append_node(s: State, n: int) -> None:
    node, e = s.nodes[n], s.engine
    node.next = NONE
    node.previous = e.newest_node
    if e.newest_node == NONE:
        e.oldest_node = n
    else:
        s.nodes[e.newest_node].next = n
    e.newest_node = n


@jit
def unlink_node(s: State, n: int) -> None:
    node, e = s.nodes[n], s.engine
    if node.previous == NONE:
        e.oldest_node = node.next
    else:
        s.nodes[node.previous].next = node.next
    if node.next == NONE:
        e.newest_node = node.previous
    else:
        s.nodes[node.next].previous = node.previous
