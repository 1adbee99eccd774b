"""Memory that a process frees is kept for what comes next."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from planner.planning.sweeping import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(12_000_000)  # above 32 MiB, up to which glibc learns by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(5)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other rules")
def test_an_array_takes_the_pages_of_the_one_before() -> None:
    kept, by_default = (int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True,
                                           text=True).stdout) for how in ("kept", "by default"))
    assert kept < 10
    assert by_default > kept
