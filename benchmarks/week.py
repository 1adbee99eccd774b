"""A synthetic week of 44 million requests: written, read, described and replayed by the command line.

Figures are of one run, by processes of their own, so that their peak memory is known. Writes reports/week.md. The CSV
takes 1 GB in the folder for temporary files.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from planner.catalog import data_dir
from planner.synthetic import generate, read_workload
from planner.synthetic.changes import at_rate, lasting
from planner.synthetic.model import Model

ROOT = Path(__file__).resolve().parent.parent

DAYS = 7
DAY_S = 86_400.0
RATE_PER_S = 72.75  # 44 million a week
RATE_SCALE = 0.1  # of the replay: what one H100 serves of it
TARGET_S, TARGET_GB = 300.0, 8.0
CHILD = ("import resource, subprocess, sys; "
         "done = subprocess.run([sys.executable, '-m', 'planner.cli', *sys.argv[1:]], stdout=subprocess.DEVNULL); "
         "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9); "
         "sys.exit(done.returncode)")


def write_week(path: Path) -> int:
    """Draw a week day by day from the bundled model of the conversation hour, and return how many requests it has."""
    model = read_workload(data_dir("workloads") / "fitted-chat.toml")
    assert isinstance(model, Model)
    day = lasting(at_rate(model, RATE_PER_S), DAY_S)
    total = 0
    with path.open("wb") as file:
        for number in range(DAYS):
            table = generate(day, seed=number).requests
            rows = table.select((pl.col("arrival_s") + number * DAY_S).round(6), "input_tokens", "output_tokens")
            file.write(rows.write_csv(include_header=number == 0).encode())
            total += rows.height
    return total


def measure(*arguments: str) -> tuple[float, float]:
    """Run a command, and return its wall time [s] and its peak memory [GB]."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - begin, float(done.stdout)


def main() -> None:
    """Write, measure, print and write the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.csv"
        begin = time.perf_counter()
        num = write_week(path)
        drawn_s = time.perf_counter() - begin
        described = measure("trace", "describe", str(path))
        replayed = measure("replay", str(path), "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--rate-scale",
                           str(RATE_SCALE))
    lines = [
        "# A week", "",
        f"{num:,} requests, drawn from `fitted-chat` at {RATE_PER_S:g} requests/s for {DAYS} days in {drawn_s:.0f} s, "
        f"as a CSV; `python benchmarks/week.py`. Target: read, described and replayed within {TARGET_S:.0f} s and "
        f"{TARGET_GB:.0f} GB on two cores.", "",
        "| command | wall time [s] | peak memory [GB] |", "|---|---|---|",
        *(f"| {name} | {wall_s:.0f} | {peak_gb:.1f} |" for name, (wall_s, peak_gb) in (
            ("read and described: `planner trace describe`", described),
            (f"read and replayed: `planner replay --rate-scale {RATE_SCALE:g}`", replayed))),
        f"| both | {described[0] + replayed[0]:.0f} | {max(described[1], replayed[1]):.1f} |", "",
        f"Load average at the end: {os.getloadavg()[0]:.1f}, which is above the number of cores where other work ran.",
        ""]
    print("\n".join(lines))
    (ROOT / "reports" / "week.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
