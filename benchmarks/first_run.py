"""What a new user waits for: the README's install and command in a fresh clone, and CPU seconds of first runs.

The CPU seconds are on an empty cache, against what Numba takes for a fixed function.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Two hundred branches of arithmetic over an array: Numba's own time for them tells how fast this machine compiles.
REFERENCE = """
import numba, numpy as np
lines = [f"    if x[{k}] > {k}:\\n        y += x[{k}] * {k}.5 - y // {k + 1}" for k in range(200)]
space = {}
exec("def reference(x):\\n    y = 0.0\\n" + "\\n".join(lines) + "\\n    return y", space)
numba.njit("float64(float64[::1])")(space["reference"])
"""
REPLAY = ("chat", "--limit", "200", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")
FLEET = (*REPLAY, "--data-parallel-size", "2", "--router", "least-outstanding-requests")


def as_installed(folder: str) -> dict[str, str]:
    """Return the environment of a command as pip leaves it: modules are byte code, kept in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": folder}


def cpu_s(*words: str, folder: str, **environment: str) -> float:
    """Return the CPU time of a Python process whose compiled code is kept in a folder [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True,
                   env=as_installed(f"{folder}/bytes") | {"NUMBA_CACHE_DIR": folder} | environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_runs() -> str:
    """Return a sentence with the CPU seconds of a first replay and a first fleet, and of both with a filled cache.

    The package's code counts if `make ready-code` was run for this loop.
    """
    command = ("-m", "planner.commands.cli", "replay")
    with tempfile.TemporaryDirectory() as folder:
        reference_s = cpu_s("-c", REFERENCE, folder=folder)
        cpu_s("-c", "import planner.commands.actions, planner.replays.fleet.replicas", folder=folder)
        first_s, again_s = (cpu_s(*command, *REPLAY, folder=folder) for _ in range(2))
        fleet_s, fleet_again_s = (cpu_s(*command, *FLEET, folder=folder) for _ in range(2))
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            compiled_s = cpu_s(*command, *REPLAY, folder=empty, PLANNER_NUMBA="shortcuts",
                               PYTHONPYCACHEPREFIX=f"{folder}/bytes")
    return (f"CPU seconds of a process: first replay {first_s:.1f} s (target 10 s and the warm command), warm "
            f"{again_s:.1f} s; first fleet after it {fleet_s:.1f} s (target 20 s with the first replay), warm "
            f"{fleet_again_s:.1f} s. Without the package's code the first replay takes {compiled_s:.1f} s. Yardstick: "
            f"importing Numba and compiling 200 branches took {reference_s:.1f} s: the loop takes "
            f"{(compiled_s - again_s) / reference_s:.1f} times as long.")


def fresh_clone() -> str:
    """Return a sentence with the seconds of the README's install and command, and of `make demo`, with empty caches.

    pip downloads each package, so the package index must be reachable and near.
    """
    with tempfile.TemporaryDirectory() as folder:
        clone, environment = Path(folder) / "clone", Path(folder) / "environment"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip, planner = (str(environment / "bin" / name) for name in ("pip", "planner"))
        install_s = _seconds(clone, pip, "install", "--quiet", ".[ui]")
        answer_s = _seconds(clone, planner, "replay", "chat", "--model", "llama-3.1-8b", "--gpu", "h100-sxm",
                            "--slo", "ttft:500 tpot:50")
        demo_s = _seconds(clone, "make", "--silent", "demo")
    return (f"From a fresh clone: `pip install '.[ui]'` {install_s:.0f} s and the README's first command "
            f"{answer_s:.0f} s (target 60 s for both); `make demo` {demo_s:.0f} s (target 60 s).")


def _seconds(clone: Path, *words: str) -> float:
    """Return how long a command takes in a clone, whose caches are its own [s]."""
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "NUMBA_CACHE_DIR", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as caches:
        start = time.perf_counter()
        subprocess.run(words, cwd=clone, check=True, capture_output=True, env=inherited | {"XDG_CACHE_HOME": caches})
        return time.perf_counter() - start


if __name__ == "__main__":
    print(first_runs())
    print(fresh_clone())
