"""Autoscaled fleets by hand: when replicas come, serve, drain and end, and what they are paid for."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, play, scenario_of, trace_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from planner.commands import actions
from planner.deployment.autoscale import read_autoscale
from planner.deployment.deploy import resolve
from planner.errors import AutoscaleError, PolicyError, UsageError
from planner.loop.state import engine_state as st
from planner.planning.capacity import capacity
from planner.planning.fingerprint import scenario_sha256
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.policies.autoscaler import Autoscaler
from planner.policies.builtin_autoscalers import AUTOSCALERS
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.report.figures.bins import bin_steps, time_bins
from planner.report.figures.scaling_figures import replicas
from planner.report.markdown import to_markdown
from planner.report.page import to_html
from planner.results.saved import SavedResult, load_result, save_result, to_json
from planner.run import replay
from planner.settings.format_spec import Reading
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario

SECONDS: dict[str, Any] = {"step_time": "linear:1,0"}  # every step takes a second
PLAIN = """
minimum = {minimum}
maximum = {maximum}
interval_s = {interval}
startup = {{ warmup_s = {startup} }}
up = {{ {up} }}
down = {{ stabilization_window_s = 0{down} }}
[[metric]]
{metric}
"""


def write(folder: Path, *, minimum: int = 1, maximum: int = 2, interval: float = 2.0, startup: float = 3.0,
          up: str = "", down: str = "", metric: str = 'name = "concurrency"\ntarget = 2') -> str:
    """Write an autoscaler's file and return its path."""
    path = folder / "autoscale.toml"
    path.write_text(PLAIN.format(minimum=minimum, maximum=maximum, interval=interval, startup=startup, up=up, down=down,
                                 metric=metric))
    return str(path)


def spans(result: ReplayResult) -> list[tuple[float | None, ...]]:
    assert result.scaling is not None
    return [tuple(None if value != value else value for value in span) for span in result.scaling.spans]


def test_a_replica_starts_serves_and_drains(tmp_path: Path) -> None:
    """One replica, a second a step, two seats.

    The three requests at 0 take ten steps each; the evaluation at 2 sees three outstanding, ⌈3 / 2⌉ = 2 replicas are
    asked for, and the second one serves from 5 on: it is sent the request of 6. At 10 the first two leave and the third
    begins, so at 12 two are outstanding, and one replica is enough. The second drains from then on: it is sent nothing
    of what comes at 13, and ends with its request at 16.
    """
    path = write(tmp_path)
    result = play([(0.0, 10, 10), (0.0, 10, 10), (0.0, 10, 10), (6.0, 10, 10), (13.0, 10, 10)], **SECONDS,
                  max_num_seqs=2, autoscale=path, router="least-outstanding-requests")
    assert result.replica is not None
    assert result.replica.tolist() == [0, 0, 0, 1, 0]
    assert np.asarray(result.records.requests.finished_s).tolist() == [10.0, 10.0, 20.0, 16.0, 23.0]
    assert spans(result) == [(0, 0.0, 0.0, None, 23.0), (1, 2.0, 5.0, 12.0, 16.0)]
    assert result.scaling is not None
    assert result.scaling.paid_s == 23.0 + 14.0
    assert [event[:8] for event in result.scaling.events] == [
        (2.0, 1, 2, "concurrency", 3.0, 2.0, 2, ""), (12.0, 2, 1, "concurrency", 1.0, 2.0, 1, "")]


def test_a_replica_that_starts_is_given_up_first(tmp_path: Path) -> None:
    """It is asked for at 2 and would serve at 22; at 4 nobody needs it. It was paid for two seconds."""
    path = write(tmp_path, startup=20.0)
    result = play([(0.0, 10, 3)] * 3 + [(50.0, 10, 2)], **SECONDS, autoscale=path)
    assert spans(result) == [(0, 0.0, 0.0, None, 52.0), (1, 2.0, None, None, 4.0)]


