"""A small function that needs all shortcuts through Numba; importing this file compiles it and checks its result."""

from pathlib import Path
from tempfile import TemporaryDirectory

from planner.loop.compiled.jit import compile_with_signature, jit, numba
from planner.loop.compiled.kept_helpers import helpers_kept

_NUMBER = numba.float64(numba.float64)


@jit
def _half(x: float) -> float:
    return x / 2


@jit
def _quarter(x: float) -> float:
    return _half(_half(x))


def _sum(x: float) -> float:
    total = 0.0
    for k in range(3):
        total += _quarter(x) + k
    return total


def _difference(x: float) -> float:
    return _quarter(x) - _half(x)


with TemporaryDirectory() as _folder:
    for _function, _result in ((_sum, 9.0), (_difference, -2.0)):  # the second takes the helpers of the first
        with helpers_kept(Path(_folder) / "helpers"):
            _value = compile_with_signature(_function, _NUMBER, cache=False)(8.0)
        if _value != _result:
            raise SystemExit(f"{_function.__name__}(8.0) is {_value}, and must be {_result}")
