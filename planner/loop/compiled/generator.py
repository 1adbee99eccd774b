"""Random numbers of the loop: x ← 48271 · x mod 2³¹ − 1, from any x above 0.

Source: Park and Miller, Random Number Generators: Good Ones Are Hard to Find, 1988, with the factor of 1993.
"""

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
    """Return the next `count` numbers that the loop draws from a seed."""
    numbers = np.full(count, uncompiled(following)(seeded(seed)))
    known = 1
    while known < count:  # k places on is times FACTORᵏ: the known numbers give as many more at once
        numbers[known:2 * known] = numbers[:min(known, count - known)] * pow(FACTOR, known, MODULUS) % MODULUS
        known *= 2
    return numbers
