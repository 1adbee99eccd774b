"""Measured runs made by the model itself: what a fit must find is known."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.catalog_files import data_dir
from planner.measured.run_table import read_measured
from planner.measured.validate import predict
from planner.measured.validate_answer import ErrorSummary
from planner.steptime.engine_constants import constants_of, read_constants

COLUMNS = ("id", "gpu", "engine", "model", "precision", "isl", "osl", "concurrency", "tp", "client",
           "measured_ttft_ms", "measured_tpot_ms")
LOADS = tuple((isl, osl, concurrency) for isl, osl in ((128, 128), (1024, 128), (4096, 64))
              for concurrency in (1, 2, 8, 32, 96))


def error_in(by_metric: Mapping[str, ErrorSummary | None], metric: str) -> ErrorSummary:
    """Return the error of a metric that has one."""
    found = by_metric[metric]
    assert found is not None
    return found


def row_of(**values: Any) -> dict[str, Any]:
    """Return a row of a table of runs."""
    plain = {"gpu": "h100_sxm", "engine": "vllm", "model": "meta-llama/Llama-3.1-8B", "precision": "bf16", "isl": 128,
             "osl": 32, "concurrency": 4, "tp": 1, "client": "internal", "measured_ttft_ms": 50, "measured_tpot_ms": 9}
    return plain | values


def write_runs(path: Path, *rows: Mapping[str, Any]) -> Path:
    """Write a table of runs."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({"id": str(k), **row} for k, row in enumerate(rows))
    return path


# Constants that these tests start from, whatever fit the bundled ones come from.
FIXED = {"linear_ratio": 0.979, "compute_ratio": 0.946, "prompt_attention_ratio": 1.1, "decode_attention_ratio": 1.0,
         "kernel_floor_s": 3e-6, "layer_s": 2.014e-05, "activation_bandwidth_frac": 0.2095,
         "sampling_s_per_seq": 1.174e-06, "host_s": 0.00287,
         "host_s_per_seq": 7.42e-06, "launch_s_per_layer": 0.000888, "overhead_s": 5.654e-05,
         "overhead_s_per_seq": 8.789e-06, "frontend_s": 0.003982, "frontend_s_per_token": 1.29e-06,
         "latency_s": 0.0121, "latency_s_per_token": 6.526e-07, "latency_s_per_seq": 1e-06}


def fixed_start() -> dict[str, float]:
    """Return vLLM's constants by flat name, those of FIXED in place of the bundled ones."""
    return read_constants(data_dir("hardware_db") / "engines" / "vllm.toml") | FIXED


def write_start(path: Path) -> Path:
    """Write FIXED as a calibration, for fits to start from."""
    path.write_text("[constants]\n" + "\n".join(f"{name} = {value}" for name, value in FIXED.items()) + "\n")
    return path


def write_synthetic(path: Path, truth: Mapping[str, float], *, noise: float, seed: int = 0, every: int = 1) -> Path:
    """Write runs over every nth of LOADS as they would be measured if constants were `truth`, times a log-normal noise.
    """
    plain = [row_of(isl=isl, osl=osl, concurrency=c) for isl, osl, c in LOADS[::every]]
    constants = constants_of({**fixed_start(), **truth})
    rng = np.random.default_rng(seed)
    rows = []
    for row, run in zip(plain, read_measured(write_runs(path, *plain)), strict=True):
        found = predict(run, constants)
        assert found.status == "ok", found.status
        rows.append(row | {f"measured_{metric}": value * np.exp(rng.normal(0.0, noise))
                           for metric, value in found.predicted.items()})
    return write_runs(path, *rows)
