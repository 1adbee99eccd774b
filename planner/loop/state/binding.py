"""The loop's memory behind one pointer, its arrays without reference counts.

Passed as a tuple of Numba arrays, the memory is over a hundred words that every helper call copies, and reference
counts that it raises and lowers with atomic operations: that took longer than the replay itself. The memory outlives
the loop, so the loop gets a table of its fields' addresses, and helpers a pointer to the table. `s.requests[i]` then is
a record, as it is uncompiled.

LLVM is told that fields of one type are never in the memory of another, and that the table and the records of `FIXED`
do not change: else it would read all of them again after each store.
"""

import hashlib
import importlib
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from planner.loop.compiled.jit import numba
from planner.loop.state.engine_state import FIXED, STATE_TYPE, numba_record
from planner.loop.state.fleet_state import FLEET_TYPE

types: Any = numba.types
ir: Any = importlib.import_module("llvmlite.ir")
arrayobj: Any = importlib.import_module("numba.np.arrayobj")
cgutils: Any = importlib.import_module("numba.core.cgutils")
extending: Any = importlib.import_module("numba.core.extending")
imputils: Any = importlib.import_module("numba.core.imputils")
models: Any = importlib.import_module("numba.core.datamodel.models")
templates: Any = importlib.import_module("numba.core.typing.templates")

_INT = ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_CTYPES = np.ndarray.ctypes.__get__  # past the lookup of a record array, which searches its fields first
_FIXED = [numba_record(each) for each in FIXED]


class _Short(types.Type):  # type: ignore[misc]
    """A type that stands in LLVM's names by a hash: its name has kilobytes, and each name is often read.

    Numba numbers its records in the order of their making. Helpers that another process has compiled need its names.
    """

    @cached_property
    def short(self) -> str:
        """Return a name that is the same in all processes."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]

    @property
    def mangling_args(self) -> tuple[str, tuple[str]]:
        """Return the words for an argument of this type in LLVM's name of a function."""
        return type(self).__name__, (self.short,)

    def __repr__(self) -> str:
        """Return the short name: Numba writes it into errors that it catches."""
        return f"{type(self).__name__}({self.short})"


class _RecordType(_Short, types.Record):  # type: ignore[misc]
    """Numba's type of a record of the memory."""

    def __init__(self, record: Any) -> None:
        self.is_fixed = record in _FIXED
        fields = [(name, field._asdict()) for name, field in record.fields.items()]
        super().__init__(fields, record.size, record.aligned)


class _ArrayType(_Short):
    """Numba's type of an array's rows: records, or numbers."""

    def __init__(self, row: Any) -> None:
        self.row = row
        super().__init__(name=f"Rows({row})")


class _Bound(_Short):
    """Numba's type of the bound memory: records, and arrays as rows."""

    def __init__(self, memory: Any) -> None:
        self.fields = {
            name: _ArrayType(_in_memory(field.dtype)) if isinstance(field, types.Array) else _in_memory(field)
            for name, field in zip(memory.fields, memory.types, strict=True)
        }
        super().__init__(name=f"Bound({memory})")


def _in_memory(kind: Any) -> Any:
    return _RecordType(kind) if isinstance(kind, types.Record) else kind


extending.register_model(_RecordType)(models.RecordModel)


@extending.register_model(_ArrayType)
@extending.register_model(_Bound)
class _PointerModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, pointer_type: Any) -> None:
        super().__init__(manager, pointer_type, _POINTER)


def pointers(memories: Sequence[Any]) -> Any:
    """Return the addresses of the memories' fields, for `bind_at`; the memories must outlive their use.

    Uncompiled, the memories.
    """
    if numba.config.DISABLE_JIT:
        return memories
    return np.array([_address(field) for memory in memories for field in memory], np.int64)


def _address(field: Any) -> int:
    """Return the address of an array or a record; `__array_interface__` would describe all of its fields first."""
    array = field if isinstance(field, np.ndarray) else np.frombuffer(field, np.uint8)
    return int(_CTYPES(array).data)


def bind_at(memories: Any, k: int) -> Any:
    """Return engine memory `k` of several, for the loop's helpers."""
    return memories[k]


def bind_fleet(memories: Any) -> Any:
    """Return the one fleet's memory, for the loop's helpers."""
    return memories[0]


def _bound(memory: Any, memories: Any, k: Any) -> tuple[Any, Any]:
    """Return the signature and the code of a function that returns memory `k`."""
    bound = _Bound(memory)

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table, place = args[0], args[1] if len(args) > 1 else ir.Constant(_INT, 0)
        if isinstance(memories, types.Array):
            table = context.make_array(memories)(context, builder, table).data
        first = builder.mul(place, ir.Constant(_INT, len(bound.fields)))
        return builder.bitcast(builder.gep(builder.bitcast(table, _INT.as_pointer()), [first]), _POINTER)

    return bound(memories, *([] if k is None else [types.intp])), lower


