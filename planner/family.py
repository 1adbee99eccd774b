"""A process with the processes that it has started: their memory, and their end."""

import psutil

GONE = (psutil.Error, OSError)  # of a process that ends while it is looked at


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process and the processes that it has started; none if it has ended."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except GONE:
        return []


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and of the processes that it has started [B]."""
    return sum(map(_resident, family_of(pid)))


def end_family(pid: int) -> None:
    """End a process and the processes that it has started; kill it if it goes on for 2 s."""
    family = family_of(pid)
    for process in family:
        try:
            process.terminate()  # cleaners of shared memory ignore it, and end when the others have
        except GONE:
            continue
    for process in psutil.wait_procs(family[:1], timeout=2)[1]:
        process.kill()


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except GONE:
        return 0
