"""The bundled errors of runs with drafts are those that the runs have."""

import pytest

from benchmarks.accuracy.drafted import OUTPUT, RUNS, drafted_residuals
from benchmarks.accuracy.published_benchmarks import read_benchmarks
from planner.measured.validate import predict
from planner.results.uncertainty import read_residuals
from planner.steptime.engine_constants import read_table


def test_the_bundled_errors_are_those_of_the_runs() -> None:
    runs = read_benchmarks(RUNS)
    bundled, source = read_residuals(OUTPUT, "residuals"), read_table(OUTPUT, "source")
    assert source["gpus"] == sorted({run.groups["gpu"] for run in runs})
    assert source["num_runs"] == len(runs) == 8
    found = drafted_residuals([predict(run) for run in runs])
    for metric, errors in found.log_errors.items():
        assert bundled.log_errors[metric] == pytest.approx(errors, abs=0.02)
