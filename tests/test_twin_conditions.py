"""The twin when something goes wrong: a replica stops, the network is slow, the engine starts cold."""

import math
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from test_twin import MODEL, post, serving, until_empty

from planner.commands.serve_actions import serve
from planner.errors import UsageError
from planner.replays.fleet.failures import read_failures
from planner.settings.scenario import Scenario
from planner.twin.live_fleet import Arrival, LiveFleet
from planner.twin.server import ServeOptions

LONG: dict[str, Any] = {"prompt": "x" * 400, "max_tokens": 600, "ignore_eos": True}  # 4 s


def test_a_replica_that_stops_breaks_its_streams_off_and_others_serve() -> None:
    failures = read_failures("0@1.5+3.5,1@3.5")
    with serving(failures=failures, data_parallel_size=2, router="least-outstanding-requests") as two:
        begin_s = time.monotonic()
        with (pytest.raises(httpx.RemoteProtocolError),  # the body has no end
              httpx.stream("POST", two.url + "/v1/completions", json=LONG | {"stream": True}, timeout=60) as response):
            response.read()
        assert 0.3 < time.monotonic() - begin_s < 3.0
        assert post(two, "/v1/completions", prompt="x", max_tokens=2).status_code == 200  # by the other
        lost = post(two, "/v1/completions", **LONG)  # not begun when its replica stops
        assert lost.status_code == 500
        assert "has stopped" in lost.json()["error"]["message"]
        refused = post(two, "/v1/completions", prompt="x")
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "ServiceUnavailableError")
        assert httpx.get(two.url + "/health").status_code == 503
        end_s = time.monotonic() + 10
        while httpx.get(two.url + "/health").status_code != 200:
            assert time.monotonic() < end_s, "the replica that is back serves nothing"
            time.sleep(0.05)
        assert post(two, "/v1/completions", prompt="x", max_tokens=2).status_code == 200
        until_empty(two)


def test_requests_that_no_replica_is_left_for_are_not_sent() -> None:
    """A request may reach the server between the stop and the fleet's next look at its clock."""
    fleet = LiveFleet(Scenario(model=MODEL, gpu="h100-sxm"), failures=read_failures("0@1.0"))
    late = fleet.send(Arrival(at_s=1.5, input_tokens=10, output_tokens=5))
    fleet.advance(2.0)
    assert late is not None
    assert fleet.is_cut_off(np.array([late])).all()
    assert not fleet.is_served
    assert fleet.next_s() == math.inf


@pytest.mark.parametrize(("options", "said"), [
    ({"kill_replica": "2@60"}, "--kill-replica 2@60: there are 2 replicas, numbered from 0"),
    ({"kill_replica": "0@x"}, "--kill-replica '0@x': at_s = 'x'; must be a finite number"),
    ({"kill_replica": "soon"}, "--kill-replica 'soon': must be REPLICA@AT"),
    ({"kill_replica": "0@5,0@9"}, "--kill-replica 0@5,0@9: replica 0 fails at 9 s, and is already down"),
    ({"max_replicas": 1}, "--max-replicas 1: is below --data-parallel-size 2; give at least 2"),
    ({"network_delay_ms": -1.0}, "--network-delay -1: must be a finite number of at least 0"),
    ({"network_delay_ms": math.inf}, "--network-delay inf"),
])
def test_bad_values_say_the_remedy(options: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"kill_replica": "", "max_replicas": None, "network_delay_ms": 0.0}
    with pytest.raises(UsageError) as told:
        serve(Scenario(model=MODEL, gpu="h100-sxm", data_parallel_size=2), "127.0.0.1", 1, (), None, None, speed=1.0,
              slow=1.0, startup_delay_s=0.0, output_tokens=4, **usual | options)
    assert said in str(told.value)


def test_a_rank_does_not_stop_alone() -> None:
    scenario = Scenario(model="deepseek-v3", gpu="h200-sxm", data_parallel_size=8, data_parallel_attention=True,
                        expert_parallel=True)
    with pytest.raises(UsageError, match="--data-parallel-attention: ranks start and stop together"):
        LiveFleet(scenario, failures=read_failures("0@1"))


def test_a_network_delays_the_client_and_not_the_schedule(tmp_path: Path) -> None:
    """A client sees each token two ways later; the server's own times and the gaps of tokens are as without it."""
    record = tmp_path / "arrived.jsonl"
    seen_s: list[float] = []
    with serving(ServeOptions(models=(MODEL,), network_delay_s=0.2, record=record)) as far:
        begin_s = time.monotonic()
        body = {"prompt": "x" * 400, "max_tokens": 40, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", far.url + "/v1/completions", json=body, timeout=60) as response:
            seen_s += [time.monotonic() - begin_s for line in response.iter_lines() if line]
        told = httpx.get(far.url + "/metrics").text
        until_empty(far)
        assert post(far, "/v1/completions", prompt="x", n=2).status_code == 400
    assert seen_s[0] >= 0.4
    assert seen_s[-1] - seen_s[0] > 0.2  # 40 tokens take 0.26 s: they come one by one
    ttft_s = float(next(line for line in told.splitlines() if "time_to_first_token_seconds_sum" in line).split()[-1])
    assert ttft_s < 0.1
    assert record.read_text().count("\n") == 1


def test_a_client_behind_a_network_may_hang_up() -> None:
    with serving(ServeOptions(models=(MODEL,), network_delay_s=0.05)) as far:
        with httpx.stream("POST", far.url + "/v1/completions", json=LONG | {"stream": True}, timeout=60) as response:
            next(response.iter_lines())
        until_empty(far)


def test_a_cold_replica_answers_its_first_request_later() -> None:
    with serving(cold=True, first_use_s=1.0) as cold:
        took_s = []
        for _ in range(2):
            begin_s = time.monotonic()
            assert post(cold, "/v1/completions", prompt="x", max_tokens=2).status_code == 200
            took_s.append(time.monotonic() - begin_s)
    assert took_s[0] > 1.0 > took_s[1]


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "atom"])
def test_other_engines_answer_too(engine: str) -> None:
    with serving(engine=engine) as one:
        answer = post(one, "/v1/completions", prompt=[1, 2, 3], max_tokens=5, ignore_eos=True).json()
        assert answer["usage"]["completion_tokens"] == 5
