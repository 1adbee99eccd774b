"""Autoscalers of pools, prefill and decode that scale apart, and fleets that scale to zero: by hand, and laws."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, play, scenario_of, trace_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from test_autoscale import PLAIN, SECONDS, spans
from test_pools import fleet_of

from planner.errors import FleetError, UsageError
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.policies.builtin_routers import ROUTERS
from planner.replays.result_tables import ReplayResult
from planner.replays.scaling_record import events_table
from planner.report.summary_tables import summary_table
from planner.run import replay
from planner.settings.objectives import parse_objectives

LEAST = {"router": "least-outstanding-requests"}


def scaler(folder: Path, name: str, *, minimum: int = 1, maximum: int = 2, interval: float = 2.0, startup: float = 3.0,
           up: str = "", down: str = "", metric: str = 'name = "concurrency"\ntarget = 2', more: str = "") -> str:
    """Write an autoscaler's file and return its name, beside which the fleet's file is."""
    (folder / f"{name}.toml").write_text(more + PLAIN.format(
        minimum=minimum, maximum=maximum, interval=interval, startup=startup, up=up, down=down, metric=metric))
    return f"{name}.toml"


def events(result: ReplayResult) -> list[tuple[Any, ...]]:
    assert result.scaling is not None
    return events_table(result.scaling.events).select("at_s", "pool", "before", "after").rows()


def column(result: ReplayResult, name: str) -> list[Any]:
    return result.requests_table()[name].to_list()


def test_each_pool_has_its_own_autoscaler(tmp_path: Path) -> None:
    """By turns of 1, 2 and 1 in four: two of four requests go to the second pool, which at 2 asks for ⌈2 / 1⌉, and the
    others to the first and the third. The replica that came at 5 finds nothing to do."""
    own = scaler(tmp_path, "own", metric='name = "concurrency"\ntarget = 1')
    fleet = fleet_of(tmp_path, {"name": "a"}, {"name": "b", "autoscale": own, "weight": 2, "gpu": "a100-sxm"},
                     {"name": "c", "gpu": "h100-sxm"})
    trace = trace_of([(0.0, 10, 20)] * 4)
    found = replay(trace, scenario_of(**SECONDS, fleet=fleet, model="llama-3.1-8b", gpu="h100-sxm"))
    assert column(found.result, "pool") == ["b", "a", "c", "b"]
    assert column(found.result, "finished_at_s") == [20.0] * 4
    assert spans(found.result) == [(0, 0.0, 0.0, None, 20.0), (1, 0.0, 0.0, None, 20.0), (3, 0.0, 0.0, None, 20.0),
                                   (2, 2.0, 5.0, None, 20.0)]
    assert events(found.result) == [(2.0, "b", 1, 2)]
    summary = found.summary
    assert summary["replicas_mean"] == pytest.approx(1 + 38 / 20 + 1)
    assert summary["replicas_peak"] == 4
    assert [pool["gpu_hours"] for pool in summary["pools"]] == pytest.approx([20 / 3600, 38 / 3600, 20 / 3600])
    assert [pool["replicas_mean"] for pool in summary["pools"]] == [None, pytest.approx(1.9), None]
    assert summary["gpu_hours"] == pytest.approx(78 / 3600)
    assert summary["cost_usd"] == pytest.approx(sum(pool["cost_usd"] for pool in summary["pools"]))
    assert [pool["minimum"] for pool in summary["autoscale"]["pools"]] == [1, 1, 1]
    assert "b: concurrency" in str(summary_table(summary))


def test_the_command_lines_autoscaler_is_of_pools_that_say_nothing(tmp_path: Path) -> None:
    scaler(tmp_path, "every")
    fleet = fleet_of(tmp_path, {"name": "a", "replicas": 2}, {"name": "b"})
    result = play([(0.0, 10, 3)], **SECONDS, fleet=fleet, autoscale=str(tmp_path / "every.toml"))
    assert result.scaling is not None
    assert [(name, each.minimum, each.maximum) for name, each in result.scaling.pools.items()] == [
        ("a", 2, 2), ("b", 1, 2)]
    assert result.num_replicas == 4


def test_decoders_scale_apart_from_those_that_prefill(tmp_path: Path) -> None:
    """Three prompts are prefilled by 1; at 2 three requests decode, at a target of 2. The second decoder serves from 5
    and gets the request of 6, prefilled by 7. At 12 one is left there, three have gone by 10, and at 14 it is alone."""
    own = scaler(tmp_path, "decode")
    fleet = fleet_of(tmp_path, {"name": "p", "role": "prefill"}, {"name": "d", "role": "decode", "autoscale": own})
    result = play([(0.0, 10, 10)] * 3 + [(6.0, 10, 10)], **SECONDS, fleet=fleet)
    assert column(result, "decode_replica") == [1, 1, 1, 2]
    assert column(result, "finished_at_s") == [10.0, 10.0, 10.0, 16.0]
    assert events(result) == [(2.0, "d", 1, 2), (10.0, "d", 2, 1)] or events(result) == [
        (2.0, "d", 1, 2), (12.0, "d", 2, 1)]
    assert spans(result)[:2] == [(0, 0.0, 0.0, None, 16.0), (1, 0.0, 0.0, None, 16.0)]
    assert spans(result)[2][:3] == (2, 2.0, 5.0)
    assert spans(result)[2][4] == 16.0


def test_each_role_sees_its_own_times(tmp_path: Path) -> None:
    """TTFT is what prompts wait for, TPOT what decodes take: a second a token on either, limits of 10 and 0.5 s."""
    slow = 'name = "slo-percentile"\ntarget = 1\npercentile = 50\nslo = "{}"'
    prompts = scaler(tmp_path, "prompts", metric=slow.format("ttft:10000"))
    answers = scaler(tmp_path, "answers", metric=slow.format("tpot:500"))
    fleet = fleet_of(tmp_path, {"name": "p", "role": "prefill", "autoscale": prompts},
                     {"name": "d", "role": "decode", "autoscale": answers})
    result = play([(0.0, 10, 3), (0.5, 10, 3), (30.0, 10, 3)], **SECONDS, fleet=fleet)
    found = {(pool, after) for _, pool, _, after in events(result)}
    assert ("d", 2) in found
    assert not [pool for pool, _ in found if pool == "p"]


def test_a_prefiller_that_drains_is_paid_for_until_its_kv_is_taken(tmp_path: Path) -> None:
    """Two prefill from 0 on; at 2 nothing is left to prefill, and the second goes. Its KV is taken when the one seat of
    the decoder is free, at 6: until then, and the transfer's 1.5 s, it is there."""
    own = scaler(tmp_path, "prefill", more="initial = 2\n", startup=0.0)
    fleet = fleet_of(tmp_path, {"name": "p", "role": "prefill", "autoscale": own},
                     {"name": "d", "role": "decode", "max_num_seqs": 1})
    result = play([(0.0, 10, 4), (0.0, 10, 2)], **SECONDS, fleet=fleet, kv_transfer_latency=1.5)
    assert column(result, "replica") == [0, 1]
    assert column(result, "finished_at_s") == [5.5, 8.0]  # 1 + 1.5 + 3, and from 5.5 on 1.5 + 1
    assert spans(result)[1] == (1, 0.0, 0.0, 2.0, 7.0)