def test_a_number_is_used_again_with_an_empty_cache(tmp_path: Path) -> None:
    """The second replica drains at 12, and its number serves again from 35 on: what it had cached is gone."""
    rows = [(0.0, 64, 10), (0.0, 64, 10), (0.0, 64, 10), (6.0, 64, 3),  # the last of these goes to the second replica
            (30.0, 64, 10), (30.0, 64, 10), (30.0, 64, 10), (36.0, 64, 3)]
    trace = trace_of(rows, hash_ids=[[1, 2, 3, 4]] * 8, hash_block_tokens=16)
    result = play(trace, **SECONDS, autoscale=write(tmp_path), router="least-outstanding-requests",
                  enable_prefix_caching=True)
    assert result.replica is not None
    assert result.replica.tolist() == [0, 0, 0, 1, 0, 0, 0, 1]
    hits = result.requests_table()["num_cached_tokens"].to_list()
    assert hits[3] == hits[7] == 0
    assert hits[4:7] == [48, 48, 48]
    assert [span[:3] for span in spans(result)] == [(0, 0.0, 0.0), (1, 2.0, 5.0), (1, 32.0, 35.0)]


def test_a_fleet_waits_for_those_that_drain(tmp_path: Path) -> None:
    """Of two replicas at most the second drains from 4 to 33, so the queue of 10 and later waits for it until 34."""
    path = write(tmp_path, startup=0.0, metric='name = "queue"\ntarget = 1')
    rows = [(0.0, 10, 3)] * 3 + [(3.0, 10, 30)] + [(9.0, 10, 10)] * 6
    result = play(rows, **SECONDS, max_num_seqs=1, autoscale=path, router="least-outstanding-requests")
    assert result.scaling is not None
    assert [(event.at_s, event.after) for event in result.scaling.events] == [(2.0, 2), (4.0, 1), (34.0, 2), (50.0, 1)]
    assert spans(result)[1:] == [(1, 2.0, 2.0, 4.0, 33.0), (1, 34.0, 34.0, 50.0, 50.0)]


def test_on_kv_use(tmp_path: Path) -> None:
    """100 blocks of 16 tokens: two prompts of 640 tokens hold 80 and more of them, at a target of 0.5 two replicas."""
    path = write(tmp_path, metric='name = "kv-cache"\ntarget = 0.5')
    result = play([(0.0, 640, 10), (0.0, 640, 10)], **SECONDS, num_gpu_blocks=100, autoscale=path)
    assert result.scaling is not None
    event = result.scaling.events[0]
    assert (event.at_s, event.before, event.after, event.metric) == (2.0, 1, 2, "kv-cache")
    assert event.value == 0.82  # at 2 both are in their second step, for which each has taken one block more


def test_on_objectives(tmp_path: Path) -> None:
    """One seat: the second of two waits ten seconds for its first token, which misses; seen once it has left."""
    slo = 'slo = "ttft:2000"\nwindow_s = 30'
    rows = [(0.0, 10, 10), (0.0, 10, 10), (40.0, 10, 1)]
    path = write(tmp_path, metric=f'name = "slo-attainment"\ntarget = 0.9\n{slo}')
    result = play(rows, **SECONDS, max_num_seqs=1, autoscale=path)
    assert result.scaling is not None
    first = result.scaling.events[0]
    assert (first.at_s, first.after, first.value) == (22.0, 2, 0.5)  # that of 20 has left by 22
    path = write(tmp_path, metric=f'name = "slo-percentile"\ntarget = 0.8\npercentile = 50\n{slo}')
    result = play(rows, **SECONDS, max_num_seqs=1, autoscale=path)
    assert result.scaling is not None
    first = result.scaling.events[0]
    assert (first.at_s, first.after) == (12.0, 2)  # its first token is at 11
    assert first.value == pytest.approx((1.0 + 11.0) / 2 / 2.0)


def test_on_rate(tmp_path: Path) -> None:
    """Four requests in the first two seconds are 2/s, and 1/s in four: the looks are two seconds apart."""
    path = write(tmp_path, startup=0.0, metric='name = "request-rate"\ntarget = 1\nwindow_s = 3.5')
    result = play([(0.0, 10, 1), (0.5, 10, 1), (1.0, 10, 1), (1.5, 10, 1), (9.0, 10, 1)], **SECONDS, autoscale=path)
    assert result.scaling is not None
    assert [(e.at_s, e.after, e.value) for e in result.scaling.events] == [(2.0, 2, 2.0), (4.0, 1, 0.5)]


