"""Fleets by hand: who goes where, who waits for whom, and what is refused."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_requests, play, scenario_of, trace_of

from planner.errors import PolicyError, TraceError, UnknownNameError, UsageError
from planner.loop.state import engine_state as st
from planner.policies.builtin_routers import ROUTERS
from planner.replays.dependencies import dependencies
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.scenario import Scenario, parse_scenario
from planner.traces import read_trace
from planner.traces.shaping.rescaling import repeated
from planner.traces.shaping.window_and_rate import limit

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared"))
SECONDS: dict[str, Any] = {"step_time": "linear:1,0"}  # every step takes a second


def sent(result: ReplayResult) -> list[int]:
    assert result.replica is not None
    numbers: list[int] = result.replica.tolist()
    return numbers


def finished(result: ReplayResult) -> list[float]:
    times: list[float] = np.asarray(result.records.requests.finished_s).tolist()
    return times


def test_two_replicas_three_requests() -> None:
    """The first is busy for four seconds with the long one; the second has both short ones, one after the other."""
    result = play([(0.0, 10, 4), (0.5, 10, 1), (2.0, 10, 1)], **SECONDS, data_parallel_size=2,
                  router="least-outstanding-requests")
    assert sent(result) == [0, 1, 1]
    assert finished(result) == [4.0, 1.5, 3.0]


def test_by_turn_the_third_waits_behind_the_long_one() -> None:
    """It joins a step that begins at 2: the batch of two decodes and prompts is one of a second all the same."""
    result = play([(0.0, 10, 4), (0.5, 10, 1), (2.0, 10, 1)], **SECONDS, data_parallel_size=2, router="round-robin",
                  max_num_seqs=1)
    assert sent(result) == [0, 1, 0]
    assert finished(result) == [4.0, 1.5, 5.0]


def test_tokens_are_told_from_requests() -> None:
    """Two short prompts are less than a long one."""
    rows = [(0.0, 100, 9), (0.1, 10, 9), (0.2, 10, 9), (0.3, 10, 9)]
    assert sent(play(rows, **SECONDS, data_parallel_size=2, router="least-outstanding-tokens")) == [0, 1, 1, 1]
    assert sent(play(rows, **SECONDS, data_parallel_size=2, router="least-outstanding-requests")) == [0, 1, 0, 1]


def test_the_fullest_cache_is_avoided() -> None:
    """The third goes to the replica whose KV cache is empty again, though it was sent a request last."""
    rows = [(0.0, 100, 9), (0.1, 10, 1), (2.0, 10, 1)]
    assert sent(play(rows, **SECONDS, data_parallel_size=2, router="least-kv")) == [0, 1, 1]


def test_a_session_stays_where_it_began() -> None:
    rows = [(float(k), 10, 1) for k in range(6)]
    trace = trace_of(rows, session_id=["a", "b", "c", "a", "b", None])
    result = play(trace, **SECONDS, data_parallel_size=2, router="session-affinity")
    assert sent(result)[:2] == [0, 1]
    assert sent(result)[3:5] == sent(result)[:2]


def test_a_prefix_draws_its_own_kind() -> None:
    """Equal prompts go where the first of them went; where both are equal, the one that waited longest is taken."""
    ids = [[1, 2, 3, 4], [11, 12, 13, 14], [1, 2, 3, 4], [11, 12, 13, 14], [11, 12, 13, 14], [1, 2, 3, 4]]
    trace = trace_of([(3.0 * k, 64, 1) for k in range(6)], hash_ids=ids, hash_block_tokens=16)
    options: dict[str, Any] = SECONDS | {"data_parallel_size": 2, "enable_prefix_caching": True}
    aware = play(trace, **options, router="prefix-aware")
    assert sent(aware) == [0, 1, 0, 1, 1, 0]
    assert aware.requests_table()["num_cached_tokens"].to_list() == [0, 0, 48, 48, 48, 48]
    assert play(trace, **options, router="round-robin").requests_table()["num_cached_tokens"].sum() < 4 * 48


def test_what_is_not_reported_is_not_known() -> None:
    """The short one left at 1.5, which the router hears at 10: until then both have what it sent."""
    rows = [(0.0, 10, 9), (0.5, 10, 1), (2.0, 10, 1), (3.0, 10, 1)]
    for interval_s, wanted in ((10.0, [0, 1, 0, 1]), (1.0, [0, 1, 1, 1])):
        result = play(rows, **SECONDS, data_parallel_size=2, router="least-outstanding-requests",
                      router_report_interval=interval_s)
        assert sent(result) == wanted


def test_random_routers_draw_by_their_seed() -> None:
    rows = [(0.1 * k, 10, 3) for k in range(60)]
    for router in ("random", "power-of-two"):
        drawn = [sent(play(rows, **SECONDS, data_parallel_size=3, router=router, seed=seed)) for seed in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert set(drawn[0]) == {0, 1, 2}


def test_a_session_of_three_turns() -> None:
    """Each turn is sent its think time after the answer to the one before: at 0, 2 + 0.5, and 4.5 + 10."""
    trace = trace_of([(0.0, 10, 2), (1.0, 20, 2), (2.0, 30, 1)], session_id=["a"] * 3, think_time_s=[None, 0.5, 10.0])
    result = play(trace, **SECONDS)
    assert np.asarray(result.records.requests.arrival_s).tolist() == [0.0, 2.5, 14.5]
    assert finished(result) == [2.0, 4.5, 15.5]
    assert result.requests_table()["ttft_s"].to_list() == [1.0, 1.0, 1.0]


def test_a_session_as_it_was_recorded() -> None:
    trace = trace_of([(0.0, 10, 2), (1.0, 20, 2)], session_id=["a"] * 2, think_time_s=[None, 0.5])
    found = replay(trace, scenario_of(**SECONDS))
    assert found.summary["notes"][-1].startswith("1 request waits for earlier requests to finish")
    recorded = play(trace, **SECONDS, wait_for_parents=False)
    assert np.asarray(recorded.records.requests.arrival_s).tolist() == [0.0, 1.0]


def test_a_request_waits_for_all_its_parents() -> None:
    """Two tools of one and four seconds; the answer to both begins at five."""
    trace = trace_of([(0.0, 10, 1), (0.0, 10, 1), (0.0, 10, 4), (0.0, 10, 1)],
                     parent_id=[None, "0", "0", "1; 2"], think_time_s=[None, 0.0, 0.0, None])
    result = play(trace, **SECONDS)
    assert np.asarray(result.records.requests.arrival_s).tolist() == [0.0, 1.0, 1.0, 5.0]
    assert finished(result) == [1.0, 2.0, 5.0, 6.0]


def test_a_client_with_a_limit_sends_to_all_replicas() -> None:
    """Two in flight over two replicas: the third is sent when the first has left."""
    result = play([(0.0, 10, 2), (0.0, 10, 3), (0.0, 10, 1)], **SECONDS, data_parallel_size=2, max_concurrency=2,
                  router="least-outstanding-requests")
    assert sent(result) == [0, 1, 0]
    assert np.asarray(result.records.requests.arrival_s).tolist() == [0.0, 0.0, 2.0]


def test_a_cut_trace_forgets_the_parents_that_are_gone() -> None:
    trace = trace_of([(0.0, 10, 1), (5.0, 10, 1)], parent_id=["1", None])
    assert np.asarray(play(limit(trace, 1), **SECONDS).records.requests.arrival_s).tolist() == [0.0]
    assert np.asarray(play(trace, **SECONDS).records.requests.arrival_s).tolist() == [6.0, 5.0]


def test_a_trace_that_goes_on_has_sessions_of_its_own() -> None:
    trace = trace_of([(0.0, 10, 1), (1.0, 10, 1), (2.0, 10, 1)], session_id=["a", "a", "b"],
                     parent_id=[None, "0", None], think_time_s=[None, 1.0, None])
    table = repeated(trace, 2).requests
    assert table["session_id"].to_list() == ["a", "a", "b", "a#2", "a#2", "b#2"]
    assert table["parent_id"].to_list() == [None, "0", None, None, "0#2", None]


def test_a_router_of_ones_own(tmp_path: Path) -> None:
    """The fewest requests, counted from the other end: a replica with an even number of tokens is avoided."""
    path = tmp_path / "mine.py"
    path.write_text("from planner.router import Router\n\n\ndef score(load):\n"
                    "    return 5.0 * (load.outstanding_tokens % 2 == 0) - load.input_tokens * 0.0\n\n\n"
                    "mine = Router(name='odd', score=score)\n")
    result = play([(0.0, 11, 9), (0.1, 11, 9), (0.2, 11, 9)], **SECONDS, data_parallel_size=2, router=f"{path}:mine")
    assert sent(result) == [0, 0, 1]


@pytest.mark.parametrize(("text", "said"), [
    ("mine = 3", "mine is a int; must be a Router"),
    ("other = 3", "defines no 'mine'; it has no Router"),
    ("from planner.router import Router\nmine = Router(name='a', score=lambda load: load.speed)", "cannot be compiled"),
    ("from planner.router import Router\nmine = Router(name='a', score=lambda load: 1.0, num_choices=3)", "must be "),
])
def test_a_router_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(PolicyError, match=said):
        play([(0.0, 10, 1), (0.0, 10, 1)], **SECONDS, data_parallel_size=2, router=f"{path}:mine")


def test_a_score_that_is_no_number_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import math\nfrom planner.router import Router\n"
                    "mine = Router(name='a', score=lambda load: math.nan)")
    with pytest.raises(PolicyError, match="is NaN; it must return a number"):
        play([(0.0, 10, 1), (0.0, 10, 1)], **SECONDS, data_parallel_size=2, router=f"{path}:mine")


@pytest.mark.parametrize(("columns", "said"), [
    ({"parent_id": [None, "7"]}, "request 1: parent_id = '7' is not a request_id of the trace"),
    ({"parent_id": ["1", "0"]}, "request 0: its parent_id leads into a cycle; 2 requests"),
    ({"parent_id": [None, "1"]}, "request 1: its parent_id leads into a cycle"),
])
def test_dependencies_that_cannot_be(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        play(trace_of([(0.0, 10, 1), (0.0, 10, 1)], **columns), **SECONDS)


def test_options_that_cannot_be() -> None:
    with pytest.raises(UnknownNameError, match="unknown router 'least-outstanding'; did you mean 'least-outstanding-"):
        play([(0.0, 10, 1)], router="least-outstanding", data_parallel_size=2)
    for name, value, said in (("data_parallel_size", 0, "must be at least 1"),
                              ("router_report_interval", -1.0, "must be at least 0")):
        with pytest.raises(UsageError, match=said):
            parse_scenario({name: value})
    with pytest.raises(UsageError, match="is data_parallel_size, which is there already"):
        parse_scenario({"data_parallel_size": 2, "replicas": 2})


@pytest.mark.parametrize("router", ROUTERS)
def test_what_is_said_of_a_fleet(router: str) -> None:
    """The summary names the router, counts GPUs over all replicas, and says how uneven their shares are."""
    trace = trace_of([(0.0, 10, 1), (0.0, 30, 1)])
    summary = replay(trace, scenario_of(data_parallel_size=2, router=router)).summary
    assert summary["deployment"]["router"] == router
    assert summary["deployment"]["num_replicas"] == 2
    if router not in ("random", "prefix-aware"):
        assert summary["replica_imbalance"] == pytest.approx(31 / 21)
    assert replay(trace, scenario_of()).summary["replica_imbalance"] is None


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason=f"no traces in {SHARED}; PLANNER_SHARED names the folder")
@pytest.mark.parametrize("name", ["weka_claude_code_traces_small.jsonl.gz", "ragpulse_0_trace.jsonl.gz"])
def test_recorded_agents_are_replayed(name: str) -> None:
    """No turn is sent before those it waits for have left, by its pause."""
    trace = limit(read_trace(str(SHARED / "traces" / name)), 1500)
    scenario = Scenario(model="llama-3.1-8b", gpu="h200-sxm", data_parallel_size=3, router="session-affinity",
                        max_model_len=1_000_000, enable_prefix_caching=False)
    result = replay(trace, scenario).result
    requests, waits = result.records.requests, dependencies(trace)
    assert (requests.state == st.COMPLETED).all()
    if waits is not None:
        for i in range(trace.num_requests):
            for child in waits.children[waits.first_child[i]:waits.first_child[i + 1]]:
                assert requests.arrival_s[child] >= requests.finished_s[i] + waits.think_s[child] - 1e-9
    ids = trace.requests["session_id"].to_list()
    homes = {(session, k) for session, k in zip(ids, sent(result), strict=True) if session is not None}
    assert len(homes) == len({session for session, _ in homes})


def test_idle_replicas_cost_no_time_and_change_nothing() -> None:
    """A hundred thousand replicas take three requests as three do: in turn, one each."""
    rows = [(0.0, 100, 10), (0.1, 200, 20), (0.2, 50, 5)]
    options: dict[str, Any] = {"step_time": "linear:0.01,0.001", "router": "round-robin"}
    few, many = (play(trace_of(rows), data_parallel_size=count, **options) for count in (3, 100_000))
    assert_same_requests(few.records.requests, many.records.requests)
    assert few.records.engine.tobytes() == many.records.engine.tobytes()
    assert few.steps_table().equals(many.steps_table())
    assert len(many.replicas) == 100_000
    with pytest.raises(UsageError, match="100,000 replicas: a replay in which requests or replicas depend"):
        play(trace_of(rows), data_parallel_size=100_000, **options | {"router": "least-outstanding-requests"})
