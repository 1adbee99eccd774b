"""A live fleet: requests that are sent as they arrive have the schedule of a replay of all of them."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.loop.state import engine_state as st
from planner.replays.fleet.failures import read_failures
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import PrefixIds, Trace
from planner.traces.shaping.client_load import burst
from planner.twin import live_fleet
from planner.twin.contents import Contents, keys_of
from planner.twin.live_fleet import Arrival, LiveFleet

NUM = 80
FIELDS = ("first_token_s", "finished_s", "num_output_tokens", "num_cached_tokens", "num_preemptions", "state")
COMPOSED = ("start_s", "duration_s", "num_prompts", "num_prompt_tokens", "num_decodes", "num_used_blocks",
            "num_waiting")


@dataclass
class Load:
    """Requests with shared beginnings, some with the prompt of another; some clients hang up."""

    arrival_s: NDArray[np.float64]
    prompts: list[list[int]]
    outputs: NDArray[np.int64]
    cancel_after_s: NDArray[np.float64]


def load_at(rate: float, *, hangs_up: bool = False) -> Load:
    rng = np.random.default_rng(3)
    prompts: list[list[int]] = []
    for r in range(NUM):
        if r and rng.random() < 0.15:
            prompts.append(prompts[int(rng.integers(r))])
            continue
        shared = list(range(1000 * int(rng.integers(3)), 1000 * int(rng.integers(3)) + 600))
        own = list(range(10_000 * (r + 1), 10_000 * (r + 1) + int(rng.integers(1, 1500))))
        prompts.append(shared[:int(rng.integers(600))] + own)
    patience = np.where(rng.random(NUM) < 0.3, rng.exponential(0.4, NUM), math.inf) if hangs_up else np.full(
        NUM, math.inf)
    return Load(np.cumsum(rng.exponential(1 / rate, NUM)), prompts, rng.integers(1, 150, NUM), patience)


def trace_of_load(load: Load, keys: list[tuple[bytes, ...]], piece_tokens: int) -> Trace:
    numbers: dict[bytes, int] = {}
    values = [numbers.setdefault(key, len(numbers)) for of_one in keys for key in of_one]
    offsets = np.concatenate(([0], np.cumsum([len(of_one) for of_one in keys])))
    trace = burst(np.array([len(prompt) for prompt in load.prompts]), load.outputs, "load")
    columns = [pl.Series("arrival_s", load.arrival_s)]
    if np.isfinite(load.cancel_after_s).any():
        columns.append(pl.Series("cancel_after_s", [None if s == math.inf else s for s in load.cancel_after_s.tolist()],
                                 dtype=pl.Float64))
    return replace(trace, requests=trace.requests.with_columns(columns),
                   prefix=PrefixIds(values=np.array(values, np.int64), offsets=offsets, block_tokens=piece_tokens))


def send_all(fleet: LiveFleet, load: Load, keys: list[tuple[bytes, ...]],
             changes: Sequence[tuple[float, int]] = ()) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Send each request at its instant, look at the fleet at each step's end, and return how requests ended.

    `changes` are instants and numbers of replicas. A request that is lost with its replica is sent again at once, but
    once, as the router of a replay does.
    """
    ends: list[tuple[Any, ...]] = [()] * NUM

    def send(r: int, at_s: float) -> None:
        place = fleet.send(Arrival(at_s=at_s, input_tokens=len(load.prompts[r]), keys=keys[r],
                                   output_tokens=int(load.outputs[r]), max_output_tokens=int(load.outputs[r])))
        assert place is not None
        places[place] = r

    places: dict[int, int] = {}
    hang_ups = sorted((float(load.arrival_s[r] + load.cancel_after_s[r]), r) for r in range(NUM)
                      if load.cancel_after_s[r] < math.inf)
    scalings = deque(changes)
    lost: list[int] = []
    ending: list[int] = []  # places whose step has begun and not ended
    sent = num_lost = 0
    while sent < NUM or places:
        arrival_s = float(load.arrival_s[sent]) if sent < NUM else math.inf
        leave_s = hang_ups[0][0] if hang_ups else math.inf
        next_s = min([fleet.next_s(), *(float(fleet.requests[place].finished_s) for place in ending)])
        change_s = scalings[0][0] if scalings else math.inf
        until_s = min(arrival_s, leave_s, change_s, float(np.nextafter(max(next_s, fleet.now_s), math.inf)))
        fleet.advance(until_s)
        ending = [place for place in places if fleet.has_left(np.array([place]))[0]]
        for place in [place for place in ending if not fleet.requests[place].finished_s >= fleet.now_s]:
            r = places.pop(place)
            ending.remove(place)
            ends[r] = tuple(fleet.requests[place][name] for name in FIELDS)
            fleet.free(place)
            if fleet.state(place) == st.LOST:
                lost.append(r)
        for r in sorted(lost[num_lost:]):
            if lost.count(r) == 1:
                send(r, fleet.now_s)
        num_lost = len(lost)
        while hang_ups and hang_ups[0][0] <= until_s:
            at_s, r = hang_ups.pop(0)
            for place in [place for place, row in places.items() if row == r]:
                fleet.cancel(place, at_s)
        if change_s <= until_s:
            fleet.scale(scalings.popleft()[1])
        if arrival_s <= until_s:
            send(sent, arrival_s)
            sent += 1
    return ends, lost


