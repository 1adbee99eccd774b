"""A fleet of replicas behind a router: one replay each, or all on one clock, pooled into one result."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.conditions import routes_of
from planner.deployment.deploy import Deployment, Pool, pools_of
from planner.errors import UsageError
from planner.loop.compiled.generator import drawn
from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import Recording
from planner.loop.state.entries import FETCH
from planner.policies.router import Router
from planner.progress import stage
from planner.replays.dependencies import Dependencies, dependencies
from planner.replays.driver import ReplayRecords, TakenRows, run
from planner.replays.fleet.disaggregation import joined, num_handed_over, transfer_of
from planner.replays.fleet.interleaved import RoutedFleet, run_interleaved
from planner.replays.fleet.overload import holding_requests, overload_of
from planner.replays.fleet.routes import cycle_of
from planner.replays.fleet.scaler import Scaler
from planner.replays.fleet.shares import total_of
from planner.replays.fleet.timers import Timer
from planner.replays.gaps import Gaps, GapTally
from planner.replays.hope import Hope, hope_of
from planner.replays.initial import initial_state
from planner.replays.request_columns import RequestMemory, limits_of_requests, no_requests
from planner.replays.result_tables import ReplayResult, Replica
from planner.replays.scaling_record import Scaling, staying, together
from planner.settings.objectives import Objectives
from planner.settings.tier_options import has_tiers, shares_store
from planner.traces import Trace

NOTHING = Recording()

Rows = NDArray[np.int64]

MOST_ON_ONE_CLOCK = 20_000  # replicas, of which each takes 1 ms and 30 kB before the first request


def serve(trace: Trace, deployment: Deployment, num_replicas: int | None = None,
          recording: Recording = NOTHING, objectives: Objectives | None = None) -> ReplayResult:
    """Replay a trace on a deployment's replicas, each with its own queue and cache.

    If requests are dealt in turn or at random and do not depend on each other, each replica is replayed by itself;
    else all are on one clock, ranks of data-parallel attention too, each of which is a replica in the result.

    Parameters
    ----------
    deployment : with its router and autoscaler.
    num_replicas : at least 1, if all are equal; None for the scenario's number [1]. With an autoscaler its maximum
        counts. All ranks of data-parallel attention are one.
    recording : which rows to keep; steps are counted by replica.
    objectives : to be kept; the replay ends once they are lost, unless replicas are on one clock.

    Returns
    -------
    ReplayResult
        All requests in the trace's order, steps replica by replica. Counts and busy time are sums over the replicas,
        peaks are the fullest replica's.

    Raises
    ------
    LostError : the objectives are lost.
    TraceError : requests wait for unknown ones, or in a circle.
    PolicyError : the policy, the router or the autoscaler is at fault.
    UsageError : no replica is left to decode; more than `MOST_ON_ONE_CLOCK` replicas.
    """
    scenario = deployment.scenario
    ranks = deployment.layout.data_parallel_size
    pools = _pools(deployment, scenario.data_parallel_size if num_replicas is None else num_replicas * ranks)
    count, router = sum(pool.num_replicas for pool in pools), deployment.router
    waits = dependencies(trace, scenario.max_sessions) if scenario.wait_for_parents else None
    followers = 0 if waits is None else int((waits.num_parents > 0).sum())
    may_be_none = any(pool.autoscale is not None and pool.autoscale.rules.minimum == 0 for pool in pools)
    overload = holding_requests(scenario) if may_be_none else overload_of(scenario)
    scalers = _scalers(trace, pools, waits)
    routed = [pool for pool in pools if pool.role != "decode"]
    routes = routes_of([pool.accepts for pool in routed], [pool.name for pool in routed], trace, str(scenario.fleet))
    hope = hope_of(objectives, trace)
    if count == 1 and waits is None and not scalers and overload is None:
        parts = [_run(trace, pools[0].deployment, recording, hope)]
        return ReplayResult(trace=trace, deployment=deployment, records=parts[0], replicas=_replicas(parts))
    is_split = pools[0].role == "prefill"
    fleet = RoutedFleet(pools=pools, router=router, report_interval_s=scenario.router_report_interval,
                        overload=overload, seed=scenario.seed or 0, routes=routes,
                        transfer=transfer_of(pools[0].deployment) if is_split else None)
    shares_nothing = (waits is None and scenario.max_concurrency is None and not shares_store(scenario)
                      and not fleet.steps_together)
    if is_blind(router) and shares_nothing and overload is None and not scalers and not is_split:
        result = _dealt(trace, deployment, fleet, recording, hope)
    else:
        if count > MOST_ON_ONE_CLOCK:
            raise UsageError(f"{count:,} replicas: a replay in which requests or replicas depend on each other takes "
                             f"at most {MOST_ON_ONE_CLOCK:,}; give fewer, or --router random or round-robin without a "
                             f"limit on requests in flight, sessions, autoscaling and queues of the router")
        timers = [timer for scaler in scalers.values() for timer in scaler.timers()]
        result = (_disaggregated if is_split else _routed)(trace, deployment, fleet, waits, recording, timers)
    return dataclasses.replace(result, num_followers=followers, scaling=_scaling(result, pools, scalers),
                               tenants=None if overload is None else overload.tenants)


def is_dealt(trace: Trace, deployment: Deployment) -> bool:
    """Tell whether equal replicas of a deployment serve a trace each by itself, so that some show how all do."""
    scenario = deployment.scenario
    waits = scenario.wait_for_parents and dependencies(trace, scenario.max_sessions) is not None
    return (is_blind(deployment.router) and not deployment.pools and scenario.prefill_replicas == 0 and not waits
            and not scenario.is_closed_loop and deployment.layout.data_parallel_size == 1
            and not shares_store(scenario) and deployment.autoscale is None
            and overload_of(scenario) is None)


def is_blind(router: Router) -> bool:
    """Tell whether a router looks at neither the replicas nor the request: by turns, or at random."""
    return (router.takes_turns or router.num_choices == 1) and not router.is_sticky


def _pools(deployment: Deployment, num_replicas: int) -> tuple[Pool, ...]:
    """Return the pools of a fleet; with an autoscaler its maximum counts."""
    autoscale = deployment.autoscale
    if autoscale is None or deployment.pools:
        return pools_of(deployment, num_replicas)
    return tuple(dataclasses.replace(pool, autoscale=autoscale)
                 for pool in pools_of(deployment, autoscale.rules.maximum))


def _scalers(trace: Trace, pools: Sequence[Pool], waits: Dependencies | None) -> dict[str, Scaler]:
    """Return the autoscalers at work, by the names of their pools."""
    if not any(pool.autoscale is not None for pool in pools):
        return {}
    arrival_s = trace.requests["arrival_s"].to_numpy()
    first_s = float(arrival_s[0] if waits is None else arrival_s[waits.num_parents == 0][0])
    scalers, first_replica = {}, 0
    for pool in pools:
        memory = pool.deployment.memory
        if pool.autoscale is not None:
            weight_bytes = None if memory is None else memory.weight_bytes * pool.deployment.layout.num_gpus
            scalers[pool.name] = Scaler(pool.autoscale, first_replica, pool.autoscale.startup.delay_s(weight_bytes),
                                        first_s)
        first_replica += pool.num_replicas
    return scalers


def _scaling(result: ReplayResult, pools: Sequence[Pool], scalers: Mapping[str, Scaler]) -> Scaling | None:
    """Return how replicas came and went; of a fleet's file, of all its pools."""
    if not scalers:
        return None
    requests, deployment = result.records.requests, result.deployment
    first_s, end_s = float(np.nanmin(requests.arrival_s)), float(np.nanmax(requests.finished_s))
    if not deployment.pools:
        return scalers[pools[0].name].scaling(end_s)
    parts, first_replica = {}, 0
    for pool in pools:
        parts[pool.name] = (scalers[pool.name].scaling(end_s) if pool.name in scalers else
                            staying(pool.num_replicas, first_replica, first_s, end_s))
        first_replica += pool.num_replicas
    return together(str(deployment.scenario.fleet), parts)


