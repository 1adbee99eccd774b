"""Failures of a GPU, a node or a zone: the size by exhaustive replay, and the share of a year by closed form."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_requests, cheapest, leave_out_headroom, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.deployment.deploy import Deployment, resolve
from planner.errors import UsageError
from planner.planning.failing_units import Placement, placement_of, share_down, share_within
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, UnableFleet
from planner.planning.sizing import size
from planner.planning.survival import AROUND, MINUTES, strike, worst_failure
from planner.planning.survival_answer import Survival
from planner.replays.fleet.replicas import serve
from planner.report.plan_tables import sizing_table
from planner.results.saved import to_json
from planner.settings.objectives import Objectives, judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.rescaling import compressed
from planner.traces.shaping.window_and_rate import limit

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
PLAIN = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
OBJECTIVES = parse_objectives("ttft:1000 tpot:60", 0.95)
NEAR, FAR = 0.01, 0.04  # tolerance of the worst moment's attainment, of fleets that meet the objectives and of others
GRID = 16  # moments of an exhaustive search


@pytest.fixture(autouse=True)
def _without_headroom(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_headroom(monkeypatch)


@pytest.fixture(scope="module")
def chat() -> Trace:
    return compressed(limit(read_trace("chat"), 700), 40.0, 0)


@pytest.fixture(scope="module")
def bursts() -> Trace:
    """Two bursts in a minute of light traffic."""
    draws = np.random.default_rng(1)
    arrival_s = np.sort(np.concatenate([draws.uniform(0, 60, 200), 20 + draws.exponential(2, 150),
                                        45 + draws.exponential(1, 60)]))
    return trace_of([(float(at_s), int(draws.integers(50, 1500)), int(draws.integers(5, 200))) for at_s in arrival_s])


def placed(choices: Choices) -> Placement:
    return placement_of(str(choices.survive), "h100-sxm", 1, choices.replicas_per_node, choices.zones)


def on_grid(load: Trace, deployment: Deployment, count: int, choices: Choices,
            objectives: Objectives) -> tuple[bool, float]:
    """Return whether a fleet survives each unit at each moment of a grid, and its least attainment."""
    healthy = serve(load, deployment, count)
    last_s = float(np.nanmax(healthy.records.requests.arrival_s))
    groups = [group for group in placed(choices).groups(count) if len(group) < count]
    verdicts = [strike(healthy, objectives, group, float(at_s), choices).verdict
                for group, at_s in itertools.product(groups, np.linspace(0.0, last_s, GRID))]
    is_met = len(groups) > 0 and all(verdict.is_met for verdict in verdicts)
    return is_met, min((verdict.attainment for verdict in verdicts), default=0.0)


def survival(fleet: Fleet) -> Survival:
    assert fleet.survival is not None
    return fleet.survival


@pytest.mark.parametrize(("options", "attainment"), [
    ({"survive": "gpu"}, 0.95), ({"survive": "gpu", "health_check_s": 1.5, "mttr_h": 8 / 3600}, 0.95),
    ({"survive": "node", "replicas_per_node": 2}, 0.95), ({"survive": "zone", "zones": 2}, 0.9),
    ({"survive": "zone", "health_check_s": 0.3}, 0.9)])
def test_the_size_agrees_with_a_failure_of_each_unit_at_each_moment(chat: Trace, options: dict[str, Any],
                                                                    attainment: float) -> None:
    """It survives a grid of failures; each smaller number misses the objectives by one of the grid or of ours."""
    choices, objectives = replace(PLAIN, **options), replace(OBJECTIVES, attainment=attainment)
    best = cheapest(size(chat, H100, objectives, choices))
    deployment = resolve(H100, chat)

    def survives(count: int) -> bool:
        struck = worst_failure(chat, deployment, objectives, count, placed(choices), choices)
        return struck is not None and struck.verdict.is_met and on_grid(
            chat, deployment, count, choices, objectives)[0]

    assert best.num_replicas == next(count for count in range(1, 9) if survives(count))
    assert best.num_replicas > survival(best).num_replicas_without
    assert survival(best).num_replicas_without == cheapest(size(chat, H100, objectives, PLAIN)).num_replicas


@pytest.mark.parametrize("name", ["chat", "bursts"])
@pytest.mark.parametrize("options", [{}, {"health_check_s": 2.0}, {"mttr_h": 8 / 3600}])
def test_the_worst_moment_is_as_bad_as_any_of_a_grid(name: str, options: dict[str, Any],
                                                     request: pytest.FixtureRequest) -> None:
    load = request.getfixturevalue(name)
    scenario = replace(H100, step_time="linear:0.02,0.0001") if name == "bursts" else H100
    choices, deployment = replace(PLAIN, survive="gpu", **options), resolve(scenario, load)
    to_the_end = replace(OBJECTIVES, attainment=1e-9)  # no moment ends the search
    for count in (2, 3, 4):
        struck = worst_failure(load, deployment, to_the_end, count, placed(choices), choices)
        assert struck is not None
        ours = judge(OBJECTIVES, struck.served.times_s)
        _, least = on_grid(load, deployment, count, choices, OBJECTIVES)
        assert ours.attainment <= least + (NEAR if judge(OBJECTIVES, struck.healthy.times_s).is_met else FAR)
        assert struck.num_moments > len(AROUND)


@pytest.mark.parametrize(("sample", "rows", "rate", "router", "count", "options"), [
    ("chat", 317, 47.9, "least-outstanding-requests", 4, {"survive": "node", "replicas_per_node": 2}),
    ("rag", 325, 9.72, "random", 3, {"survive": "zone", "zones": 2})])
def test_a_failure_that_overloads_all_that_follows_is_found(sample: str, rows: int, rate: float, router: str,
                                                            count: int, options: dict[str, Any]) -> None:
    """The worst moment is early and in no busy window: the replicas that are left never catch up."""
    load = compressed(limit(read_trace(sample), rows), rate, 0)
    choices, deployment = replace(PLAIN, health_check_s=2.0, **options), resolve(replace(H100, router=router), load)
    struck = worst_failure(load, deployment, replace(OBJECTIVES, attainment=1e-9), count, placed(choices), choices)
    assert struck is not None
    _, least = on_grid(load, deployment, count, choices, OBJECTIVES)
    assert judge(OBJECTIVES, struck.served.times_s).attainment <= least + FAR


def test_the_replay_line_gives_the_failure_to_the_digit() -> None:
    """The command has the options of the failed replay and the load of the answer."""
    from test_replay_lines import replayed

    found = size(read_trace("chat"), replace(H100, request_rate=40.0, limit=400),
                 OBJECTIVES, replace(PLAIN, survive="gpu", health_check_s=1.0, mtbf_h=1000.0, mttr_h=2.0))
    kept = survival(cheapest(found))
    assert kept.replay_command is not None
    summary = replayed(kept.replay_command)
    assert summary["slo_attainment"] == kept.attainment
    assert summary["num_attempts_lost"] > 0
    text = str(sizing_table(found))
    assert kept.sentence in text
    assert "within the SLO" in text
    assert '"missed_minutes_per_year"' in to_json(found)


def test_survival_costs_the_gpus_that_it_adds(chat: Trace) -> None:
    choices = replace(PLAIN, survive="gpu", prices={"h100-sxm": 2.0})
    best = cheapest(size(chat, H100, OBJECTIVES, choices))
    kept = survival(best)
    assert kept.more_gpus == best.num_replicas - kept.num_replicas_without > 0
    assert kept.more_usd_per_month == pytest.approx(1460.0 * kept.more_gpus)
    assert best.cost_usd_per_hour == pytest.approx(2.0 * best.num_gpus)
    assert kept.year == ()


def test_a_longer_health_check_never_needs_fewer_replicas(chat: Trace) -> None:
    sizes = [cheapest(size(chat, H100, OBJECTIVES, replace(PLAIN, survive="gpu", health_check_s=check_s))).num_replicas
             for check_s in (0.0, 1.0, 4.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_zone_that_is_found_out_too_late_is_survived_by_no_number(chat: Trace) -> None:
    found = size(chat, H100, parse_objectives("ttft:1000", 1.0), replace(PLAIN, survive="zone", health_check_s=8.0))
    fleet, = found.alternatives
    assert isinstance(fleet, UnableFleet)
    assert not found.feasible
    assert "replicas still miss the objectives" in fleet.reason


@pytest.mark.parametrize("health_check_s", [0.0, 3.0])
def test_a_failure_that_nobody_notices_costs_nothing(chat: Trace, health_check_s: float) -> None:
    """After the last request every unit may fail."""
    deployment, choices = resolve(H100, chat), replace(PLAIN, survive="gpu", health_check_s=health_check_s)
    healthy = serve(chat, deployment, 3)
    late_s = float(np.nanmax(healthy.records.requests.finished_s)) + 1.0
    struck = strike(healthy, OBJECTIVES, range(2), late_s, choices)
    assert_same_requests(struck.served.records.requests, healthy.records.requests)
    assert struck.verdict == judge(OBJECTIVES, healthy.times_s)


@pytest.mark.parametrize(("options", "words"), [
    ({"survive": "rack"}, "--survive rack: must be gpu, node, zone"),
    ({"health_check_s": 5.0}, "--health-check 5.0: nothing fails; give --survive"),
    ({"mtbf_h": 5.0}, "--mtbf 5.0: nothing fails"), ({"zones": 2}, "--zones 2: nothing fails"),
    ({"survive": "gpu", "mtbf_h": 1000.0}, "give --mttr"),
    ({"survive": "gpu", "mtbf_h": 0.0, "mttr_h": 1.0}, "--mtbf 0.0: must be above 0 and finite"),
    ({"survive": "gpu", "health_check_s": -1.0}, "--health-check -1.0: must be at least 0 and finite"),
    ({"survive": "gpu", "health_check_s": math.nan}, "--health-check nan: must be"),
    ({"survive": "zone", "zones": 1}, "--zones 1: must be at least 2"),
    ({"survive": "gpu", "zones": 4}, "--zones 4 with --survive gpu: it is for --survive zone; leave it out"),
    ({"survive": "zone", "replicas_per_node": 2}, "--replicas-per-node 2 with --survive zone"),
    ({"survive": "node", "replicas_per_node": 0}, "--replicas-per-node 0: must be at least 1"),
    ({"survive": "gpu", "num_spare": 1}, "--survive gpu with --spare"),
    ({"survive": "gpu", "disaggregate": True}, "--survive gpu with --disaggregate"),
])
def test_choices_that_contradict_each_other_are_refused(chat: Trace, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        size(chat, H100, OBJECTIVES, replace(PLAIN, **options))


def test_a_given_failure_is_not_another(chat: Trace) -> None:
    with pytest.raises(UsageError, match="--survive gpu with --fail-replica"):
        size(chat, replace(H100, fail_replica="0@1"), OBJECTIVES, replace(PLAIN, survive="gpu"))


@pytest.mark.parametrize(("unit", "gpu", "num_gpus", "per_node", "count", "sizes", "units"), [
    ("gpu", "h100-sxm", 1, None, 3, [1, 1, 1], 3), ("gpu", "h100-sxm", 4, None, 2, [1, 1], 8),
    ("node", "h100-sxm", 1, None, 9, [8, 1], 2), ("node", "h100-sxm", 4, None, 5, [2, 2, 1], 3),
    ("node", "h100-sxm", 1, 3, 7, [3, 3, 1], 3), ("node", "h100-sxm", 3, None, 4, [2, 2], 2),
    ("node", "h100-sxm", 16, None, 3, [1, 1, 1], 6), ("zone", "h100-sxm", 8, None, 8, [3, 3, 2], 3),
    ("zone", "h100-sxm", 1, None, 2, [1, 1], 2), ("gpu", "h100-sxm:3g.40gb", 1, None, 3, [2, 1], 2),
])
def test_replicas_are_placed_by_hand(unit: str, gpu: str, num_gpus: int, per_node: int | None, count: int,
                                     sizes: list[int], units: int) -> None:
    placement = placement_of(unit, gpu, num_gpus, per_node, 3)
    groups = placement.groups(count)
    assert [len(group) for group in groups] == sizes
    assert sorted(itertools.chain(*groups)) == list(range(count))
    assert (placement.num_units(count), placement.num_failed(count)) == (units, sizes[0])


@pytest.mark.parametrize(("count", "needed", "down"), [(5, 4, 0.01), (8, 5, 0.2), (3, 0, 0.5), (2, 3, 0.1),
                                                       (40, 36, 0.03)])
def test_equal_units_are_the_closed_form_of_k_out_of_n(count: int, needed: int, down: float) -> None:
    closed = sum(math.comb(count, up) * (1 - down) ** up * down ** (count - up) for up in range(needed, count + 1))
    assert share_within([1] * count, needed, down) == pytest.approx(closed, abs=1e-12)


def test_unequal_units_are_the_sum_over_their_states() -> None:
    sizes, down = [3, 3, 2, 1], 0.07
    closed = sum(math.prod(1 - down if is_up else down for is_up in state)
                 for state in itertools.product((False, True), repeat=4)
                 if sum(itertools.compress(sizes, state)) >= 6)
    assert share_within(sizes, 6, down) == pytest.approx(closed, abs=1e-12)


def simulated(sizes: Sequence[int], units: int, needed: int, mtbf_h: float, mttr_h: float, hours: float) -> float:
    """Return the share of time in which enough replicas work, by drawn times of work and of repair."""
    draws, changes = np.random.default_rng(7), []
    for group, size_of in enumerate(sizes):
        for _ in range(units):
            number = int(hours / (mtbf_h + mttr_h) * 1.5) + 50
            both = np.stack([draws.exponential(mtbf_h, number), draws.exponential(mttr_h, number)], axis=1).ravel()
            at_h = np.cumsum(both)
            assert at_h[-1] > hours
            changes += [(at, group, 1 - 2 * (place % 2), size_of) for place, at in enumerate(at_h) if at < hours]
    down, works, since, within = [0] * len(sizes), sum(sizes), 0.0, 0.0
    for at, group, step, size_of in sorted(changes):
        within += (at - since) * (works >= needed)
        before, down[group], since = down[group], down[group] + step, at
        works += size_of * ((down[group] == 0) - (before == 0))
    return (within + (hours - since) * (works >= needed)) / hours


@pytest.mark.parametrize(("sizes", "units", "needed"), [((1,) * 6, 1, 5), ((2, 2, 1), 1, 3), ((1,) * 4, 2, 3)])
def test_the_share_of_a_year_agrees_with_simulated_failures(sizes: tuple[int, ...], units: int, needed: int) -> None:
    """20,000 cycles of work and repair of each unit: the standard error is below 0.001."""
    mtbf_h, mttr_h = 90.0, 10.0
    closed = share_within(sizes, needed, share_down(mtbf_h, mttr_h, units))
    assert simulated(sizes, units, needed, mtbf_h, mttr_h, 2e6) == pytest.approx(closed, abs=0.004)


@given(unit=some.sampled_from(("gpu", "node", "zone")), num_gpus=some.sampled_from((1, 2, 4, 8, 16)),
       count=some.integers(1, 40), needed=some.integers(1, 40), down=some.floats(0.0, 1.0))
def test_more_replicas_never_lower_the_share(unit: str, num_gpus: int, count: int, needed: int, down: float) -> None:
    placement = placement_of(unit, "h100-sxm", num_gpus, None, 3)
    fewer, more = (share_within([len(group) for group in placement.groups(number)], needed, down)
                   for number in (count, count + 1))
    assert more >= fewer - 1e-12
    sizes = [len(group) for group in placement.groups(count)]
    assert share_within(sizes, needed, min(1.1 * down, 1.0)) <= fewer + 1e-12


def test_a_year_has_a_row_for_each_further_replica(chat: Trace) -> None:
    choices = replace(PLAIN, survive="gpu", mtbf_h=1999.0, mttr_h=1.0, prices={"h100-sxm": 2.0})
    best = cheapest(size(chat, H100, OBJECTIVES, choices))
    rows, needed = survival(best).year, survival(best).num_replicas_without
    assert [row.num_replicas for row in rows] == list(range(needed, best.num_replicas + 3))
    assert rows[0].share == pytest.approx(0.9995 ** needed)
    assert rows[0].missed_minutes_per_year == pytest.approx((1 - 0.9995 ** needed) * MINUTES)
    for before, row in itertools.pairwise(rows):
        assert row.share > before.share
        assert row.saved_minutes_per_year == before.missed_minutes_per_year - row.missed_minutes_per_year
        assert row.cost_usd_per_month - before.cost_usd_per_month == pytest.approx(1460.0)
