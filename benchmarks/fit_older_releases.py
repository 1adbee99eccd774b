"""Fits `hardware_db/older_releases.toml` to published runs under older releases of SGLang, and writes it.

    python -m benchmarks.fit_older_releases

A layer's value is the median over deployments (GPU, lengths, GPUs of a replica) of the median over their runs of
(measured median TPOT - predicted median TPOT without it) / layers. The held-out error of TPOT is a median over runs,
each with the value of the other deployments. Runs that draft are left out. The file's rows say which releases share a
value.
"""

import os
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.files.writing import write_text
from planner.measured.run_table import read_measured
from planner.measured.validate import Prediction, deploy_measured, predict_all
from planner.steptime.older_releases import measured_release

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "hardware_db" / "older_releases.toml"
MEASURED = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured"
TABLES = ("closed_loop_percentiles.csv", "inferencex_api_closed_loop.csv", "inferencex_api_closed_loop_history.csv")
FITTED = {"layer_s": ".3g", "num_runs": "d", "held_out": ".2f"}
Shown = tuple[tuple[Any, ...], float, float, int]  # deployment, measured and bare TPOT [ms], layers


def main() -> None:
    text = FILE.read_text(encoding="utf-8")
    lines = text.splitlines()
    runs = [run for name in TABLES for run in read_measured(MEASURED / name, client="inferencex")
            if run.groups["engine"] == "sglang" and run.groups["gpu"].startswith("mi") and run.scenario is not None
            and not run.scenario.num_speculative_tokens]
    rows: dict[str, list[Shown]] = defaultdict(list)
    for prediction in predict_all(runs):
        place, shown = _shown(prediction)
        if place is not None:
            rows[place].append(shown)
    for begin in [at for at, line in enumerate(lines) if line == "[[older_release]]"]:
        end = next((at for at in range(begin + 1, len(lines)) if lines[at].startswith("[[")), len(lines))
        source = next(line for line in lines[begin:end] if line.startswith("source = "))
        values = _fitted(rows[source.partition('"')[2].rstrip('"')])
        for at in range(begin, end):
            name = lines[at].partition(" ")[0]
            if name in FITTED:
                lines[at] = f"{name} = {values[name]:{FITTED[name]}}"
    write_text(FILE, "\n".join(lines) + "\n")


def _shown(prediction: Prediction) -> tuple[str | None, Shown]:
    """Return the source of the row that a run belongs to, and the run's times; the source is None without a row."""
    run = prediction.measurement
    assert run.scenario is not None
    assert run.load is not None
    stack, gpu = deploy_measured(run).stack, load_gpu(run.groups["gpu"])
    assert stack is not None
    older = stack.older_release
    row = measured_release("sglang", run.scenario.engine_version, gpu.kernels_of, run.groups["precision"])
    bare_ms = prediction.predicted["median_tpot_ms"] - (1e3 * older.layer_s * older.num_layers if older else 0.0)
    longest = run.load.requests.select("input_tokens", "output_tokens").max().row(0)
    return (None if row is None else row["source"],
            ((gpu.name, run.scenario.tensor_parallel_size, *longest), run.measured["median_tpot_ms"], bare_ms,
             stack.arch.num_layers))


def _fitted(shown: list[Shown]) -> dict[str, Any]:
    by_deployment: dict[Any, list[float]] = defaultdict(list)
    for deployment, measured_ms, bare_ms, num_layers in shown:
        by_deployment[deployment].append((measured_ms - bare_ms) / 1e3 / num_layers)
    medians = {deployment: median(values) for deployment, values in by_deployment.items()}
    errors = [abs((bare_ms + 1e3 * num_layers * median(rest)) / measured_ms - 1)
              for deployment, measured_ms, bare_ms, num_layers in shown
              if (rest := [value for other, value in medians.items() if other != deployment])]
    return {"layer_s": median(medians.values()), "num_runs": len(shown), "held_out": median(errors)}


if __name__ == "__main__":
    main()
