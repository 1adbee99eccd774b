"""Conditions of pools: how they are read, which pool serves which request, and what they change nowhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, assert_same_requests, play, scenario_of, trace_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from test_pools import fleet_of, sent
from test_scaling_pools import scaler

from planner.deployment.conditions import Condition, accepted, parse_conditions
from planner.deployment.deploy import resolve
from planner.errors import FleetError
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.replicas import serve
from planner.run import replay
from planner.traces import Trace

SECOND = "linear:1,0"  # every step takes a second


def test_conditions_are_comparisons_joined_by_and() -> None:
    assert parse_conditions("8192 > input_tokens") == (Condition("input_tokens", "<", 8192),)
    assert parse_conditions("512 <= input_tokens < 8192 and tenant != 'free' and adapter in ('a', 'b')") == (
        Condition("input_tokens", ">=", 512), Condition("input_tokens", "<", 8192), Condition("tenant", "!=", "free"),
        Condition("adapter", "in", ("a", "b")))
    assert parse_conditions("priority not in (1, 2.5) and priority == -1") == (
        Condition("priority", "not in", (1, 2.5)), Condition("priority", "==", -1))
    assert parse_conditions("input_tokens >= threshold") == (Condition("input_tokens", ">=", None),)


def test_a_request_without_a_value_has_the_engines_default() -> None:
    trace = trace_of([(0.0, 10, 1), (0.0, 20, 1), (0.0, 30, 1)], tenant=["gold", None, "free"],
                     adapter=[None, "x", "y"], priority=[None, 1.0, -1.0])
    for text, wanted in (("input_tokens <= 20", [True, True, False]), ("tenant == 'gold'", [True, False, False]),
                         ("tenant != 'gold'", [False, True, True]), ("adapter == ''", [True, False, False]),
                         ("adapter not in ('', 'x')", [False, False, True]), ("priority <= 0", [True, False, True]),
                         ("tenant in ('gold', 'free') and input_tokens > 10", [False, False, True])):
        assert accepted(parse_conditions(text), trace).tolist() == wanted, text


BAD = [
    ("3", "accepts = 3: cannot be read; give a condition, as in input_tokens < 8192"),
    ("''", "accepts = '': cannot be read"),
    ("'input_tokens <'", "accepts = 'input_tokens <': cannot be read"),
    ("'input_tokens'", "input_tokens is no condition"),
    ("'input_tokens < 3 or input_tokens > 9'", "input_tokens < 3 or input_tokens > 9 is no condition"),
    ("'output_tokens < 3'", "output_tokens is no field of requests; must be input_tokens, priority, tenant, adapter"),
    ("'__import__(1) < 3'", r"__import__\(1\) is no field"),
    ("'input_tokens < many'", "many is no value; give a number or text in quotes"),
    ("'input_tokens < priority'", "priority is no value"),
    ("'input_tokens < \"3\"'", "input_tokens < '3': must be a number"),
    ("'input_tokens < True'", "input_tokens < True: must be a number"),
    ("'input_tokens in 3'", "input_tokens in 3: must be several, each a number"),
    ("'tenant in \"gold\"'", "tenant in 'gold': must be several, each text in quotes"),
    ("'tenant < \"gold\"'", "tenant must be compared with ==, !=, in, not in"),
    ("'tenant == gold'", "gold is no value; give a number or text in quotes"),
    ("'tenant is 3'", "tenant must be compared with =="),
    ("'priority < threshold'", "threshold is no value"),
    ("'input_tokens < threshold'", "pool 'pool 1': accepts = 'input_tokens < threshold': the threshold is open; give a "
                                   "number, or let planner size --fleet find it"),
    ("'tenant == \"gold\"'", r"accepts = 'tenant == 'gold'': test has no column tenant; name the column \(--column"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[text for text, _ in BAD])
def test_conditions_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(f"[[pool]]\naccepts = {text}\n[[pool]]\n")
    with pytest.raises(FleetError, match=said) as error:
        play([(0.0, 10, 1)], fleet=str(path))
    assert str(path) in str(error.value)


def test_a_request_that_no_pool_accepts_stops_the_replay(tmp_path: Path) -> None:
    """Before it begins, with the request's values; the prompt of 20 tokens is between both pools."""
    trace = trace_of([(0.0, 10, 1), (1.0, 20, 1), (2.0, 25, 1)], tenant=["a", None, "b"])
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 20"}, {"accepts": "input_tokens > 30 and tenant == 'a'"})
    with pytest.raises(FleetError, match=r"fleet-\d+\.toml: no pool accepts request '1' of test \(number 2 by arrival: "
                                         r"input_tokens = 20, tenant = None\), nor 1 others of 3; widen a pool's"):
        play(trace, fleet=fleet)


