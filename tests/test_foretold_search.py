"""Searches that foretell their edge from strain, against searches without any shortcut."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from planner.deployment.deploy import resolve
from planner.planning.bracket import (
    CHECKED,
    TOLERANCE,
    UNKNOWNS,
    UnlimitedError,
    UnreachableLoadError,
    find_bracket,
    find_edge,
)
from planner.planning.capacity import capacity
from planner.planning.fewest import LOST, STRAINED, fewest_replicas, some_replicas, together, together_or_lost
from planner.planning.loads import traffic_of
from planner.planning.missed import UnreachableError
from planner.planning.search_options import Search
from planner.planning.sought import Sought, pose, verdict
from planner.planning.strain import foretold
from planner.replays.fleet.replicas import is_dealt, serve
from planner.settings.objectives import Objectives, Verdict, judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.window_and_rate import limit

FINE = 1.001  # upper / lower of the reference's bracket
POLICIES = ("fcfs", "chunked", "prefill-first", "decode-first")
GPUS = ("h100-sxm", "a100-80gb-sxm", "l40s", "h200")
TEXTS = (("ttft:500 tpot:50", 0.99), ("ttft:1000 tpot:60", 0.95), ("ttft:2000", 0.9), ("p99_ttft:800", None),
         ("p95_ttft:600 mean_tpot:40", None), ("p90_e2el:20000", None), ("tpot:45", 0.98))
SAMPLE = (1, 3, 11, 12)  # numbers of questions; others take longer

Question = tuple[Trace, Scenario, Objectives, Search]


def question(number: int) -> Question:
    """Return a random question: a workload, a policy, a GPU, objectives, and the unknown."""
    rng = np.random.default_rng(number)
    trace = limit(read_trace(str(rng.choice(["chat", "code", "rag"]))), int(rng.integers(300, 900)))
    scenario = Scenario(model="llama-3.1-8b", gpu=str(rng.choice(GPUS)), policy=str(rng.choice(POLICIES)))
    text, share = TEXTS[rng.integers(len(TEXTS))]
    search = Search(horizon="trace", quick=True, jobs=1, seed=int(rng.integers(100)),
                    of="concurrency" if rng.random() < 0.2 else "requests",
                    scaling=str(rng.choice(["thin", "compress", "poisson"])))
    return trace, scenario, parse_objectives(text, share), search


def bisected(sought: Sought, start: float) -> float:
    """Return the largest load by bisection to 0.1 % and the checks below it, each replay run to its end."""
    known: dict[float, bool] = {}

    def is_met(load: float) -> bool:
        load = round(load) if sought.unknown.is_whole else load
        if load not in known:
            known[load] = verdict(sought, load).is_met
        return known[load]

    low = high = start
    while is_met(high):
        low, high = high, high * 2
    while not is_met(low):
        low, high = low / 2, low
    while True:
        while high / low > FINE and not (sought.unknown.is_whole and high - low <= 1):
            middle = math.sqrt(low * high)
            middle = min(max(round(middle), low + 1), high - 1) if sought.unknown.is_whole else middle
            low, high = (middle, high) if is_met(middle) else (low, middle)
        missed = [low / (1 + share) for share in CHECKED if not is_met(low / (1 + share))]
        if not missed:
            return low
        high = min(missed)
        low = max((load for load, met in known.items() if met and load < high), default=high / 2)


def differences(number: int) -> tuple[float, float] | None:
    """Return how far the reference's load is from the answer's, and from the nearest load that the answer states.

    These are the loads above the answer that keep the objectives too. None without an answer. Full replays judge the
    answer: its load keeps the objectives, and the upper end of its bracket misses them.
    """
    trace, scenario, objectives, search = question(number)
    try:
        answer = capacity(trace, scenario, objectives, search)
    except UnlimitedError:
        return None
    if not answer.feasible:
        return None
    posed = pose(trace, scenario, objectives, search)
    assert answer.bracket.upper is not None
    assert verdict(posed.sought, answer.bracket.lower).is_met, number
    assert not verdict(posed.sought, answer.bracket.upper).is_met, number
    reference = bisected(posed.sought, posed.start)
    stated = (answer.capacity, *answer.kept_above, *answer.missed_below)
    return answer.capacity / reference - 1, min(abs(load / reference - 1) for load in stated)


def size_difference(number: int) -> int | None:
    """Return by how many replicas the fewest differ from the first number, counted up, that keeps the objectives."""
    trace, scenario, objectives, _ = question(number)
    rng = np.random.default_rng(number)
    scenario = replace(scenario, router=str(rng.choice(["random", "round-robin", "least-outstanding-requests"])),
                       request_rate=float(rng.uniform(10, 60)))
    traffic = traffic_of(trace, scenario, "thin", None)
    load = traffic.load()
    deployment = resolve(scenario, load)
    try:
        count = fewest_replicas(load, deployment, objectives, bound=40)[0]
    except UnreachableError:
        return None
    first = next(k for k in range(1, 41) if together(load, deployment, objectives, k)[1].is_met)
    assert together(load, deployment, objectives, count)[1].is_met
    assert count == 1 or not together(load, deployment, objectives, count - 1)[1].is_met
    return count - first




@pytest.mark.parametrize("number", SAMPLE)
def test_an_answer_is_within_its_tolerance_of_a_search_without_shortcuts(number: int) -> None:
    off = differences(number)
    assert off is not None
    assert off[0] == pytest.approx(0, abs=TOLERANCE + FINE - 1)


@pytest.mark.parametrize("number", SAMPLE)
def test_replicas_are_as_many_as_counted_up(number: int) -> None:
    off = size_difference(number)
    assert off is not None
    assert abs(off) <= 1


def strained(slope: float, edge: float = 10.0, chance: float = 0.0) -> dict[float, Verdict]:
    """Return a memory of verdicts on loads, whose strain is a power of the load."""
    class Memory(dict[float, Verdict]):
        def __missing__(self, load: float) -> Verdict:
            noise = chance * np.random.default_rng(int(1e9 * load)).normal()
            strain = (load / edge) ** slope * math.exp(noise)
            lost = strain > STRAINED
            self[load] = Verdict(is_met=strain <= 1, attainment=1.0, limiting_metric="ttft",
                                 strain=math.inf if lost else strain)
            return self[load]

    return Memory()


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0, 4.0, 12.0])
@pytest.mark.parametrize("start", [0.3, 6.0, 10.0, 900.0])
def test_strain_leads_to_the_edge_in_few_replays(slope: float, start: float) -> None:
    memory = strained(slope)
    found = find_bracket(memory.__getitem__, start, checks=())
    assert found.lower <= 10 * (1 + 1e-9) <= (1 + 1e-8) * found.upper <= (1 + 1e-7) * (1 + TOLERANCE) * found.lower
    steps = abs(math.log2(10 / start))  # of a search for a first bracket
    assert len(memory) <= steps + 10

    memory = strained(slope)
    edge = find_edge(memory.__getitem__, start, tolerance=0.01)
    assert edge.load == pytest.approx(10, rel=0.01)
    assert len(memory) <= steps + 8


def test_without_strain_the_edge_is_bisected() -> None:
    def verdict_of(load: float) -> Verdict:
        return Verdict(is_met=load <= 10, attainment=1.0, limiting_metric="ttft")

    found = find_bracket(verdict_of, 3.0)
    assert found.lower <= 10 < found.upper <= (1 + TOLERANCE) * found.lower
    assert foretold(dict(found.probes)) is None
    shares = {round(low / found.lower, 3) for low, _ in found.probes}
    assert {round(1 / (1 + share), 3) for share in CHECKED} <= shares  # no check is left out
    assert find_edge(verdict_of, 3.0).load == pytest.approx(10, rel=TOLERANCE)


def test_where_no_number_keeps_the_objectives_there_is_no_edge() -> None:
    """One user misses them too; half a user is none."""
    with pytest.raises(UnreachableLoadError, match="down to 1 users"):
        find_edge(lambda _: LOST, 16.0, unknown=UNKNOWNS["concurrency"], limits=(1.0, 100.0))


def test_loads_beyond_the_reach_of_chance_are_not_checked_except_the_lowest() -> None:
    memory = strained(4.0)
    found = find_bracket(memory.__getitem__, 9.9)
    assert found.is_monotone
    below = sorted(load / found.lower for load in memory if load < found.lower)
    assert below[0] == pytest.approx(1 / (1 + CHECKED[-1]))
    assert all(share > 0.9 for share in below[1:])


def test_loads_within_the_reach_of_chance_are_checked_densely() -> None:
    memory = strained(0.5, chance=0.02)
    found = find_bracket(memory.__getitem__, 9.9)
    near = sorted(load for load in memory if 0.95 < load / found.lower < 1.05)
    assert max(high / low for low, high in itertools.pairwise(near)) <= 1.0101
    assert found.kept_above or found.missed_below  # which chance makes keep or miss


def test_known_loads_are_not_tried_again() -> None:
    memory = strained(2.0)
    first = find_bracket(memory.__getitem__, 4.0, checks=())
    tried: list[float] = []

    def evaluate(load: float) -> Verdict:
        tried.append(load)
        return memory[load]

    again = find_bracket(evaluate, 4.0, checks=(), known=dict(first.probes))
    assert tried == []
    assert (again.lower, again.upper) == (first.lower, first.upper)


@pytest.mark.parametrize(("text", "share"), [("ttft:500 tpot:50", 0.99), ("p99_ttft:300 mean_tpot:30", None),
                                             ("ttft:400", 1.0), ("e2el:9000 p90_ttft:400", 0.95)])
def test_strain_is_the_factor_of_limits_that_are_just_kept(text: str, share: float | None) -> None:
    rng = np.random.default_rng(5)
    times_s = {"ttft": rng.exponential(0.2, 700), "tpot": rng.exponential(0.02, 700), "e2el": rng.exponential(4, 700)}
    times_s["tpot"][:20] = math.nan  # one token
    objectives = parse_objectives(text, share)
    strain = judge(objectives, times_s).strain
    assert judge(objectives.scaled(strain * (1 + 1e-9)), times_s).is_met
    assert not judge(objectives.scaled(strain * (1 - 1e-9)), times_s).is_met
    times_s["ttft"][:] = times_s["e2el"][:] = math.nan  # none is answered
    assert judge(objectives, times_s).strain == math.inf


def test_some_replicas_serve_as_the_same_replicas_do_among_all() -> None:
    trace = limit(read_trace("chat"), 2000)
    turns = Scenario(model="llama-3.1-8b", gpu="l40s", data_parallel_size=10, router="round-robin")
    deployment = resolve(turns, trace)
    load, some = some_replicas(trace, deployment, 10, 400)
    assert (load.num_requests, some) == (400, 2)
    among_all, alone = serve(trace, deployment, 10), serve(load, deployment, 2)
    np.testing.assert_array_equal(alone.times_s["ttft"], among_all.times_s["ttft"][np.arange(2000) % 10 < 2])
    assert some_replicas(trace, deployment, 4, 2000) == (trace, 4)
    by_load = replace(turns, router="least-outstanding-requests")
    assert not is_dealt(trace, resolve(by_load, trace))
    assert some_replicas(trace, resolve(by_load, trace), 10, 400) == (trace, 10)
    assert not is_dealt(trace, resolve(replace(turns, max_concurrency=50), trace))


def test_a_replay_that_is_not_lost_has_the_verdict_of_a_whole_one() -> None:
    trace = limit(read_trace("chat"), 3000)
    deployment = resolve(Scenario(model="llama-3.1-8b", gpu="l40s", router="random"), trace)
    objectives = parse_objectives("ttft:500 tpot:50", 0.99)
    outcomes = set()
    for count in range(2, 24, 3):
        whole, tried = together(trace, deployment, objectives, count)[1], together_or_lost(
            trace, deployment, objectives, count, STRAINED)
        outcomes.add((tried is None, whole.is_met))
        assert whole.strain > STRAINED if tried is None else tried[1] == whole
    assert outcomes >= {(True, False), (False, True)}
