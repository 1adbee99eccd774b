"""The errors to expect on an accelerator whose measured runs contradict the prediction.

`python -m benchmarks.accelerator_errors runs.csv gaudi-3` writes `hardware_db/residuals/gaudi-3.toml`. Half of the
weight has the errors of GPUs that no fit saw, and half the errors of these runs, which are few and of one model.
"""

import json
import sys
from pathlib import Path

import numpy as np

from planner.catalog.catalog_files import load_gpu
from planner.files.writing import write_text
from planner.measured.calibration.calibrate import residuals_text
from planner.measured.run_table import read_measured
from planner.measured.validate import predict
from planner.results.uncertainty import THROUGHPUT, read_residuals, residuals_of
from planner.steptime.engine_constants import read_table

FOLDER = Path(__file__).parents[1] / "hardware_db" / "residuals"
NUM_DRAWS = 1000  # of each half
KEYS = {"ttft_ms": ("mean_ttft_ms", 1), "tpot_ms": ("mean_tpot_ms", 1), "e2el_ms": ("output_tput_per_gpu", -1),
        THROUGHPUT: ("output_tput_per_gpu", 1)}  # a metric -> the one that stands for it, and the sign of its error


def main(runs: str, gpu: str) -> None:
    """Write the file of a GPU."""
    profile = load_gpu(gpu)
    made = [predict(run) for run in read_measured(Path(runs))
            if run.scenario is not None and load_gpu(run.scenario.gpu or "") == profile]
    of_others = read_table(FOLDER / "unmeasured_kernels.toml", "source")
    others = read_residuals(FOLDER / "unmeasured_kernels.toml", "residuals")
    ranks = (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS
    both = {}
    for metric, quantiles in others.log_errors.items():
        key, sign = KEYS[metric]
        own = [sign * np.log(p.predicted[key] / p.measurement.measured[key]) for p in made]
        both[metric] = np.concatenate((np.interp(ranks, others.probabilities, quantiles), np.quantile(own, ranks)))
    ratios = [p.measurement.measured["mean_tpot_ms"] / p.predicted["mean_tpot_ms"] for p in made]
    found = residuals_of(both, "")
    about = (f"# Errors to expect on {profile.name}; written by benchmarks/accelerator_errors.py, not by hand.\n"
             f"# Half of the weight has unmeasured_kernels.toml, and half {len(made)} published runs of one model.\n\n"
             f'[source]\ngpus = {json.dumps([profile.name, *of_others["gpus"]])}\n'
             f'num_runs = {of_others["num_runs"] + len(made)}\n'
             f'note = "{len(made)} published runs on {profile.name} took {min(ratios):.1f} to {max(ratios):.1f} times '
             f'the predicted TPOT; --interval has their errors"\n\n')
    write_text(FOLDER / f"{profile.name}.toml", about + residuals_text(found, "residuals").rstrip() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
