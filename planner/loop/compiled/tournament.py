"""A tournament: the contender with the least key of many, found at once, and played anew after a change in log₂ n.

`tree[1]` is the winner, `tree[k]` the winner of `tree[2 k]` and `tree[2 k + 1]`, and the last half are the contenders
by number; NONE for an empty place. Equal keys are decided by `tie`, and then by number. An array may have several
trees, one after another: places count from the first of its tree.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import NONE

CONTENDER = np.dtype([("key", "f8"), ("tie", "i8")], align=True)


def empty_tree(num_contenders: int) -> NDArray[np.int64]:
    """Return the tree of a tournament without contenders, shape [2 · a power of two ≥ num_contenders]."""
    return np.full(2 << max(num_contenders - 1, 0).bit_length(), NONE, np.int64)


@jit
def precedes(contenders: Any, a: int, b: int) -> bool:
    """Tell whether `a` wins against `b`."""
    if a == NONE or b == NONE:
        return bool(b == NONE)
    first, second = contenders[a], contenders[b]
    if first.key != second.key:
        return bool(first.key < second.key)
    if first.tie != second.tie:
        return bool(first.tie < second.tie)
    return a < b


@jit
def enter(contenders: Any, tree: Any, first: int, size: int, k: int, key: float, tie: int) -> None:
    """Give contender `k` a key, and play its way up; the tree begins at `first`, and `size` is half of its length."""
    contenders[k].key = key
    contenders[k].tie = tie
    tree[first + size + k] = k
    play(contenders, tree, first, (size + k) // 2)


@jit
def leave(contenders: Any, tree: Any, first: int, size: int, k: int) -> None:
    """Take contender `k` out."""
    tree[first + size + k] = NONE
    play(contenders, tree, first, (size + k) // 2)


@jit
def play(contenders: Any, tree: Any, first: int, node: int) -> None:
    """Decide the matches from a node up to the final."""
    while node >= 1:
        a, b = tree[first + 2 * node], tree[first + 2 * node + 1]
        tree[first + node] = a if precedes(contenders, a, b) else b
        node //= 2
