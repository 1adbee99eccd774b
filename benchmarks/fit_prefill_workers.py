"""Fits `hardware_db/prefill_workers.toml` to published runs with prefill and decode apart, and writes it.

    python -m benchmarks.fit_prefill_workers

Each engine has one number: a ratio of the GPU's time, or a time for each prompt token. The script takes the number of
GRID with the smallest error. The error of a deployment is the mean of |log(predicted / measured)| over its runs and
STATISTICS. All deployments have the same weight. The script also leaves each deployment out in turn and writes the
number of the others. `benchmarks/accuracy` predicts the deployment's runs with it.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.catalog_files import read_toml
from planner.engines import ENGINES
from planner.files.writing import write_text
from planner.measured.run_table import Measurement, read_measured
from planner.measured.validate import log_error, predict_all
from planner.steptime.prefill_workers import Slowdown

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "hardware_db" / "prefill_workers.toml"
RUNS = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured" / "disaggregated.csv"
GRID = (*(Slowdown(ratio, 0.0) for ratio in np.arange(1.0, 1.5001, 0.05).round(2)),
        *(Slowdown(1.0, us * 1e-6) for us in np.arange(0.5, 3.5001, 0.5)))
STATISTICS = ("mean_ttft_ms", "p99_ttft_ms", "output_tput_per_gpu")
# Steps of both sides take twice as long on it as predicted, with attention ranks; that is not the prefill worker's.
LEFT_OUT = ("mi355x",)
HEAD = """\
# How much longer a step takes on a replica that only prefills, by engine: the GPU's time over the time of its kernels
# (`ratio`), and time that nothing hides for each prompt token (`us_per_token`). `held_out` are both by all deployments
# without that one. Written by benchmarks/fit_prefill_workers.py, not by hand.
# Runs: InferenceMAX's on GB200 (SemiAnalysis, Apache-2.0), as collected by gminneci/mantile, 2025-11 to 2026-01.
"""
ByDeployment = Mapping[str, NDArray[np.float64]]


def main() -> None:
    runs = [run for run in read_measured(RUNS) if run.groups["gpu"] not in LEFT_OUT]
    errors = np.array([_errors(runs, slowdown) for slowdown in GRID])  # shape [grid, runs]
    write_text(FILE, _toml({
        engine: _by_deployment(runs, errors, engine) for engine in sorted({run.groups["engine"] for run in runs})}))


def held_out(run: Measurement) -> Measurement:
    """Return a run whose prefill workers have the slowdown of all other deployments."""
    row = _written()[run.groups["engine"]]
    values = row.get("held_out", {}).get(deployment_of(run), row)
    return slowed_by(run, Slowdown(ratio=values["ratio"], s_per_token=values["us_per_token"] * 1e-6))


@functools.cache
def _written() -> dict[str, Any]:
    return read_toml(FILE)


def deployment_of(run: Measurement) -> str:
    """Return the workers of a run, of one model in one precision, whatever the lengths of its requests."""
    return " ".join((run.groups["model"], run.groups["precision"], run.groups["layout"]))


def slowed_by(run: Measurement, slowdown: Slowdown) -> Measurement:
    """Return a run whose prefill workers take so much longer for a step."""
    return _with_options(run, prefill_worker_ratio=slowdown.ratio,
                         prefill_worker_token_time=slowdown.s_per_token * 1e6)


def _with_options(run: Measurement, **options: Any) -> Measurement:
    return dataclasses.replace(run, pools=tuple(
        dataclasses.replace(pool, scenario=dataclasses.replace(pool.scenario, **options)) for pool in run.pools))


def _errors(runs: Sequence[Measurement], slowdown: Slowdown) -> NDArray[np.float64]:
    """Return the mean error of each run; without chunks in its stream, of which no statistic here depends."""
    found = predict_all([_with_options(slowed_by(run, slowdown), stream_interval=1) for run in runs])
    print(f"{slowdown}: {len(found)} runs", flush=True)
    return np.array([np.mean([abs(log_error(each, name)) for name in STATISTICS]) for each in found])


def _by_deployment(runs: Sequence[Measurement], errors: NDArray[np.float64], engine: str) -> ByDeployment:
    """Return the mean error of each deployment of an engine, at each point of the grid."""
    rows: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        if run.groups["engine"] == engine:
            rows.setdefault(deployment_of(run), []).append(i)
    return {name: errors[:, indices].mean(axis=1) for name, indices in rows.items()}


def _best(by_deployment: ByDeployment) -> Slowdown:
    return GRID[int(np.mean(list(by_deployment.values()), axis=0).argmin())]


def _toml(engines: Mapping[str, ByDeployment]) -> str:
    """Return the text of the file; an engine without runs has the geometric mean ratio of the others."""
    lines, found = [HEAD], {engine: _best(errors) for engine, errors in engines.items()}
    for engine, errors in engines.items():
        lines += [f"[{engine}]", *_values(found[engine]), "", f"[{engine}.held_out]"]
        for name in errors:
            others = _best({other: errors[other] for other in errors if other != name})
            lines.append(f'"{name}" = {{{", ".join(_values(others))}}}')
        lines.append("")
    mean = math.exp(np.mean([math.log(each.ratio) for each in found.values()]))
    for engine in ENGINES:
        if engine not in found:
            lines += [f"[{engine}]  # no published runs", *_values(Slowdown(float(f"{mean:.3g}"), 0.0)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _values(slowdown: Slowdown) -> list[str]:
    return [f"ratio = {slowdown.ratio:g}", f"us_per_token = {slowdown.s_per_token * 1e6:g}"]


if __name__ == "__main__":
    main()
