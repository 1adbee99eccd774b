"""Which prompt blocks hold the same tokens: a trace's prefix ids turned into one integer per KV block.

A block's content is the whole chain of tokens from the start of the request to the end of the block, as in vLLM.
Equal ids in equal positions after an equal chain are equal content. Generated tokens follow from the whole prompt, as
with greedy decoding, so requests with equal prompts share generated blocks too; tokens that no id covers are a
request's own.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import compile_with_signature, jit, numba
from planner.loop.state.engine_state import numba_records
from planner.loop.state.entries import SLOT

SPREAD = 4  # of ids over their number, up to which each has a place in a table
FULL = -1  # the table has too few places


@jit
def _find(table: Any, parent: int, value: int) -> int:
    """Return the place of the key (parent, value) in an open-addressed table, or the free place for it."""
    parents, ids, nodes = table[0], table[1], table[2]
    mask = len(nodes) - 1
    key = parent * 1_000_003 + value
    place = (key ^ (key >> 17) ^ (key >> 31)) & mask
    while nodes[place] > 0 and (parents[place] != parent or ids[place] != value):
        place = (place + 1) & mask
    return int(place)


@jit
def _follow(first: Any, table: Any, before: int, value: int, new: int) -> tuple[int, int]:
    """Return the node of an id after another node, `new` if there is none yet, and the places it takes in the table.

    The end of a prompt has the length as its value and comes after -node.
    """
    if before > 0 and value < first.shape[1] and first[0, value] in (0, before):
        if first[0, value] == 0:
            first[0, value], first[1, value] = before, new
        return int(first[1, value]), 0
    place = _find(table, before, value)
    if table[2, place] > 0:
        return int(table[2, place]), 0
    table[0, place], table[1, place], table[2, place] = before, value, new
    return new, 1


@jit
def num_used_ids(offsets: Any, id_tokens: int, input_tokens: Any, r: int) -> int:
    """Return how many ids of a request lie within its prompt."""
    return int(min(offsets[r + 1] - offsets[r], (input_tokens[r] + id_tokens - 1) // id_tokens))


def _assign(ids: Any, offsets: Any, id_tokens: int, block_size: int, input_tokens: Any, num_blocks: Any,
            numbered_blocks: Any, slots: Any, slot_start: Any, more: int, first: Any, table: Any) -> int:
    """Fill in the contents of all slots and count them; FULL if the table is too small.

    A node is a chain of ids. Most ids follow one chain alone: `first` has each id's first node and the node before it.
    The others, and the ends of prompts, are in the table.

    Parameters
    ----------
    more : tokens after its block that a content covers [tokens].
    first : zeros, shape [2, num_ids]; without ids, all nodes are in the table.
    table : zeros, shape [3, power of two].
    """
    n = len(input_tokens)
    bases = np.empty(len(ids) + n + 2, np.int64)  # a node's first content, or a prompt's first generated one
    ends = np.empty(n, np.int64)
    sizes = np.zeros(len(ids) + n + 2, np.int64)
    num_nodes, root = 1, 1
    num_contents, num_taken = 0, 0
    for r in range(n):
        node = root
        depth = 0
        full = max(input_tokens[r] - more, 0) // block_size
        for k in range(offsets[r], offsets[r] + num_used_ids(offsets, id_tokens, input_tokens, r)):
            begin = max(depth * id_tokens - more, 0) // block_size
            depth += 1
            last = max(depth * id_tokens - more, 0) // block_size
            node, taken = _follow(first, table, node, ids[k], num_nodes + 1)
            num_taken += taken
            if node > num_nodes:
                num_nodes = node
                bases[node] = num_contents
                num_contents += last - begin
            for block in range(begin, min(last, full)):
                slots[slot_start[r] + block].content = bases[node] + block - begin
        if depth * id_tokens >= input_tokens[r] and depth > 0:  # requests with this very prompt generate the same
            ends[r], taken = _follow(first, table, -node, input_tokens[r], num_nodes + 1)
            num_taken += taken
            num_nodes = max(num_nodes, ends[r])
        else:
            num_nodes += 1
            ends[r] = num_nodes
        if 2 * (num_taken + offsets[min(r + 2, n)] - offsets[min(r + 1, n)] + 1) > table.shape[1]:
            return FULL
        known_end = min(full, max(depth * id_tokens - more, 0) // block_size)
        sizes[ends[r]] = max(sizes[ends[r]], numbered_blocks[r] - known_end)
    for r in range(n):
        end = ends[r]
        if sizes[end] > 0:
            bases[end] = num_contents
            num_contents += sizes[end]
            sizes[end] = 0
        depth = num_used_ids(offsets, id_tokens, input_tokens, r)
        known_end = max(min(int(input_tokens[r]), depth * id_tokens) - more, 0) // block_size
        for block in range(known_end, num_blocks[r]):
            slots[slot_start[r] + block].content = bases[end] + block - known_end
    return num_contents


_I8 = numba.int64[::1]
_SIGNATURE = numba.int64(
    _I8, _I8, numba.int64, numba.int64, _I8, _I8, _I8, numba_records(SLOT), _I8, numba.int64, numba.int64[:, ::1],
    numba.int64[:, ::1],
)


def assign_contents(
    *,
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    id_tokens: int,
    block_size: int,
    input_tokens: NDArray[np.int64],
    num_blocks: NDArray[np.int64],
    numbered_blocks: NDArray[np.int64],
    slots: Any,
    slot_start: NDArray[np.int64],
    covers_next: bool,
) -> int:
    """Give every slot of every request's block table the content that its block will hold once full.

    Parameters
    ----------
    ids, offsets : the trace's prefix ids in CSR form, shapes [total] and [num_requests + 1].
    id_tokens : tokens that one id stands for.
    block_size : tokens of a KV block.
    input_tokens : prompt lengths, shape [num_requests].
    num_blocks : rows of each request in the block table, shape [num_requests].
    numbered_blocks : blocks of each request that contents are numbered for, at least as many: the same of two block
        tables gives equal contents equal numbers in both.
    slots : the block table; its field `content` is written.
    slot_start : each request's first row, shape [num_requests].
    covers_next : whether a content covers the token after its block.

    Returns
    -------
    The number of distinct contents.
    """
    num_ids = int(ids.max(initial=-1)) + 1
    is_close = num_ids <= SPREAD * len(ids)
    longest = int(np.diff(offsets).max(initial=0))
    size = 1 << int(4 * (len(input_tokens) + longest + (0 if is_close else len(ids))) + 1).bit_length()
    while True:
        first, table = np.zeros((2, num_ids if is_close else 0), np.int64), np.zeros((3, size), np.int64)
        count = int(_compiled()(ids, offsets, id_tokens, block_size, input_tokens, num_blocks, numbered_blocks, slots,
                                slot_start, int(covers_next), first, table))
        if count != FULL:
            return count
        size *= 4


@functools.cache
def _compiled() -> Any:
    """Return `_assign`, compiled once and kept between processes."""
    return compile_with_signature(_assign, _SIGNATURE)
