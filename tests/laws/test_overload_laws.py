"""Laws of overload: every request has one end, attempts follow each other, and what does not bite changes nothing."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from cases import Case, cases
from helpers import EVERYTHING, assert_same_requests, play, scenario_of, trace_of
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from test_fleet_laws import KEYED, fleets

from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays.attempts import STATUS
from planner.replays.fleet.failures import Failure
from planner.replays.result_tables import ReplayResult
from planner.results.phases import request_phases
from planner.run import replay
from planner.traces.prefix_ids import take_rows

RETRIED = (st.TIMED_OUT, st.OVERLOADED, st.THROTTLED, st.UNAVAILABLE, st.LOST)
recordings = some.sampled_from((EVERYTHING, Recording(), Recording(steps=True)))

TENANTS = """
[tenant.a]
requests_per_second = 4
weight = 3
[tenant.b]
tokens_per_minute = 3000
burst_tokens = 60
excess = "delay"
[default]
requests_per_second = 20
excess = "delay"
"""


@some.composite
def overloads(draw: Any, num_replicas: int) -> dict[str, Any]:
    """Draw the options of overload, each given or not."""
    found: dict[str, Any] = {
        "max_queued_requests": draw(some.sampled_from((0, 1, 2, 4))),
        "ttft_timeout": draw(some.sampled_from((None, None, 0.001, 0.03, 0.2))),
        "request_timeout": draw(some.sampled_from((None, None, 0.01, 0.1, 0.4))),
        "router_max_concurrent_requests": draw(some.sampled_from((0, 1, 3))),
        "max_retries": draw(some.sampled_from((0, 1, 3, 6))),
    }
    if found["router_max_concurrent_requests"]:
        found |= {"router_queue": draw(some.sampled_from(("fcfs", "fair"))),
                  "router_queue_size": draw(some.sampled_from((None, 0, 1, 3))),
                  "router_queue_timeout": draw(some.sampled_from((None, 0.05)))}
    if found["max_retries"]:
        found |= {"retry_initial_backoff": draw(some.sampled_from((0.0, 0.01, 0.3))),
                  "retry_backoff_multiplier": draw(some.sampled_from((1.0, 2.0))),
                  "retry_max_backoff": draw(some.sampled_from((0.05, 8.0))),
                  "retry_jitter_factor": draw(some.sampled_from((0.0, 0.5)))}
    if draw(some.booleans()):
        failures, back = [], [0.0] * num_replicas
        for at_s in sorted(draw(some.lists(some.sampled_from((0.0, 0.02, 0.055, 0.1, 0.31, 0.9)), max_size=3))):
            k, duration_s = draw(some.integers(0, num_replicas - 1)), draw(some.sampled_from((0.01, 0.3, None)))
            if at_s >= back[k]:
                health_check_s = draw(some.sampled_from((0.0, 0.0, 0.025, 0.5)))
                failures.append(Failure(replica=k, at_s=at_s, duration_s=duration_s or np.inf,
                                        health_check_s=health_check_s).text)
                back[k] = at_s + (duration_s or np.inf)
        found["fail_replica"] = ",".join(failures) or None
    return found


@some.composite
def overloaded_fleets(draw: Any) -> dict[str, Any]:
    options = draw(fleets())
    apart = draw(prefill_apart(options["data_parallel_size"]))
    found: dict[str, Any] = options | apart | draw(overloads(options["data_parallel_size"]))
    return found


@some.composite
def prefill_apart(draw: Any, num_replicas: int) -> dict[str, Any]:
    """Draw how many replicas prefill only, and what it takes to pass their KV on."""
    if num_replicas == 1 or draw(some.booleans()):
        return {}
    return {"prefill_replicas": draw(some.integers(1, num_replicas - 1)),
            "kv_transfer_latency": draw(some.sampled_from((0.0, 0.013, 0.1))),
            "kv_transfer": draw(some.sampled_from(("whole", "layerwise"))),
            "local_prefill_below": draw(some.sampled_from((0, 0, 15)))}


@pytest.fixture(scope="module")
def tenants_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tenants") / "tenants.toml"
    path.write_text(TENANTS)
    return path


@settings(parent=settings.default, max_examples=5 * settings().max_examples)
@given(policy=some.sampled_from(list(POLICIES)), case=cases(), options=overloaded_fleets(), recording=recordings,
       with_quotas=some.booleans(),
       tenant=some.lists(some.sampled_from(("a", "b", "c", None)), min_size=10, max_size=10))
def test_attempts_are_conserved(policy: str, case: Case, options: dict[str, Any], recording: Recording,
                                with_quotas: bool, tenant: list[str | None], tenants_file: Path) -> None:
    """Of every request one end; each attempt but the last ended in a way that is tried again, and before the next."""
    trace = case.trace()
    table = trace.requests.with_columns(pl.Series("tenant", tenant[:trace.num_requests], dtype=pl.String))
    trace = dataclasses.replace(trace, requests=table)
    scenario = scenario_of(policy=policy, **case.options, **options,
                           tenants=str(tenants_file) if with_quotas else None)
    outcome = replay(trace, scenario, recording=recording, slo="ttft:100000")
    result = outcome.result
    requests = result.records.requests
    assert set(requests.state.tolist()) <= set(STATUS)
    counts = outcome.summary
    assert counts["completed"] + counts["failed"] + counts["rejected"] == trace.num_requests
    assert counts["unfinished"] == 0
    in_time = requests.state == st.COMPLETED  # others miss
    if "deadline_s" in trace.requests.columns:
        deadline_s = trace.requests["deadline_s"].fill_null(math.inf).to_numpy()
        in_time &= result.e2e_s <= deadline_s
    assert counts["slo_attainment"] == in_time.sum() / trace.num_requests
    if result.attempts is not None:
        check_attempts(result, scenario.max_retries)
    check_times(result)
    check_empty(result)


@given(policy=some.sampled_from(list(POLICIES)), case=cases(), options=fleets(), recording=recordings,
       silences=some.lists(some.sampled_from((0.025, 0.3)), min_size=2, max_size=2),
       max_retries=some.sampled_from((0, 4)),
       at_s=some.lists(some.sampled_from((0.0, 0.02, 0.055, 0.1, 0.31)), min_size=2, max_size=2),
       duration_s=some.sampled_from((0.01, 0.4, math.inf)))
def test_attempts_at_silent_replicas_are_conserved(
        policy: str, case: Case, options: dict[str, Any], recording: Recording, silences: list[float],
        max_retries: int, at_s: list[float], duration_s: float) -> None:
    """A silent replica answers nothing until the router finds out, and nothing is sent to it until it is back."""
    options = options | {"data_parallel_size": 2}
    failures = [Failure(replica=k, at_s=at_s[k], duration_s=duration_s, health_check_s=silences[k]) for k in (0, 1)]
    scenario = scenario_of(policy=policy, **case.options, **options, max_retries=max_retries,
                           fail_replica=",".join(failure.text for failure in failures))
    result = replay(case.trace(), scenario, recording=recording).result
    check_attempts(result, max_retries)
    check_times(result)
    check_empty(result)
    assert result.attempts is not None
    for failure in failures:
        rows = result.attempts.rows[result.attempts.rows["replica"] == failure.replica]
        back_s = failure.at_s + failure.duration_s
        noticed_s = min(failure.at_s + failure.health_check_s, back_s)
        assert not np.any((rows["sent_s"] > noticed_s) & (rows["sent_s"] < back_s))
        ended_s = rows["ended_s"][(rows["sent_s"] > failure.at_s) & (rows["sent_s"] < noticed_s)]
        assert np.all(ended_s >= noticed_s)


def check_attempts(result: ReplayResult, max_retries: int) -> None:
    requests, attempts = result.records.requests, result.attempts
    assert attempts is not None
    rows = attempts.rows
    assert len(rows) == attempts.count.sum()
    assert np.all(np.diff(rows["ended_s"]) >= 0)
    for i in range(len(requests)):
        own = rows[rows["request"] == i]
        assert own["number"].tolist() == list(range(1, len(own) + 1))
        assert np.all(own["sent_s"] <= own["ended_s"])
        assert np.all(own["ended_s"][:-1] <= own["sent_s"][1:])
        assert set(own["outcome"][:-1].tolist()) <= set(RETRIED)
        assert own["sent_s"][0] == requests.arrival_s[i]
        assert own["outcome"][-1] == requests.state[i] or requests.state[i] == st.CANCELLED
        assert len(own) <= 1 + max(max_retries, int(np.any(own["outcome"] == st.LOST)))
        if own["outcome"][-1] in RETRIED and requests.state[i] != st.CANCELLED:
            has_gone = "cancel_after_s" in result.trace.requests.columns and own["ended_s"][-1] >= (
                requests.arrival_s[i] + result.trace.requests["cancel_after_s"][i])
            assert len(own) > max_retries or has_gone
    if result.replica is not None:
        last = {int(row["request"]): int(row["replica"]) for row in rows}
        assert [last[i] for i in range(len(requests))] == result.replica.tolist()


def check_empty(result: ReplayResult) -> None:
    """No engine keeps a request or a block."""
    for replica in result.replicas:
        e = replica.engine
        assert (e.num_running, e.num_waiting, e.num_loading, e.num_held, e.num_pulls) == (0, 0, 0, 0, 0)
        assert e.num_free_blocks == replica.settings.num_gpu_blocks


def check_times(result: ReplayResult) -> None:
    """Times count from the first attempt, and their parts add up."""
    table = result.requests_table()
    done = table.filter(pl.col("status") == "completed")
    assert (table["finished_at_s"] >= table["arrival_s"]).all()
    assert (done["e2e_s"] - (done["finished_at_s"] - done["arrival_s"])).abs().max() in (None, 0.0)
    phases = request_phases(table)
    if result.records.settings.records_steps and not phases.is_empty():
        parts = phases.drop("e2e_s").sum_horizontal().to_numpy()
        assert parts == pytest.approx(phases["e2e_s"].to_numpy(), abs=1e-9)


HARMLESS: dict[str, dict[str, Any]] = {
    "retries": {"max_retries": 3},
    "timeouts": {"ttft_timeout": 1e6, "request_timeout": 1e6},
    "queues": {"max_queued_requests": 1000, "router_max_concurrent_requests": 1000, "router_queue_size": 0},
    "fair queue": {"router_max_concurrent_requests": 1000, "router_queue": "fair"},
    "late failure": {"fail_replica": "0@1000000+5"},
    "late silence": {"fail_replica": "0@1000000+5/3"},
}


@pytest.mark.parametrize("name", HARMLESS)
@given(case=cases(), policy=some.sampled_from(list(POLICIES)), options=fleets(), recording=recordings)
def test_what_does_not_bite_changes_nothing(name: str, case: Case, policy: str, options: dict[str, Any],
                                            recording: Recording) -> None:
    """The replay equals the replay without the option bit for bit, alone or behind any router.

    In a closed loop all have to complete. If a request is refused or cancelled at the instant at which a step is
    composed, its client sends the next at the same instant. An engine alone and one behind a gateway take the two
    events in different orders: the step has the next request or not.
    """
    scenario = scenario_of(policy=policy, **case.options, **options)
    plain = replay(case.trace(), scenario, recording=recording).result
    assume(scenario.max_concurrency is None or (plain.records.requests.state == st.COMPLETED).all())
    guarded = replay(case.trace(), replace(scenario, **HARMLESS[name]), recording=recording).result
    assert_same_requests(guarded.records.requests, plain.records.requests)
    if plain.replica is not None:
        assert guarded.replica is not None
        assert guarded.replica.tolist() == plain.replica.tolist()
    for rows in ("schedule", "preemptions"):
        assert np.array_equal(getattr(guarded.records, rows), getattr(plain.records, rows))
    if name != "timeouts":  # a client's patience is looked at, so stretches of decodes end where it does
        assert np.array_equal(guarded.records.steps, plain.records.steps)


@pytest.mark.parametrize("name", HARMLESS)
@given(case=cases(), policy=some.sampled_from(list(POLICIES)), options=fleets(), apart=prefill_apart(2),
       recording=recordings)
def test_what_does_not_bite_changes_nothing_apart(name: str, case: Case, policy: str, options: dict[str, Any],
                                                  apart: dict[str, Any], recording: Recording) -> None:
    """The same where some prefill and others decode, but for users who hang up: an attempt's transfer ends with it."""
    trace = case.trace()
    trace = dataclasses.replace(trace, requests=trace.requests.drop("cancel_after_s", strict=False))
    options = options | {"data_parallel_size": 1 + options["data_parallel_size"], "prefill_replicas": 1} | apart
    scenario = scenario_of(policy=policy, **case.options, **options)
    plain = replay(trace, scenario, recording=recording).result
    guarded = replay(trace, replace(scenario, **HARMLESS[name]), recording=recording).result
    assert_same_requests(guarded.records.requests, plain.records.requests)
    assert guarded.handover is not None
    assert plain.handover is not None
    for column, values in plain.handover.items():
        assert np.array_equal(guarded.handover[column], values, equal_nan=True)
    for rows in ("schedule", "preemptions"):
        assert np.array_equal(getattr(guarded.records, rows), getattr(plain.records, rows))


