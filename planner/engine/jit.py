"""How the loop is compiled: Numba, with a cache that a change of the loop's source empties."""

import gc
import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _cache_dir() -> Path:
    """Return the folder of compiled code for this very source.

    Numba looks at the file of the outermost function only, so a change in a helper's file would go unseen. The folder
    is therefore named by a hash over every file whose functions are compiled.
    """
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    named = [package / f"{name}.py" for name in ("policy", "choices/policies", "router", "choices/routers")]
    for path in sorted([*(package / "engine").glob("*.py"), *named]):
        digest.update(path.read_bytes())
    roots = (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), Path(tempfile.gettempdir()))
    for root in roots:  # the home of a service or a container may be read-only
        folder = root / "planner" / digest.hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        return folder
    return roots[-1]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_cache_dir()))

numba: Any = importlib.import_module("numba")  # not before: it reads NUMBA_CACHE_DIR when imported


def jit(function: F) -> F:
    """Compile a helper of the loop when the loop is compiled; with NUMBA_DISABLE_JIT=1 leave it as it is.

    Numba compiles a helper once for every combination of integer widths that it is called with. Here each is compiled
    for 64-bit arguments only, which cuts the compile time to a third, and without the wrappers that only Python
    needs.
    """
    helper = numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if not numba.config.DISABLE_JIT:
        resolve = helper.get_call_template
        helper.get_call_template = lambda args, kws: resolve(tuple(_widen(a) for a in args), kws)
    compiled: F = helper
    return compiled


def _widen(argument: Any) -> Any:
    """Return the 64-bit type of an integer argument, and any other type as it is."""
    if isinstance(argument, numba.types.IntegerLiteral):
        return numba.int64
    is_narrow = isinstance(argument, numba.types.Integer) and argument.signed
    return numba.int64 if is_narrow else argument


def compile_with_signature(function: F, signature: Any, *, cache: bool = True) -> F:
    """Compile a function once for one signature, and keep the machine code between processes."""
    was_collecting = gc.isenabled()
    gc.disable()  # a third of the compile time would go into looking for garbage
    try:
        compiled: F = numba.njit(signature, cache=cache)(function)
    finally:
        if was_collecting:
            gc.enable()
    return compiled
