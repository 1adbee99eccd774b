"""Step plans of policies as function pointers in the loop's memory, one for each replica."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.loop.compiled.jit import numba
from planner.policies.policy import StepPlan, StepState

types: Any = numba.types
intrinsic: Any = importlib.import_module("numba.core.extending").intrinsic

_INT, _FLOAT = numba.int64, numba.float64
PLAN_SIGNATURE = types.NamedUniTuple(_INT, len(StepPlan._fields), StepPlan)(
    types.NamedTuple([_FLOAT] + [_INT] * (len(StepState._fields) - 1), StepState)
)
PLAN_TYPE = numba.core.types.FunctionType(PLAN_SIGNATURE)
PLAN_WORDS = ("c_addr", "py_addr", "jit_addr")  # of Numba's function pointer: addresses of a call from C, and its own


def plan_at(plans: Any, k: int) -> Any:
    """Return step plan `k` of several that `plans_in_a_row` laid out; uncompiled, of a list."""
    return plans[k]


def plans_in_a_row(plans: Sequence[Any]) -> Any:
    """Lay out compiled step plans for `plan_at`; the plans must outlive their use."""
    if numba.config.DISABLE_JIT:
        return list(plans)
    return np.array([word for plan in plans for word in _pointer(plan)], np.int64)


def _pointer(plan: Any) -> tuple[int, int, int]:
    """Return a compiled plan as Numba's function pointer."""
    compiled = plan.get_compile_result(PLAN_SIGNATURE)
    called, own = compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name
    address = compiled.library.get_pointer_to_function
    return address(called), id(plan), address(own)


def _type_plan_at(typing: Any, plans: Any, k: Any) -> Any:
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        assert context.data_model_manager[PLAN_TYPE]._fields == PLAN_WORDS, "another Numba's function pointers"
        first, pointer = args[0], context.get_value_type(PLAN_TYPE).as_pointer()
        if isinstance(plans, types.Array):
            first = context.make_array(plans)(context, builder, first).data
        return builder.load(builder.gep(builder.bitcast(first, pointer), [args[1]]))

    return PLAN_TYPE(plans, types.intp), lower


if not numba.config.DISABLE_JIT:
    plan_at = intrinsic(_type_plan_at)