def _run(trace: Trace, engine: Deployment, recording: Recording, hope: Hope | None) -> ReplayRecords:
    return run(trace, engine.policy, engine.settings, engine.step_time, recording, hope)


def _unused(trace: Trace, engine: Deployment, recording: Recording) -> ReplayRecords:
    """Return the records of a replica that no request is sent to."""
    one = trace.take(np.zeros(1, np.int64))
    nobody = RequestMemory(one, [limits_of_requests(engine.policy, engine.settings)])
    state = initial_state(one, engine.policy, engine.settings, engine.step_time, recording, nobody.records)
    return TakenRows(state).records(0.0, nobody.columns())


def _replicas(parts: Sequence[ReplayRecords]) -> tuple[Replica, ...]:
    return tuple(Replica(part.engine, part.settings, part.links) for part in parts)


def _routed(trace: Trace, deployment: Deployment, fleet: RoutedFleet, waits: Dependencies | None, recording: Recording,
            timers: Sequence[Timer]) -> ReplayResult:
    """Replay a trace on replicas on one clock, each of which does all of a request."""
    parts, replica, _, attempts = run_interleaved(trace, fleet, waits, recording, timers)
    records = dataclasses.replace(_pooled(parts), requests=parts[0].requests, phases=parts[0].phases)
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=fleet.num_replicas, replica=replica if fleet.num_replicas > 1 else None,
                        attempts=attempts)


