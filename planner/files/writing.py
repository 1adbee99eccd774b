"""Writing a file whole or not at all."""

import errno
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

    If `path` is a link, its target is replaced. A pipe or device cannot be replaced and is written to directly. STDOUT
    is always written to directly, even if it leads to a file.

    Raises
    ------
    OutputError : the folder is missing or read-only, or the disk is full; nothing is left behind.
    """
    if not is_replaced(path):
        _print(write) if path == STDOUT else _attempt(path, write, path)
        return
    place = Path(os.path.realpath(path))
    try:
        temporary = _temporary_beside(place)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        _attempt(path, write, temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(place)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def is_replaced(path: Path) -> bool:
    """Tell whether a new file takes the place of `path`; pipes, devices and STDOUT are written to directly."""
    return path != STDOUT and (path.is_file() or not path.exists())


def why_unwritable(path: Path) -> str | None:
    """Return why `write_atomically` cannot write a path; None if it can. Nothing is left behind.

    >>> why_unwritable(Path("/proc/answer.json"))
    'No such file or directory'
    """
    try:
        if path.is_dir():
            return os.strerror(errno.EISDIR)
        if not is_replaced(path):
            return None if path == STDOUT or os.access(path, os.W_OK) else os.strerror(errno.EACCES)
        _temporary_beside(Path(os.path.realpath(path))).unlink()
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def why_no_folder(folder: Path) -> str | None:
    """Return why no file can be written into a folder, which need not exist yet; None if files can be written."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    return why_unwritable(place / "file") if place.is_dir() else f"{place} is no folder"


def _temporary_beside(place: Path) -> Path:
    """Return a new empty file in the folder of `place`."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp")
    os.close(handle)
    return Path(name)


def _print(write: Callable[[Path], Any]) -> None:
    """Print the contents of the file that `write` fills."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / STDOUT.name
        _attempt(STDOUT, write, file)
        sys.stdout.flush()
        sys.stdout.buffer.write(file.read_bytes())


def _attempt(path: Path, write: Callable[[Path], Any], target: Path) -> None:
    """Write to `target`; an error names `path`. Polars reports a full disk in errors of its own."""
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
