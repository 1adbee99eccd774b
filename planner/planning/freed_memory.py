"""Memory that a process gives up and soon needs again, as replay after replay does: it is kept."""

import ctypes
import functools

KEPT_BYTES = 1 << 30
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB that it frees. Elsewhere than with glibc nothing changes.

    By default glibc returns an array to the system when it is freed, and each page of the next one is new: 4,258 page
    faults in each replay of the conversation hour, a seventh of its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for threshold in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        mallopt(threshold, KEPT_BYTES)
