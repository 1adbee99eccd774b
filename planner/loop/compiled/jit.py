"""How the loop is compiled: Numba, with a cache that a change of source, Python, Numba or CPU empties."""

import functools
import gc
import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import filelock
from llvmlite.binding import get_host_cpu_name, get_process_triple

from planner.loop.compiled.kept_helpers import helper_cache, helpers_kept
from planner.loop.compiled.lean import helper_compiler
from planner.loop.compiled.linking import linked_once
from planner.loop.compiled.ready_code import ready_code
from planner.loop.compiled.shortcuts import SWITCH, why_plain
from planner.progress import Stage, stage

_one_at_a_time = threading.RLock()  # Numba, and the parts replaced in it, are global to the process

LINKING = 0.6  # time that a helper takes as a part of the outermost function, in its own compile times

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def source_sha256() -> str:
    """Return a hash over the source of every file whose functions are compiled into the loop."""
    package = Path(__file__).resolve().parents[2]
    named = [package / "policies" / f"{name}.py"
             for name in ("policy", "router", "builtin_policies", "builtin_routers")]
    digest = hashlib.sha256()
    for path in sorted([*(package / "loop").rglob("*.py"), *named]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _made_for(*machine: object) -> str:
    """Return a hash of this source, Numba and a machine: code for another combination cannot be used."""
    made_for = (source_sha256(), version("numba"), version("llvmlite"), *machine)
    return hashlib.sha256(repr(made_for).encode()).hexdigest()


def _of_this_cpu() -> str:
    """Return a name of this source, Numba, Python and CPU."""
    return _made_for(sys.implementation.cache_tag, get_host_cpu_name())[:16]


def ready_file() -> tuple[Path, str]:
    """Return the file of compiled code that comes with the package for this platform, and the hash of its combination.

    It suits each version of Python: of Python's memory, the code knows only the size of an object's head.
    """
    triple = get_process_triple()
    return Path(__file__).parent / "ready" / f"{triple}.zst", _made_for(triple, object.__basicsize__)


def _cache_dir() -> Path:
    """Return the folder of compiled code for this source, Python, Numba and CPU.

    Numba looks at the file of the outermost function only, so a change in a helper's file would go unseen. The folder
    is therefore named by a hash over every file whose functions are compiled.
    """
    roots = (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), Path(tempfile.gettempdir()))
    for root in roots:  # the home of a service or a container may be read-only
        folder = root / "planner" / _of_this_cpu()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        return folder
    return roots[-1]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_cache_dir()))

numba: Any = importlib.import_module("numba")  # not before: it reads NUMBA_CACHE_DIR when imported
if not numba.config.CACHE_DIR:  # Numba was imported before
    numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
events: Any = importlib.import_module("numba.core.event")


def _load_array_functions() -> None:
    """Load Numba's functions on arrays without SciPy's linear algebra, half a second of a compilation.

    Numba imports it here only to learn whether it is there. A function with a product of matrices, which only a user's
    policy may have, imports it when it is compiled.
    """
    blas = "scipy.linalg.cython_blas"
    if PLAIN or blas in sys.modules or importlib.util.find_spec("scipy") is None:
        return
    sys.modules[blas] = None  # type: ignore[assignment]  # an import fails
    try:
        functions: Any = importlib.import_module("numba.np.arraymath")
        functions._HAVE_BLAS = True
    finally:
        del sys.modules[blas]


PLAIN = why_plain(numba.__version__, Path(numba.config.CACHE_DIR) / f"shortcuts-{numba.__version__}")


def jit(function: F) -> F:
    """Compile a helper of the loop when the loop is compiled; with NUMBA_DISABLE_JIT=1 leave it as it is."""
    helper: Any = function if numba.config.DISABLE_JIT else Helper(function)
    compiled: F = helper
    return compiled


