"""Laws of fleets: whatever the router, each replica does with its requests what it would do alone."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from cases import Case, cases
from helpers import EVERYTHING, assert_same_requests, scenario_of
from hypothesis import given
from hypothesis import strategies as some

from planner.deployment.deploy import pools_of, resolve
from planner.loop.compiled.generator import drawn
from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays.dependencies import dependencies
from planner.replays.fleet import interleaved, replicas
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.prefix_ids import take_rows

KEYED = [name for name, policy in POLICIES.items() if policy.admit_key is not None]
recordings = some.sampled_from((EVERYTHING, Recording(), Recording(steps=True)))


@some.composite
def fleets(draw: Any) -> dict[str, Any]:
    """Draw the options of a fleet."""
    return {"data_parallel_size": draw(some.integers(1, 4)), "router": draw(some.sampled_from(list(ROUTERS))),
            "router_report_interval": draw(some.sampled_from((0.0, 0.0, 0.05, 1.0))),
            "seed": draw(some.integers(0, 3))}


@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(), options=fleets(), recording=recordings)
def test_a_replica_does_what_it_would_do_alone(policy: str, case: Case, options: dict[str, Any],
                                               recording: Recording) -> None:
    scenario = scenario_of(policy=policy, **case.options, **options)
    result = replay(case.trace(), scenario, recording=recording).result
    for k in range(result.num_replicas):
        check_alone(case.trace(), scenario, result, k, recording)


@given(case=cases(), options=fleets(), policy=some.sampled_from([name for name in POLICIES if name not in KEYED]),
       waits=some.lists(some.none() | some.integers(0, 8), min_size=10, max_size=10),
       think_s=some.lists(some.sampled_from((0.0, 0.01, 0.4)), min_size=10, max_size=10))
def test_requests_wait_for_their_parents(case: Case, options: dict[str, Any], policy: str, waits: list[int | None],
                                         think_s: list[float]) -> None:
    """A child is sent its think time after its last parent has left, or later in a closed loop; never before."""
    trace = case.trace()
    parents = [None if parent is None or parent >= k else str(parent)
               for k, parent in enumerate(waits[:trace.num_requests])]
    table = trace.requests.with_columns(pl.Series("parent_id", parents, dtype=pl.String),
                                        pl.Series("think_time_s", think_s[:trace.num_requests]))
    trace = dataclasses.replace(trace, requests=table)
    named = case.options | {"victim": None if case.options["victim"] == "lowest-priority" else case.options["victim"]}
    scenario = scenario_of(policy=policy, **named, **options)
    result = replay(trace, scenario, recording=EVERYTHING).result
    requests = result.records.requests
    for k, parent in enumerate(parents):
        if parent is not None:
            due_s = requests.finished_s[int(parent)] + think_s[k]
            sent_s = requests.arrival_s[k]
            assert sent_s >= due_s - 1e-12
            is_open = case.options["max_concurrency"] is None
            if is_open and requests.state[int(parent)] == requests.state.min() == st.COMPLETED:
                assert sent_s == pytest.approx(due_s, abs=1e-12)
    for k in range(result.num_replicas):
        check_alone(trace, scenario, result, k, EVERYTHING)


@given(case=cases(), policy=some.sampled_from(list(POLICIES)), count=some.integers(1, 4), recording=recordings,
       router=some.sampled_from(("round-robin", "random")), seed=some.integers(0, 3))
def test_dealt_requests_and_routed_ones_are_replayed_alike(case: Case, policy: str, count: int, recording: Recording,
                                                           router: str, seed: int) -> None:
    options = case.options | {"max_concurrency": None, "router": router, "seed": seed}
    trace, scenario = case.trace(), scenario_of(policy=policy, **options, data_parallel_size=count)
    deployment = resolve(scenario, trace)
    dealt = replicas.serve(trace, deployment, count, recording)
    several = interleaved.RoutedFleet(pools=pools_of(deployment, count), router=ROUTERS[router], report_interval_s=0.0,
                                      seed=seed)
    parts, replica, *_ = interleaved.run_interleaved(trace, several, None, recording)
    turns = drawn(seed, trace.num_requests) if router == "random" else np.arange(trace.num_requests)
    assert replica.tolist() == (turns % count).tolist()
    assert_same_requests(dealt.records.requests, parts[0].requests)
    listed = [np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "schedule", "preemptions")]
    for name, rows in zip(("steps", "schedule", "preemptions"), listed, strict=True):
        ours = getattr(dealt.records, name)
        for field in rows.dtype.names or ():
            if field != "replica":
                assert np.array_equal(ours[field], rows[field]), (name, field)


@given(case=cases(), count=some.integers(2, 4), name=some.sampled_from(("least-outstanding-requests",
                                                                          "least-outstanding-tokens")))
def test_the_least_loaded_replica_is_taken(case: Case, count: int, name: str) -> None:
    """Recomputed from the outcome: of equals, the replica that was sent a request the longest ago."""
    result = replay(case.trace(), scenario_of(**case.options | {"pipeline_parallel_size": 1, "max_concurrency": None},
                                              data_parallel_size=count, router=name), recording=EVERYTHING).result
    requests, replica = result.records.requests, result.replica
    assert replica is not None
    sizes = np.ones(len(requests)) if name.endswith("requests") else requests.input_tokens
    last = [0] * count
    if set(requests.state.tolist()) != {st.COMPLETED}:  # others are noticed when a step begins, not when they leave
        return
    for i in range(len(requests)):
        there = (np.arange(len(requests)) < i) & (requests.finished_s > requests.arrival_s[i])
        loads = [(int(sizes[there & (replica == k)].sum()), last[k], k) for k in range(count)]
        assert min(loads)[2] == replica[i]
        last[replica[i]] = i + 1


def check_alone(trace: Trace, scenario: Scenario, result: ReplayResult, k: int, recording: Recording) -> None:
    """Replay a replica's requests by themselves, each sent when it was sent to it."""
    sent_s = np.asarray(result.records.requests.arrival_s)
    rows = np.flatnonzero(result.replica == k) if result.replica is not None else np.arange(trace.num_requests)
    if len(rows) == 0:
        return
    rows = rows[np.argsort(sent_s[rows], kind="stable")]
    is_open = dependencies(trace) is None and scenario.max_concurrency is None
    by_key = scenario.policy in KEYED or scenario.victim == "lowest-priority"
    if not is_open and (by_key or len(np.unique(sent_s[rows])) < len(rows)):
        return  # keys are of recorded arrivals; and one may have left at the instant at which the other was sent
    table = trace.requests[rows].with_columns(pl.Series("arrival_s", sent_s[rows]))
    table = table.drop("parent_id", "think_time_s", strict=False)
    part = dataclasses.replace(trace, requests=table,
                               prefix=None if trace.prefix is None else take_rows(trace.prefix, rows))
    settings = result.records.settings
    caching = bool(settings.enable_prefix_caching or settings.caches_in_tree)
    alone = replay(part, replace(scenario, data_parallel_size=1, router="round-robin", router_report_interval=0.0,
                                 max_concurrency=None, enable_prefix_caching=caching), recording=recording).result
    assert_same_requests(result.records.requests[rows], alone.records.requests)
    ours, theirs = result.records.steps, alone.records.steps
    ours = ours[ours["replica"] == k]
    for field in set(theirs.dtype.names or ()) - {"replica"}:
        assert np.array_equal(ours[field], theirs[field]), field
