"""The fields of its argument that a function reads, found in its code."""

import functools
import importlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from planner.loop.compiled.jit import numba, uncompiled

ir: Any = importlib.import_module("numba.core.ir")
compiler: Any = importlib.import_module("numba.core.compiler")


@functools.cache
def fields_read(function: Callable[..., Any], fields: tuple[str, ...], place: int = 0) -> frozenset[str]:
    """Return the fields of a named tuple that a function may read.

    Parameters
    ----------
    function : a plain function; functions that receive the tuple from it are searched too.
    fields : of the tuple.
    place : of the tuple among the function's arguments.

    Returns
    -------
    frozenset
        Never too few: all fields, if the tuple goes anywhere except into an attribute, another name or a function that
        can be searched.
    """
    return frozenset(fields) & _names_read(function, place, frozenset(fields), frozenset())


def calls(function: Callable[..., Any], named: Any) -> int | None:
    """Return the line at which a function, or one that it calls, uses a global such as `print`; None if none does.
    """
    for source, definition in _globals_of(function, set()):
        if definition is named:
            return int(source.line)
    return None


def _names_read(function: Any, place: int, every: frozenset[str], above: frozenset[Any]) -> frozenset[str]:
    """Return the attributes that a function reads of its argument, `every` if that cannot be told."""
    function = uncompiled(function)
    if (function, place) in above:  # it calls itself
        return frozenset()
    statements = _statements(function)
    if statements is None or place >= function.__code__.co_argcount:
        return every
    aliases = _aliases(statements, place)
    read: frozenset[str] = frozenset()
    for statement in statements:
        used = [variable for variable in statement.list_vars() if variable.name in aliases]
        value = getattr(statement, "value", None)
        if not used or _is_alias(statement, aliases, place):
            continue
        if isinstance(value, ir.Expr) and value.op == "getattr":
            read |= {value.attr} if value.attr in every else every  # a method, as _replace, is given them all
        elif isinstance(value, ir.Expr) and value.op == "call" and statement.target.name not in aliases:
            read |= _handed_on(value, aliases, statements, every, above | {(function, place)})
        else:
            return every
    return read


def _handed_on(call: Any, own_names: set[str], statements: list[Any], every: frozenset[str],
               above: frozenset[Any]) -> frozenset[str]:
    """Return the attributes that a called function reads of the argument."""
    called = [arg.value for arg in statements if isinstance(arg, ir.Assign) and arg.target.name == call.func.name]
    is_known = len(called) == 1 and isinstance(called[0], ir.Global | ir.FreeVar)
    plain = uncompiled(called[0].value) if is_known else None
    named = [variable for _, variable in call.kws] + [call.vararg, call.varkwarg]
    if not isinstance(plain, FunctionType) or any(arg is not None and arg.name in own_names for arg in named):
        return every
    places = [k for k, variable in enumerate(call.args) if variable.name in own_names]
    return frozenset().union(*(_names_read(plain, k, every, above) for k in places))


def _aliases(statements: list[Any], place: int) -> set[str]:
    """Return the names under which a function knows its argument."""
    aliases: set[str] = set()
    while True:
        more = {statement.target.name for statement in statements if _is_alias(statement, aliases, place)}
        if more == aliases:
            return aliases
        aliases = more


def _is_alias(statement: Any, aliases: set[str], place: int) -> bool:
    """Tell whether a statement does no more than to give the argument a name."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, ir.Assign):
        return isinstance(statement, ir.Del)
    if isinstance(value, ir.Arg):
        return bool(value.index == place)
    return isinstance(value, ir.Var) and value.name in aliases


def _statements(function: Any) -> list[Any] | None:
    """Return a function in Numba's intermediate form, None if Numba cannot read it."""
    try:
        blocks = compiler.run_frontend(function).blocks
    except numba.core.errors.NumbaError:
        return None
    return [statement for block in blocks.values() for statement in block.body]


def _globals_of(function: Any, seen: set[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the globals that a function uses, and the globals of functions among them, with their places."""
    function = uncompiled(function)
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    for statement in _statements(function) or ():
        value = getattr(statement, "value", None)
        if isinstance(value, ir.Global | ir.FreeVar):
            yield statement.loc, value.value
            yield from _globals_of(value.value, seen)