def test_by_schedule(tmp_path: Path) -> None:
    """The trace begins at 06:59:50, and two replicas are due at seven; with a lead of four seconds, at 6."""
    schedule = 'schedule = {{ "00:00" = 1, "07:00" = 2, "07:01" = 1 }}\nstarts_at = "06:59"'.replace("{{", "{").replace(
        "}}", "}")
    rows = [(50.0 + k, 10, 1) for k in range(100)]
    for lead_s, wanted in ((0, [(60.0, 2), (120.0, 1)]), (4, [(56.0, 2), (116.0, 1)])):
        path = write(tmp_path, metric=f'name = "schedule"\n{schedule}\nlead_s = {lead_s}')
        result = play(rows, **SECONDS, autoscale=path)
        assert result.scaling is not None
        assert [(event.at_s, event.after) for event in result.scaling.events] == wanted


def test_by_the_schedule_that_a_sizing_wrote(tmp_path: Path) -> None:
    parts = [{"start_s": 100.0, "num_replicas": 1}, {"start_s": 110.0, "num_replicas": 2}]
    (tmp_path / "fleet.json").write_text(json.dumps({"schedule": {"parts": parts}}))
    path = write(tmp_path, metric='name = "schedule"\nschedule = "fleet.json"')
    result = play([(5.0 + k, 10, 1) for k in range(20)], **SECONDS, autoscale=path)
    assert result.scaling is not None
    assert [(event.at_s, event.after) for event in result.scaling.events] == [(15.0, 2)]


def test_an_autoscaler_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from planner.autoscaler import Autoscaler\n"
        "hourly = Autoscaler(name='hourly', metric=lambda load: load.now_s, needs=(),\n"
        "                    desired=lambda load, _: 1 + load.now_s // 10 % 2)\n"
        "broken = Autoscaler(name='broken', metric=lambda load: 1 / load.num_waiting)\n")
    rows = [(float(k), 10, 1) for k in range(25)]
    result = play(rows, **SECONDS, autoscale=write(tmp_path, metric='name = "mine.py:hourly"'))
    assert result.scaling is not None
    assert [(event.at_s, event.after) for event in result.scaling.events] == [(10.0, 2), (20.0, 1)]
    with pytest.raises(PolicyError, match=r"autoscaler 'broken' at 2.000000 s: .*mine.py:4: ZeroDivisionError"):
        play([(0.0, 10, 9)], **SECONDS, autoscale=write(tmp_path, metric='name = "mine.py:broken"\ntarget = 1'))


def test_a_policy_that_makes_no_progress_is_an_error_all_the_same(tmp_path: Path) -> None:
    """However many replicas start, nothing will ever happen."""
    (tmp_path / "own.py").write_text(
        "from planner import IN_ORDER, Policy, StepPlan\n"
        "def plan(s):\n    return StepPlan(0, 0, 1, IN_ORDER)\n"
        "mine = Policy(name='mine', plan_step=plan)\n")
    with pytest.raises(PolicyError, match="scheduled nothing while 0 requests run and 2 wait"):
        play([(0.0, 10, 1), (3.0, 10, 1)], policy=f"{tmp_path}/own.py:mine", autoscale=write(tmp_path, maximum=3))


def test_followers_count_too(tmp_path: Path) -> None:
    """Turns that wait for others are seen once they are sent: the third turn's TTFT is the one that misses."""
    rows = [(0.0, 10, 2), (1.0, 10, 2), (30.0, 10, 1)]
    trace = trace_of(rows, session_id=["a", "a", "b"], think_time_s=[None, 0.5, None])
    path = write(tmp_path, metric='name = "slo-attainment"\ntarget = 0.9\nslo = "ttft:900"')
    result = play(trace, **SECONDS, autoscale=path)
    assert result.scaling is not None
    assert [(e.at_s, e.value) for e in result.scaling.events[:2]] == [(4.0, 0.0)]  # at 6 both have missed: no more


