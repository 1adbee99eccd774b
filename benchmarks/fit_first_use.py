"""Fits `hardware_db/first_use.toml` to published runs that stalled once, and writes it.

    python -m benchmarks.fit_first_use

A server that was not warmed up builds or loads kernels at its first requests. `planner.measured.stalls` recognises such
runs by the mean, the median and the p99 of TTFT. The first use of an engine's release on a GPU, of weights in one
format, is the median of its runs' stalls, if there are FEWEST. Stalls below SHARE of the longest are left out: those
servers had a part of their kernels in a cache. The held-out error is a median over the runs. It compares each run with
the median of all runs of other lengths or concurrencies.
"""

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from packaging.version import Version

from planner.catalog.catalog_files import load_gpu
from planner.files.writing import write_text
from planner.measured.run_table import read_measured
from planner.measured.validate import Prediction, predict_all, with_stalls

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "hardware_db" / "first_use.toml"
MEASURED = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured"
TABLES = ("closed_loop_percentiles.csv", "inferencex_api_closed_loop.csv")
SHARE, FEWEST = 0.25, 2
HEAD = """\
# First use: the time in which a cold replica builds or loads kernels at its first step, by engine, release, GPU and
# format of the weights. The median of the stalls of published runs, their ends, and the median error of the median of
# the runs with other loads (`held_out`). Written by benchmarks/fit_first_use.py, not by hand.
# Runs: InferenceMAX's (SemiAnalysis, Apache-2.0) of 2025-11 to 2026-06, as collected by gminneci/mantile and by
# SemiAnalysisAI/InferenceX-app. Their client did not warm the server up, or their kernel cache was empty.
"""
Load = tuple[int, int, int]  # lengths of prompts and answers, and requests in flight


def main() -> None:
    runs = [run for name in TABLES for run in read_measured(MEASURED / name, client="inferencex")]
    groups: dict[tuple[str, ...], list[tuple[Load, float]]] = defaultdict(list)
    for prediction in with_stalls(predict_all(runs)):
        if prediction.stall is not None:
            groups[_key(prediction)].append((_load(prediction), prediction.stall.stall_s))
    rows = [_row(key, groups[key]) for key in sorted(groups, key=lambda key: (*key[:3], Version(key[3])))]
    write_text(FILE, HEAD + "".join(f"\n[[first_use]]\n{_toml(row)}" for row in rows if row["num_runs"] >= FEWEST))


def _key(prediction: Prediction) -> tuple[str, ...]:
    """Return engine, GPU, format, release and model of a run; a release stands for its post-releases."""
    run = prediction.measurement
    assert run.scenario is not None
    release = Version(str(run.scenario.engine_version)).base_version
    return (run.groups["engine"], load_gpu(run.groups["gpu"]).name, run.groups["precision"], release,
            run.groups["model"].partition("/")[2])


def _load(prediction: Prediction) -> Load:
    run = prediction.measurement
    assert run.load is not None
    assert run.scenario is not None
    longest: Any = run.load.requests["input_tokens"].max(), run.load.requests["output_tokens"].max()
    return (*longest, run.scenario.max_concurrency or 0)


def _row(key: Sequence[str], stalls: Sequence[tuple[Load, float]]) -> Mapping[str, Any]:
    engine, gpu, precision, release, model = key
    longest = max(stall_s for _, stall_s in stalls)
    kept = [(load, stall_s) for load, stall_s in stalls if stall_s >= SHARE * longest]
    errors = [abs(median(rest) / stall_s - 1) for load, stall_s in kept
              if (rest := [of_rest for other, of_rest in kept if other != load])]
    values: dict[str, Any] = {
        "engine": engine, "gpu": gpu, "precision": precision, "engine_version": release, "model": model,
        "first_use_s": _short(median(stall_s for _, stall_s in kept)),
        "shortest_s": _short(min(stall_s for _, stall_s in kept)), "longest_s": _short(longest), "num_runs": len(kept)}
    return values | ({"held_out": round(median(errors), 3)} if errors else {})


def _short(value: float) -> float:
    """Return a time with three digits [s]."""
    return round(value, 2 - math.floor(math.log10(value)))


def _toml(row: Mapping[str, Any]) -> str:
    return "".join(f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n"
                   for name, value in row.items())


if __name__ == "__main__":
    main()
