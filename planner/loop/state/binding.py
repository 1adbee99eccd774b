"""The loop's memory behind one pointer, its arrays without reference counts.

Passed as a tuple of Numba arrays, the memory is over a hundred words that every helper call copies, and reference
counts that it raises and lowers with atomic operations: that took longer than the replay itself. The memory outlives
the loop, so the compiled loop binds it once, and helpers get a pointer to it. `s.requests[i]` then is a record, as it
is uncompiled.
"""

import importlib
import operator
from typing import Any

from planner.loop.compiled.jit import numba
from planner.loop.state.engine_state import STATE_TYPE

types: Any = numba.types
ir: Any = importlib.import_module("llvmlite.ir")
cgutils: Any = importlib.import_module("numba.core.cgutils")
extending: Any = importlib.import_module("numba.core.extending")
imputils: Any = importlib.import_module("numba.core.imputils")
templates: Any = importlib.import_module("numba.core.typing.templates")

_POINTER = ir.IntType(8).as_pointer()


class _Short(types.Type):  # type: ignore[misc]
    """A type that stands in functions' names by its number: its name has kilobytes, and each name is often read."""

    @property
    def mangling_args(self) -> tuple[str, tuple[int]]:
        """Return what LLVM's name of a function says of an argument of this type, as Numba's records do."""
        return type(self).__name__, (self._code,)


class _Rows(_Short):
    """Numba's type of an array's rows: records, or numbers."""

    def __init__(self, row: Any) -> None:
        self.row = row
        super().__init__(name=f"Rows({row})")


class _Bound(_Short):
    """Numba's type of the bound memory: records as they are, arrays as rows."""

    def __init__(self, memory: Any) -> None:
        self.fields = {
            name: _Rows(field.dtype) if isinstance(field, types.Array) else field
            for name, field in zip(memory.fields, memory.types, strict=True)
        }
        super().__init__(name=f"Bound({memory})")


@extending.register_model(_Rows)
@extending.register_model(_Bound)
class _PointerModel(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, pointer_type: Any) -> None:
        super().__init__(manager, pointer_type, _POINTER)


def bind(memory: Any) -> Any:
    """Return the memory for the loop's helpers; uncompiled, as it is."""
    return memory


def _type_bind(typing: Any, memory: Any) -> Any:
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = []
        for k, field in enumerate(signature.args[0].types):
            value = builder.extract_value(args[0], k)
            if isinstance(field, types.Array):
                value = context.make_array(field)(context, builder, value).data
            pointers.append(builder.bitcast(value, _POINTER))
        place = cgutils.alloca_once(builder, ir.ArrayType(_POINTER, len(pointers)))
        for k, pointer in enumerate(pointers):
            builder.store(pointer, cgutils.gep_inbounds(builder, place, 0, k))
        return builder.bitcast(place, _POINTER)

    return _Bound(memory)(memory), lower


def bind_at(memories: Any, k: int) -> Any:
    """Return memory `k` of several, of each of which `pointers` were laid out in a row; uncompiled, of a list."""
    return memories[k]


def pointers(memory: Any) -> list[int]:
    """Return where the fields of a memory are; they must outlive what is done with them."""
    return [int(field.__array_interface__["data"][0]) for field in memory]


def _type_bind_at(typing: Any, memories: Any, k: Any) -> Any:
    bound = _Bound(STATE_TYPE)

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.bitcast(args[0], ir.IntType(64).as_pointer())
        count = ir.Constant(ir.IntType(64), len(bound.fields))
        return builder.bitcast(builder.gep(first, [builder.mul(args[1], count)]), _POINTER)

    return bound(memories, types.intp), lower


if not numba.config.DISABLE_JIT:
    bind = extending.intrinsic(_type_bind)
    bind_at = extending.intrinsic(_type_bind_at)


@templates.infer_getattr
class _Fields(templates.AttributeTemplate):  # type: ignore[misc]
    key = _Bound

    def generic_resolve(self, bound: Any, name: str) -> Any:
        return bound.fields.get(name)


@imputils.lower_getattr_generic(_Bound)  # type: ignore[untyped-decorator]
def _lower_field(context: Any, builder: Any, bound: Any, pointer: Any, name: str) -> Any:
    table = builder.bitcast(pointer, ir.ArrayType(_POINTER, len(bound.fields)).as_pointer())
    place = cgutils.gep_inbounds(builder, table, 0, list(bound.fields).index(name))
    return builder.bitcast(builder.load(place), context.get_value_type(bound.fields[name]))


@templates.infer_global(operator.getitem)
class _GetRow(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], _Rows) and isinstance(args[1], types.Integer):
            return args[0].row(args[0], types.intp)
        return None


@templates.infer_global(operator.setitem)
class _SetRow(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], _Rows) and isinstance(args[1], types.Integer):
            return types.none(args[0], types.intp, args[0].row)
        return None


def _place(context: Any, builder: Any, rows: _Rows, pointer: Any, index: Any) -> Any:
    """Return the address of one row."""
    row = context.data_model_manager[rows.row].get_data_type()
    return builder.gep(builder.bitcast(pointer, row.as_pointer()), [index])


@extending.lower_builtin(operator.getitem, _Rows, types.intp)  # type: ignore[untyped-decorator]
def _lower_get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    rows = signature.args[0]
    place = _place(context, builder, rows, args[0], args[1])
    return context.data_model_manager[rows.row].load_from_data_pointer(builder, place)


@extending.lower_builtin(operator.setitem, _Rows, types.intp, types.Any)  # type: ignore[untyped-decorator]
def _lower_set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    rows = signature.args[0]
    place = _place(context, builder, rows, args[0], args[1])
    builder.store(context.data_model_manager[rows.row].as_data(builder, args[2]), place)
    return context.get_dummy_value()
