"""The most users: closed queueing networks with a known answer, and grids of replays."""

import math
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from helpers import cheapest, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.deployment.deploy import resolve
from planner.errors import UsageError
from planner.planning.bracket import UNKNOWNS, UnlimitedError, UnreachableLoadError, find_bracket
from planner.planning.capacity import capacity
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.planning.sought import Users, served
from planner.replays.fleet.replicas import serve
from planner.run import replay
from planner.settings.objectives import Verdict, judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.closed_load import in_turn
from planner.traces.shaping.window_and_rate import limit

STEP_S, MEAN_TOKENS = 0.01, 100
PLAIN = Search(of="concurrency", replicates=0, horizon="trace", compare_assumptions=False)
CONCURRENCY = UNKNOWNS["concurrency"]


def up_to(edge: int) -> Any:
    return lambda load: Verdict(is_met=load <= edge, attainment=1.0, limiting_metric="ttft")


@given(edge=some.integers(1, 5000), start=some.integers(1, 10_000))
def test_whole_numbers_are_found_to_one(edge: int, start: int) -> None:
    found = find_bracket(up_to(edge), start, unknown=CONCURRENCY, tolerance=1e-9, limits=(1, 10_001))
    assert (found.lower, found.upper, found.is_monotone) == (edge, edge + 1, True)
    assert all(load == round(load) for load, _ in found.probes)


def test_no_number_and_every_number() -> None:
    with pytest.raises(UnreachableLoadError, match="missed at every number of users down to 1 users") as error:
        find_bracket(up_to(0), 16, unknown=CONCURRENCY, limits=(1, 100))
    assert error.value.lowest == 1
    with pytest.raises(UnlimitedError, match="at every number of users up to 100 users"):
        find_bracket(up_to(1000), 16, unknown=CONCURRENCY, limits=(1, 100))


def repairmen_s(users: int, servers: int, service_s: float, think_s: float) -> float:
    """Return the mean stay of a finite source of users at exponential servers (Allen, Probability, Statistics and
    Queueing Theory, 5.2.6): birth and death of the number there, and Little's law.
    """
    weights = [1.0]
    for k in range(1, users + 1):
        weights.append(weights[-1] * (users - k + 1) / think_s * service_s / min(k, servers))
    inside = sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
    return inside / ((users - inside) / think_s)


def geometric(num_requests: int, seed: int = 0) -> Trace:
    """Return requests of one prompt token, with exponential service of a mean of a second in a seat."""
    tokens = np.random.default_rng(seed).geometric(1 / MEAN_TOKENS, num_requests)
    return trace_of([(float(k), 1, n) for k, n in enumerate(tokens.tolist())])


@pytest.mark.parametrize(("servers", "think_s"), [
    (4, 20.0), *(pytest.param(*values, marks=pytest.mark.slow) for values in ((1, 5.0), (1, 20.0), (4, 5.0)))])
def test_users_who_pause_are_a_machine_repair_problem(servers: int, think_s: float) -> None:
    """The stay with so many users, and the most users within a limit of it, are the closed network's within 2 %."""
    service_s = STEP_S * MEAN_TOKENS
    scenario = scenario_of(max_num_seqs=servers, step_time=f"linear:{STEP_S},0")
    objectives = parse_objectives("mean_e2el:2500", None)
    search = replace(PLAIN, think_time=think_s)
    turns = in_turn(geometric(60_000), "concurrency")
    users = Users(deployment=resolve(scenario, turns), trace=turns, objectives=objectives, search=search)
    for some_users in (servers, 3 * servers + 2, 40):
        stay_s = float(np.nanmean(served(users, some_users).e2e_s))
        assert stay_s == pytest.approx(repairmen_s(some_users, servers, service_s, think_s), rel=0.02)
    most = next(users for users in count(1) if repairmen_s(users, servers, service_s, think_s) > 2.5) - 1
    found = capacity(geometric(60_000), scenario, objectives, search)
    assert abs(found.capacity - most) <= max(1, 0.02 * most)
    assert found.think_time_s == think_s
    assert found.assumptions == (f"a user pauses for {think_s:g} s after each answer (--think-time)",
                                 "all requests are ready at the start, and caches are empty")
    assert found.limiting_metric == "mean_e2el"
    assert (found.request_throughput or 0.0) == pytest.approx(found.capacity / (think_s + 2.5), rel=0.05)