def _disaggregated(trace: Trace, deployment: Deployment, fleet: RoutedFleet, waits: Dependencies | None,
                   recording: Recording, timers: Sequence[Timer]) -> ReplayResult:
    """Replay a trace on replicas of which some prefill and the others decode.

    Rows of steps and preemptions name the request, whichever half of it they are about.
    """
    if fleet.num_replicas <= fleet.num_prefill:
        raise UsageError(f"prefill_replicas = {fleet.num_prefill} of {fleet.num_replicas} replicas: no replica is left "
                         f"to decode; lower prefill_replicas")
    parts, replica, pulls, attempts = run_interleaved(trace, fleet, waits, recording, timers)
    halves = parts[0].requests
    requests, phases, handover = joined(halves, parts[0].phases, pulls, replica)
    for part in parts:
        for rows in (part.schedule, part.preemptions):
            rows["request"] %= trace.num_requests
    pooled = _pooled(parts)
    count = num_handed_over(halves, pulls)
    if count > 0 and not deployment.settings.sends_token_on:  # the second token of each comes with the first
        pooled.tally.add_gaps(Gaps(values_s=np.zeros(1), counts=np.array([count]), is_exact=True))
    records = dataclasses.replace(pooled, requests=requests, phases=phases,
                                  fetches=pooled.fetches[:trace.num_requests])
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=fleet.num_replicas, replica=replica[:trace.num_requests], handover=handover,
                        attempts=attempts)


def _dealt(trace: Trace, deployment: Deployment, fleet: RoutedFleet, recording: Recording,
           hope: Hope | None) -> ReplayResult:
    """Replay each replica's requests by themselves, if the router is blind and they do not depend on each other."""
    replica = _replica_dealt(trace, fleet)
    owners = [pool.deployment for pool in fleet.pools for _ in range(pool.num_replicas)]
    parts = []
    requests = no_requests(trace.num_requests)
    phases: Any = st.records(trace.num_requests if recording.steps else 1, st.PHASES)
    tiered = [has_tiers(engine.scenario) for engine in owners]
    fetches: Any = st.records(trace.num_requests if any(tiered) else 1, FETCH)
    order = np.argsort(replica.astype(np.min_scalar_type(len(owners))), kind="stable")  # small numbers: a radix sort
    starts = np.searchsorted(replica[order], np.arange(len(owners) + 1))
    unused: dict[int, ReplayRecords] = {}  # one of each engine stands for all: they have no rows
    by_replica = trace.take(order)  # once: to take the rows of each replica would take a fifth of a search
    with stage("replaying replicas", len(owners)) as replaying:
        for k, engine in enumerate(owners):
            replaying.move(k)
            rows = order[starts[k]:starts[k + 1]]
            if len(rows) == 0:
                if id(engine) not in unused:
                    unused[id(engine)] = _unused(trace, engine, recording)
                parts.append(unused[id(engine)])
                continue
            part = _run(by_replica.part(int(starts[k]), len(rows)), engine, recording, hope)
            if hope is not None:
                hope.spend(part.requests)
            requests.put(rows, part.requests)
            if recording.steps:
                phases[rows] = part.phases
            if tiered[k]:
                fetches[rows] = part.fetches
            for listed in (part.schedule, part.preemptions):
                listed["request"] = rows[listed["request"]]
            parts.append(part)
    records = dataclasses.replace(_pooled(parts), requests=requests, phases=phases, fetches=fetches)
    return ReplayResult(trace=trace, deployment=deployment, records=records, replicas=_replicas(parts),
                        num_replicas=fleet.num_replicas, replica=replica if fleet.num_replicas > 1 else None)


def _replica_dealt(trace: Trace, fleet: RoutedFleet) -> NDArray[np.int32]:
    """Return the replica that each request is dealt to, among the replicas of its route, shape [num_requests]."""
    replica = np.empty(trace.num_requests, np.int32)
    draws = None if fleet.router.takes_turns else drawn(fleet.seed, trace.num_requests)
    for r, replicas in enumerate(fleet.routed):
        rows = np.arange(trace.num_requests) if fleet.routes is None else fleet.routes.rows(r, trace.num_requests)
        turn = cycle_of(replicas, fleet.weights)
        replica[rows] = turn[(np.arange(len(rows)) if draws is None else draws[rows]) % len(turn)]
    return replica


def _pooled(parts: Sequence[ReplayRecords]) -> ReplayRecords:
    """Join the replicas' totals and rows, each row with its replica."""
    tally = GapTally()
    names = ("steps", "schedule", "preemptions")
    rows: dict[str, list[Any]] = {name: [getattr(parts[0], name)] for name in names}
    for replica, part in enumerate(parts):
        if part.engine.num_steps == 0 and replica > 0:
            continue
        tally.add_gaps(part.tally)
        for name in names:
            getattr(part, name)["replica"] = replica
            if replica > 0:
                rows[name].append(getattr(part, name))
    listed: dict[str, Any] = {name: np.concatenate(parts_of) for name, parts_of in rows.items()}
    return dataclasses.replace(parts[0], engine=total_of([part.engine for part in parts]), tally=tally,
                               loop_s=sum(part.loop_s for part in parts), **listed)