def test_from_zero_and_back(tmp_path: Path) -> None:
    """Nobody serves until the evaluation at 2 sees a request waiting: from 5 on. It ends at 8, and the evaluation of
    8 comes first, so the one of 10 gives the replica up. The request of 20 waits for 22 and 25."""
    path = tmp_path / scaler(tmp_path, "zero", minimum=0)
    found = replay(trace_of([(0.0, 10, 3), (0.5, 10, 2), (20.0, 10, 2)]), scenario_of(**SECONDS, autoscale=str(path)),
                   recording=EVERYTHING)
    result = found.result
    assert column(result, "ttft_s") == [6.0, 5.5, 6.0]
    assert column(result, "gateway_s") == [5.0, 4.5, 5.0]
    assert column(result, "finished_at_s") == [8.0, 7.0, 27.0]
    assert spans(result) == [(0, 2.0, 5.0, 10.0, 10.0), (0, 22.0, 25.0, None, 27.0)]
    assert found.summary["gpu_hours"] is not None
    assert found.summary["replicas_mean"] == pytest.approx((8 + 5) / 27)
    assert result.scaling is not None
    assert [(event.before, event.after) for event in result.scaling.events] == [(0, 1), (1, 0), (0, 1)]
    assert "replicas_mean" in str(summary_table(found.summary))


