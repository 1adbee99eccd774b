"""Helpers linked and optimised once, with the function that is called, instead of once for each function above them.

Numba finishes each function by itself: it links the code of all helpers below, optimises the whole and turns it into
machine code, which takes a function's helpers along once more for each function that calls it. The loop has 365
functions in ten levels, of which Python calls one. Here a helper stays as LLVM makes it of the function alone. The
outermost function links each helper once, and LLVM inlines and optimises all of them together.
"""

import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from planner.loop.compiled.lean import answered_once, replaced

_PACKAGES = ("planner", "numba")  # whose helpers Python never calls; a user's may be called
_NO_ADDRESS = 8  # of a helper's machine code, which there is none of
_unlinked: weakref.WeakSet[Any] = weakref.WeakSet()  # libraries of helpers


@contextmanager
def linked_once(function: Callable[..., Any]) -> Iterator[None]:
    """Let Numba compile a function with all its helpers in one piece."""
    library = importlib.import_module("numba.core.codegen").JITCodeLibrary
    context = importlib.import_module("numba.core.cpu").CPUContext
    make_function = importlib.import_module("numba._dynfunc").make_function
    finalize, get_pointer, get_executable = library.finalize, library.get_pointer_to_function, context.get_executable
    outermost = function.__qualname__

    def finish(code: Any) -> None:
        code._finalized, code._linking_libraries = False, all_below(code._linking_libraries)
        public, optimize = _functions(code), code._optimize_final_module

        def optimize_together() -> None:
            for name in _functions(code) - public:  # LLVM inlines an internal function that is called in one place
                code._final_module.get_function(name).linkage = "internal"
            optimize()

        code._optimize_final_module = optimize_together
        finalize(code)
        del code._optimize_final_module
        _unlinked.discard(code)

    def finalize_outermost(code: Any) -> None:
        if code.name == outermost:
            finish(code)
            return
        for below in code._linking_libraries:
            code._reload_init.update(below._reload_init)
        code._finalize_dynamic_globals()
        code._finalized = True
        _unlinked.add(code)

    def pointer(code: Any, name: str) -> Any:
        code._ensure_finalized()
        if code in _unlinked:
            finish(code)
        return get_pointer(code, name)

    def executable(self: Any, code: Any, described: Any, environment: Any) -> Any:
        code._ensure_finalized()
        if code in _unlinked and described.modname.partition(".")[0] in _PACKAGES:
            return make_function(described.lookup_module(), described.qualname.rpartition(".")[2],
                                 described.qualname, _NO_ADDRESS, environment, (code,))
        return get_executable(self, code, described, environment)

    _start_runtime()
    with (replaced(library, finalize=finalize_outermost, get_pointer_to_function=pointer,
                   _optimize_functions=_optimize_alone), replaced(context, get_executable=executable),
          answered_once()):
        yield


def _optimize_alone(library: Any, module: Any) -> None:
    """Run LLVM's passes over each function of a helper by itself: Numba makes new passes for each, and declarations."""
    module.data_layout = library._codegen._data_layout
    passes, builder = library._codegen._function_pass_manager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _start_runtime() -> None:
    """Let Numba finish the code of its memory management, which other code calls without linking it."""
    runtime = importlib.import_module("numba.core.runtime").rtsys
    runtime.initialize(importlib.import_module("numba.core.registry").cpu_target.target_context)


def _functions(library: Any) -> set[str]:
    """Return the names of the functions that a library has the code of."""
    return {function.name for function in library._final_module.functions if not function.is_declaration}


def all_below(libraries: list[Any]) -> list[Any]:
    """Return each of the libraries, and each that they need, directly or through others, once."""
    by_id: dict[int, Any] = {}
    left = list(libraries)
    while left:
        below = left.pop()
        if id(below) not in by_id:
            by_id[id(below)] = below
            left += below._linking_libraries
    return list(by_id.values())