def test_without_pauses_users_are_requests_in_flight() -> None:
    """One seat serves a request a second; with n users the last waits for n - 1 others."""
    trace = trace_of([(0.0, 1, 1)] * 2000)
    found = capacity(trace, scenario_of(max_num_seqs=1, step_time="linear:1,0"), parse_objectives("e2el:7500", 0.99),
                     PLAIN)
    assert (found.capacity, found.bracket.upper, found.think_time_s) == (7, 8, 0.0)
    assert found.request_throughput == pytest.approx(1.0, rel=0.01)
    assert "no think time" in found.assumptions[0]


def conversations(think_s: float | None, num_sessions: int = 400) -> Trace:
    """Return sessions of five turns, half a second apart, or with pauses."""
    rows = [(k + 0.5 * turn, 100, 20, f"s{k}", turn) for k in range(num_sessions) for turn in range(5)]
    rows.sort(key=lambda row: row[0])
    pauses: dict[str, Any] = {} if think_s is None else {"think_time_s": [think_s if row[4] else None for row in rows]}
    return trace_of([row[:3] for row in rows], session_id=[row[3] for row in rows], **pauses)


@pytest.mark.parametrize(("own_s", "asked_s", "words"), [
    (None, None, "at the trace's gaps after the first"), (2.0, None, "(the trace's, median 2 s)"),
    (None, 3.0, "(--think-time 3 s)"), (2.0, 3.0, "(--think-time 3 s)")])
def test_sessions_say_which_pauses_they_assume(own_s: float | None, asked_s: float | None, words: str) -> None:
    search = replace(PLAIN, of="sessions", think_time=asked_s)
    found = capacity(conversations(own_s), scenario_of(max_num_seqs=4, step_time="linear:0.05,0"),
                     parse_objectives("p90_ttft:1000", None), search)
    assert words in found.assumptions[0]
    assert found.think_time_s == (own_s if asked_s is None else asked_s)
    assert found.workload.num_sessions == 400
    assert 1 < found.capacity < 100


def test_longer_pauses_let_more_sessions_in() -> None:
    counts = [capacity(conversations(None), scenario_of(max_num_seqs=4, step_time="linear:0.05,0"),
                       parse_objectives("p90_ttft:1000", None), replace(PLAIN, of="sessions", think_time=s)).capacity
              for s in (0.0, 2.0, 8.0)]
    assert counts == sorted(set(counts))


def meets(trace: Trace, scenario: Scenario, slo: str, of: str, users: int) -> bool:
    """Replay a number of users as the command line does, and judge it."""
    if of == "sessions":
        result = serve(trace, resolve(replace(scenario, max_sessions=users), trace))
        return judge(parse_objectives(slo, 0.9), result.times_s).is_met
    closed = replace(scenario, max_concurrency=users, request_rate=math.inf)
    return bool(replay(trace, closed, slo=parse_objectives(slo, 0.9)).summary["objectives"][-1]["is_met"])


def workloads() -> dict[str, tuple[Trace, str]]:
    rng = np.random.default_rng(4)
    drawn = {"short": (50, 50), "long prompts": (2000, 20), "long outputs": (50, 300), "mixed": (500, 100)}
    made: dict[str, tuple[Trace, str]] = {
        name: (trace_of([(float(k), int(1 + rng.exponential(inputs)), int(1 + rng.exponential(outputs)))
                         for k in range(600)]), "concurrency") for name, (inputs, outputs) in drawn.items()}
    rows = [(float(turn), 100 + 50 * turn, 20, f"s{k}", 1.0 if turn else None) for turn in range(4) for k in range(150)]
    turns = trace_of([row[:3] for row in rows], session_id=[row[3] for row in rows],
                     think_time_s=[row[4] for row in rows])
    return {**made, "chat": (limit(read_trace("chat"), 600), "concurrency"), "turns": (turns, "sessions")}


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "sglang"])
@pytest.mark.parametrize("workload", ["short", "long prompts", "long outputs", "mixed", "chat", "turns"])
def test_the_answer_is_that_of_a_grid_of_replays(workload: str, policy: str) -> None:
    """Of replays with every number of users near it: the largest below which all keep the objectives."""
    trace, of = workloads()[workload]
    scenario = scenario_of(policy=policy, max_num_seqs=16, num_gpu_blocks=4000, step_time="linear:0.01,0.0002")
    slo = "ttft:2000" if workload != "turns" else "ttft:800"
    found = capacity(trace, scenario, parse_objectives(slo, 0.9), replace(PLAIN, of=of))
    most = round(found.capacity)
    near = range(max(most - 6, 1), most + 4)
    kept = {users: meets(trace, scenario, slo, of, users) for users in near}
    first_missed = next(users for users in near if not kept[users])
    assert abs(first_missed - 1 - most) <= max(1, 0.01 * most)
    assert kept[most]
    assert not kept.get(round(found.bracket.upper or 0), False)


