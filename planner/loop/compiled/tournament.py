"""A tournament: the contender with the least key of many, found at once, and played anew after a change in log₂ n.

`tree[1]` is the winner, `tree[k]` the winner of `tree[2 k]` and `tree[2 k + 1]`, and the last half are the contenders
by number; NONE where there is nobody. Equal keys are decided by `tie`, and then by number.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import NONE

CONTENDER = np.dtype([("key", "f8"), ("tie", "i8")], align=True)


def empty_tree(num_contenders: int) -> NDArray[np.int64]:
    """Return the tree of a tournament that nobody has entered, shape [2 · a power of two ≥ num_contenders]."""
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
def enter(contenders: Any, tree: Any, size: int, k: int, key: float, tie: int) -> None:
    """Give contender `k` a key, and play its way up; `size` is half of the tree's length."""
    contenders[k].key = key
    contenders[k].tie = tie
    tree[size + k] = k
    play(contenders, tree, (size + k) // 2)


@jit
def leave(contenders: Any, tree: Any, size: int, k: int) -> None:
    """Take contender `k` out."""
    tree[size + k] = NONE
    play(contenders, tree, (size + k) // 2)


@jit
def play(contenders: Any, tree: Any, node: int) -> None:
    """Decide the matches from a node up to the final."""
    while node >= 1:
        a, b = tree[2 * node], tree[2 * node + 1]
        tree[node] = a if precedes(contenders, a, b) else b
        node //= 2