def _type_bind_at(typing: Any, memories: Any, k: Any) -> Any:
    return _bound(STATE_TYPE, memories, k)


def _type_bind_fleet(typing: Any, memories: Any) -> Any:
    return _bound(FLEET_TYPE, memories, None)


if not numba.config.DISABLE_JIT:
    bind_at = extending.intrinsic(_type_bind_at)
    bind_fleet = extending.intrinsic(_type_bind_fleet)


def _marked(builder: Any, access: Any, kind: Any, is_fixed: bool = False) -> Any:
    """Return a load or a store that LLVM knows the kind of memory of, and that this never changes if it is fixed."""
    module, start = builder.module, ir.Constant(_INT, 0)
    root = module.add_metadata(["memory of the loop"])
    node = module.add_metadata([repr(kind), root, start])
    access.set_metadata("tbaa", module.add_metadata([node, node, start]))
    if is_fixed:
        access.set_metadata("invariant.load", module.add_metadata([]))
    return access


@templates.infer_getattr
class _Fields(templates.AttributeTemplate):  # type: ignore[misc]
    key = _Bound

    def generic_resolve(self, bound: Any, name: str) -> Any:
        return bound.fields.get(name)


@imputils.lower_getattr_generic(_Bound)  # type: ignore[untyped-decorator]
def _lower_field(context: Any, builder: Any, bound: Any, pointer: Any, name: str) -> Any:
    table = builder.bitcast(pointer, ir.ArrayType(_POINTER, len(bound.fields)).as_pointer())
    place = cgutils.gep_inbounds(builder, table, 0, list(bound.fields).index(name))
    field = _marked(builder, builder.load(place), bound, is_fixed=True)
    return builder.bitcast(field, context.get_value_type(bound.fields[name]))


@imputils.lower_getattr_generic(_RecordType)  # type: ignore[untyped-decorator]
def _lower_read(context: Any, builder: Any, row: Any, pointer: Any, name: str) -> Any:
    kind = row.typeof(name)
    if isinstance(kind, types.NestedArray):
        return arrayobj.record_getattr(context, builder, row, pointer, name)
    value = _marked(builder, builder.load(_field(context, builder, row, pointer, name)), row, row.is_fixed)
    return context.data_model_manager[kind].from_data(builder, value)


@imputils.lower_setattr_generic(_RecordType)  # type: ignore[untyped-decorator]
def _lower_write(context: Any, builder: Any, signature: Any, args: Any, name: str) -> Any:
    row, kind = signature.args[0], signature.args[0].typeof(name)
    value = context.data_model_manager[kind].as_data(builder, context.cast(builder, args[1], signature.args[1], kind))
    _marked(builder, builder.store(value, _field(context, builder, row, args[0], name)), row)


def _field(context: Any, builder: Any, row: Any, pointer: Any, name: str) -> Any:
    """Return the address of a record's field."""
    return cgutils.get_record_member(builder, pointer, row.offset(name), context.get_data_type(row.typeof(name)))


@templates.infer_global(operator.getitem)
class _GetRow(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], _ArrayType) and isinstance(args[1], types.Integer):
            return args[0].row(args[0], types.intp)
        return None


@templates.infer_global(operator.setitem)
class _SetRow(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], _ArrayType) and isinstance(args[1], types.Integer):
            return types.none(args[0], types.intp, args[0].row)
        return None


def _place(context: Any, builder: Any, rows: _ArrayType, pointer: Any, index: Any) -> Any:
    """Return the address of one row."""
    row = context.data_model_manager[rows.row].get_data_type()
    return builder.gep(builder.bitcast(pointer, row.as_pointer()), [index])


@extending.lower_builtin(operator.getitem, _ArrayType, types.intp)  # type: ignore[untyped-decorator]
def _lower_get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    rows = signature.args[0]
    place = _place(context, builder, rows, args[0], args[1])
    if isinstance(rows.row, _RecordType):
        return place
    return context.data_model_manager[rows.row].from_data(builder, _marked(builder, builder.load(place), rows))


@extending.lower_builtin(operator.setitem, _ArrayType, types.intp, types.Any)  # type: ignore[untyped-decorator]
def _lower_set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    rows = signature.args[0]
    place = _place(context, builder, rows, args[0], args[1])
    _marked(builder, builder.store(context.data_model_manager[rows.row].as_data(builder, args[2]), place), rows)
    return context.get_dummy_value()