def test_a_schedule_may_ask_for_several_at_once(tmp_path: Path) -> None:
    """From none to three, whatever steps are allowed: there is nothing that a step could be a share of."""
    path = tmp_path / scaler(tmp_path, "day", minimum=0, maximum=3, startup=0.0, up="max_step_percent = 100",
                             metric='name = "schedule"\nschedule = { "00:00" = 0, "00:01" = 3, "00:02" = 0 }')
    result = play([(0.0, 10, 1), (61.0, 10, 1), (150.0, 10, 1)], **SECONDS, autoscale=str(path))
    assert result.scaling is not None
    assert [(event.at_s, event.after) for event in result.scaling.events] == [
        (2.0, 1), (4.0, 0), (60.0, 3), (120.0, 0), (152.0, 1)]
    assert column(result, "ttft_s") == [3.0, 1.0, 3.0]


def test_both_roles_from_zero(tmp_path: Path) -> None:
    """Prompts wait for a decoder too: asked for at 2, one serves at 3, the other at 7. Neither goes while anything is
    in flight."""
    fast = scaler(tmp_path, "fast", minimum=0, startup=1.0)
    slow = scaler(tmp_path, "slow", minimum=0, startup=5.0)
    fleet = fleet_of(tmp_path, {"name": "p", "role": "prefill", "autoscale": fast},
                     {"name": "d", "role": "decode", "autoscale": slow})
    result = play([(0.0, 10, 4)], **SECONDS, fleet=fleet)
    assert column(result, "gateway_s") == [7.0]
    assert column(result, "finished_at_s") == [11.0]
    assert spans(result) == [(0, 2.0, 3.0, None, 11.0), (2, 2.0, 7.0, None, 11.0)]


def test_clients_hang_up_while_nobody_serves(tmp_path: Path) -> None:
    path = tmp_path / scaler(tmp_path, "zero", minimum=0)
    result = play([(0.0, 10, 3)], **SECONDS, autoscale=str(path), ttft_timeout=4.0, max_retries=1,
                  retry_initial_backoff=1.0)
    assert result.attempts_table().select("sent_at_s", "ended_at_s", "reason").rows() == [
        (0.0, 4.0, "timeout"), (5.0, 8.0, None)]


@pytest.mark.parametrize(("pool", "words"), [
    ({"autoscale": "own.toml", "replicas": 1}, "leave one of them out"),
    ({"autoscale": "none.toml"}, "pool 1.*none.toml: cannot be read"),
    ({"autoscale": 3}, "autoscale = 3: must be text"),
])
def test_bad_files(tmp_path: Path, pool: dict[str, Any], words: str) -> None:
    scaler(tmp_path, "own")
    with pytest.raises(FleetError, match=words):
        play([(0.0, 10, 1)], fleet=fleet_of(tmp_path, pool))


def test_a_capacity_is_of_a_fleet_that_stays(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, {"autoscale": scaler(tmp_path, "own")})
    with pytest.raises(UsageError, match="a capacity needs a fixed number of replicas"):
        capacity(trace_of([(0.0, 10, 1)]), scenario_of(fleet=fleet), parse_objectives("ttft:1000", 0.9), Search())


