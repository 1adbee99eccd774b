"""Writing a file whole or not at all."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.errors import OutputError

STDOUT = Path("/dev/stdout")


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, and move it there once it is complete.

    Where `path` is a link, what it leads to is replaced. A pipe or device, which cannot be replaced, is written to
    directly, and so is STDOUT, whatever it leads to.

    Raises
    ------
    OutputError : the folder is missing or read-only, or the disk is full; nothing is left behind.
    """
    if path == STDOUT:
        _print(write)
        return
    if path.exists() and not path.is_file():
        _attempt(path, write, path)
        return
    place = Path(os.path.realpath(path))
    try:
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        _attempt(path, write, temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(place)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _print(write: Callable[[Path], Any]) -> None:
    """Print what `write` fills a file with."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / STDOUT.name
        _attempt(STDOUT, write, file)
        sys.stdout.flush()
        sys.stdout.buffer.write(file.read_bytes())


def _attempt(path: Path, write: Callable[[Path], Any], target: Path) -> None:
    """Write to `target`; what goes wrong is reported of `path`. Polars reports a full disk in errors of its own."""
    try:
        write(target)
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith("polars"):
            raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def append_text(path: Path, text: str) -> None:
    """Add text to a file that others write to as well.

    Raises
    ------
    OutputError : it cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
