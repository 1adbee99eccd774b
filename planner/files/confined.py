"""Files of a confined process: it opens files below some folders only, runs no other program and makes no connection.

`planner` confines itself when it is imported if $PLANNER_FOLDERS is set, so processes that it starts are confined too.
Python tells an audit hook of each file before it opens the file. The hook is no sandbox for hostile Python code, and
therefore a confined process reads no Python file of a user.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDERS = "PLANNER_FOLDERS"  # environment variable: folders, separated as in PATH
SYSTEM = ("/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo", "/sys/devices/system", "/sys/fs/cgroup",
          "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self/cgroup", "/proc/self/status", "/proc/self/stat",
          "/proc/self/maps", "/proc/self/mountinfo", "/proc/self/fd", "/proc/sys/kernel")
READS = {"os.listdir": 1, "os.scandir": 1}  # names of events, with the number of paths at the start of each
WRITES = {"os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.truncate": 1,
          "os.chmod": 1, "os.chown": 1, "os.utime": 1}
REFUSED = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec",
           "os.posix_spawn")
CONNECTORS = ("connectorx", "adbc_driver_manager")  # which connect in compiled code
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine(folders: Sequence[Path]) -> None:
    """Confine this process to folders, for as long as it runs.

    Files of Python, of this package, of its caches and of its catalog can be read. Opening another file, starting a
    program and connecting raise PermissionError.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "planner"
    package = Path(__file__).resolve().parents[1]
    caches = [home, tempfile.gettempdir(), *filter(None, map(os.environ.get, ("PLANNER_ANSWERS", "NUMBA_CACHE_DIR")))]
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "planner"
    bundled = [package.parent / name for name in ("hardware_db", "workloads", "reports")]
    code = [sys.prefix, sys.base_prefix, package, *(path for path in sys.path if path not in ("", str(package.parent)))]
    catalog = [*bundled, data, *filter(None, [os.environ.get("PLANNER_DB")])]
    written = _real([*folders, *caches])
    imported = _real(code)
    read = (*written, *imported, *_real(catalog), *SYSTEM)

    def check(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = values
            is_change = bool((flags or 0) & CHANGES)
            _check(path, written if is_change else read)
            if not is_change and str(path).endswith(".py"):
                _check(path, imported)
        elif event in READS or event in WRITES:
            for path in values[:(READS.get(event) or WRITES[event])]:
                _check(path, read if event in READS else written)
        elif event in REFUSED or (event == "import" and values[0] in CONNECTORS):
            raise PermissionError(errno.EPERM, f"this server makes no connection and runs no program ({event})")

    sys.addaudithook(check)


def _real(paths: Sequence[Any]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths)


def _check(path: Any, roots: Sequence[str]) -> None:
    """Raise PermissionError if a path is below none of the roots; links are followed."""
    if not isinstance(path, str | bytes | os.PathLike):  # a number of an open file
        return
    real = os.path.realpath(os.fsdecode(path))
    if not any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in roots):
        raise PermissionError(errno.EACCES, "is outside the folders that this server may use (--folder)", str(path))
