"""Errors on GPUs that no fit saw, where an operator's kernel is a prior: the intervals of GPUs that nobody measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.accuracy.section import percent
from benchmarks.fit_engines import RUNS
from planner.catalog.catalog_files import data_dir, load_gpu
from planner.measured.run_table import METRICS, read_measured
from planner.measured.validate import Prediction, deploy_measured, log_error
from planner.report.content import Listing
from planner.results.uncertainty import THROUGHPUT, of_a_new_group, read_residuals, residuals_of, with_derived
from planner.steptime.roofline import priors

LEVEL = 0.8
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
Floats = NDArray[np.float64]


def unmeasured_runs(predictions: Sequence[Prediction]) -> pl.DataFrame:
    """Return the runs with a prior among their operators on GPUs that no fit saw: log(predicted / measured) by metric.

    Where a run states its duration alone, that stands for TPOT: answers of some hundred tokens and more are most of it.
    """
    seen = {load_gpu(run.groups["gpu"]).name for run in read_measured(RUNS)}
    rows = []
    for p in predictions:
        if p.status != "ok" or load_gpu(p.measurement.groups["gpu"]).name in seen:
            continue
        deployment = deploy_measured(p.measurement)
        assert deployment.gpu is not None
        assert deployment.stack is not None
        if priors(deployment.stack):
            rows.append({"gpu": deployment.gpu.name, "engine": deployment.scenario.engine, **_errors(p)})
    return pl.DataFrame(rows, infer_schema_length=None)


def _errors(p: Prediction) -> dict[str, float]:
    """Return a run's errors in TTFT, TPOT, end-to-end latency and throughput; NaN where one is not known."""
    load = p.measurement.load
    assert load is not None
    own = {metric: np.array([log_error(p, metric)]) for metric in METRICS}
    measured = {metric: np.array([p.measurement.measured.get(metric, np.nan)]) for metric in METRICS}
    tokens = np.array([load.requests["output_tokens"].mean()], float)
    found = {metric: float(values[0]) for metric, values in with_derived(own, measured, tokens).items()}
    duration = log_error(p, "makespan_s")
    stands_for = {"tpot_ms": duration, "e2el_ms": duration, THROUGHPUT: -duration}
    return found | {metric: error for metric, error in stands_for.items() if np.isnan(found[metric])}


def unmeasured_residuals(runs: pl.DataFrame) -> Mapping[str, Any]:
    """Return the quantiles of the errors to expect of one more such GPU, and which GPUs they are from."""
    gpus = runs["gpu"].to_list()
    metrics = [name for name in runs.columns if name not in ("gpu", "engine")]
    found = residuals_of({m: of_a_new_group(runs[m].to_numpy(), gpus) for m in metrics}, "")
    return {"probabilities": found.probabilities, "log_errors": dict(found.log_errors),
            "gpus": sorted(set(gpus)), "num_runs": runs.height}


def unmeasured_coverage(runs: pl.DataFrame) -> Listing:
    """Return how often intervals hold such runs: the engine's, and those from the errors on the other such GPUs."""
    rows = []
    for metric in METRICS:
        known = runs.filter(pl.col(metric).is_finite())
        by_engine, by_others = [], []
        for (gpu,), tested in known.group_by("gpu", maintain_order=True):
            others = known.filter(pl.col("gpu") != gpu)
            errors = of_a_new_group(others[metric].to_numpy(), others["gpu"].to_list())
            by_others += _inside(tested[metric].to_numpy(), np.quantile(errors, TAILS, method="weibull"))
            by_engine += [_inside(np.array([row[metric]]), _engine_bounds(row["engine"], metric))[0]
                          for row in tested.iter_rows(named=True)]
        rows.append([metric, known["gpu"].n_unique(), known.height, percent(float(np.mean(by_engine))),
                     percent(float(np.mean(by_others)))])
    return Listing(title="Share of runs with a prior among their kernels, on GPUs that no fit saw, in 80 % intervals",
                   columns=("metric", "GPUs", "runs", "of the engine's errors", "of the other such GPUs' errors"),
                   rows=rows)


def _engine_bounds(engine: str, metric: str) -> Floats:
    found = read_residuals(data_dir("hardware_db") / "engines" / f"{engine}.toml", "residuals")
    return np.interp(TAILS, found.probabilities, found.log_errors[metric])


def _inside(errors: Floats, bounds: Floats) -> list[bool]:
    low, high = bounds
    inside: list[bool] = ((errors >= low) & (errors <= high)).tolist()
    return inside