class Helper:
    """A helper of the loop. Numba's dispatcher is made once something is compiled: code from the cache needs none.

    Numba compiles a helper once for every combination of integer widths that it is called with. Here each is compiled
    for 64-bit arguments only, which cuts the compile time to a third, and without the wrappers that only Python
    needs. A division by zero is no error, as in NumPy: else each caller of a helper that divides would check for a
    failure after each call.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        functools.update_wrapper(cast(Any, self), function)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Return Numba's dispatcher."""
        shorter = {} if PLAIN else {"pipeline_class": helper_compiler()}
        made = numba.njit(self.py_func, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", **shorter)
        if not PLAIN:
            made._cache = helper_cache()(made)
            made.get_call_template = functools.partial(_resolve, made, made.get_call_template)
        return made

    @property
    def _numba_type_(self) -> Any:
        """Return Numba's type of the helper in functions that name it."""
        return self.dispatcher._numba_type_


def _resolve(helper: Any, resolve: Callable[..., Any], args: Any, kws: Any) -> Any:
    """Return Numba's template of a call of a helper: for 64-bit integers, and with the one signature that is called.

    Numba would compare each signature with all of the helper, and warn of records with the same fields.
    """
    template, pysig, types, kws = resolve(tuple(_widen(a) for a in args), {name: _widen(a) for name, a in kws.items()})
    called = helper.overloads.get(tuple(types))
    if called is not None:
        template.cases = [called.signature]
    return template, pysig, types, kws


def uncompiled(function: F) -> F:
    """Return the Python function that was compiled; any other function as it is."""
    plain: F = getattr(function, "py_func", function)
    return plain


def _widen(argument: Any) -> Any:
    """Return the 64-bit type of an integer argument, and any other type as it is."""
    if isinstance(argument, numba.types.IntegerLiteral):
        return numba.int64
    is_narrow = isinstance(argument, numba.types.Integer) and argument.signed
    return numba.int64 if is_narrow else argument


def compile_with_signature(function: F, signature: Any, *, what: str | None = None, cache: bool = True,
                           shares_helpers: bool = False) -> F:
    """Compile a function once for one signature, and keep the machine code between processes.

    The machine code runs without Python's global lock, so that a display and other threads go on beside it. A second
    process that needs the same function waits for the first one's code.

    Parameters
    ----------
    what : the function in a user's words, for the display of progress; None: its name.
    cache : whether the code is kept; a function that stands in no file has nowhere to be found again.
    shares_helpers : whether its helpers are kept for other functions, and theirs are taken.
    """
    with _one_at_a_time:
        return _compiled(function, signature, what, cache=cache, shares_helpers=shares_helpers)


def _compiled(function: F, signature: Any, what: str | None, *, cache: bool, shares_helpers: bool) -> F:
    words = f"{what or function.__name__}, by Numba's own way ({PLAIN})" if PLAIN else what or function.__name__
    was_collecting = gc.isenabled()
    gc.disable()  # a third of the compile time would go into looking for garbage
    try:
        with (_in_one_place(), _alone(function, words) if cache else ExitStack(), _announced(function, words),
              ExitStack() if PLAIN else linked_once(function), _ready_code(),
              _kept_helpers() if shares_helpers and not PLAIN else ExitStack()):
            compiled: F = numba.njit(signature, cache=cache, nogil=True)(function)
    finally:
        if was_collecting:
            gc.enable()
    return compiled


@contextmanager
def _in_one_place() -> Iterator[None]:
    """Let Numba keep code by `PackageCacheLocator`, unless the user has named a folder: it may hold other sources'."""
    before = numba.config.CACHE_LOCATOR_CLASSES
    if str(_cache_dir()) == numba.config.CACHE_DIR and not PLAIN:
        numba.config.CACHE_LOCATOR_CLASSES = "planner.loop.compiled.cache_locator.PackageCacheLocator"
    try:
        yield
    finally:
        numba.config.CACHE_LOCATOR_CLASSES = before


def _ready_code() -> AbstractContextManager[Any]:
    """Let Numba take code from the package, unless the user has named a way to compile."""
    return ExitStack() if PLAIN or os.environ.get(SWITCH) else ready_code(*ready_file())


def _kept_helpers() -> AbstractContextManager[None]:
    return helpers_kept(Path(numba.config.CACHE_DIR) / f"helpers-{_of_this_cpu()}.pickle")


def _alone(function: Callable[..., Any], what: str) -> Any:
    """Return a lock that one process holds while it compiles a function; none if the cache is read-only."""
    folder = Path(numba.config.CACHE_DIR)
    if numba.config.DISABLE_JIT or not os.access(folder, os.W_OK):
        return ExitStack()
    return filelock.FileLock(folder / f"{what} ({_name(function)}).lock")


def compiled_elsewhere() -> list[str]:
    """Return the functions that other processes compile for this cache now, in a user's words."""
    compiling = []
    for path in Path(numba.config.CACHE_DIR).glob("*.lock"):
        try:
            with filelock.FileLock(path, timeout=0):
                pass
        except filelock.Timeout:
            compiling.append(path.name.partition(" (")[0])
    return compiling


@contextmanager
def _announced(function: Callable[..., Any], what: str) -> Iterator[None]:
    """Announce a stage once Numba compiles the function; loading it announces nothing."""
    if numba.config.DISABLE_JIT:
        yield
        return
    with ExitStack() as until_compiled, events.install_listener("numba:compile", Watch(function, what, until_compiled)):
        yield


class Watch(events.Listener):  # type: ignore[misc]
    """Follows Numba's compilation: the first function begins a stage, and each finished function moves it."""

    def __init__(self, function: Callable[..., Any], what: str, until_compiled: ExitStack) -> None:
        self._function, self._what, self._until_compiled = function, what, until_compiled
        self._stage: Stage | None = None
        self._weights: dict[str, float] = {}
        self._done = 0.0

    def on_start(self, event: Any) -> None:
        """Begin the stage."""
        if self._stage is None:
            _load_array_functions()
            helpers: set[str] = set()
            _add_helpers(self._function, helpers)
            self._weights = dict.fromkeys(helpers, 1.0) | {_name(self._function): 1 + LINKING * len(helpers)}
            words = f"compiling the {self._what}, once on this machine [%]"
            self._stage = self._until_compiled.enter_context(stage(words, 100))

    def on_end(self, event: Any) -> None:
        """Move the stage by a function of ours; Numba's own have no weight."""
        self._done += self._weights.get(_name(event.data["dispatcher"].py_func), 0.0)
        if self._stage is not None:
            self._stage.move(100 * min(self._done / sum(self._weights.values()), 1.0))


def _add_helpers(function: Callable[..., Any], names: set[str]) -> None:
    """Add the names of the helpers that a function calls, itself or through others, and that are still to compile."""
    for called in function.__code__.co_names:
        helper: Any = function.__globals__.get(called)
        if isinstance(helper, Helper) and not helper.dispatcher.signatures and _name(helper.py_func) not in names:
            names.add(_name(helper.py_func))
            _add_helpers(helper.py_func, names)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
