"""Errors of runs that verify drafts of a stated acceptance length: `python -m benchmarks.accuracy.drafted` writes them.

The engines' constants are fitted to runs without drafts. SGLang ran these with an emulated acceptance
(SGLANG_SIMULATE_ACC_LEN), which makes every accepted token the same one, so that fewer experts are read than with text.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.accuracy.data import ROOT
from benchmarks.accuracy.published_benchmarks import read_benchmarks
from planner.files.writing import write_text
from planner.measured.calibration.calibrate import residuals_text
from planner.measured.run_table import METRICS
from planner.measured.validate import Prediction, log_error, predict
from planner.results.uncertainty import Residuals, of_a_new_group, residuals_of, with_derived

RUNS = Path(__file__).with_name("drafted_runs.csv")
OUTPUT = ROOT / "hardware_db" / "residuals" / "drafts.toml"
HEADING = ("# Errors to expect of deployments that draft tokens; written by benchmarks/accuracy/drafted.py.\n"
           "# log(predicted / measured) of runs with a stated acceptance length, which no constant is fitted to.\n\n")


def drafted_residuals(predictions: list[Prediction]) -> Residuals:
    """Return the quantiles of the errors to expect of one more GPU and number format."""
    own = {metric: np.array([log_error(p, metric) for p in predictions]) for metric in METRICS}
    measured = {metric: np.array([p.measurement.measured[metric] for p in predictions]) for metric in METRICS}
    tokens = np.array([loaded.requests["output_tokens"].mean() for p in predictions
                       if (loaded := p.measurement.load) is not None], float)
    groups = [p.measurement.id.rpartition("-")[0] for p in predictions]
    return residuals_of({metric: of_a_new_group(errors, groups)
                         for metric, errors in with_derived(own, measured, tokens).items()}, "")


def main() -> None:
    predictions = [predict(run) for run in read_benchmarks(RUNS)]
    gpus = sorted({p.measurement.groups["gpu"] for p in predictions})
    for p in predictions:
        print(p.measurement.id, p.status, {metric: round(float(np.exp(log_error(p, metric))), 2) for metric in METRICS})
    source = (f"[source]\ngpus = {json.dumps(gpus)}\nnum_runs = {len(predictions)}\n"
              'runs = "benchmarks/accuracy/drafted_runs.csv, with their sources"\n\n')
    write_text(OUTPUT, HEADING + source + residuals_text(drafted_residuals(predictions), "residuals").rstrip() + "\n")


if __name__ == "__main__":
    main()