def is_empty(fleet: LiveFleet) -> bool:
    """Tell whether no seat and no block is in use."""
    return all(state.engine.num_running == state.engine.num_waiting == 0
               and state.engine.num_free_blocks == state.settings.num_gpu_blocks for state in fleet.states)


def compare(load: Load, **options: Any) -> tuple[Any, LiveFleet]:
    """Send a load to a live fleet and replay it; assert that both schedules are equal."""
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", **options)
    fleet = LiveFleet(scenario, EVERYTHING)
    keys = [keys_of(prompt, fleet.piece_tokens) for prompt in load.prompts]
    ends, _ = send_all(fleet, load, keys)
    replayed = replay(trace_of_load(load, keys, fleet.piece_tokens), scenario, recording=EVERYTHING).result.records
    for k, name in enumerate(FIELDS):
        np.testing.assert_array_equal([end[k] for end in ends], getattr(replayed.requests, name), err_msg=name)
    steps = np.concatenate([taken.records(0.0, replayed.requests).steps for taken in fleet.taken_rows()])
    count = len(steps)
    assert len(replayed.steps) - count in (0, 1)  # a row of an ended request is in a step that nobody waits for
    for name in COMPOSED:
        np.testing.assert_array_equal(steps[name], replayed.steps[name][:count], err_msg=name)
    assert fleet.num_in_use == 0
    return replayed.requests, fleet


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "atom"])
def test_a_live_fleet_takes_the_steps_of_a_replay(engine: str) -> None:
    requests, _ = compare(load_at(20.0), engine=engine)
    assert requests.num_cached_tokens.sum() > 10_000


@pytest.mark.parametrize(("engine", "blocks"), [("vllm", 250), ("atom", 250), ("sglang", 4000)])
def test_it_preempts_as_a_replay(engine: str, blocks: int) -> None:
    requests, _ = compare(load_at(100.0), engine=engine, num_gpu_blocks=blocks)
    assert requests.num_preemptions.sum() > 0 or engine == "sglang"


@pytest.mark.parametrize("router", ["least-outstanding-requests", "prefix-aware", "vllm-dp"])
def test_replicas_behind_a_router_take_the_requests_of_a_replay(router: str) -> None:
    compare(load_at(60.0), engine="vllm", data_parallel_size=3, router=router)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "atom"])
def test_a_client_that_hangs_up_frees_what_it_held(engine: str) -> None:
    requests, fleet = compare(load_at(40.0, hangs_up=True), engine=engine)
    assert (requests.state == st.CANCELLED).sum() > 5
    fleet.advance(fleet.now_s + 1.0)  # with the row of a request whose end was in flight
    assert is_empty(fleet)


@pytest.mark.parametrize("options", [{"num_speculative_tokens": 2, "speculative_acceptance": "0.6"},
                                     {"stream_interval": 4}, {"pipeline_parallel_size": 2}])
def test_other_rules_of_an_engine_hold_too(options: dict[str, Any]) -> None:
    compare(load_at(20.0), engine="vllm", **options)


@pytest.mark.parametrize(("engine", "pieces", "options"), [
    ("vllm", 3400, {"num_gpu_blocks": 500}), ("atom", 3400, {"num_gpu_blocks": 250}), ("trtllm", 3400, {}),
    ("sglang", 1000, {"num_gpu_blocks": 9000, "block_size": 1}), ("vllm", 3400, {"data_parallel_size": 2}),
])
def test_memory_that_is_used_again_changes_nothing(engine: str, pieces: int, options: dict[str, Any],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    collections = []
    collect = Contents._collect

    def counted(contents: Contents, in_use: NDArray[np.int64]) -> None:
        collections.append(len(in_use))
        collect(contents, in_use)

    monkeypatch.setattr(live_fleet, "MOST_PIECES", pieces)
    monkeypatch.setattr(Contents, "_collect", counted)
    compare(load_at(6.0), engine=engine, **options)
    assert collections


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "atom"])
@pytest.mark.parametrize("failures", ["1@0.9", "0@0.5+0.4,2@0.7,1@1.1", "1@0.9~0.3", "1@0.9/0.3",
                                      "0@0.5+0.2/0.4,2@0.7/0.1"])
