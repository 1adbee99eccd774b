"""Typed helpers on disk: the second loop on a machine types and lowers only the helpers that the first has not.

The fleet's loop has the 350 helpers of the replay loop and 150 of its own. The first of them to be compiled writes one
file: LLVM's code of its helpers as it is before they are optimised together, and Numba's description of each.
"""

import copy
import hashlib
import importlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from planner.loop.compiled.lean import replaced

_CHECKSUM_BYTES = 32


class KeptHelper(NamedTuple):
    """A helper that was compiled for one signature."""

    signature: Any
    described: Any  # Numba's names for it in LLVM's code


class KeptHelpers(NamedTuple):
    """The helpers of a file."""

    code: bytes  # LLVM's bitcode of all of them
    helpers: list[KeptHelper]


@cache
def helper_cache() -> Any:
    """Return the class that Numba asks for a helper's code: it has none but within `helpers_kept`."""
    none_kept: Any = importlib.import_module("numba.core.caching").NullCache

    class HelperCache(none_kept):  # type: ignore[misc]
        def __init__(self, helper: Any) -> None:
            self.helper = helper

    return HelperCache


@contextmanager
def helpers_kept(path: Path) -> Iterator[None]:
    """Let Numba take helpers from a file; if there is none, write the helpers that it compiles.

    A damaged file is written anew. Nothing is read unless Numba compiles.
    """
    @cache
    def kept() -> KeptHelpers | None:
        return _read(path)

    compiled: list[Any] = []
    with replaced(helper_cache(), load_overload=_loading(kept),
                  save_overload=lambda _, __, result: compiled.append(result)):
        yield
    if compiled and kept() is None:
        with suppress(OSError):  # a full or read-only disk: the next loop compiles its helpers
            _write(path, compiled)


def _loading(kept: Callable[[], KeptHelpers | None]) -> Callable[..., Any]:
    """Return the method that finds a helper's code among the kept ones."""
    arguments_of: Any = importlib.import_module("numba.core.sigutils").normalize_signature

    @cache
    def known() -> dict[tuple[str, str, Any], KeptHelper]:
        helpers = [] if (file := kept()) is None else file.helpers
        return {(row.described.modname, row.described.qualname, row.signature.args): row for row in helpers}

    @cache
    def library(codegen: Any) -> Any:
        file = kept()
        assert file is not None
        return _library(codegen, file.code)

    def load(self: Any, signature: Any, target: Any) -> Any:
        function, arguments = self.helper.py_func, tuple(arguments_of(signature)[0])
        helper = known().get((function.__module__, function.__qualname__, arguments))
        if helper is None:
            return None
        about = {"dispatcher": self.helper, "args": arguments, "return_type": None}
        with importlib.import_module("numba.core.event").trigger_event("numba:compile", data=about):  # is displayed
            return _result(helper, library(target.codegen()), target)

    return load


def _result(kept: KeptHelper, library: Any, target: Any) -> Any:
    """Return Numba's record of a compiled helper."""
    make: Any = importlib.import_module("numba.core.compiler").compile_result
    environment = importlib.import_module("numba.core.environment").Environment.from_fndesc(kept.described)
    entry = target.get_executable(library, kept.described, environment)
    return make(typing_context=target.typing_context, target_context=target, library=library, environment=environment,
                entry_point=entry, fndesc=kept.described, signature=kept.signature, objectmode=False,
                type_annotation="", lifted=(), reload_init=[])


def _library(codegen: Any, code: bytes) -> Any:
    """Return the code of helpers as Numba's library; all of it is linked, and LLVM drops the unused."""
    library = codegen.create_library("kept helpers")
    module = importlib.import_module("llvmlite.binding").parse_bitcode(code)
    library._final_module = library._shared_module = module
    library.finalize()
    return library


def _write(path: Path, compiled: list[Any]) -> None:
    """Write compiled helpers to a file at once, unless a second process could not use one of them."""
    if not compiled or any(result.library._reload_init or result.environment.consts for result in compiled):
        return
    names = {result.fndesc.mangled_name for result in compiled}
    together = compiled[0].library.codegen.create_library("kept helpers")
    for library in importlib.import_module("planner.loop.compiled.linking").all_below([r.library for r in compiled]):
        together._final_module.link_in(library._final_module, preserve=True)
    for function in together._final_module.functions:
        if not function.is_declaration and function.name not in names:  # Numba's own may be others elsewhere
            function.linkage = "internal"
    kept = KeptHelpers(together._final_module.as_bitcode(), [_described(result) for result in compiled])
    content = importlib.import_module("numba.core.serialize").dumps(kept)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(hashlib.sha256(content).digest() + content)
    unfinished.replace(path)


def _described(result: Any) -> KeptHelper:
    described = copy.copy(result.fndesc)
    described.typemap = described.calltypes = None  # only for lowering, and large
    return KeptHelper(result.signature, described)


def _read(path: Path) -> KeptHelpers | None:
    """Return the helpers of a file; None if there is none, or not all of it."""
    try:
        written = path.read_bytes()
    except OSError:
        return None
    content = written[_CHECKSUM_BYTES:]
    if hashlib.sha256(content).digest() != written[:_CHECKSUM_BYTES]:
        return None
    kept: KeptHelpers = pickle.loads(content)
    return kept