BAD = {
    "minimum = -1": "minimum = -1; must be a whole number from 0",
    "maximum = 1": "maximum = 1; must be a whole number from 2",
    "initial = 9": "initial = 9; must be a whole number from 2 to 4",
    "interval_s = 0": "interval_s = 0; must be a number",
    "tolerance = -1": "tolerance = -1; must be",
    "maximun = 3": "unknown key in the file 'maximun'; did you mean 'maximum'",
    "startup = 30": "startup = 30: must be a table of node_s",
    "startup = { weights_s = 3, weights_gb_per_s = 2 }": "weights_s and weights_gb_per_s exclude each other",
    "startup = { boot_s = 3 }": "unknown key in [startup] 'boot_s'",
    "up = { max_step = 0 }": "[up] max_step = 0; must be a whole number",
    "down = { cooldown = 3 }": "unknown key in [down] 'cooldown'; did you mean 'cooldown_s'",
    "up = 3": "[up] = 3; must be a table",
    "metric = []": "metric = (): must be one or more tables",
    'metric = [{ name = "cpu", target = 3 }]': "unknown autoscaler 'cpu'",
    'metric = [{ name = "queue" }]': "[[metric]] 1: queue lacks target; it takes target",
    'metric = [{ name = "queue", target = 3, slo = "ttft:3" }]': "queue has unknown keys slo",
    'metric = [{ name = "queue", target = -3 }]': "[[metric]] 1: target = -3; must be",
    'metric = [{ name = "slo-attainment", target = 99, slo = "ttft:3" }]': "target = 99; must be a share below 1",
    'metric = [{ name = "slo-percentile", target = 1, percentile = 100, slo = "ttft:3" }]': "must be below 100",
    'metric = [{ name = "slo-attainment", target = 0.9, slo = "tft:3" }]': "unknown SLO metric 'tft'",
    'metric = [{ name = "schedule", schedule = { "7:00" = 3 } }]': "'7:00': must be a time of day",
    'metric = [{ name = "schedule", schedule = { "07:00" = -3 } }]': "schedule '07:00' = -3; must be a whole number",
    'metric = [{ name = "schedule", schedule = "no.json" }]': "no.json: cannot be read",
    'metric = [{ name = "schedule", schedule = 3 }]': "schedule = 3: must be a table of times of day",
}


