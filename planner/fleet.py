"""A fleet of equal replicas that take requests in turn: one replay each, pooled into one result."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment import Deployment
from planner.driver import ReplayRecords, run
from planner.engine import state as st
from planner.gaps import Gaps
from planner.results import ReplayResult
from planner.settings import Recording
from planner.trace import Trace
from planner.trace.prefix import take_rows

LARGEST = ("now_s", "peak_blocks", "max_running", "max_waiting")  # of the replicas, where other totals are summed
NOTHING = Recording()
SUMMED = ("busy_s", "kv_block_s", *(name for name in st.ENGINE.names or () if name.startswith("total_")), "num_steps",
          "num_preemptions", "num_recomputed_tokens", "num_swapped_tokens", "num_queried_tokens", "num_hit_tokens")


def serve(trace: Trace, deployment: Deployment, num_replicas: int,
          recording: Recording = NOTHING) -> ReplayResult:
    """Replay a trace on replicas that take requests in turn, each with its own queue and cache.

    Parameters
    ----------
    deployment : of one replica.
    num_replicas : at least 1; those beyond the number of requests stay idle [1].
    recording : which rows to keep; steps are counted by replica.

    Returns
    -------
    ReplayResult
        All requests in the trace's order, steps replica by replica. Counts and busy time are sums over the replicas,
        peaks those of the fullest one.
    """
    if num_replicas == 1:
        records = run(trace, deployment.policy, deployment.settings, deployment.step_time, recording)
        return ReplayResult(trace=trace, deployment=deployment, records=records)
    replica = np.arange(trace.num_requests) % num_replicas
    shares = [np.flatnonzero(replica == k) for k in range(min(num_replicas, trace.num_requests))]
    parts = [run(_rows(trace, rows), deployment.policy, deployment.settings, deployment.step_time, recording)
             for rows in shares]
    return ReplayResult(trace=trace, deployment=deployment, records=_pooled(parts, shares),
                        num_replicas=num_replicas, replica=replica.astype(np.int32))


def _pooled(parts: Sequence[ReplayRecords], shares: Sequence[NDArray[np.int64]]) -> ReplayRecords:
    """Join the replicas' records, whose requests are the rows `shares` of the trace."""
    requests: Any = st.records(sum(len(rows) for rows in shares), st.REQUEST)
    records_steps = bool(parts[0].settings.records_steps)
    phases: Any = st.records(len(requests) if records_steps else 1, st.PHASES)
    for part, rows in zip(parts, shares, strict=True):
        requests[rows] = part.requests
        if records_steps:
            phases[rows] = part.phases
    engine: Any = st.records(1, st.ENGINE)[0]
    for names, join in ((SUMMED, sum), (LARGEST, max)):
        for name in names:
            setattr(engine, name, join(getattr(part.engine, name) for part in parts))
    gaps = Gaps(values_s=np.concatenate([part.gaps.values_s for part in parts]),
                counts=np.concatenate([part.gaps.counts for part in parts]),
                is_exact=all(part.gaps.is_exact for part in parts))
    listed = {name: _joined([getattr(part, name) for part in parts], shares)
              for name in ("steps", "schedule", "preemptions")}
    return dataclasses.replace(parts[0], requests=requests, phases=phases, engine=engine, gaps=gaps,
                               loop_s=sum(part.loop_s for part in parts), **listed)


def _joined(parts: Sequence[NDArray[np.void]], shares: Sequence[NDArray[np.int64]]) -> NDArray[np.void]:
    """Join rows of one kind, each with its replica, and its request as a row of the trace."""
    for replica, (part, rows) in enumerate(zip(parts, shares, strict=True)):
        part["replica"] = replica
        if "request" in (part.dtype.names or ()):
            part["request"] = rows[part["request"]]
    return np.concatenate(parts)


def _rows(trace: Trace, rows: NDArray[np.int64]) -> Trace:
    return dataclasses.replace(trace, requests=trace.requests[rows],
                               prefix=None if trace.prefix is None else take_rows(trace.prefix, rows))
