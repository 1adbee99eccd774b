"""Random numbers of the loop: x ← 48271 · x mod 2³¹ − 1, from any x above 0.

Source: Park and Miller, Random Number Generators: Good Ones Are Hard to Find, 1988, with the factor of 1993.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import jit, uncompiled

FACTOR, MODULUS = 48271, 2147483647


def seeded(seed: int) -> int:
    """Return the number that a seed of 0 or more begins with."""
    return seed % (MODULUS - 1) + 1


@jit
def following(x: int) -> int:
    """Return the number after `x`, from 1 to MODULUS − 1."""
    return x * FACTOR % MODULUS


def drawn(seed: int, count: int) -> NDArray[np.int64]:
    """Return so many numbers in a row, as the loop draws them from a seed."""
    after = uncompiled(following)
    numbers = itertools.accumulate(range(count), lambda x, _: after(x), initial=seeded(seed))
    return np.fromiter(numbers, np.int64, count + 1)[1:]
