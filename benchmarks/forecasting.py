"""A forecasting autoscaler against the reactive ones: GPU-hours at equal attainment on held-out days of ServeGen.

Rates of the first week of each series are the history, and days of the second week are replayed: Poisson arrivals at
the day's rates, scaled to a mean that a small fleet serves, with the lengths of the sample `chat`. Each autoscaler is
replayed at several targets, and its GPU-hours at the required attainment are read off the line between two of them.
`python -m benchmarks.forecasting [FOLDER]` prints the table, and writes the replays into a CSV in the folder.
"""

import itertools
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.loop.state.engine_settings import Recording
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.rate_series import RateSeries, read_rate_series

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SERIES = ("m-large", "m-mid", "m-small")
DAY_S, DAYS_OF_HISTORY = 86400.0, 7
HELD_OUT = (8, 12)  # days, counted from 0
MEAN_RPS = 3.0
SLO, REQUIRED = "ttft:4000 tpot:150", 0.99
SCENARIO = Scenario(model="qwen3-32b", gpu="a100-sxm", router="least-outstanding-requests", seed=0)
STARTUP = "startup = { node_s = 120, image_s = 60, weights_gb_per_s = 2.0, warmup_s = 60 }"
BASE = f"minimum = 1\nmaximum = 40\n{STARTUP}\n[down]\nstabilization_window_s = 300\n[[metric]]\n"
TARGETS = {  # of each metric, from much headroom to little
    "request-rate": (0.4, 0.5, 0.6, 0.72, 0.86), "concurrency": (4, 6, 8, 11, 15),
    "forecast": (0.4, 0.5, 0.6, 0.72, 0.86)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A day under one autoscaler at one target."""

    series: str
    day: int
    autoscaler: str
    target: float
    gpu_hours: float
    attainment: float


def day_of(series: RateSeries, day: int, lengths: pl.DataFrame, chat: Trace, seed: int) -> Trace:
    """Return a day's traffic: Poisson arrivals in each window at its rate, scaled, from second 0 on."""
    rng = np.random.default_rng(seed)
    inside = (series.start_s >= day * DAY_S) & (series.start_s < (day + 1) * DAY_S)
    starts, spans, rates = (values[inside] for values in (series.start_s, series.duration_s, series.rate_rps))
    counts = rng.poisson(rates * spans * MEAN_RPS / series.mean_rps)
    inside_s = rng.uniform(size=counts.sum()) * np.repeat(spans, counts)
    arrivals = np.sort(np.repeat(starts - day * DAY_S, counts) + inside_s)
    rows = lengths[rng.integers(0, len(lengths), len(arrivals))]
    table = rows.with_columns(pl.Series("arrival_s", arrivals), pl.int_range(len(arrivals)).alias("request_id"))
    return replace(chat, requests=table.select("arrival_s", "input_tokens", "output_tokens", "request_id"), prefix=None,
                   source=f"ServeGen day {day}")


def runs(folder: Path) -> Iterator[Run]:
    """Replay every day under every autoscaler at every target."""
    chat = read_trace("chat")
    lengths = chat.requests.select("input_tokens", "output_tokens")
    for name in SERIES:
        series = read_rate_series(SHARED / "traces" / f"servegen_rate_{name}.csv.gz")
        past = int(DAYS_OF_HISTORY * DAY_S / series.duration_s[0])
        pl.DataFrame({"start_s": series.start_s[:past], "rate_rps": series.rate_rps[:past]}).write_csv(
            folder / f"{name}.csv")
        for day in HELD_OUT:
            trace = day_of(series, day, lengths, chat, day)
            for autoscaler, targets in TARGETS.items():
                for target in targets:
                    yield _run(folder, trace, name, day, autoscaler, float(target))


def _run(folder: Path, trace: Trace, series: str, day: int, autoscaler: str, target: float) -> Run:
    more = {"request-rate": "window_s = 120\n", "concurrency": "",
            "forecast": f'window_s = 120\nhistory = "{series}.csv"\nlead_s = 120\n'}[autoscaler]
    path = folder / "autoscale.toml"
    path.write_text(f'{BASE}name = "{autoscaler}"\ntarget = {target}\n{more}')
    result = replay(trace, replace(SCENARIO, autoscale=str(path)), slo=parse_objectives(SLO), recording=Recording())
    summary = result.summary
    return Run(series=series, day=day, autoscaler=autoscaler, target=target, gpu_hours=summary["gpu_hours"],
               attainment=summary["slo_attainment"])


def at_attainment(own: list[Run], required: float) -> float:
    """Return the GPU-hours at the required attainment, between the two targets around it; NaN where none reaches it."""
    points = sorted((run.attainment, run.gpu_hours) for run in own)
    kept = [hours for attainment, hours in points if attainment >= required]
    if not kept:
        return math.nan
    best = min(kept)
    for (low, cheap), (high, dear) in itertools.pairwise(points):
        if low < required <= high and high > low:
            best = min(best, cheap + (dear - cheap) * (required - low) / (high - low))
    return best


def table(found: list[Run]) -> list[str]:
    """Return the GPU-hours of each autoscaler by series and day, and the totals where all of them reach the goal."""
    lines = [f"{'series':<9}{'day':>4}" + "".join(f"{name:>14}" for name in TARGETS)]
    totals = dict.fromkeys(TARGETS, 0.0)
    for series, day in itertools.product(SERIES, HELD_OUT):
        own = [run for run in found if (run.series, run.day) == (series, day)]
        row = {name: at_attainment([run for run in own if run.autoscaler == name], REQUIRED) for name in TARGETS}
        lines.append(f"{series:<9}{day:>4}" + "".join(f"{hours:>14.1f}" for hours in row.values()))
        if not any(math.isnan(hours) for hours in row.values()):
            totals = {name: totals[name] + hours for name, hours in row.items()}
    return [*lines, f"{'total':<13}" + "".join(f"{hours:>14.1f}" for hours in totals.values())]


def main(arguments: list[str]) -> None:
    """Replay, print the table, and keep the replays."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments[0]) if arguments else Path(temporary)
        found: list[Run] = []
        for run in runs(folder):
            found.append(run)
            print(run, file=sys.stderr)
        rows: Any = [{name: getattr(run, name) for name in Run.__slots__} for run in found]
        pl.DataFrame(rows).write_csv(folder / "forecasting.csv")
        print("\n".join(table(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
