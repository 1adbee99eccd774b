"""Compiled code that comes with the package: the first replay turns it into machine code, and compiles nothing else.

A file has LLVM's bitcode of the package's functions, optimised for no CPU in particular, for one Numba and platform.
LLVM turns it into the machine code of this CPU, which goes into Numba's cache. A function that the file lacks, or that
has changed since, is compiled.
"""

import hashlib
import importlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from planner.loop.compiled.lean import replaced

_Code = tuple[str, bytes, tuple[Any, ...]]  # Numba's name of a function's library, bitcode, Numba's description


@contextmanager
def ready_code(path: Path, made_for: str) -> Iterator[None]:
    """Let Numba take functions from a file, if its cache on disk lacks them.

    A function that is found is loaded without all that Numba knows of types, a third of a second, which only a
    compilation needs.

    Parameters
    ----------
    path : file, which may be absent, damaged or made for another combination.
    made_for : hash of this source, Numba and platform.
    """
    functions = importlib.import_module("numba.core.caching").FunctionCache

    def load(self: Any, signature: Any, target: Any) -> Any:
        loaded = None
        with self._guard_against_spurious_io_errors():
            loaded = self._load_overload(signature, target)
        codes = {} if loaded is not None else _read(path, made_for)
        pickled = codes and codes.get(_key(self._py_func, signature))
        if not pickled:
            return loaded
        codegen, code = target.codegen(), pickle.loads(pickled)
        described = _for_this_cpu(codegen, *code)
        with suppress(OSError):  # a full or read-only disk: the next process does the same
            self._impl.locator.ensure_cache_path()
            self._cache_file.save(self._index_key(signature, codegen), described)
        return self._impl.rebuild(target, described)

    with replaced(functions, load_overload=load):
        yield


@contextmanager
def code_written(path: Path, made_for: str) -> Iterator[None]:
    """Write the functions that Numba compiles meanwhile to a file for `ready_code`."""
    functions = importlib.import_module("numba.core.caching").FunctionCache
    library = importlib.import_module("numba.core.codegen").JITCodeLibrary
    finish: Callable[[Any], None] = library._finalize_final_module
    optimised: dict[str, bytes] = {}
    codes: dict[str, bytes] = {}
    dumps = importlib.import_module("numba.core.serialize").dumps

    def finish_seen(self: Any) -> None:
        optimised[self.name] = _without_names(self._codegen, self._final_module)  # LLVM will prepare it for one CPU
        finish(self)

    def save(self: Any, signature: Any, result: Any) -> None:
        (name, *_), *described = result._reduce()
        code: _Code = name, optimised[name], tuple(described)
        codes[_key(self._py_func, signature)] = dumps(code)

    with replaced(functions, load_overload=lambda *_: None, save_overload=save), \
            replaced(library, _finalize_final_module=finish_seen):
        yield
    compressor = zstandard.ZstdCompressor(level=19, write_checksum=True)
    path.write_bytes(made_for.encode() + compressor.compress(pickle.dumps(codes)))


def _without_names(codegen: Any, module: Any) -> bytes:
    """Return a module's bitcode without the names of its values, which are half of it."""
    llvm: Any = importlib.import_module("llvmlite.binding")
    passes, module = llvm.create_new_module_pass_manager(), module.clone()
    passes.add_strip_symbols_pass()
    passes.run(module, llvm.create_pass_builder(codegen._tm, llvm.create_pipeline_tuning_options(speed_level=0)))
    bitcode: bytes = module.as_bitcode()
    return bitcode


def _key(function: Any, signature: Any) -> str:
    """Return a hash of a function, its types of arguments and its source: the hash of the loop leaves other files out.
    """
    arguments = importlib.import_module("numba.core.sigutils").normalize_signature(signature)[0]
    named = f"{function.__module__} {function.__qualname__} {arguments} ".encode()
    return hashlib.sha256(named + Path(function.__code__.co_filename).read_bytes()).hexdigest()


@cache
def _read(path: Path, made_for: str) -> dict[str, bytes]:
    """Return the functions of a file; none if it is absent, damaged or made for another combination."""
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    if content[:len(made_for)] != made_for.encode():
        return {}
    with suppress(zstandard.ZstdError):
        codes: dict[str, bytes] = pickle.loads(zstandard.ZstdDecompressor().decompress(content[len(made_for):]))
        return codes
    return {}


def _for_this_cpu(codegen: Any, name: str, bitcode: bytes, described: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a function as Numba keeps it on disk, with this CPU's machine code."""
    library = codegen.create_library(name)
    library._final_module = module = importlib.import_module("llvmlite.binding").parse_bitcode(bitcode)
    library._finalized = True
    shared = library._get_module_for_linking().as_bitcode()
    return (name, "object", (codegen._tm.emit_object(module), shared)), *described
