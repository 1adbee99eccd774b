"""A recorded load: requests with the times that were measured of each, from a table of ours or a benchmark's result."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.measured.other_deployment import refuse_other
from planner.measured.run_table import METRICS, Measurement
from planner.measured.statistics import MAKESPAN, PER_REQUEST, floats_of, measured_of
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.times import TIMES, fill_times

Floats = NDArray[np.float64]

FEWEST = 5  # requests of a time block


def read_requests(path: Path, scenario: Scenario, format: str | None = None) -> Measurement:
    """Read requests with measured times as one run: `planner replay --requests`, or a trace of any format with times.

    Rows of requests that were not completed are left out: they have no latency to compare.

    Parameters
    ----------
    format : as `read_trace` takes it.

    Raises
    ------
    TraceError : the file cannot be read, a row is bad, or no measured time is there.
    UsageError : the rows name another deployment than the scenario.
    """
    trace = read_trace(str(path), format=format)
    refuse_other(str(path), trace.deployed, scenario)
    named = [name for name in TIMES if name in trace.requests.columns]
    if not named:
        raise TraceError(f"{path}: has requests, but none of the columns {', '.join(TIMES)}; nothing to compare "
                         f"(replay it as a trace, or name the measured columns: --column ttft_s=ttft_ms:ms)")
    nothing = np.full(trace.num_requests, math.nan)
    ttft_s, tpot_s, e2e_s = (floats_of(trace.requests[name]) if name in named else nothing for name in TIMES)
    trace = with_times(trace, ttft_s, e2e_s, tpot_s)
    caching = trace.prefix is not None or "cached_tokens" in trace.requests.columns
    if scenario.enable_prefix_caching is None and caching:
        scenario = dataclasses.replace(scenario, enable_prefix_caching=True)
    return Measurement(id=path.name.partition(".")[0], groups={"client": "requests"}, scenario=scenario, load=trace,
                       measured=measured_of(trace, PER_REQUEST))


def with_times(trace: Trace, ttft_s: Floats, e2e_s: Floats, tpot_s: Floats | None = None) -> Trace:
    """Return a trace with the measured times of its requests; each that is missing follows from the other two.

    Parameters
    ----------
    ttft_s, e2e_s, tpot_s : shape [num_requests]; NaN without one.
    """
    tpots = np.full(len(ttft_s), math.nan) if tpot_s is None else tpot_s
    table = trace.requests.with_columns(
        pl.Series(name, values).fill_nan(None) for name, values in zip(TIMES, (ttft_s, tpots, e2e_s), strict=True))
    return dataclasses.replace(trace, requests=fill_times(table))


def time_blocks(run: Measurement, num_blocks: int) -> list[Measurement]:
    """Cut a recorded run into blocks of requests in order of arrival, for fitting.

    Each is a run of its own whose load is the whole, with measured times in the block alone: requests before and
    after still count for the queue.

    Parameters
    ----------
    run : its load has measured times.
    num_blocks : at most; each holds FEWEST requests or more.
    """
    assert run.load is not None
    n = run.load.num_requests
    count = max(min(num_blocks, n // FEWEST), 1)
    parts = []
    for k, rows in enumerate(np.array_split(np.arange(n), count)):
        inside = pl.Series(np.isin(np.arange(n), rows))
        table = run.load.requests.with_columns(pl.when(inside).then(pl.col(name)).alias(name) for name in TIMES)
        load = dataclasses.replace(run.load, requests=table)
        parts.append(dataclasses.replace(run, id=f"{run.id}@{k}", load=load, measured=measured_of(load, METRICS)))
    return [block for block in parts if block.measured]


def as_means(run: Measurement) -> Measurement:
    """Return a run with the means of a benchmark's summary under the names that a fit takes, or with its medians.

    Other runs stay as they are.
    """
    if METRICS[0] in run.measured:
        return run
    means = {metric: value for metric in METRICS if (value := run.measured.get(f"mean_{metric}")) is not None}
    medians = {name: value for metric in METRICS if (value := run.measured.get(name := f"median_{metric}")) is not None}
    return dataclasses.replace(run, measured=means or medians)


def is_recorded(run: Measurement) -> bool:
    """Tell whether a run's requests have measured times."""
    return run.load is not None and set(TIMES) <= set(run.load.requests.columns) and MAKESPAN in run.measured