@some.composite
def fleets(draw: Any) -> tuple[list[tuple[float, int, int]], list[dict[str, Any]], dict[str, Any]]:
    """Draw a load, two pools' autoscalers, and the fleet's options."""
    n = draw(some.integers(1, 14))
    rows = sorted((0.25 * draw(some.integers(0, 60)), draw(some.integers(1, 40)), draw(some.integers(1, 12)))
                  for _ in range(n))
    pools = []
    for _ in range(2):
        least = draw(some.integers(0, 2))
        most = max(least, 1) + draw(some.integers(0, 2))
        pools.append({"minimum": least, "maximum": most, "interval": draw(some.sampled_from((0.5, 1.0, 3.0))),
                      "startup": draw(some.sampled_from((0.0, 0.7, 4.0))),
                      "up": draw(some.sampled_from(("", "max_step = 1"))),
                      "down": draw(some.sampled_from(("", ", cooldown_s = 2"))),
                      "metric": draw(some.sampled_from((
                          'name = "concurrency"\ntarget = 2', 'name = "queue"\ntarget = 1',
                          'name = "kv-cache"\ntarget = 0.2', 'name = "request-rate"\ntarget = 0.5\nwindow_s = 4',
                          'name = "slo-attainment"\ntarget = 0.9\nslo = "ttft:500 tpot:200"')))})
    options = {"router": draw(some.sampled_from(list(ROUTERS))), "max_num_seqs": draw(some.sampled_from((1, 3, 0))),
               "step_time": "linear:0.1,0.001", "num_gpu_blocks": draw(some.sampled_from((6, 40)))}
    if draw(some.booleans()):
        options |= {"request_timeout": draw(some.sampled_from((1.0, 6.0))), "max_retries": draw(some.integers(0, 2)),
                    "retry_initial_backoff": 0.5}
    if draw(some.booleans()):
        options["fail_replica"] = "0@3+2"
    return rows, pools, options


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=fleets(), roles=some.sampled_from((("both", "both"), ("prefill", "decode"))))
def test_laws(tmp_path: Path, case: Any, roles: tuple[str, str]) -> None:
    """Everybody's end is told, each replica serves within its spans alone, bounds hold, and costs are sums."""
    rows, pools, options = case
    files = [scaler(tmp_path, name, **pool) for name, pool in zip("ab", pools, strict=True)]
    fleet = fleet_of(tmp_path, *({"name": name, "role": role, "autoscale": file}
                                 for name, role, file in zip("ab", roles, files, strict=True)))
    found = replay(trace_of(rows), scenario_of(fleet=fleet, **options), recording=EVERYTHING)
    result = found.result
    assert found.summary["unfinished"] == 0
    if "request_timeout" not in options and "fail_replica" not in options and options["num_gpu_blocks"] == 40:
        assert found.summary["completed"] == len(rows)
    assert result.scaling is not None
    first = 0
    for pool, own in zip(pools, result.scaling.pools.values(), strict=True):
        alive = [(span.start_s, span.end_s) for span in own.spans]
        for at_s in {begin for begin, _ in alive}:
            assert sum(begin <= at_s < end for begin, end in alive) <= pool["maximum"]
        assert {span.replica for span in own.spans} <= set(range(first, first + pool["maximum"]))
        for event in own.events:
            assert pool["minimum"] <= event.after <= pool["maximum"] or event.after == 1
        first += pool["maximum"]
    for replica, start_s, end_s in result.steps_table().select("replica", "start_s", (pl.col("start_s") + pl.col(
            "duration_s")).alias("end_s")).rows():
        serving = [span for span in result.scaling.spans if span.replica == replica and span.ready_s <= start_s]
        assert any(start_s < span.end_s or end_s <= span.end_s + 1e-9 for span in serving)
    duration_s = found.summary["duration"]
    assert result.mean_replicas(duration_s) == pytest.approx(sum(
        own.mean_replicas(duration_s) for own in result.scaling.pools.values()))
    for replica in result.replicas:
        e = replica.engine
        assert (e.num_running, e.num_waiting, e.num_loading) == (0, 0, 0)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=fleets(), roles=some.sampled_from((("both", "both"), ("prefill", "decode"))))
def test_pools_that_cannot_change_are_those_that_stay(tmp_path: Path, case: Any, roles: tuple[str, str]) -> None:
    rows, pools, options = case
    counts = [pool["maximum"] for pool in pools]
    files = [scaler(tmp_path, name, **pool | {"minimum": count})
             for name, pool, count in zip("ab", pools, counts, strict=True)]
    scaled, stays = (fleet_of(tmp_path, *({"name": name, "role": role, key: value} for name, role, value in zip(
        "ab", roles, values, strict=True))) for key, values in (("autoscale", files), ("replicas", counts)))
    one, other = (play(trace_of(rows), fleet=fleet, **options) for fleet in (scaled, stays))
    assert one.requests_table().equals(other.requests_table())
    assert np.array_equal(one.records.steps, other.records.steps)
