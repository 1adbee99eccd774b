"""A large sweep over Dask: seconds by number of workers, a second run that takes all over, and the driver's memory.

The trace is short, so that the sweep itself is measured and not the replays.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from planner.planning.grid import Sweep, parse_sweep
from planner.planning.sweeping import sweep
from planner.traces import Trace, read_trace

NUM_REQUESTS = 20
NUM_FIRST = 100  # configurations that load the compiled loop on each worker
NUM_LIMITS = 100  # values of the sequence limit; the token limit has the rest


def main() -> None:
    """Run the sweep twice for each number of workers, and print seconds and memory."""
    from distributed import LocalCluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=10_000, help="of the grid; a multiple of 100")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    plan, trace = _plan(asked.configurations), read_trace("chat", limit=NUM_REQUESTS)
    for count in asked.workers:
        with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster, \
             tempfile.TemporaryDirectory() as folder:
            address = cluster.scheduler_address
            _seconds(_plan(NUM_FIRST), Path(folder) / "first.parquet", address, trace)
            before_mb = _peak_mb()
            new, again = (_seconds(plan, Path(folder) / "sweep.parquet", address, trace) for _ in range(2))
        print(f"{count} workers: {asked.configurations:,} configurations in {new:.1f} s, taken over in {again:.1f} s; "
              f"peak memory of the driver {_peak_mb():.0f} MB, {before_mb:.0f} MB before", flush=True)


def _plan(count: int) -> Sweep:
    tokens = list(range(1024, 1024 + count // NUM_LIMITS))
    return parse_sweep({"trace": "chat", "slo": "ttft:500 tpot:50",
                        "scenario": {"model": "llama-3.1-8b", "gpu": "h100-sxm"},
                        "axes": {"max_num_seqs": list(range(1, 1 + NUM_LIMITS)), "max_num_batched_tokens": tokens}},
                       Path())


def _seconds(plan: Sweep, output: Path, address: str, trace: Trace) -> float:
    start = time.perf_counter()
    sweep(plan, output, backend="dask", address=address, trace=trace)
    return time.perf_counter() - start


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