def test_a_replica_that_stops_loses_the_requests_of_a_replay(engine: str, failures: str) -> None:
    load = load_at(60.0)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine=engine, data_parallel_size=3,
                        router="least-outstanding-requests")
    fleet = LiveFleet(scenario, failures=read_failures(failures))
    keys = [keys_of(prompt, fleet.piece_tokens) for prompt in load.prompts]
    ends, lost = send_all(fleet, load, keys)
    result = replay(trace_of_load(load, keys, fleet.piece_tokens), replace(scenario, fail_replica=failures)).result
    attempts = result.attempts
    assert attempts is not None
    rows = attempts.rows[attempts.rows["outcome"] == st.LOST]
    assert sorted(lost) == sorted(rows["request"].tolist()) != []
    for k, name in enumerate(FIELDS):  # a request that is sent again comes by the least of times later
        np.testing.assert_allclose([end[k] for end in ends], getattr(result.records.requests, name), rtol=1e-9,
                                   err_msg=name)
    fleet.advance(fleet.now_s + 1.0)
    assert is_empty(fleet)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "atom"])
def test_a_fleet_that_is_scaled_takes_the_steps_of_the_autoscaled_replay(engine: str, tmp_path: Path) -> None:
    """Replicas that start, drain and come back empty: told the replay's decisions, a live fleet has its times."""
    load = load_at(40.0)
    load.arrival_s[NUM // 2:] += 3.0  # replicas drain in the pause, and start anew after it
    load.outputs[:NUM // 4] *= 8
    rules = tmp_path / "scaler.toml"
    rules.write_text("""
minimum = 1
maximum = 4
interval_s = 0.2
startup = { warmup_s = 0.3 }

[down]
stabilization_window_s = 0.4

[[metric]]
name = "concurrency"
target = 3.0
""")
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine=engine, router="least-outstanding-requests")
    fleet = LiveFleet(scenario, max_replicas=4, startup_s=0.3)
    keys = [keys_of(prompt, fleet.piece_tokens) for prompt in load.prompts]
    result = replay(trace_of_load(load, keys, fleet.piece_tokens), replace(scenario, autoscale=str(rules))).result
    assert result.scaling is not None
    changes = [(event.at_s, event.after) for event in result.scaling.events]
    counts = [count for _, count in changes]
    assert max(counts) == 4
    assert counts != sorted(counts)
    ends, _ = send_all(fleet, load, keys, changes)
    for k, name in enumerate(FIELDS):
        np.testing.assert_array_equal([end[k] for end in ends], getattr(result.records.requests, name), err_msg=name)
    fleet.advance(fleet.now_s + 1.0)
    assert is_empty(fleet)


def test_a_scaling_beyond_the_room_is_refused() -> None:
    fleet = LiveFleet(Scenario(model="llama-3.1-8b", gpu="h100-sxm"), max_replicas=2, startup_s=5.0)
    with pytest.raises(UsageError, match="replicas = 3: must be from 0 to 2"):
        fleet.scale(3)
    fleet.scale(2)
    assert (fleet.num_replicas, fleet.num_ready) == (2, 1)
    fleet.advance(6.0)
    assert fleet.num_ready == 2
    fleet.scale(0)
    place = fleet.send(Arrival(at_s=6.5, input_tokens=5, output_tokens=5, keys=keys_of([1] * 5, fleet.piece_tokens)))
    assert place is not None
    assert fleet.state(place) == st.UNAVAILABLE
    with pytest.raises(UsageError, match="--max-replicas 1: is below --data-parallel-size 2; give at least 2"):
        LiveFleet(Scenario(model="llama-3.1-8b", gpu="h100-sxm", data_parallel_size=2), max_replicas=1)
    with pytest.raises(UsageError, match="--max-replicas 4 and --data-parallel-attention: ranks start and stop"):
        LiveFleet(Scenario(model="deepseek-v3", gpu="h200-sxm", data_parallel_size=2, data_parallel_attention=True,
                           tensor_parallel_size=8), max_replicas=4)


def test_kv_use_is_that_of_the_replicas_that_are_there() -> None:
    one = LiveFleet(Scenario(model="llama-3.1-8b", gpu="h100-sxm"))
    four = LiveFleet(Scenario(model="llama-3.1-8b", gpu="h100-sxm"), max_replicas=4)
    keys = keys_of(list(range(50_000)), one.piece_tokens)
    for fleet in (one, four):
        assert fleet.send(Arrival(at_s=0.0, input_tokens=50_000, output_tokens=500, keys=keys)) is not None
        fleet.advance(2.0)
    assert four.kv_cache_usage == one.kv_cache_usage > 0.05


def test_options_that_a_live_fleet_cannot_follow_are_named() -> None:
    for options, said in (({"request_timeout": 1.0}, "request_timeout"), ({"policy": "sjf"}, "policy = sjf"),
                          ({"max_concurrency": 3}, "max_concurrency"),
                          ({"router": "session-affinity", "data_parallel_size": 2}, "session-affinity")):
        with pytest.raises(UsageError, match=said):
            LiveFleet(Scenario(model="llama-3.1-8b", gpu="h100-sxm", **options))
