"""A synthetic week of 44 million requests: written, read, described and replayed by the command line.

Each command is a process of its own, `python benchmarks/week.py COMMAND...`, which runs it and tells the wall time, the
processors' time and the peak memory of its stages; the peak is the kernel's (VmHWM), set back before each stage. Writes
reports/week.md. The CSV takes 1 GB in the folder for temporary files.
"""

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from planner.catalog.catalog_files import data_dir
from planner.traces.synthesis import generate, read_workload
from planner.traces.synthesis.changes import at_rate, lasting
from planner.traces.synthesis.traffic_model import Model

ROOT = Path(__file__).resolve().parent.parent

DAYS = 7
DAY_S = 86_400.0
RATE_PER_S = 72.75  # 44 million a week
RATE_SCALE = 0.1  # of the replay: what one H100 serves of it
TARGET_S, TARGET_GB = 300.0, 8.0
OTHER = "start, print and the rest"
STAGES = (  # what it is called, and the function of which module it is
    ("read", "planner.commands.trace_actions", "_read"), ("describe", "planner.traces.shaping.description", "describe"),
    ("read", "planner.commands.actions", "_read"), ("replay", "planner.run", "serve"),
    ("summarize", "planner.run", "summarize"))


class Stages:
    """Wall time [s], processors' time [s] and peak memory [GB] of a command's stages."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self._since = time.perf_counter(), 0.0  # the processors' time begins with the process

    def end(self, name: str) -> None:
        """Count what was since the last stage's end."""
        status = Path("/proc/self/status").read_text().split()
        peak_gb = int(status[status.index("VmHWM:") + 1]) * 1024 / 1e9
        Path("/proc/self/clear_refs").write_text("5")
        now = time.perf_counter(), time.process_time()
        so_far = self.found.setdefault(name, [0.0, 0.0, 0.0])
        self.found[name] = [so_far[0] + now[0] - self._since[0], so_far[1] + now[1] - self._since[1],
                            max(so_far[2], peak_gb)]
        self._since = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is a stage."""
        def stage(*arguments: Any, **options: Any) -> Any:
            self.end(OTHER)
            result = function(*arguments, **options)
            self.end(name)
            return result
        return stage


def run_command(arguments: list[str]) -> None:
    """Run a command of the command line here, and print its stages as JSON."""
    from planner.commands.cli import app

    stages = Stages()
    for name, module_name, function in STAGES:
        module = importlib.import_module(module_name)
        setattr(module, function, stages.timed(name, getattr(module, function)))
    with contextlib.redirect_stdout(io.StringIO()):
        app(arguments, standalone_mode=False)
    stages.end(OTHER)
    print(json.dumps(stages.found))


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


def measure(*arguments: str) -> dict[str, list[float]]:
    """Run a command in a process of its own, and return its stages; the rest has what the process took besides."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    wall_s = time.perf_counter() - begin
    stages: dict[str, list[float]] = json.loads(done.stdout)
    stages[OTHER][0] += wall_s - sum(each[0] for each in stages.values())
    return stages


def table(commands: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the rows of a table: each command's stages, the command, and all commands."""
    rows, totals = [], []
    for command, stages in commands.items():
        rows += [(f"`{command}`: {name}", *numbers) for name, numbers in stages.items()]
        totals.append(_total(stages.values()))
        rows.append((f"**`{command}`**", *totals[-1]))
    return [f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {peak_gb:.1f} |"
            for name, wall_s, cpu_s, peak_gb in (*rows, ("**both**", *_total(totals)))]


def _total(rows: Any) -> tuple[float, float, float]:
    wall_s, cpu_s, peak_gb = zip(*rows, strict=True)
    return sum(wall_s), sum(cpu_s), max(peak_gb)


def main() -> None:
    """Write, measure, print and write the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.csv"
        begin = time.perf_counter()
        num = write_week(path)
        drawn_s = time.perf_counter() - begin
        commands = {
            "planner trace describe": measure("trace", "describe", str(path)),
            f"planner replay --rate-scale {RATE_SCALE:g}": measure(
                "replay", str(path), "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--rate-scale", str(RATE_SCALE)),
        }
    lines = [
        "# A week", "",
        f"{num:,} requests, drawn from `fitted-chat` at {RATE_PER_S:g} requests/s for {DAYS} days in {drawn_s:.0f} s, "
        f"as a CSV; `python benchmarks/week.py`. Target: read, described and replayed within {TARGET_S:.0f} s and "
        f"{TARGET_GB:.0f} GB on two cores.", "",
        "| command and stage | wall time [s] | processors [s] | peak memory [GB] |", "|---|---|---|---|",
        *table(commands), "",
        f"Load average at the end: {os.getloadavg()[0]:.1f}; where that is above the number of cores other work ran, "
        f"and wall times are longer than they would be.",
        ""]
    print("\n".join(lines))
    (ROOT / "reports" / "week.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_command(sys.argv[1:])
    else:
        main()
