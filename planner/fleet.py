"""A fleet of equal replicas that take requests in turn: how it serves a trace."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.deployment import Deployment
from planner.driver import run
from planner.results import ReplayResult
from planner.settings import Recording
from planner.trace import Trace
from planner.trace.prefix import take_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How a fleet served a trace.

    Parameters
    ----------
    times_s : by metric, "ttft", "tpot", "e2el", in the trace's order, shape [num_requests]; NaN where there is none.
    busy_fraction : share of the time from first arrival to last departure that replicas computed, over all of them [1].
    """

    times_s: Mapping[str, Floats]
    busy_fraction: float


def serve(trace: Trace, deployment: Deployment, num_replicas: int) -> Served:
    """Replay a trace on replicas that take requests in turn, each with its own queue and cache.

    Parameters
    ----------
    deployment : of one replica.
    num_replicas : at least 1; those beyond the number of requests stay idle [1].
    """
    found = {name: np.full(trace.num_requests, np.nan) for name in ("ttft", "tpot", "e2el")}
    busy_s, last_s = 0.0, 0.0
    for replica in range(min(num_replicas, trace.num_requests)):
        rows = np.arange(replica, trace.num_requests, num_replicas)
        part = _rows(trace, rows)
        records = run(part, deployment.policy, deployment.settings, deployment.step_time, Recording())
        result = ReplayResult(trace=part, records=records, step_time=deployment.step_time)
        for name, values in (("ttft", result.ttft_s), ("tpot", result.tpot_s), ("e2el", result.e2e_s)):
            found[name][rows] = values
        busy_s += float(records.engine.busy_s)
        last_s = max(last_s, float(records.engine.now_s))
    duration_s = last_s - float(trace.requests["arrival_s"][0])
    share = busy_s / (num_replicas * duration_s) if duration_s > 0 else 0.0
    return Served(times_s=found, busy_fraction=min(share, 1.0))


def _rows(trace: Trace, rows: NDArray[np.int64] | Sequence[int]) -> Trace:
    chosen = np.asarray(rows, np.int64)
    if len(chosen) == trace.num_requests:
        return trace
    return dataclasses.replace(trace, requests=trace.requests[chosen],
                               prefix=None if trace.prefix is None else take_rows(trace.prefix, chosen))
