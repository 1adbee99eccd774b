"""Fits `hardware_db/older_releases.toml` to published runs under older releases, and writes it.

    python -m benchmarks.fit_older_releases

`layer_s` is the median over deployments (GPU, lengths, GPUs of a replica) of the median over their runs of
(measured median TPOT - predicted median TPOT without it) / layers. `launch_share` is the same median of the file's
value plus (measured - predicted median TTFT) / launch time, and `token_s` with a prompt's tokens times layers in place
of the launch time: a Newton step, and the script is run until the value stays. Their runs have few in flight, so that a
first token waits for one step, and short or long prompts. The held-out error, of TPOT or TTFT, is a median over runs,
each with the value of the other deployments; for `token_s`, of other numbers of requests in flight. Runs that draft
are left out, and ranks of attention for the last two. The file's rows say which releases share a value.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.files.writing import write_text
from planner.measured.run_table import read_measured
from planner.measured.validate import Prediction, deploy_measured, predict_all
from planner.steptime.host_time import launches_s
from planner.steptime.older_releases import measured_release

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "hardware_db" / "older_releases.toml"
MEASURED = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "measured"
TABLES = ("closed_loop_percentiles.csv", "inferencex_api_closed_loop.csv", "inferencex_api_closed_loop_history.csv")
FITTED = {"layer_s": ".3g", "token_s": ".3g", "launch_share": ".2f", "num_runs": "d", "held_out": ".2f"}
MOST_IN_FLIGHT, LONG = 32, 2048  # requests of a run that shows the time of a prompt, and tokens of a long prompt
Shown = tuple[tuple[Any, ...], float, float, float]  # deployment, measured, predicted with a value of 0, per value [ms]


def main() -> None:
    text = FILE.read_text(encoding="utf-8")
    lines = text.splitlines()
    runs = [run for name in TABLES for run in read_measured(MEASURED / name, client="inferencex")
            if run.scenario is not None and not run.scenario.num_speculative_tokens
            and (run.groups["engine"], run.groups["gpu"][:2]) in (("sglang", "mi"), ("trtllm", "b2"))]
    rows: dict[str, list[Shown]] = defaultdict(list)
    for prediction in predict_all(runs):
        for source, shown in _shown(prediction):
            rows[source].append(shown)
    for begin in [at for at, line in enumerate(lines) if line == "[[older_release]]"]:
        end = next((at for at in range(begin + 1, len(lines)) if lines[at].startswith("[[")), len(lines))
        source = next(line for line in lines[begin:end] if line.startswith("source = "))
        values = _fitted(rows[source.partition('"')[2].rstrip('"')])
        for at in range(begin, end):
            name = lines[at].partition(" ")[0]
            if name in FITTED:
                lines[at] = f"{name} = {values.get(name, values['value']):{FITTED[name]}}"
    write_text(FILE, "\n".join(lines) + "\n")


def _shown(prediction: Prediction) -> Iterator[tuple[str, Shown]]:
    """Yield the sources of the rows whose value a run shows, and the run's times."""
    run = prediction.measurement
    assert run.scenario is not None
    assert run.load is not None
    stack, gpu = deploy_measured(run).stack, load_gpu(run.groups["gpu"])
    assert stack is not None
    older, num_layers = stack.older_release, stack.arch.num_layers
    longest = run.load.requests.select("input_tokens", "output_tokens").max().row(0)
    deployment, in_flight = (gpu.name, run.scenario.tensor_parallel_size, *longest), run.scenario.max_concurrency or 0
    tokens: Any = run.load.requests["input_tokens"].mean()
    shows_prompts = stack.layout.data_parallel_size == 1 and in_flight <= MOST_IN_FLIGHT
    for row in measured_release(run.scenario.engine, run.scenario.engine_version, gpu.kernels_of,
                                run.groups["precision"]):
        assert older is not None
        if "layer_s" in row:
            place, metric, value, per_value_ms = deployment, "median_tpot_ms", older.layer_s, 1e3 * num_layers
        elif shows_prompts and ("token_s" in row) is (longest[0] > LONG):
            is_long, metric = "token_s" in row, "median_ttft_ms"
            value = older.token_s if is_long else older.launch_share
            place = (*deployment, in_flight) if is_long else deployment
            per_value_ms = 1e3 * (num_layers * tokens if is_long else launches_s(stack)[0] / gpu.launch_speed / value)
        else:
            continue
        yield row["source"], (place, run.measured[metric], prediction.predicted[metric] - value * per_value_ms,
                              per_value_ms)


def _fitted(shown: list[Shown]) -> dict[str, Any]:
    by_deployment: dict[Any, list[float]] = defaultdict(list)
    for deployment, measured_ms, bare_ms, per_value_ms in shown:
        by_deployment[deployment].append((measured_ms - bare_ms) / per_value_ms)
    medians = {deployment: median(values) for deployment, values in by_deployment.items()}
    errors = [abs((bare_ms + per_value_ms * median(rest)) / measured_ms - 1)
              for deployment, measured_ms, bare_ms, per_value_ms in shown
              if (rest := [value for other, value in medians.items() if other != deployment])]
    return {"value": median(medians.values()), "num_runs": len(shown), "held_out": median(errors)}


if __name__ == "__main__":
    main()