def test_a_decode_pool_has_no_condition(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, {"role": "prefill"}, {"role": "decode", "accepts": "input_tokens < 20"})
    with pytest.raises(FleetError, match=r"pool 2: accepts = .*: decode pools take their requests from prefill pools"):
        play([(0.0, 10, 1)], fleet=fleet)


def test_pools_of_the_same_requests_have_one_context(tmp_path: Path) -> None:
    """A prompt of 50 tokens is cut at 64 in both, one of 100 only where the context is 1,000."""
    rows = [(0.0, 50, 30), (0.0, 100, 30)]
    apart = fleet_of(tmp_path, {"name": "small", "max_model_len": 64, "accepts": "input_tokens < 64"},
                     {"name": "large", "max_model_len": 1000, "accepts": "input_tokens >= 64"})
    result = play(rows, fleet=apart)
    assert sent(result) == [0, 1]
    assert result.requests_table()["output_tokens"].to_list() == [14, 30]
    both = fleet_of(tmp_path, {"name": "small", "max_model_len": 64, "accepts": "input_tokens < 64"},
                    {"name": "large", "max_model_len": 1000})
    with pytest.raises(FleetError, match="max_model_len is 64 in pool 'small' and 1000 in pool 'large', and both"):
        play(rows, fleet=both)


def test_a_prompt_too_long_for_its_pool_is_rejected(tmp_path: Path) -> None:
    """A condition is the router's. The engine's limit holds as ever, and the note names the limit of each pool."""
    fleet = fleet_of(tmp_path, {"max_model_len": 64, "accepts": "input_tokens < 100"},
                     {"max_model_len": 1000, "accepts": "input_tokens >= 100"})
    for options in ({"router": "random"}, {"router": "least-outstanding-requests"}):
        found = replay(trace_of([(0.0, 70, 5), (0.0, 200, 5)]), scenario_of(fleet=fleet, **options))
        assert found.summary["rejected_by_reason"] == {"too_long": 1}
        assert "max_model_len = 64 or 1,000 tokens" in "".join(found.summary["notes"])


def test_turns_are_of_the_accepting_pools(tmp_path: Path) -> None:
    """Long prompts go by turns to the second and the third replica, short ones to all; each kind has its own turn."""
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50"}, {"replicas": 2})
    rows = [(100.0 * k, 10 if k % 2 else 90, 1) for k in range(10)]
    both: tuple[dict[str, Any], ...] = ({}, {"max_concurrency": 9})
    for options in both:
        assert sent(play(rows, fleet=fleet, router="round-robin", **options)) == [1, 0, 2, 1, 1, 2, 2, 0, 1, 1]


def test_prefill_pools_have_conditions(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, {"name": "short", "role": "prefill", "accepts": "input_tokens < 50"},
                     {"name": "long", "role": "prefill", "accepts": "input_tokens >= 50", "replicas": 2},
                     {"name": "answers", "role": "decode"})
    for router in ("round-robin", "least-outstanding-tokens", "prefix-aware"):
        table = play([(0.1 * k, 10 + 40 * (k % 3), 3) for k in range(12)], fleet=fleet, router=router).requests_table()
        assert table["pool"].to_list() == ["short", "long", "long"] * 4
        assert set(table["decode_pool"].to_list()) == {"answers"}
        assert set(table["status"].to_list()) == {"completed"}


