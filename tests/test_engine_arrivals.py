"""The way to the engine: the API server takes one request at a time, the rest of the way they go side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers import scenario_of, trace_of

from planner.deployment.deploy import resolve
from planner.loop.state.engine_settings import Recording
from planner.replays.driver import ReplayRecords, run
from planner.steptime.by_term import linear

Rows = Sequence[tuple[float, int, int]]


def played(rows: Rows, *, delays: dict[str, float], **options: Any) -> ReplayRecords:
    """Replay rows with steps of 1 ms and delays before the engine."""
    step_time = linear("linear:0.001,0")
    for name, value in delays.items():
        setattr(step_time.terms, name, value)
    trace = trace_of(rows, **options.pop("columns", {}))
    deployment = resolve(scenario_of(**options), trace)
    return run(trace, deployment.policy, deployment.settings, step_time, Recording())


def admitted(records: ReplayRecords) -> list[float]:
    times: list[float] = np.asarray(records.requests.first_scheduled_s).round(9).tolist()
    return times


def test_the_api_server_is_serial_and_the_way_is_not() -> None:
    """0.05 s each at the server, one after the other; 0.2 s more for each, side by side."""
    records = played([(0.0, 10, 1)] * 3, delays={"frontend_s": 0.05, "latency_s": 0.2})
    assert admitted(records) == [0.25, 0.3, 0.35]
    assert np.asarray(records.requests.arrival_s).tolist() == [0.0] * 3  # TTFT counts from when the client sent it


def test_long_prompts_take_longer() -> None:
    delays = {"frontend_s": 0.01, "frontend_s_per_token": 1e-3, "latency_s": 0.1, "latency_s_per_token": 1e-2}
    assert admitted(played([(0.0, 10, 1), (0.0, 20, 1)], delays=delays)) == [0.02 + 0.2, 0.02 + 0.03 + 0.3]


def test_who_comes_waits_behind_what_is_streamed() -> None:
    """0.2 s on its way, and 0.05 s more for each of the two sequences that run by then."""
    rows = [(0.0, 10, 2000), (0.0, 10, 2000), (1.0, 10, 1)]
    records = played(rows, delays={"latency_s": 0.2, "latency_s_per_seq": 0.05})
    assert admitted(records)[:2] == [0.2, 0.2]
    assert admitted(records)[2] == pytest.approx(1.3, abs=2e-3)


def test_an_idle_server_delays_nobody_else() -> None:
    records = played([(0.0, 10, 1), (1.0, 10, 1)], delays={"frontend_s": 0.05, "latency_s": 0.2})
    assert admitted(records) == [0.25, 1.25]


def test_without_delays_requests_are_there_at_once() -> None:
    assert admitted(played([(0.0, 10, 1), (1.0, 10, 1)], delays={})) == [0.0, 1.0]


def test_a_busy_server_bounds_the_throughput() -> None:
    """200 requests at once through a server that takes 20 ms each: the last one is there after 4 s."""
    records = played([(0.0, 10, 1)] * 200, delays={"frontend_s": 0.02, "latency_s": 0.0})
    assert admitted(records)[-1] == pytest.approx(4.0)
    assert np.diff(admitted(records)).min() == pytest.approx(0.02)


def test_a_closed_loop_sends_the_next_when_one_has_left() -> None:
    """One in flight: 0.25 s to the engine, a step of 1 ms, then the next is sent."""
    records = played([(0.0, 10, 1)] * 3, delays={"frontend_s": 0.05, "latency_s": 0.2}, max_concurrency=1)
    assert np.asarray(records.requests.arrival_s).round(9).tolist() == [0.0, 0.251, 0.502]
    assert admitted(records) == [0.25, 0.501, 0.752]


def test_a_client_that_hung_up_on_the_way_is_never_admitted() -> None:
    records = played([(0.0, 10, 5), (0.0, 10, 5)], delays={"frontend_s": 0.05, "latency_s": 0.2},
                     columns={"cancel_after_s": [0.1, 9.0]})
    assert np.isnan(records.requests.first_scheduled_s[0])
    assert admitted(records)[1] == 0.3
