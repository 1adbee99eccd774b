"""Users' functions as pointers that the loop reads: a step plan for each replica, and the router's score.

Passed as a function, Numba would find its address anew at each call of the loop, which takes 70 µs.
"""

import importlib
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.loop.compiled.jit import numba
from planner.policies.policy import StepPlan, StepState
from planner.policies.router import ReplicaLoad

types: Any = numba.types
intrinsic: Any = importlib.import_module("numba.core.extending").intrinsic


def _record(fields: Any) -> Any:
    """Return Numba's type of a named tuple of whole numbers and floats."""
    kinds = [numba.float64 if kind is float else numba.int64 for kind in fields.__annotations__.values()]
    return types.NamedTuple(kinds, fields)


PLAN_SIGNATURE = types.NamedUniTuple(numba.int64, len(StepPlan._fields), StepPlan)(_record(StepState))
SCORE_SIGNATURE = numba.float64(_record(ReplicaLoad))
ADVANCE_SIGNATURE = numba.int64(numba.int64[::1], numba.int64[::1])  # of a loop: pointers to memories, and functions
WORDS = ("c_addr", "py_addr", "jit_addr")  # of Numba's function pointer: addresses of a call from C, and its own


def function_row(functions: Sequence[Any], signature: Any) -> Any:
    """Lay out compiled functions of a signature for `plan_at` or `score_at`; the functions must outlive their use."""
    if numba.config.DISABLE_JIT:
        return list(functions)
    return np.array([word for function in functions for word in _pointer(function, signature)], np.int64)


def _pointer(function: Any, signature: Any) -> tuple[int, int, int]:
    """Return a compiled function as Numba's function pointer."""
    compiled = function.get_compile_result(signature)
    called, own = compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name
    address = compiled.library.get_pointer_to_function
    return address(called), id(function), address(own)


def _function_at(called: Any) -> Any:
    """Return the function that takes one of a signature out of a row, by its place; uncompiled, out of a list."""
    if numba.config.DISABLE_JIT:
        return operator.getitem
    kind = numba.core.types.FunctionType(called)

    def resolve(typing: Any, row: Any, k: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            assert context.data_model_manager[kind]._fields == WORDS, "another Numba's function pointers"
            first, pointer = args[0], context.get_value_type(kind).as_pointer()
            if isinstance(row, types.Array):
                first = context.make_array(row)(context, builder, first).data
            return builder.load(builder.gep(builder.bitcast(first, pointer), [args[1]]))

        return kind(row, types.intp), lower

    return intrinsic(resolve)


plan_at, score_at = _function_at(PLAN_SIGNATURE), _function_at(SCORE_SIGNATURE)