def test_a_session_leaves_the_pool_that_no_longer_accepts_it(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50", "replicas": 2}, {"accepts": "input_tokens >= 50"})
    trace = trace_of([(0.0, 10, 1), (1.0, 20, 1), (2.0, 60, 1), (3.0, 20, 1)], session_id=["a"] * 4)
    sticky = [name for name, router in ROUTERS.items() if router.is_sticky]
    assert sticky
    for router in sticky:
        first, second, third, _ = sent(play(trace, fleet=fleet, router=router))
        assert first == second != third == 2


def test_a_failed_pool_holds_up_no_other(tmp_path: Path) -> None:
    """The first pool fails from 1 to 9 s. A request for it is turned away; at 2 s the other pool serves at once."""
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50"}, {"accepts": "input_tokens >= 50"})
    rows = [(2.0, 10, 1), (2.0, 90, 1)]
    result = play(rows, fleet=fleet, step_time=SECOND, fail_replica="0@1+8")
    assert result.requests_table()["status"].to_list() == ["rejected", "completed"]
    retried = play(rows, fleet=fleet, step_time=SECOND, fail_replica="0@1+8", max_retries=9, retry_initial_backoff=8.0,
                   retry_jitter_factor=0.0)
    assert retried.requests_table()["finished_at_s"].to_list() == [11.0, 3.0]
    assert sent(retried) == [0, 1]


@pytest.mark.parametrize("queue", ["fcfs", "fair"])
def test_a_request_of_a_failed_pool_lets_others_pass_in_the_queue(tmp_path: Path, queue: str) -> None:
    """One request at a time, the first until 10 s. The second waits for the pool that is back at 20 s; the third, which
    came later, is served before it."""
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50"}, {"accepts": "input_tokens >= 50"})
    rows = [(0.0, 90, 10), (0.5, 10, 1), (0.6, 90, 1), (30.0, 10, 1)]
    table = play(rows, fleet=fleet, step_time=SECOND, fail_replica="0@1+19", router_max_concurrent_requests=1,
                 router_queue=queue).requests_table()
    assert table["finished_at_s"].to_list() == [10.0, 21.0, 11.0, 31.0]


def test_a_pool_that_scales_to_zero_holds_up_no_other(tmp_path: Path) -> None:
    """A short request at 10 s finds no replica of its pool, and waits until one has started. A long one that comes
    later is served at once, and asks for none."""
    own = scaler(tmp_path, "own", minimum=0, interval=2.0, startup=3.0)
    fleet = fleet_of(tmp_path, {"accepts": "input_tokens < 50", "autoscale": own},
                     {"accepts": "input_tokens >= 50", "autoscale": own})
    options: dict[str, Any] = {"router": "least-outstanding-requests", "step_time": SECOND, "model": "llama-3.1-8b",
                               "gpu": "h100-sxm"}
    result = play([(0.0, 90, 10), (10.0, 10, 1), (10.5, 90, 1)], fleet=fleet, **options)
    table = result.requests_table()
    assert table["finished_at_s"][2] < table["finished_at_s"][1]
    assert set(table["status"].to_list()) == {"completed"}


@some.composite
def loads(draw: Any) -> Trace:
    """Draw a trace with tenants, adapters, priorities and sessions."""
    rows = draw(some.lists(some.tuples(some.sampled_from((0.0, 0.01, 0.3)), some.integers(1, 60),
                                       some.integers(1, 12)), min_size=1, max_size=14))
    n, at_s = len(rows), np.cumsum([gap for gap, _, _ in rows])

    def column(values: Sequence[Any]) -> list[Any]:
        return list(draw(some.lists(some.sampled_from(values), min_size=n, max_size=n)))

    return trace_of([(float(at), *lengths) for at, (_, *lengths) in zip(at_s, rows, strict=True)],
                    tenant=column(("gold", "free", None)), adapter=column(("x", "y", None)),
                    priority=column((0.0, 1.0, None)), session_id=column(("a", "b", "c")))


CONDITIONS = ("input_tokens < 20", "20 <= input_tokens < 45", "tenant == 'gold'", "tenant != 'gold'", "priority <= 0",
              "adapter == 'x'", "adapter not in ('x', 'y') and input_tokens > 9", None)
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
OVERLOAD: dict[str, Any] = {"fail_replica": "1@0.11+0.2", "ttft_timeout": 0.3, "max_retries": 3,
                            "retry_initial_backoff": 0.02, "router_max_concurrent_requests": 3, "router_queue": "fair"}


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 3}, OVERLOAD, OVERLOAD | {"router_queue": "fcfs"}],
                         ids=["open", "closed", "overload", "queue in order"])
@quick
@given(trace=loads(), router=some.sampled_from(list(ROUTERS)), conditions=some.lists(some.sampled_from(CONDITIONS),
                                                                                      min_size=1, max_size=3))
