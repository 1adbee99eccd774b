"""Step plans of policies as function pointers in the loop's memory, one for each replica."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.loop.compiled.jit import compile_with_signature, numba
from planner.policies.policy import StepPlan, StepState

types: Any = numba.types
intrinsic: Any = importlib.import_module("numba.core.extending").intrinsic

_INT, _FLOAT = numba.int64, numba.float64
PLAN_SIGNATURE = types.NamedUniTuple(_INT, len(StepPlan._fields), StepPlan)(
    types.NamedTuple([_FLOAT] + [_INT] * (len(StepState._fields) - 1), StepState)
)
PLAN_TYPE = numba.core.types.FunctionType(PLAN_SIGNATURE)
PLAN_WORDS = 3  # of Numba's function pointer: its addresses for C, Python and Numba


def plan_at(plans: Any, k: int) -> Any:
    """Return step plan `k` of several that `plans_in_a_row` laid out; uncompiled, of a list."""
    return plans[k]


def plans_in_a_row(plans: Sequence[Any]) -> Any:
    """Lay out compiled step plans for `plan_at`; the plans must outlive their use."""
    if numba.config.DISABLE_JIT:
        return list(plans)
    words = np.zeros((len(plans), PLAN_WORDS), np.int64)
    for plan, row in zip(plans, words, strict=True):
        _compiled_keep()(plan, row)
    return words.reshape(-1)


def _keep(plan: Any, words: Any) -> None:
    _store(plan, words)


@functools.cache
def _compiled_keep() -> Any:
    return compile_with_signature(_keep, numba.void(PLAN_TYPE, _INT[::1]))


@intrinsic  # type: ignore[untyped-decorator]
def _store(typing: Any, plan: Any, words: Any) -> Any:
    """Write a function pointer to an array."""
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        assert context.get_abi_sizeof(value.type) == 8 * PLAN_WORDS, "another Numba, with other function pointers"
        data = context.make_array(signature.args[1])(context, builder, args[1]).data
        builder.store(value, builder.bitcast(data, value.type.as_pointer()))
        return context.get_dummy_value()

    return types.none(plan, words), lower


def _type_plan_at(typing: Any, plans: Any, k: Any) -> Any:
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = context.get_value_type(PLAN_TYPE).as_pointer()
        return builder.load(builder.gep(builder.bitcast(args[0], pointer), [args[1]]))

    return PLAN_TYPE(plans, types.intp), lower


if not numba.config.DISABLE_JIT:
    plan_at = intrinsic(_type_plan_at)
