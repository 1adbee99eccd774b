"""Timers: between runs of a fleet's loop, at instants of its clock, they look at it and open and close replicas."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from helpers import EVERYTHING, scenario_of, trace_of

from planner.deployment.deploy import pools_of, resolve
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.interleaved import RoutedFleet, run_interleaved
from planner.replays.fleet.timers import RunningFleet, Timer, Timers, close_replica, open_replica


def close(k: int, at_s: float) -> Timer:
    def act(running: RunningFleet) -> Sequence[Timer]:
        close_replica(running.memory, k)
        return ()
    return Timer(at_s, act)


def reopen(k: int, at_s: float) -> Timer:
    def act(running: RunningFleet) -> Sequence[Timer]:
        open_replica(running.memory, k)
        return ()
    return Timer(at_s, act)


def who_takes(router: str, timers: Iterable[Timer], weights: Sequence[int] = (1, 1)) -> list[int]:
    """Send a request a second, each through long before the next; return who took each."""
    trace = trace_of([(float(at_s), 10, 2) for at_s in range(8)])
    one = pools_of(resolve(scenario_of(), trace), 1)[0]
    pools = tuple(dataclasses.replace(one, weight=weight) for weight in weights)
    fleet = RoutedFleet(pools=pools, router=ROUTERS[router], report_interval_s=0.0, seed=0)
    _, replica, *_ = run_interleaved(trace, fleet, None, EVERYTHING, timers)
    return [int(k) for k in replica]


@pytest.mark.parametrize("router", [*ROUTERS])
def test_nothing_is_sent_to_a_closed_replica(router: str) -> None:
    found = who_takes(router, [close(0, 1.5), reopen(0, 4.5)])
    assert found[2:5] == [1, 1, 1]
    assert set(who_takes(router, [close(0, 1.5), close(1, 1.5), reopen(0, 1.7)])[2:]) == {0}


def test_turns_by_weight_pass_over_a_closed_replica() -> None:
    """Four turns in all are 0, 0, 1, 0; with the first closed all are the other's, then three of four again."""
    found = who_takes("round-robin", [close(0, 1.5), reopen(0, 3.5)], weights=(3, 1))
    assert found == [0, 0, 1, 1, 0, 0, 1, 0]


def test_a_replica_opens_when_the_last_reason_is_gone() -> None:
    found = who_takes("least-outstanding-requests", [close(0, 0.5), close(0, 0.6), reopen(0, 2.5), reopen(0, 5.5)])
    assert found == [0, 1, 1, 1, 1, 1, 0, 1]


def test_a_timer_acts_before_what_happens_at_its_instant() -> None:
    assert who_takes("least-outstanding-requests", [close(0, 2.0), reopen(0, 3.0)])[:4] == [0, 1, 1, 0]


def test_requests_wait_while_no_replica_is_open() -> None:
    trace = trace_of([(float(at_s), 10, 2) for at_s in range(4)])
    fleet = RoutedFleet(pools=pools_of(resolve(scenario_of(), trace), 1), router=ROUTERS["round-robin"],
                        report_interval_s=0.0, seed=0)
    timers = [close(0, 0.5), reopen(0, 2.25)]
    parts, *_ = run_interleaved(trace, fleet, None, EVERYTHING, timers)
    assert parts[0].requests.arrival_s.tolist() == [0.0, 2.25, 2.25, 3.0]


def test_a_timer_sees_what_has_happened_and_names_those_that_follow() -> None:
    seen = []

    def look(running: RunningFleet) -> Sequence[Timer]:
        at_s = float(running.memory.fleet.now_s)
        seen.append((at_s, int(running.memory.fleet.num_sent)))
        return [Timer(at_s + 1.0, look)] if at_s < 5.0 else []

    who_takes("round-robin", [Timer(0.5, look)])
    assert seen == [(0.5, 1), (1.5, 2), (2.5, 3), (3.5, 4), (4.5, 5), (5.5, 6)]


def test_timers_without_effect_change_nothing() -> None:
    for router in ROUTERS:
        nothing = [Timer(float(at_s), lambda running: ()) for at_s in np.arange(0.0, 9.0, 0.37)]
        assert who_takes(router, nothing, (1, 1, 1)) == who_takes(router, [], (1, 1, 1))


def test_of_equal_instants_the_first_named_acts_first() -> None:
    order: list[int] = []

    def noting(k: int) -> Timer:
        def act(running: RunningFleet) -> Sequence[Timer]:
            order.append(k)
            return ()
        return Timer(1.0, act)

    timers = Timers([noting(k) for k in range(3)])
    while timers.next_s < np.inf:
        timers.act(None)  # type: ignore[arg-type]
    assert order == [0, 1, 2]
