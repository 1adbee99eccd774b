"""A compilation with fewer passes and remembered answers keeps Numba's rules, and leaves Numba as it was."""

import math
from typing import Any

import compiled
import llvmlite.binding
import pytest

from planner.loop.compiled.jit import compile_with_signature, numba

NUMBER = numba.float64(numba.float64)


def replaceable() -> list[Any]:
    """Return what a compilation replaces for its time."""
    from numba.core import base, codegen, cpu, postproc

    library = codegen.JITCodeLibrary
    return [base._has_loc, base.BaseContext.get_abi_sizeof, numba.types.BaseFunction.get_call_type,
            postproc.PostProcessor.run, library.finalize, library._optimize_functions, cpu.CPUContext.get_executable,
            list(llvmlite.binding.ffi.lib._lock._cblist)]


def test_a_helper_divides_as_numpy_does_and_its_caller_as_python() -> None:
    """Both divide the same types, and only the caller raises: answers are remembered for each kind of options."""
    called = compile_with_signature(compiled.twice_divided, NUMBER, cache=False)
    assert called(0.0) == math.inf
    assert called(2.0) == 1.5
    with pytest.raises(ZeroDivisionError):
        called(1.0)


def test_numba_is_as_it_was_after_a_compilation_and_an_error() -> None:
    before = replaceable()
    compile_with_signature(compiled.twice_divided, NUMBER, cache=False)
    assert replaceable() == before
    with pytest.raises(numba.TypingError, match="no_such_field"):
        compile_with_signature(compiled.unknown, NUMBER, cache=False)
    assert replaceable() == before
