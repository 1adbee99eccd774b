"""Numba's typing and lowering of helpers, without the work that the loop's helpers do not need.

Numba runs 27 passes over a function, and analyses its variables anew after nine of them. A helper of the loop has no
closures, no `with`, no array expressions and no branches by type, so 11 passes make the same code. Numba also gives the
same answers thousands of times: the loop has 11,000 typed calls of 280 kinds. Here each kind is asked for once.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any


@cache
def helper_compiler() -> Any:
    """Return Numba's compiler with the passes of a helper; it refuses a helper that needs another pass."""
    base: Any = importlib.import_module("numba.core.compiler").CompilerBase
    manager: Any = importlib.import_module("numba.core.compiler_machinery").PassManager
    untyped: Any = importlib.import_module("numba.core.untyped_passes")
    typed: Any = importlib.import_module("numba.core.typed_passes")
    needed = (untyped.TranslateByteCode, untyped.FixupArgs, untyped.IRProcessing, untyped.GenericRewrites,
              untyped.ReconstructSSA, typed.NopythonTypeInference, typed.PreLowerStripPhis, typed.IRLegalization,
              typed.AnnotateTypes, typed.NativeLowering, typed.NoPythonBackend)

    class HelperCompiler(base):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = manager("helper of the loop")
            for pass_ in needed:
                passes.add_pass(pass_, pass_.name())
            passes.finalize()
            return [passes]

    return HelperCompiler


@contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Let a class or a module of Numba have other attributes for a while."""
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def answered_once() -> Iterator[None]:
    """Let Numba remember during one compilation facts that it would derive again for each call and each variable."""
    base = importlib.import_module("numba.core.base")
    context, function = base.BaseContext, importlib.import_module("numba.core.types").BaseFunction
    processor = importlib.import_module("numba.core.postproc").PostProcessor
    with ExitStack() as replacements:
        for owner, attributes in (
            (base, {"_has_loc": cache(base._has_loc)}),
            (context, {"get_abi_sizeof": _sizes(context.get_abi_sizeof)}),
            (function, {"get_call_type": _typed_calls(function.get_call_type)}),
            (processor, {"run": _last_analysis(processor.run)}),
        ):
            replacements.enter_context(replaced(owner, **attributes))
        replacements.enter_context(_without_lock_events())
        yield


def _sizes(get_abi_sizeof: Callable[..., int]) -> Callable[..., int]:
    """Return Numba's size of a type in memory, for which LLVM parses a module each time."""
    sizes: dict[str, int] = {}

    def remembered(self: Any, kind: Any) -> int:
        words = str(kind)
        if words not in sizes:
            sizes[words] = get_abi_sizeof(self, kind)
        return sizes[words]

    return remembered


def _typed_calls(get_call_type: Callable[..., Any]) -> Callable[..., Any]:
    """Return Numba's signature of a call of one of its own functions: `+` of two floats is looked up 800 times.

    An implementation takes some of its options from the function that calls it.
    """
    signatures: dict[Any, Any] = {}
    numbers: dict[Any, int] = {}  # of different options
    seen: dict[int, tuple[Any, int]] = {}  # a function's options, which are kept so that no others get their id
    flags = importlib.import_module("numba.core.targetconfig").ConfigStack.top_or_none

    def remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
        options = flags()
        if id(options) not in seen:
            seen[id(options)] = options, numbers.setdefault(options, len(numbers))
        key = self, seen[id(options)][1], args, tuple(kws.items()) if kws else ()
        if key not in signatures:
            signatures[key] = get_call_type(self, context, args, kws)
        return signatures[key]

    return remembered


def _last_analysis(run: Callable[..., None]) -> Callable[..., None]:
    """Return Numba's analysis of a function's variables, which only the last pass before lowering reads.

    Generators need it earlier. All others get the part that is computed when it is read.
    """
    postproc: Any = importlib.import_module("numba.core.postproc")

    def run_once(self: Any, emit_dels: bool = False, **options: Any) -> None:
        ir = self.func_ir
        if emit_dels or ir.is_generator:
            run(self, emit_dels, **options)
            return
        ir.blocks = postproc.transforms.canonicalize_cfg(ir.blocks)
        ir.variable_lifetime, ir.generator_info = postproc.VariableLifetime(ir.blocks), None

    return run_once


@contextmanager
def _without_lock_events() -> Iterator[None]:
    """Stop Numba from telling its listeners of each of 30,000 calls of LLVM: there are no listeners here."""
    binding: Any = importlib.import_module("llvmlite.binding")
    lock = binding.ffi.lib._lock
    before, lock._cblist = lock._cblist, []
    try:
        yield
    finally:
        lock._cblist = before
