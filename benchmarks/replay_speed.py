"""Speed of the replay loop and of the whole command, as ratios to the targets and to published simulators.

Machines differ and are shared: each figure is the best of several runs, and a yardstick (NumPy sorting ten million
numbers) is timed in the same run. Needs the recorded traces in $PLANNER_SHARED or ../shared; writes reports/speed.md.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl
from llvmlite.binding import get_host_cpu_name

from benchmarks.first_run import as_installed, first_runs, fresh_clone
from planner.loop.compiled.jit import source_sha256
from planner.loop.state.engine_settings import Recording
from planner.planning.grid import DEFAULT_FRONT, Sweep
from planner.planning.optimize import optimize
from planner.planning.sweeping import sweep
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import OPTION_DEFAULTS, Scenario
from planner.traces import Trace, read_trace
from planner.versions import own_version

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PLANNER_SHARED") or ROOT.parent / "shared")
CONVERSATION = SHARED / "traces" / "azure_llm_2023_conv.csv"
MOONCAKE = SHARED / "traces" / "mooncake_conversation_trace.jsonl.gz"

# As the console script, and says the peak of its own memory [kB]: a child's rusage has its parent's.
COMMAND = """import sys
from pathlib import Path
from planner.commands.cli import main
try:
    main()
finally:
    print(next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x), file=sys.stderr)
"""

# Requests a second that other simulators replay of the conversation hour on a machine of this kind, start-up left out.
PEERS = {"vLLM's scheduler alone": 600, "Vidur": 650, "BLIS": 1_100, "NVIDIA AISimulate": 6_400}

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=256)


def best_rate(trace: Trace, scenario: Scenario, repeats: int = 5) -> tuple[float, Summary]:
    """Return the best requests/s of loop time, and the summary."""
    outcomes = [replay(trace, scenario, slo=None, recording=Recording()) for _ in range(repeats)]
    summary = max(outcomes, key=lambda o: o.summary.simulated_requests_per_s).summary
    return summary.simulated_requests_per_s, summary


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the best wall time of a call [s]."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def command(trace: Path = CONVERSATION, environment: dict[str, str] | None = None) -> str:
    """Replay a trace by the command line, in a process of its own; return its last line."""
    arguments = ["replay", str(trace), "--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=True, capture_output=True, text=True,
                          env=environment)
    return done.stderr.splitlines()[-1]


def warm_command() -> str:
    """Return a sentence with the wall time of the command, once its code is compiled, and its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        environment = as_installed(folder)
        peak_mb = int(command(environment=environment).split()[1]) / 1e3
        wall_s = seconds(lambda: command(environment=environment), repeats=5)
    return (f"Whole command, warm: {wall_s:.2f} s (target 0.7 s), with a peak memory of {peak_mb:.0f} MB (target "
            f"220 MB).")


def ten_million() -> str:
    """Replay ten million requests from a CSV file by the command line, and say how long it took and in what memory."""
    hour = read_trace(str(CONVERSATION)).requests
    n = 10_000_000
    copies = -(-n // hour.height)
    table = pl.concat([hour.with_columns(pl.col("arrival_s") + 3502.0 * k) for k in range(copies)]).head(n)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten_million.csv"
        table.select("arrival_s", "input_tokens", "output_tokens").write_csv(path)
        del table
        begin = time.perf_counter()
        peak_gb = int(command(path).split()[1]) / 1e6
        wall_s = time.perf_counter() - begin
    return (f"Ten million requests, from a CSV file to the summary: {wall_s:.0f} s (target 60 s) within "
            f"{peak_gb:.2f} GB (target 3 GB).")


def thousand_configurations() -> str:
    """Sweep a thousand configurations of the conversation hour, and say how long it took."""
    axes: dict[str, list[Any]] = {
        "gpu": ["h100-sxm", "h200-sxm", "l40s", "a100-sxm"], "replicas": [1, 2],
        "policy": ["fcfs", "decode-first", "chunked", "prefill-first", "sjf"],
        "max_num_seqs": [32, 64, 128, 256, 512], "max_num_batched_tokens": [1024, 2048, 4096, 8192, 16384]}
    plan = Sweep(trace=str(CONVERSATION), format=None, objectives=parse_objectives("ttft:500 tpot:50", 0.99),
                 front=DEFAULT_FRONT, fixed={"model": "llama-3.1-8b"}, axes=axes)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        table = sweep(plan, Path(folder) / "sweep.parquet")
        wall_s = time.perf_counter() - begin
        _, found = optimize(plan, Path(folder) / "best.parquet")
    assert found.best is not None
    best = float(table.filter(pl.col("slo_attainment") >= 0.99)[DEFAULT_FRONT[0]].to_numpy().min())
    return (f"Sweep of {table.height:,} configurations of the conversation hour: {wall_s:.0f} s on "
            f"{joblib.cpu_count()} cores (target 12 s on two). The optimiser took {found.num_replays} replays to "
            f"{found.best[DEFAULT_FRONT[0]]:.4f} USD per million output tokens; the grid's best is {best:.4f}.")


def main() -> None:
    """Run all, print the table and write it."""
    warm = warm_command()
    hour, mooncake = read_trace(str(CONVERSATION)), read_trace(str(MOONCAKE))
    cases = [
        ("Azure conversation hour, recorded rate", 4_000_000, best_rate(hour, H100)),
        ("the same, 8 times the rate, 8,000 KV blocks", 3_000_000,
         best_rate(hour, Scenario(**{**_fields(H100), "rate_scale": 8.0, "num_gpu_blocks": 8000}))),
        ("Mooncake conversation, prefix caching", 150_000, best_rate(mooncake, H100)),
    ]
    yardstick_s = seconds(lambda: np.sort(np.random.default_rng(0).random(10_000_000)))
    lines = [
        "# Speed",
        "",
        f"Made by `make bench` with planner {own_version()}, loop source {source_sha256()[:12]}, "
        f"Python {platform.python_version()}, Numba {version('numba')}, "
        f"on {joblib.cpu_count()} cores of {get_host_cpu_name()}.",
        "",
        "| replay | requests/s of loop time | target | ratio | steps | preemptions |",
        "|---|---|---|---|---|---|",
        *(f"| {name} | {rate:,.0f} | {target:,} | {rate / target:.2f} | {s['num_steps']:,} | {s['num_preemptions']:,} |"
          for name, target, (rate, s) in cases),
        "",
        f"{warm} Yardstick: sorting ten million numbers took {yardstick_s:.2f} s.",
        "",
        "| simulator, same trace and kind of machine | requests/s | ours is faster by |",
        "|---|---|---|",
        *(f"| {name} | {rate:,} | {cases[0][2][0] / rate:,.0f} × |" for name, rate in PEERS.items()),
        "",
    ]
    lines += [first_runs(), "", fresh_clone(), "", ten_million(), "", thousand_configurations(), ""]
    print("\n".join(lines))
    (ROOT / "reports" / "speed.md").write_text("\n".join(lines), encoding="utf-8")


def _fields(scenario: Scenario) -> dict[str, Any]:
    return {name: getattr(scenario, name) for name in OPTION_DEFAULTS}


if __name__ == "__main__":
    main()
