"""Functions that tests compile."""

from planner.loop.compiled.jit import jit


@jit
def inner(value: float) -> float:
    return value + 1.0


def outer(value: float) -> float:
    return inner(value)


@jit
def nested(value: float) -> float:
    return value * 2.0


def other(value: float) -> float:
    return nested(value)


def both(value: float) -> float:
    return inner(value) + nested(value)