@pytest.mark.parametrize(("line", "message"), BAD.items(), ids=BAD)
def test_bad_files(tmp_path: Path, line: str, message: str) -> None:
    values = {"minimum": "2", "maximum": "4", "startup": "{ warmup_s = 3 }",
              "metric": '[{ name = "queue", target = 3 }]'}
    key, _, value = line.partition(" = ")
    path = tmp_path / "bad.toml"
    path.write_text("".join(f"{name} = {text}\n" for name, text in (values | {key: value}).items()))
    with pytest.raises(AutoscaleError) as caught:
        read_autoscale(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_missing_keys_and_files(tmp_path: Path) -> None:
    path = tmp_path / "scale.toml"
    with pytest.raises(AutoscaleError, match="cannot be read"):
        read_autoscale(path)
    path.write_text("minimum = 1\n")
    with pytest.raises(AutoscaleError, match="lacks maximum, startup, metric"):
        read_autoscale(path)
    (tmp_path / "fleet.json").write_text('{"schedule": null}')
    path.write_text(write(tmp_path, metric='name = "schedule"\nschedule = "fleet.json"') and
                    (tmp_path / "autoscale.toml").read_text())
    with pytest.raises(AutoscaleError, match="has no schedule; write one with planner size --json"):
        read_autoscale(path)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its file has the number of replicas"):
        Scenario(autoscale="a.toml", data_parallel_size=2)
    path = tmp_path / "weights.toml"
    path.write_text('minimum = 1\nmaximum = 2\nstartup = { weights_gb_per_s = 2 }\n[[metric]]\nname = "queue"\n'
                    'target = 1\n')
    with pytest.raises(UsageError, match="the size of the weights is unknown"):
        play([(0.0, 10, 1)], autoscale=str(path))


def test_weights_load_at_their_bandwidth(tmp_path: Path) -> None:
    """16.06 GB at 2 GB/s, and 30 s."""
    path = tmp_path / "weights.toml"
    path.write_text('minimum = 1\nmaximum = 2\nstartup = { weights_gb_per_s = 2, warmup_s = 30 }\n[[metric]]\n'
                    'name = "queue"\ntarget = 1\n')
    found = replay(trace_of([(0.0, 10, 1)]), Scenario(model="llama-3.1-8b", gpu="h100-sxm", autoscale=str(path)))
    assert found.summary["autoscale"]["startup_s"] == pytest.approx(38.03, abs=0.01)


def rows_of(draw: Any) -> list[tuple[float, int, int]]:
    n = draw(some.integers(1, 25))
    arrivals = sorted(draw(some.lists(some.integers(0, 40), min_size=n, max_size=n)))
    return [(float(at), draw(some.integers(1, 40)), draw(some.integers(1, 30))) for at in arrivals]


METRICS = (
    'name = "concurrency"\ntarget = 2', 'name = "queue"\ntarget = 1', 'name = "kv-cache"\ntarget = 0.3',
    'name = "request-rate"\ntarget = 0.5\nwindow_s = 10',
    'name = "slo-percentile"\ntarget = 0.8\npercentile = 90\nslo = "ttft:1500 tpot:1200"',
    'name = "slo-attainment"\ntarget = 0.9\nslo = "ttft:1500 e2el:9000"',
)


@some.composite
def autoscaled(draw: Any) -> tuple[list[tuple[float, int, int]], dict[str, Any], dict[str, Any]]:
    """Draw a trace, the keys of an autoscaler's file, and a scenario's options."""
    minimum = draw(some.integers(1, 3))
    keys = {"minimum": minimum, "maximum": minimum + draw(some.integers(0, 3)),
            "interval": draw(some.sampled_from((0.7, 2.0, 5.0))), "startup": draw(some.sampled_from((0.0, 1.0, 7.5))),
            "up": draw(some.sampled_from(("", "cooldown_s = 4", "max_step = 1"))),
            "down": draw(some.sampled_from(("", ", cooldown_s = 6", ", max_step = 1"))),
            "metric": draw(some.sampled_from(METRICS))}
    options = {"router": draw(some.sampled_from(list(ROUTERS))), "max_num_seqs": draw(some.sampled_from((1, 2, 8))),
               "num_gpu_blocks": 40, "max_concurrency": draw(some.sampled_from((None, None, 3))),
               "enable_prefix_caching": draw(some.booleans()), "async_scheduling": draw(some.booleans()),
               "router_report_interval": draw(some.sampled_from((0.0, 0.0, 1.0, 3.3)))}
    return rows_of(draw), keys, options


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=autoscaled())
def test_laws(tmp_path: Path, drawn: Any) -> None:
    """Requests are served by replicas that serve then; these keep their bounds, and are paid for once."""
    rows, keys, options = drawn
    path = write(tmp_path, **keys)
    found = replay(trace_of(rows), scenario_of(**SECONDS, **options, autoscale=path), recording=EVERYTHING)
    result, summary, scaling = found.result, found.summary, found.result.scaling
    assert scaling is not None
    requests = result.records.requests
    assert set(requests.state.tolist()) <= {st.COMPLETED, st.REJECTED, st.FAILED}
    end_s, first_s = float(np.nanmax(requests.finished_s)), float(np.nanmin(requests.arrival_s))
    replica = np.zeros(len(rows), int) if result.replica is None else result.replica
    for k, sent_s, gone_s in zip(replica, requests.arrival_s, requests.finished_s, strict=True):
        lives = [span for span in scaling.spans if span.replica == k and span.ready_s <= sent_s
                 and not sent_s >= span.drain_s and gone_s <= span.end_s]
        assert len(lives) == 1, "served by a replica that did not serve"
    for at_s in {span.start_s for span in scaling.spans} | {first_s}:
        paid = [span for span in scaling.spans if span.start_s <= at_s < span.end_s]
        assert len({span.replica for span in paid}) == len(paid) <= keys["maximum"]
        assert sum(math.isnan(span.drain_s) or span.drain_s > at_s for span in paid) >= keys["minimum"] or at_s >= end_s
    for span in scaling.spans:
        assert math.isnan(span.ready_s) or span.replica < keys["maximum"]
        started = span.ready_s - span.start_s
        assert math.isnan(started) or span.start_s == first_s or started == pytest.approx(keys["startup"])
        assert span.end_s <= end_s
        drained = [gone_s for k, sent_s, gone_s in zip(replica, requests.arrival_s, requests.finished_s, strict=True)
                   if k == span.replica and span.start_s <= sent_s < span.drain_s]
        assert math.isnan(span.drain_s) or span.end_s == max([span.drain_s, *drained])
    assert summary["gpu_hours"] * 3600 == pytest.approx(sum(span.end_s - span.start_s for span in scaling.spans))
    for event in scaling.events:
        assert keys["minimum"] <= event.after <= keys["maximum"]
        assert event.value >= 0
    for before, after in itertools.pairwise(scaling.events):
        assert before.after == after.before


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=autoscaled(), count=some.integers(1, 4))
def test_a_fleet_that_cannot_change_is_the_one_that_stays(tmp_path: Path, drawn: Any, count: int) -> None:
    """Bit for bit: the requests whatever is looked at, and every total where engines are not brought up for it."""
    rows, keys, options = drawn
    path = write(tmp_path, **keys | {"minimum": count, "maximum": count})
    trace, fixed = trace_of(rows), ("wall_s", "simulated_requests_per_s", "deployment", "notes")
    scaled = replay(trace, scenario_of(**SECONDS, **options, autoscale=path))
    static = replay(trace, scenario_of(**SECONDS, **options, data_parallel_size=count))
    assert np.array_equal(scaled.requests.to_numpy(), static.requests.to_numpy()) or scaled.requests.equals(
        static.requests)
    own = {key: value for key, value in static.summary.items() if key not in fixed}
    other = {key: scaled.summary[key] for key in own}
    if "kv-cache" not in keys["metric"]:
        assert to_json(other) == to_json(own)
    assert scaled.summary["gpu_hours"] == static.summary["gpu_hours"]


