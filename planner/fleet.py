"""A fleet of replicas behind a router: one replay each, or all on one clock, pooled into one result."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.autoscale import Autoscale, read_autoscale
from planner.dependencies import Dependencies, dependencies
from planner.deployment import Deployment, pools_of
from planner.disaggregation import handover_gaps, joined, transfer_of
from planner.driver import ReplayRecords, Taken, run
from planner.engine import state as st
from planner.engine.entries import FETCH
from planner.errors import UsageError
from planner.gaps import Gaps
from planner.initial import initial_state
from planner.interleaved import Fleet, run_interleaved
from planner.loading import load_router
from planner.overload import overload_of
from planner.pools import turns
from planner.requests import RequestMemory, no_requests
from planner.results import ReplayResult, Replica
from planner.scaler import Scaler
from planner.settings import Recording
from planner.shares import total_of
from planner.trace import Trace
from planner.trace.prefix import take_rows

NOTHING = Recording()

Rows = NDArray[np.int64]


def serve(trace: Trace, deployment: Deployment, num_replicas: int | None = None,
          recording: Recording = NOTHING) -> ReplayResult:
    """Replay a trace on a deployment's replicas, each with its own queue and cache.

    Where requests are dealt in turn and wait for nobody, each replica is replayed by itself; else all are on one clock.

    Parameters
    ----------
    deployment : with its scenario's router.
    num_replicas : at least 1, where all are equal; None for what the scenario says [1]. With an autoscaler its maximum
        counts.
    recording : which rows to keep; steps are counted by replica.

    Returns
    -------
    ReplayResult
        All requests in the trace's order, steps replica by replica. Counts and busy time are sums over the replicas,
        peaks those of the fullest one.

    Raises
    ------
    TraceError : requests wait for unknown ones, or in a circle.
    PolicyError : the policy, the router or the autoscaler is at fault.
    AutoscaleError : the autoscaler's file is wrong.
    UsageError : there are KV tiers, and pools that differ take prompts.
    """
    scenario = deployment.scenario
    autoscale = None if scenario.autoscale is None else read_autoscale(Path(scenario.autoscale))
    count = scenario.data_parallel_size if num_replicas is None else num_replicas
    pools = pools_of(deployment, count if autoscale is None else autoscale.rules.maximum)
    count, router = sum(pool.num_replicas for pool in pools), load_router(scenario.router)
    waits = dependencies(trace) if scenario.wait_for_parents else None
    followers = 0 if waits is None else int((waits.num_parents > 0).sum())
    overload = overload_of(scenario)
    if count == 1 and waits is None and autoscale is None and overload is None:
        parts = [_run(trace, pools[0].deployment, recording)]
        return ReplayResult(trace=trace, deployment=deployment, records=parts[0], replicas=_replicas(parts))
    has_tiers = deployment.settings.cpu_tier is not None or deployment.settings.remote_tier is not None
    if has_tiers and sum(pool.role != "decode" for pool in pools) > 1:
        raise UsageError("KV tiers: blocks of pools that differ are not the same, and none of them would be found by "
                         "another; leave --kv-offloading-size and --kv-remote-size out, or give one pool of prompts")
    is_split = pools[0].role == "prefill"
    if is_split and overload is not None:
        raise UsageError("time-outs, retries, failures, quotas and a queue in the router are not modelled where some "
                         "replicas prefill and others decode; leave these options out")
    fleet = Fleet(pools=pools, router=router, report_interval_s=scenario.router_report_interval, overload=overload,
                  seed=scenario.seed or 0, transfer=transfer_of(pools[0].deployment) if is_split else None)
    if autoscale is not None:
        found = _autoscaled(trace, deployment, fleet, waits, recording, autoscale)
        return dataclasses.replace(found, num_followers=followers)
    if is_split:
        found = _disaggregated(trace, deployment, fleet, waits, recording)
        return dataclasses.replace(found, num_followers=followers)
    attempts = None
    shares_nothing = waits is None and scenario.max_concurrency is None and deployment.settings.remote_tier is None
    if router.takes_turns and not router.is_sticky and shares_nothing and overload is None:
        turn = turns(fleet.weights)
        replica = turn[np.arange(trace.num_requests) % len(turn)].astype(np.int32)
        parts, records = _dealt(trace, fleet, replica, recording)
    else:
        parts, replica, _, attempts = run_interleaved(trace, fleet, waits, recording)
        records = dataclasses.replace(_pooled(parts), requests=parts[0].requests, phases=parts[0].phases)
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=count, replica=replica if count > 1 else None, num_followers=followers,
                        attempts=attempts)


def _run(trace: Trace, own: Deployment, recording: Recording) -> ReplayRecords:
    return run(trace, own.policy, own.settings, own.step_time, recording)


def _unused(trace: Trace, own: Deployment, recording: Recording) -> ReplayRecords:
    """Return the records of a replica that no request is sent to."""
    one = _rows(trace, np.zeros(1, np.int64))
    nobody = RequestMemory(one, own.settings.max_model_len)
    state = initial_state(one, own.policy, own.settings, own.step_time, recording, nobody.records)
    return Taken(state).records(0.0, nobody.columns())


def _replicas(parts: Sequence[ReplayRecords]) -> tuple[Replica, ...]:
    return tuple(Replica(part.engine, part.settings) for part in parts)


def _autoscaled(trace: Trace, deployment: Deployment, fleet: Fleet, waits: Dependencies | None, recording: Recording,
                autoscale: Autoscale) -> ReplayResult:
    """Replay a trace on replicas that come and go, at most `fleet.num_replicas` of them."""
    memory = deployment.memory
    weight_bytes = None if memory is None else memory.weight_bytes * deployment.layout.num_gpus
    arrival_s = trace.requests["arrival_s"].to_numpy()
    first_s = float(arrival_s[0] if waits is None else arrival_s[waits.num_parents == 0][0])
    scaler = Scaler(autoscale, autoscale.startup.delay_s(weight_bytes), first_s)
    parts, replica, _, attempts = run_interleaved(trace, fleet, waits, recording, scaler.timers())
    records = dataclasses.replace(_pooled(parts), requests=parts[0].requests, phases=parts[0].phases)
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=fleet.num_replicas, replica=replica if fleet.num_replicas > 1 else None,
                        attempts=attempts,
                        scaling=scaler.scaling(float(np.nanmax(records.requests.finished_s))))


def _disaggregated(trace: Trace, deployment: Deployment, fleet: Fleet, waits: Dependencies | None,
                   recording: Recording) -> ReplayResult:
    """Replay a trace on replicas of which some prefill and the others decode.

    Rows of steps and preemptions name the request, whichever half of it they are about.
    """
    if fleet.num_replicas <= fleet.num_prefill:
        raise UsageError(f"prefill_replicas = {fleet.num_prefill} of {fleet.num_replicas} replicas: none is left to "
                         f"decode")
    parts, replica, pulls, _ = run_interleaved(trace, fleet, waits, recording)
    halves = parts[0].requests
    requests, phases, handover = joined(halves, parts[0].phases, pulls, replica)
    for part in parts:
        for rows in (part.schedule, part.preemptions):
            rows["request"] %= trace.num_requests
    pooled = _pooled(parts)
    between_s = handover_gaps(halves, pulls)
    gaps = Gaps(values_s=np.concatenate([pooled.gaps.values_s, between_s]), is_exact=pooled.gaps.is_exact,
                counts=np.concatenate([pooled.gaps.counts, np.ones(len(between_s), np.int64)]))
    records = dataclasses.replace(pooled, requests=requests, phases=phases, gaps=gaps,
                                  fetches=pooled.fetches[:trace.num_requests])
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=fleet.num_replicas, replica=replica[:trace.num_requests], handover=handover)


def _dealt(trace: Trace, fleet: Fleet, replica: NDArray[np.int32],
           recording: Recording) -> tuple[list[ReplayRecords], ReplayRecords]:
    """Replay each replica's requests by themselves."""
    owners = [pool.deployment for pool in fleet.pools for _ in range(pool.num_replicas)]
    parts = []
    requests = no_requests(trace.num_requests)
    phases: Any = st.records(trace.num_requests if recording.steps else 1, st.PHASES)
    has_tiers = owners[0].settings.cpu_tier is not None
    fetches: Any = st.records(trace.num_requests if has_tiers else 1, FETCH)
    for k, own in enumerate(owners):
        rows = np.flatnonzero(replica == k)
        if len(rows) == 0:
            parts.append(_unused(trace, own, recording))
            continue
        part = _run(_rows(trace, rows), own, recording)
        requests.put(rows, part.requests)
        if recording.steps:
            phases[rows] = part.phases
        if has_tiers:
            fetches[rows] = part.fetches
        for listed in (part.schedule, part.preemptions):
            listed["request"] = rows[listed["request"]]
        parts.append(part)
    return parts, dataclasses.replace(_pooled(parts), requests=requests, phases=phases, fetches=fetches)


def _pooled(parts: Sequence[ReplayRecords]) -> ReplayRecords:
    """Join the replicas' totals and rows, each row with its replica."""
    gaps = Gaps(values_s=np.concatenate([part.gaps.values_s for part in parts]),
                counts=np.concatenate([part.gaps.counts for part in parts]),
                is_exact=all(part.gaps.is_exact for part in parts))
    for replica, part in enumerate(parts):
        for rows in (part.steps, part.schedule, part.preemptions):
            rows["replica"] = replica
    listed: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])
                              for name in ("steps", "schedule", "preemptions")}
    links: Any = parts[0].links.copy()
    for name in ("num_read_blocks", "num_written_blocks", "num_hit_tokens"):
        links[name] = sum(part.links[name] for part in parts)
    return dataclasses.replace(parts[0], engine=total_of([part.engine for part in parts]), links=links, gaps=gaps,
                               loop_s=sum(part.loop_s for part in parts), **listed)


def _rows(trace: Trace, rows: Rows) -> Trace:
    return dataclasses.replace(trace, requests=trace.requests[rows],
                               prefix=None if trace.prefix is None else take_rows(trace.prefix, rows))
