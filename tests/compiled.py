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


@jit
def reciprocal(value: float) -> float:
    return 1.0 / value


def twice_divided(value: float) -> float:
    return reciprocal(value) + 1.0 / (value - 1.0)


def unknown(value: float) -> float:
    return inner(value) + value.no_such_field  # type: ignore[attr-defined,no-any-return]