def test_the_same_again(tmp_path: Path) -> None:
    rows = [(0.3 * k, 30, 1 + k % 17) for k in range(80)]
    for metric in METRICS:
        path = write(tmp_path, maximum=4, metric=metric)
        first, second = (replay(trace_of(rows), scenario_of(**SECONDS, max_num_seqs=2, autoscale=path, router="random"))
                         for _ in range(2))
        assert first.requests.equals(second.requests)
        assert to_json(first.summary["autoscale"]) == to_json(second.summary["autoscale"])


def test_every_autoscaler_has_a_name_of_its_own() -> None:
    assert all(isinstance(each, Autoscaler) and each.name == name for name, each in AUTOSCALERS.items())


def test_a_result_is_another_where_a_named_file_is(tmp_path: Path) -> None:
    """A sweep keeps results by a hash over the files that they depend on, those that the file names among them."""
    path = write(tmp_path, metric='name = "schedule"\nschedule = "fleet.json"')
    hashes = set()
    for text in ("{}", "[]", None):
        if text is not None:
            (tmp_path / "fleet.json").write_text(text)
        hashes.add(scenario_sha256(scenario_of(autoscale=path)))
    assert len(hashes) == 2
    (tmp_path / "autoscale.toml").write_text("metric = 3")
    assert scenario_sha256(scenario_of(autoscale=path)) not in hashes


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[SavedResult]:
    """A fleet that is autoscaled and one that is not, saved and read back."""
    folder = tmp_path_factory.mktemp("saved")
    path = write(folder, maximum=4, startup=5.0, metric='name = "concurrency"\ntarget = 2')
    rows = [(0.4 * k, 30, 1 + k % 17) for k in range(60)] + [(60.0, 30, 2)]
    found = []
    for name, options in (("scaled", {"autoscale": path}), ("static", {"data_parallel_size": 2})):
        outcome = replay(trace_of(rows), scenario_of(step_time="linear:0.2,0", max_num_seqs=2, **options),
                         slo="ttft:1000", recording=EVERYTHING)
        save_result(outcome.result, outcome.summary, folder / name)
        found.append(load_result(folder / name))
    return found