@settings(parent=settings.default, max_examples=2 * settings().max_examples)
@given(policy=some.sampled_from(list(POLICIES)), case=cases(), options=overloads(1),
       routers=some.tuples(*2 * [some.sampled_from(list(ROUTERS))]))
def test_one_replica_behind_any_router_is_the_single_engine(policy: str, case: Case, options: dict[str, Any],
                                                            routers: tuple[str, str]) -> None:
    first, second = (play(case.trace(), policy=policy, router=router, **case.options, **options) for router in routers)
    assert_same_requests(first.records.requests, second.records.requests)
    for rows in ("steps", "schedule", "preemptions"):
        assert np.array_equal(getattr(first.records, rows), getattr(second.records, rows))


@given(case=cases(), policy=some.sampled_from([name for name in POLICIES if name not in KEYED]), options=fleets(),
       max_queued=some.sampled_from((0, 1, 2)), timeout_s=some.sampled_from((0.03, 0.1, 0.4)),
       backoff_s=some.sampled_from((0.0, 0.013, 0.2)))
def test_an_attempt_is_a_request_of_its_own(case: Case, policy: str, options: dict[str, Any], max_queued: int,
                                            timeout_s: float, backoff_s: float) -> None:
    """A replica does with the attempts that it is sent what it would do with as many requests, sent once each.

    Who tries again at the instant at which a step begins is not in it, and a request of its own would be.
    """
    named = case.options | {"max_concurrency": None}
    named |= {"victim": None} if named["victim"] == "lowest-priority" else {}
    trace = case.trace()
    if trace.prefix is None:  # a prompt that comes again finds its own blocks, which requests of their own do not share
        named |= {"enable_prefix_caching": False}
    scenario = scenario_of(policy=policy, **named, **options, max_queued_requests=max_queued,
                           request_timeout=timeout_s, max_retries=2, retry_initial_backoff=backoff_s)
    trace = dataclasses.replace(trace, requests=trace.requests.drop("cancel_after_s", strict=False))
    result = replay(trace, scenario, recording=Recording(steps=True)).result
    assert result.attempts is not None
    for k in range(result.num_replicas):
        rows = result.attempts.rows[result.attempts.rows["replica"] == k]
        rows = rows[np.argsort(rows["sent_s"], kind="stable")]
        if len(rows) == 0 or len(np.unique(rows["sent_s"])) < len(rows):
            continue
        begin_s = result.records.steps["start_s"][result.records.steps["replica"] == k]
        if np.isin(rows["sent_s"][rows["number"] > 1], begin_s).any():
            continue
        own = trace.requests[rows["request"]].with_columns(
            pl.Series("arrival_s", np.ascontiguousarray(rows["sent_s"])),
            pl.Series("request_id", [str(place) for place in range(len(rows))]), cancel_after_s=pl.lit(timeout_s))
        part = dataclasses.replace(trace, requests=own,
                                   prefix=None if trace.prefix is None else take_rows(trace.prefix, rows["request"]))
        alone = replay(part, replace(scenario, data_parallel_size=1, router="round-robin", router_report_interval=0.0,
                                     request_timeout=None, max_retries=0, retry_initial_backoff=0.5,
                                     enable_prefix_caching=bool(result.records.settings.enable_prefix_caching))).result
        theirs = alone.records.requests
        assert np.array_equal(rows["first_token_s"], theirs.first_token_s, equal_nan=True)
        assert np.array_equal(rows["ended_s"], theirs.finished_s)
        assert np.array_equal(rows["num_output_tokens"], theirs.num_output_tokens)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("caching", [False, True])
def test_a_failure_of_an_idle_replica_changes_nothing_but_its_cache(router: str, caching: bool) -> None:
    rows = [(10.0 * (k // 4) + 0.003 * (k % 4), 32, 4) for k in range(16)]
    trace = trace_of(rows, hash_ids=[[0, 1, 2 + k % 2, 3 + k % 2] for k in range(16)], hash_block_tokens=8)
    options: dict[str, Any] = {"data_parallel_size": 2, "router": router, "enable_prefix_caching": caching,
                               "block_size": 8}
    plain = play(trace, **options)
    failed = play(trace, **options, fail_replica="0@15+2,1@5+1")
    assert failed.attempts is not None
    assert failed.attempts.count.tolist() == [1] * 16
    if not caching:
        assert_same_requests(failed.records.requests, plain.records.requests)
        assert np.array_equal(failed.records.steps, plain.records.steps)
        return
    cached, before = (np.maximum(result.records.requests.num_cached_tokens, 0) for result in (failed, plain))
    assert cached[:4].tolist() == before[:4].tolist()
    assert cached[4:8].sum() < before[4:8].sum()  # replica 1 came back without its cache
