"""How many replicas follow from metrics: Kubernetes' rules by hand, and what holds whatever is asked for."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from planner.deployment.recommendation import (
    Direction,
    Rules,
    Timed,
    is_cooling,
    recommend,
    stabilized,
    wanted_by,
    within_step,
)
from planner.policies.autoscaler import FleetLoad
from planner.policies.builtin_autoscalers import AUTOSCALERS

FREE = Direction(stabilization_window_s=0.0, cooldown_s=0.0, max_step=None, max_step_percent=None, step_period_s=15.0)


def direction(**values: Any) -> Direction:
    plain = {name: getattr(FREE, name) for name in FREE.__slots__}
    return Direction(**plain | values)


def load(**values: Any) -> FleetLoad:
    nothing = FleetLoad(0.0, 4, 4, 0, 0, 0.0, 0.0, math.nan, math.nan, math.nan)
    return nothing._replace(**values)


@pytest.mark.parametrize(("name", "values", "target", "metric", "wanted"), [
    ("concurrency", {"num_running": 50, "num_waiting": 10}, 10.0, 15.0, 6),
    ("concurrency", {"num_running": 41}, 10.0, 10.25, 4),  # within a tenth of the target
    ("concurrency", {"num_running": 43}, 10.0, 10.75, 4),
    ("concurrency", {"num_running": 45}, 10.0, 11.25, 5),
    ("concurrency", {"num_running": 5}, 10.0, 1.25, 1),
    ("queue", {"num_running": 90, "num_waiting": 26}, 5.0, 6.5, 6),
    ("queue", {"num_running": 90}, 5.0, 0.0, 0),
    ("kv-cache", {"kv_cache_usage": 0.9}, 0.6, 0.9, 6),
    ("kv-cache", {"kv_cache_usage": 0.9, "num_ready": 2}, 0.6, 0.45, 3),  # those that start count as empty
    ("request-rate", {"request_rate": 9.0}, 1.5, 2.25, 6),
    ("slo-percentile", {"slo_use": 1.6}, 0.8, 1.6, 8),
    ("slo-percentile", {"slo_use": 1.6, "num_ready": 2}, 0.8, 0.8, 4),
    ("slo-percentile", {}, 0.8, None, None),  # nothing was seen
    ("slo-attainment", {"attainment": 0.495, "slo_use": 3.0}, 0.99, 0.495, 6),  # half of the target: half more
    ("slo-attainment", {"attainment": 0.0, "slo_use": 9.0}, 0.99, 0.0, 8),
    ("slo-attainment", {"attainment": 0.98, "slo_use": 1.1}, 0.99, 0.98, 5),
    ("slo-attainment", {"attainment": 1.0, "slo_use": 0.76}, 0.99, 1.0, 4),
    ("slo-attainment", {"attainment": 1.0, "slo_use": 0.75}, 0.99, 1.0, 3),  # on three it would be all of the limit
    ("slo-attainment", {}, 0.99, None, None),
    ("schedule", {"scheduled": 7.0}, math.nan, 7.0, 7),
])
def test_what_an_autoscaler_asks_for(name: str, values: dict[str, Any], target: float, metric: float | None,
                                     wanted: int | None) -> None:
    found = wanted_by(AUTOSCALERS[name], load(**values), target, 0.1)
    assert found[1] == wanted
    assert math.isnan(found[0]) if metric is None else found[0] == pytest.approx(metric)


def test_the_most_that_was_asked_for_within_the_window_holds() -> None:
    """At 100 two are asked for; 8 at 60 is out of the window of 40, 5 at 61 is in it."""
    asked = [Timed(60.0, 8), Timed(61.0, 5), Timed(90.0, 3)]
    assert stabilized(2, 6, 100.0, asked, FREE, direction(stabilization_window_s=40.0)) == 5
    assert stabilized(2, 4, 100.0, asked, FREE, direction(stabilization_window_s=40.0)) == 4
    assert stabilized(2, 6, 100.0, asked, FREE, FREE) == 2


def test_the_least_that_was_asked_for_all_the_time_counts_for_growing() -> None:
    asked = [Timed(60.0, 2), Timed(61.0, 5), Timed(90.0, 7)]
    assert stabilized(9, 4, 100.0, asked, direction(stabilization_window_s=40.0), FREE) == 5
    assert stabilized(9, 6, 100.0, asked, direction(stabilization_window_s=40.0), FREE) == 6
    assert stabilized(9, 4, 100.0, asked, FREE, FREE) == 9


def test_steps_count_from_the_period_s_begin() -> None:
    """Of six replicas, three were added within the period: it began with three, so twice as many are six."""
    up = direction(max_step=2, max_step_percent=100.0, step_period_s=60.0)
    assert within_step(20, 6, 100.0, [Timed(40.0, 5), Timed(41.0, 3)], up, FREE) == 6
    assert within_step(20, 3, 100.0, [Timed(40.0, 5)], up, FREE) == 6
    assert within_step(20, 1, 100.0, [], up, FREE) == 3
    down = direction(max_step=1, step_period_s=60.0)
    assert within_step(1, 6, 100.0, [], FREE, down) == 5
    assert within_step(1, 6, 100.0, [Timed(50.0, -1)], FREE, down) == 6
    assert within_step(1, 6, 100.0, [], FREE, direction(max_step_percent=50.0)) == 3


def test_cool_downs() -> None:
    """Growing waits for the last growth, shrinking for any change; both may act when the time is over."""
    up, down = direction(cooldown_s=30.0), direction(cooldown_s=60.0)
    grown, shrunk = [Timed(50.0, 2)], [Timed(50.0, -2)]
    assert is_cooling(9, 4, 79.0, grown, up, down)
    assert not is_cooling(9, 4, 80.0, grown, up, down)
    assert not is_cooling(9, 4, 51.0, shrunk, up, down)
    assert is_cooling(1, 4, 109.0, grown, up, down)
    assert is_cooling(1, 4, 109.0, shrunk, up, down)
    assert not is_cooling(1, 4, 110.0, grown, up, down)
    assert not is_cooling(4, 4, 51.0, grown, up, down)


def rules(**values: Any) -> Rules:
    plain: dict[str, Any] = {"minimum": 1, "maximum": 8, "tolerance": 0.1, "up": FREE, "down": FREE}
    return Rules(**plain | values)


def test_the_one_that_asks_for_the_most_decides_and_says_what_held_it_back() -> None:
    wanted = [(3.0, 3), (math.nan, None), (0.9, 5), (40.0, 5)]
    found = recommend(wanted, 2, 0, 0.0, [], [], rules())
    assert found == (5, 5, 2, 0.9, 5, "")
    assert recommend([(9.0, 99)], 2, 0, 0.0, [], [], rules()) == (8, 8, 0, 9.0, 99, "maximum")
    assert recommend([(0.0, 0)], 2, 0, 0.0, [], [], rules()) == (1, 1, 0, 0.0, 0, "minimum")
    assert recommend([(9.0, 7)], 2, 3, 0.0, [], [], rules()) == (5, 7, 0, 9.0, 7, "draining")
    assert recommend([(9.0, 7)], 2, 0, 0.0, [], [], rules(up=direction(max_step=1))) == (3, 7, 0, 9.0, 7, "step")
    assert recommend([(math.nan, None)], 2, 0, 0.0, [], [], rules()) is None


@some.composite
def directions(draw: Any) -> Direction:
    return Direction(stabilization_window_s=draw(some.sampled_from((0.0, 15.0, 40.0, 100.0))),
                     cooldown_s=draw(some.sampled_from((0.0, 0.0, 15.0, 50.0))),
                     max_step=draw(some.sampled_from((None, 1, 3))),
                     max_step_percent=draw(some.sampled_from((None, 20.0, 100.0))),
                     step_period_s=draw(some.sampled_from((15.0, 60.0))))


@given(asks=some.lists(some.lists(some.none() | some.integers(0, 30), min_size=1, max_size=3), max_size=30),
       up=directions(), down=directions(), minimum=some.integers(1, 5), span=some.integers(0, 10),
       draining=some.lists(some.integers(0, 3), min_size=30, max_size=30))
def test_whatever_is_asked_for(asks: list[list[int | None]], up: Direction, down: Direction, minimum: int, span: int,
                               draining: list[int]) -> None:
    """Bounds, cool-downs, steps within their period, and changes only towards what somebody asked for."""
    bounds = rules(minimum=minimum, maximum=minimum + span, up=up, down=down)
    count, asked, changes = minimum, list[Timed](), list[Timed]()
    for place, numbers in enumerate(asks):
        now_s = 15.0 * place
        found = recommend([(0.0, number) for number in numbers], count, draining[place], now_s, asked, changes, bounds)
        if found is None:
            assert all(number is None for number in numbers)
            continue
        after = found.num_replicas
        assert minimum <= after <= minimum + span
        assert after <= max(count, minimum + span - draining[place])
        assert found.wanted == max(number for number in numbers if number is not None)
        assert (after - count) * (found.asked - count) >= 0, "away from what was asked for"
        if (found.limited_by in ("", "minimum", "maximum")):
            assert after == found.asked
        if after > count:
            assert all(now_s - each.at_s >= up.cooldown_s for each in changes if each.num_replicas > 0)
            window = [each.num_replicas for each in asked if each.at_s > now_s - up.stabilization_window_s]
            assert after <= min([found.asked, *window])
        if after < count:
            assert all(now_s - each.at_s >= down.cooldown_s for each in changes)
            window = [each.num_replicas for each in asked if each.at_s > now_s - down.stabilization_window_s]
            assert after >= max([found.asked, *window])
        asked.append(Timed(now_s, found.asked))
        if after != count:
            changes.append(Timed(now_s, after - count))
            way = up if after > count else down
            recent = sum(each.num_replicas for each in changes if each.at_s > now_s - way.step_period_s)
            if way.max_step is not None or way.max_step_percent is not None:
                begin = after - recent
                share = math.ceil(begin * (way.max_step_percent or 0.0) / 100.0 - 1e-9)
                assert abs(recent) <= max(way.max_step or 0, share)
        count = after