def test_no_pool_serves_a_request_that_it_does_not_accept(tmp_path: Path, options: dict[str, Any], trace: Trace,
                                                          router: str, conditions: list[str | None]) -> None:
    """Each request ends once; one that reached a replica reached one that accepts it. The last pool accepts all."""
    pools = [{"replicas": 1 + k % 2, **({} if text is None else {"accepts": text})}
             for k, text in enumerate([*conditions, None])]
    result = play(trace, fleet=fleet_of(tmp_path, *pools), router=router, max_loras=1, num_gpu_blocks=30, **options)
    table = result.requests_table()
    assert table.height == trace.num_requests
    for k, text in enumerate(conditions):
        meets = accepted(() if text is None else parse_conditions(text), trace)
        assert meets[(table["pool"] == f"pool {k + 1}").fill_null(value=False).to_numpy()].all()
    if result.attempts is None:
        assert set(table["status"].to_list()) <= {"completed", "failed"}
        assert table["pool"].null_count() == 0


@quick
@given(trace=loads(), router=some.sampled_from(list(ROUTERS)), counts=some.lists(some.integers(1, 2), min_size=1,
                                                                                 max_size=3),
       options=some.sampled_from(({}, {"max_concurrency": 2}, OVERLOAD)))
def test_a_condition_that_accepts_everything_changes_nothing(tmp_path: Path, trace: Trace, router: str,
                                                             counts: list[int], options: dict[str, Any]) -> None:
    plain = [{"replicas": count} for count in [2, *counts]]
    whole = [pool | {"accepts": "input_tokens >= 0 and tenant not in ('none',)"} for pool in plain]
    ours, theirs = (play(trace, fleet=fleet_of(tmp_path, *pools), router=router, **options) for pools in (whole, plain))
    for one, other in ((ours.requests_table(), theirs.requests_table()), (ours.steps_table(), theirs.steps_table()),
                       (ours.schedule_table(), theirs.schedule_table())):
        assert one.equals(other)


@quick
@given(trace=loads(), router=some.sampled_from(("round-robin", "random")), seed=some.integers(0, 3),
       conditions=some.lists(some.sampled_from(CONDITIONS), min_size=1, max_size=3))
def test_dealt_requests_and_routed_ones_go_alike(tmp_path: Path, trace: Trace, router: str, seed: int,
                                                 conditions: list[str | None]) -> None:
    """Replicas one by one, and all on one clock."""
    pools = [{"weight": 1 + k, **({} if text is None else {"accepts": text})}
             for k, text in enumerate([*conditions, None])]
    scenario = scenario_of(fleet=fleet_of(tmp_path, *pools), router=router, seed=seed)
    dealt = serve(trace, resolve(scenario, trace), recording=EVERYTHING)
    routed = play(trace, fleet=scenario.fleet, router=router, seed=seed, max_concurrency=10_000)
    assert sent(dealt) == sent(routed)
    assert_same_requests(dealt.records.requests, routed.records.requests)


@quick
@given(trace=loads(), router=some.sampled_from([name for name, router in ROUTERS.items() if not router.num_choices]),
       text=some.sampled_from([text for text in CONDITIONS if text is not None]))
def test_a_pool_of_its_own_requests_is_a_fleet_by_itself(tmp_path: Path, trace: Trace, router: str, text: str) -> None:
    """Pools that share no request do what each does alone, under limits of its own."""
    meets = accepted(parse_conditions(text), trace)
    if meets.all() or not meets.any():
        return
    trace = Trace(**{name: getattr(trace, name) for name in ("prefix", "source", "format", "sha256", "account")},
                  requests=trace.requests.with_columns(pl.Series("tenant", np.where(meets, "ours", "theirs"))))
    kinds: list[dict[str, Any]] = [{"replicas": 2, "max_model_len": 40}, {"replicas": 3, "step_time": "linear:0.02,0"}]
    fleet = fleet_of(tmp_path, kinds[0] | {"accepts": "tenant == 'ours'"}, kinds[1] | {"accepts": "tenant == 'theirs'"})
    whole = play(trace, fleet=fleet, router=router)
    for rows, kind in ((np.flatnonzero(meets), kinds[0]), (np.flatnonzero(~meets), kinds[1])):
        alone = play(trace.take(rows), fleet=fleet_of(tmp_path, kind), router=router)
        assert_same_requests(whole.records.requests[rows], alone.records.requests)