def test_one_user_who_misses_is_a_result() -> None:
    found = capacity(trace_of([(0.0, 1, 1)] * 50), scenario_of(max_num_seqs=1, step_time="linear:1,0"),
                     parse_objectives("ttft:500", 0.9), PLAIN)
    assert isinstance(found, CapacityAnswer)
    assert (found.feasible, found.capacity, found.bracket.upper) == (False, 0, 1)
    assert [each.objective for each in found.missed] == ["ttft"]
    assert (found.sentence or "").startswith("one user: ")


def test_a_fleet_for_users_is_the_inverse_of_the_users_of_a_fleet() -> None:
    """With one seat a replica and a router that knows, n replicas serve n times the users of one."""
    trace, scenario = trace_of([(0.0, 1, 1)] * 2000), Scenario(
        model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=1, router="least-outstanding-requests")
    objectives = parse_objectives("p99_e2el:100", None)
    one = round(capacity(trace, scenario, objectives, PLAIN).capacity)
    choices = Choices(gpus=["h100-sxm"], ranks=(1,), compare_assumptions=False, jobs=1)
    fleet = size(trace, replace(scenario, max_concurrency=3 * one), objectives, choices)
    assert cheapest(fleet).num_replicas == 3
    assert (fleet.workload.users, fleet.request_rate, fleet.scaling) == (3 * one, None, "concurrency")
    assert fleet.assumptions[0].startswith(f"{3 * one} users at once; a user sends the next request as soon")
    assert size(trace, replace(scenario, max_concurrency=3 * one + 1), objectives,
                choices).cheapest.num_replicas == 4  # type: ignore[union-attr]


@pytest.mark.parametrize(("options", "choices", "words"), [
    ({"max_concurrency": 5, "max_sessions": 5}, {}, "in two ways"),
    ({"max_concurrency": 5, "request_rate": 2.0}, {}, "a closed loop of 5 users has none"),
    ({"max_concurrency": 5}, {"period_s": 60.0}, "no rate that could change"),
    ({"max_concurrency": 500}, {}, "has 60 requests; must be at most as many"),
    ({}, {"think_time": 2.0}, "requests at a rate have none"),
])
def test_a_fleet_for_users_has_no_rate(options: dict[str, Any], choices: dict[str, Any], words: str) -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", **options)
    with pytest.raises(UsageError, match=words):
        size(trace_of([(float(k), 1, 1) for k in range(60)]), scenario, parse_objectives("ttft:500", 0.9),
             Choices(gpus=["h100-sxm"], ranks=(1,), **choices))


@pytest.mark.parametrize(("options", "words"), [
    ({"of": "requests", "think_time": 1.0}, "requests at a rate have none"),
    ({"of": "users"}, "must be one of requests, concurrency, sessions"),
    ({"of": "sessions"}, "has no session_id"),
    ({"of": "concurrency", "think_time": -1.0}, "must be a number of at least 0"),
])
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capacity(geometric(50), scenario_of(max_num_seqs=1), parse_objectives("ttft:500", 0.9), Search(**options))


def test_turns_with_a_think_time_count_as_sessions() -> None:
    with pytest.raises(UsageError, match="count sessions"):
        capacity(conversations(1.0), scenario_of(max_num_seqs=4), parse_objectives("ttft:500", 0.9),
                 replace(PLAIN, think_time=1.0))