def test_the_figure_says_what_the_tables_say(saved: list[SavedResult]) -> None:
    figure = replicas(saved)
    paid, serving, *rest = figure.data[:2]
    summary = saved[0].summary
    assert max(paid.y) == summary["replicas_peak"]
    assert np.sum(np.diff(paid.x) * paid.y[:-1]) / 3600 == pytest.approx(summary["gpu_hours"])
    assert all(ready <= now for ready, now in zip(serving.y, paid.y, strict=True))
    assert not rest
    by_name = [trace for trace in figure.data if trace.yaxis == "y3"]
    rates = [trace for trace in figure.data if trace.yaxis == "y2"]
    width_s = rates[0].x[1] - rates[0].x[0]
    for result, rate, missed in zip(saved, rates, by_name, strict=True):
        counts = rate.y * width_s
        assert counts.sum() == pytest.approx(61)
        share = 1 - np.nansum(missed.y / 100 * counts) / 61
        assert share == pytest.approx(result.summary["slo_attainment"])
    assert list(figure.data[2 + 3].y) == [2, 2], "the other fleet stays"


def test_means_per_replica_are_of_those_that_were_paid_for(saved: list[SavedResult]) -> None:
    """Busy time over replica time is the summary's, whatever the bins."""
    result = saved[0]
    steps = bin_steps(result, time_bins([result]))
    paid_s = np.asarray(steps.paid_replicas) * np.nan_to_num(steps.covered_s)
    assert paid_s.sum() / 3600 == pytest.approx(result.summary["gpu_hours"], rel=1e-6)


def test_the_report_lists_every_change(saved: list[SavedResult]) -> None:
    page, text = to_html(saved), to_markdown(saved)
    assert "Scale events of scaled" in page
    assert "Scale events of static" not in page
    assert "up to 4 × GPU" in page
    events = saved[0].summary["autoscale"]["events"]
    assert len(events) >= 3
    for event in events:
        assert f"| {event['before']} | {event['after']} | concurrency | {event['value']:.4g} | 2 |" in text
    assert "| autoscale." not in text, "listed, not flattened"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + "0,10,10\n" * 3 + "20,10,1\n")
    tables = dict.fromkeys(("requests", "steps", "schedule", "preemptions"))
    events = tmp_path / "events.csv"
    ask: dict[str, Any] = {"slo": None, "attainment": None, "reading": Reading(), "json": None,
                           "timeline": None, "save": None, "explain": False,
                           "ignore_start_refusal": False}
    scenario = scenario_of(**SECONDS, autoscale=path)
    actions.replay(str(tmp_path / "trace.csv"), scenario, tables={**tables, "scale_events": events}, **ask)
    assert pl.read_csv(events)["after"].to_list() == [2, 1]
    shown = capsys.readouterr().out
    assert "up to 2 × GPU" in shown
    assert re.search(r"(?m)^  num_scale_ups +1$", shown)
    with pytest.raises(UsageError, match="needs --autoscale"):
        actions.replay(str(tmp_path / "trace.csv"), scenario_of(**SECONDS), tables={**tables, "scale_events": events},
                        **ask)


def test_capacity_and_size_refuse_it(tmp_path: Path) -> None:
    scenario = scenario_of(autoscale=write(tmp_path))
    trace, objectives = trace_of([(0.0, 10, 1), (1.0, 10, 1)]), parse_objectives("ttft:500", 0.9)
    with pytest.raises(UsageError, match="a capacity needs a fixed number of replicas"):
        capacity(trace, scenario, objectives, Search())
    with pytest.raises(UsageError, match="sizing needs a fixed number"):
        size(trace, scenario, objectives, Choices(gpus=["l4"], quantizations=[None], ranks=(1,), prices={}))


def test_a_replay_reads_neither_the_autoscalers_file_nor_the_routers(tmp_path: Path) -> None:
    """Both are read when the scenario is resolved; a search serves one deployment hundreds of times."""
    router = tmp_path / "mine.py"
    router.write_text("from planner.router import Router\n\nmine = Router(name='mine', "
                      "score=lambda load: load.outstanding_requests * 1.0)\n")
    requests = trace_of([(0.0, 10, 10), (0.0, 10, 10), (6.0, 10, 10)])
    scenario = scenario_of(**SECONDS, max_num_seqs=2, autoscale=write(tmp_path), router=f"{router}:mine")
    deployment = resolve(scenario, requests)
    before = serve(requests, deployment)
    for path in (router, tmp_path / "autoscale.toml"):
        path.unlink()
    after = serve(requests, deployment)
    assert spans(after) == spans(before)
    assert after.records.requests.finished_s.tolist() == before.records.requests.finished_s.tolist()
