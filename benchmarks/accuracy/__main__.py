"""Writes reports/accuracy.html, .md and .json: `python -m benchmarks.accuracy [--full]`; `--only` shows sections."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.accuracy.agentic import agentic
from benchmarks.accuracy.closed_loop import closed_loop
from benchmarks.accuracy.data import MEASURED, ROOT
from benchmarks.accuracy.disaggregated import disaggregated
from benchmarks.accuracy.folds import FULL, QUICK
from benchmarks.accuracy.kv_capacity import kv_capacity
from benchmarks.accuracy.later import later
from benchmarks.accuracy.llmd import llmd
from benchmarks.accuracy.mlperf import mlperf
from benchmarks.accuracy.mlperf_offline import mlperf_offline
from benchmarks.accuracy.noise import noise
from benchmarks.accuracy.own import own
from benchmarks.accuracy.page import to_html, to_markdown
from benchmarks.accuracy.per_request import per_request
from benchmarks.accuracy.percentiles import percentiles
from benchmarks.accuracy.published import published
from benchmarks.accuracy.section import Section
from benchmarks.accuracy.static_batch import static_batch
from benchmarks.accuracy.throughput import throughput
from planner.files.writing import write_text
from planner.measured.calibration.calibrate import residuals_text
from planner.results.uncertainty import Residuals


def main() -> None:
    """Make the report, or show the sections asked for."""
    sections: Mapping[str, Callable[[bool], Section]] = {
        "closed_loop": lambda full: closed_loop(FULL if full else QUICK),
        "percentiles": lambda _: percentiles(), "disaggregated": lambda _: disaggregated(),
        "later": lambda _: later(), "noise": lambda _: noise(), "agentic": lambda _: agentic(),
        "published": lambda _: published(), "own": lambda _: own(), "per_request": lambda _: per_request(),
        "llmd": lambda _: llmd(), "kv_capacity": lambda _: kv_capacity(), "mlperf": lambda _: mlperf(),
        "mlperf_offline": lambda _: mlperf_offline(),
        "static_batch": lambda _: static_batch(), "throughput": lambda _: throughput()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="every row, more optimiser steps in cross-validation")
    parser.add_argument("--only", nargs="+", choices=sections, help="show these sections as Markdown, write nothing")
    arguments = parser.parse_args()
    if not MEASURED.is_dir():
        sys.exit(f"{MEASURED} is missing; set PLANNER_SHARED to the folder that has `measured`")
    made = [_timed(name, sections[name], arguments.full) for name in arguments.only or sections]
    if arguments.only:
        print(to_markdown(made))
    else:
        _write(made)


def _write(made: Sequence[Section]) -> None:
    folder = ROOT / "reports"
    write_text(folder / "accuracy.html", to_html(made))
    write_text(folder / "accuracy.md", to_markdown(made))
    data = {key: value for section in made for key, value in section.data.items()}
    data["verdicts"] = [{"section": section.title, "name": v.name, "value": v.value, "limit": v.limit,
                         "at_least": v.at_least, "peers": v.peers} for section in made for v in section.verdicts]
    write_text(folder / "accuracy.json", json.dumps(data, indent=1) + "\n")
    for engine, found in data["residuals"].items():
        store_residuals(engine, found)
    store_unmeasured(data["unmeasured"])


def store_residuals(engine: str, found: Mapping[str, Any]) -> None:
    """Write the held-out errors beside the engine's constants, where `--interval` looks for them."""
    path = ROOT / "hardware_db" / "engines" / f"{engine}.toml"
    constants, _, _ = path.read_text(encoding="utf-8").partition("\n[residuals]")
    known = Residuals(probabilities=tuple(found["probabilities"]), log_errors=found["log_errors"], source="")
    write_text(path, f"{constants.rstrip()}\n\n{residuals_text(known, 'residuals').rstrip()}\n")


def store_unmeasured(found: Mapping[str, Any]) -> None:
    """Write the errors behind the intervals of GPUs that nobody measured, where `--interval` looks for them."""
    known = Residuals(probabilities=tuple(found["probabilities"]), log_errors=found["log_errors"], source="")
    about = ("# Errors to expect on a GPU whose kernels nobody measured; written by benchmarks/accuracy, not by hand.\n"
             "# log(predicted / measured) of runs with a prior among their kernels, on GPUs that no fit saw.\n\n"
             f"[source]\ngpus = {json.dumps(found['gpus'])}\nnum_runs = {found['num_runs']}\n"
             'runs = "benchmarks/accuracy/published_runs.csv and published_benchmarks.csv, with their sources"\n\n')
    write_text(ROOT / "hardware_db" / "residuals" / "unmeasured_kernels.toml",
               about + residuals_text(known, "residuals").rstrip() + "\n")


def _timed(name: str, make: Callable[[bool], Section], full: bool) -> Section:
    begin = time.perf_counter()
    section = make(full)
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return section


if __name__ == "__main__":
    main()
