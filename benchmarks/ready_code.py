"""Write the compiled code that comes with the package: for this Numba and platform, and any Python and CPU."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PLANNER_NUMBA": "shortcuts"}

from planner.deployment.roofs import _compiled_bytes
from planner.loop.compiled.jit import numba, ready_file
from planner.loop.compiled.ready_code import code_written
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays import block_ids, gaps, hope
from planner.replays.driver import compiled_loop, compiled_plan
from planner.replays.fleet.interleaved import compiled_fleet_loop, compiled_score
from planner.steptime.by_term import _compiled_terms
from planner.traces.fitting import arrival_fit
from planner.traces.shaping import sharing
from planner.traces.synthesis import links

COMPILED = (compiled_loop, compiled_fleet_loop, gaps._compiled, hope._compiled_add, block_ids._compiled,
            _compiled_bytes, _compiled_terms, sharing._compiled, arrival_fit._compiled,
            links._compiled_link, links._compiled_inherit)


def write(path: Path, made_for: str) -> None:
    """Compile all functions of the package that Python calls, and write their code."""
    with TemporaryDirectory() as folder, code_written(path, made_for):
        numba.config.CACHE_DIR = folder  # the second loop takes the helpers of the first from it
        for compile_all in COMPILED:
            compile_all()
        for policy in POLICIES.values():
            compiled_plan(policy)
        for router in ROUTERS.values():
            compiled_score(router)


def main() -> None:
    """Write the file, to a folder if one is named."""
    path, made_for = ready_file()
    path = Path(sys.argv[1] if len(sys.argv) > 1 else path.parent) / path.name
    path.parent.mkdir(exist_ok=True)
    write(path, made_for)
    print(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()
