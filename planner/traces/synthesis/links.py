"""Which earlier request a drawn one begins like: parents found by lag and length, and the prefix ids that follow."""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import compile_with_signature, jit, numba

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALONE, POPULAR, CONTINUES = 0, 1, 2
NUM_TRIED = 256  # requests around the lag that are compared, before the first that will do is taken
FAR, CONTINUED = 1 << 60, 1 << 40  # costs of no parent, and of one that is continued already
NUM_WAITING = 64  # drawn lags that are put off until enough time has passed


class Links(NamedTuple):
    """The links of requests, in order of arrival.

    Parameters
    ----------
    rows : which draw each request takes on [num_requests].
    parents : the request that it begins like; -1 for none [num_requests].
    shared_blocks : prefix ids that it has in common with its parent [num_requests].
    sessions : number of the session that it belongs to [num_requests].
    """

    rows: Ints
    parents: Ints
    shared_blocks: Ints
    sessions: Ints


@jit
def _next_draw(now_s: float, kind: int, kinds: Any, lags_s: Any, waiting: Any, marks: Any) -> int:
    """Take the first draw of a kind whose lag there has been time for; others wait.

    `marks` holds the number of waiting draws, and the first draw that has not been looked at.
    """
    chosen = -1
    for k in range(min(marks[0], NUM_WAITING)):
        if chosen < 0 and lags_s[waiting[k]] <= now_s:
            chosen = k
    while chosen < 0 and marks[0] < NUM_WAITING:
        while marks[1] < len(kinds) and kinds[marks[1]] != kind:
            marks[1] += 1
        if marks[1] == len(kinds):
            break
        waiting[marks[0]] = marks[1]
        if lags_s[marks[1]] <= now_s:
            chosen = marks[0]
        marks[0] += 1
        marks[1] += 1
    chosen = max(chosen, 0)
    row = waiting[chosen]
    for k in range(chosen, marks[0] - 1):
        waiting[k] = waiting[k + 1]
    marks[0] -= 1
    return int(row)


@jit
def _parent(times_s: Any, at_s: float, room: Any, wanted: int, is_continued: Any, is_picky: bool, i: int) -> int:
    """Return the request nearest to a time that has room for the shared blocks; -1 without one.

    A picky one takes, of NUM_TRIED requests, the one with just enough room that is not continued yet.
    """
    parent, best = -1, FAR
    low: int = min(int(np.searchsorted(times_s[:i], at_s)), i - 1)
    high: int = low + 1
    num_tried = 0
    while (low >= 0 or high < i) and best > 1 and (num_tried < NUM_TRIED or parent < 0):
        if high < i and (low < 0 or times_s[high] - at_s < at_s - times_s[low]):
            j = high
            high += 1
        else:
            j = low
            low -= 1
        num_tried += 1
        cost = room[j] - wanted + (CONTINUED if is_continued[j] else 0) if is_picky else 0
        if room[j] >= wanted and cost < best:
            parent, best = j, cost
    return parent


def _link(times_s: Any, kinds: Any, shared: Any, new: Any, lags_s: Any, block_tokens: int, most_tokens: int,
          rows: Any, parents: Any, taken: Any, sessions: Any) -> None:
    """Fill in the last four, request by request."""
    n = len(times_s)
    waiting, marks = np.empty((3, n + 1), np.int64), np.zeros((3, 2), np.int64)
    room = np.zeros((2, n), np.int64)  # whole blocks of each prompt (without blocks its tokens), and blocks at all
    is_continued = np.zeros(n, np.bool_)
    for i in range(n):
        kind = kinds[i]
        row = i if kind == ALONE else _next_draw(times_s[i], kind, kinds, lags_s, waiting[kind], marks[kind])
        tokens = max(min(shared[row] * block_tokens + new[row], most_tokens), 1)
        whole, num_ids = tokens, tokens
        wanted = 0
        if block_tokens:
            whole, num_ids = tokens // block_tokens, (tokens + block_tokens - 1) // block_tokens
            wanted = min(shared[row], num_ids)
        place = 1 if wanted > whole else 0  # the last id, partly filled, is shared too
        parent, at_s = -1, times_s[i] - lags_s[row]
        if i and kind == CONTINUES and not block_tokens:  # a turn is longer than the one before
            parent = _parent(times_s, at_s, -room[0], -tokens, is_continued, True, i)
        elif i and kind != ALONE and wanted:
            parent = _parent(times_s, at_s, room[place], wanted, is_continued, kind == CONTINUES, i)
        continues = parent >= 0 and kind == CONTINUES
        if continues:
            is_continued[parent] = True
        rows[i], parents[i] = row, parent
        taken[i] = wanted if parent >= 0 and block_tokens else 0
        sessions[i] = sessions[parent] if continues else i
        room[0, i], room[1, i] = whole, num_ids


_F8, _I8 = numba.float64[::1], numba.int64[::1]
_SIGNATURE = numba.void(_F8, _I8, _I8, _I8, _F8, numba.int64, numba.int64, _I8, _I8, _I8, _I8)


def link(times_s: Floats, kinds: Ints, shared_blocks: Ints, new_tokens: Ints, lags_s: Floats, *, block_tokens: int,
         maximum_input_tokens: int) -> Links:
    """Find the parent of each request.

    A request that continues another takes, of the requests about `lags_s` before it, the one whose whole blocks it
    just shares, if possible one that is not continued yet; a popular beginning is taken from the nearest
    that is long enough. At the beginning, lags that reach behind it are put off.

    Parameters
    ----------
    times_s : arrivals, sorted [num_requests].
    kinds, shared_blocks, new_tokens, lags_s : the draws for each [num_requests].
    block_tokens : tokens of a prefix id; 0 if requests are linked by sessions alone [tokens].
    maximum_input_tokens : prompts are cut there [tokens].
    """
    n = len(times_s)
    rows, parents, taken, sessions = (np.zeros(n, np.int64) for _ in range(4))
    fill = _compiled_link()
    fill(np.ascontiguousarray(times_s, np.float64), kinds, shared_blocks, new_tokens,
         np.ascontiguousarray(lags_s, np.float64), block_tokens, maximum_input_tokens, rows, parents, taken, sessions)
    return Links(rows, parents, taken, sessions)


def _inherit(offsets: Any, parents: Any, shared: Any, values: Any) -> None:
    fresh = 0
    for i in range(len(parents)):
        begin = offsets[i]
        for k in range(offsets[i + 1] - begin):
            if k < shared[i]:
                values[begin + k] = values[offsets[parents[i]] + k]
            else:
                values[begin + k] = fresh
                fresh += 1


_INHERIT_SIGNATURE = numba.void(_I8, _I8, _I8, _I8)


def inherited_ids(lengths: Ints, parents: Ints, shared_blocks: Ints) -> tuple[Ints, Ints]:
    """Return prefix ids as values and offsets: the parent's as far as they are shared, and new ones from there on."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    values = np.empty(int(offsets[-1]), np.int64)
    _compiled_inherit()(offsets, parents, shared_blocks, values)
    return values, offsets


@functools.cache
def _compiled_link() -> Any:
    """Return `_link`, compiled once and kept between processes."""
    return compile_with_signature(_link, _SIGNATURE)


@functools.cache
def _compiled_inherit() -> Any:
    """Return `_inherit`, compiled once and kept between processes."""
    return compile_with_signature(_inherit, _INHERIT_SIGNATURE)
