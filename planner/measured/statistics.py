"""Statistics that a benchmark reports of its requests: means, medians and percentiles of times, and the makespan."""

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.traces import Trace
from planner.traces.times import TIMES

Floats = NDArray[np.float64]

MAKESPAN = "makespan_s"
# Of single requests: the metrics that are compared if a file has their times.
PER_REQUEST = (*(f"{statistic}_{metric}_ms" for metric in ("ttft", "tpot", "e2el")
                 for statistic in ("mean", "median", "p99")), MAKESPAN)
THROUGHPUT = ("output_tput_per_gpu", "tput_per_gpu")  # of output tokens, and of all
OF_ALL = {"output_tokens_per_s": THROUGHPUT[0], "total_tokens_per_s": THROUGHPUT[1]}  # of all GPUs -> of one
POWER = ("avg_power_w", "joules_per_output_token")  # of one GPU, and of all GPUs
IS_PERCENTILE = re.compile(r"p(?!50_)\d{1,2}_(?:ttft|tpot|e2el)_ms")  # p50 is the median
_NAME = re.compile(r"(?:(mean|median|p\d+)_)?(ttft|tpot|e2el|itl)_ms")


def is_statistic(name: str) -> bool:
    """Tell whether a name is that of a statistic over requests, of ITL over gaps, of a throughput, or of power.

    >>> is_statistic("p99_itl_ms"), is_statistic("p99_speed_ms")
    (True, False)
    """
    return name in (*THROUGHPUT, *OF_ALL, *POWER) or _NAME.fullmatch(name) is not None


def statistics(names: Iterable[str], times_s: Mapping[str, Floats], makespan_s: float) -> dict[str, float]:
    """Return statistics by name: `ttft_ms` and `mean_ttft_ms` are means, others as their name says.

    Percentiles are linear between order statistics, as vLLM's and SGLang's clients take them.

    Parameters
    ----------
    names : for example "ttft_ms", "median_tpot_ms", "p99_e2el_ms", "makespan_s"; others, and names without a value,
        are left out.
    times_s : TTFT, TPOT and E2EL of the requests by "ttft", "tpot", "e2el"; NaN if a request has none [s].

    >>> statistics(["mean_ttft_ms", "p50_ttft_ms"], {"ttft": np.array([0.1, 0.2, 0.6])}, 1.0)
    {'mean_ttft_ms': 300.0, 'p50_ttft_ms': 200.0}
    """
    finite = {metric: values[np.isfinite(values)] for metric, values in times_s.items()}
    by_name = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if name == MAKESPAN and np.isfinite(makespan_s):
            by_name[name] = float(makespan_s)
        elif match and len(finite.get(match[2], ())):
            by_name[name] = 1e3 * _statistic(match[1] or "mean", finite[match[2]])
    return by_name


def _statistic(name: str, values: Floats) -> float:
    if name == "mean":
        return float(values.mean())
    return float(np.percentile(values, 50 if name == "median" else int(name[1:])))


def measured_of(load: Trace, names: Iterable[str]) -> dict[str, float]:
    """Return statistics of a recorded load's measured times; empty without them."""
    table = load.requests
    if not set(TIMES) <= set(table.columns):
        return {}
    times_s = {metric: floats_of(table[name]) for metric, name in zip(("ttft", "tpot", "e2el"), TIMES, strict=True)}
    ends = table["arrival_s"].to_numpy() + times_s["e2el"]
    ends = ends[np.isfinite(ends)]
    makespan_s = float(ends.max() - table["arrival_s"].to_numpy()[0]) if len(ends) else math.nan
    return statistics(names, times_s, makespan_s)


def floats_of(column: pl.Series) -> Floats:
    """Return a column of numbers; NaN if a row has none."""
    return column.cast(pl.Float64).fill_null(math.nan).to_numpy()
