"""Clock times of a log on the axes of its figures."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from helpers import EVERYTHING

from planner.planning.study import Study
from planner.report.figures.plan_figures import load_against_capacity
from planner.report.figures.rate_figures import arrivals
from planner.report.figures.scaling_figures import replicas
from planner.report.figures.timeline_figures import throughput
from planner.results.saved import SavedResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.window_and_rate import scale_rate, slice_time
from planner.ui.replay_tasks import ReplayQuestion
from planner.ui.schedule_tasks import window

LOG = "ts,input_tokens,output_tokens\n" + "".join(
    f"2026-11-01T{9 + k // 60:02}:{k % 60:02}:30Z,100,10\n" for k in range(0, 120, 7))
PLAIN = Scenario(step_time="linear:0.01,0.0001", num_gpu_blocks=1000)


def ticks(figure: object) -> dict[float, str]:
    """Return the ticks of a figure's last x axis."""
    axis = list(figure.select_xaxes())[-1]  # type: ignore[attr-defined]
    return dict(zip(axis.tickvals or (), axis.ticktext or (), strict=True))


def test_a_trace_with_dates_has_clock_times(read: Callable[..., Trace]) -> None:
    trace = read(LOG, format="columns,arrival_s=ts")
    assert trace.zero_at_s == 1793523630.0
    shown = ticks(arrivals(trace))
    assert shown[870.0] == "09:15<br>2026-11-01"
    assert shown[3570.0] == "10:00"
    assert ticks(arrivals(dataclasses.replace(trace, zero_at_s=None))) == {}


def test_the_clock_follows_a_window_and_ends_with_the_pace(read: Callable[..., Trace]) -> None:
    trace = read(LOG, format="columns,arrival_s=ts")
    assert slice_time(trace, 60.0, 3600.0).zero_at_s == 1793523690.0
    assert scale_rate(trace, 2.0).zero_at_s is None


def test_a_replay_keeps_the_clock_unless_its_load_changes(read: Callable[..., Trace]) -> None:
    trace = read(LOG, format="columns,arrival_s=ts")
    outcome = replay(trace, PLAIN, recording=EVERYTHING)
    assert outcome.summary["workload"]["first_arrival_at"] == "2026-11-01T09:00:30+00:00"
    result = SavedResult(name="r", summary=outcome.summary, requests=outcome.result.requests_table(),
                         steps=outcome.result.steps_table())
    assert ticks(throughput(result))[3570.0] == "10:00"
    faster = replay(trace, dataclasses.replace(PLAIN, rate_scale=2.0)).summary["workload"]
    assert faster["first_arrival_at"] is None


def test_schedule_plan_and_replicas_have_the_clock(read: Callable[..., Trace], tmp_path: Path) -> None:
    trace = read(LOG, format="columns,arrival_s=ts")
    study = Study(name="", trace="log.csv", format="auto", scenario=PLAIN, objectives=None)
    shown = window(ReplayQuestion(trace=trace, study=study), 3, 4)
    assert ticks(shown.strip)[3570.0] == "10:00"
    (title,) = {axis.title.text for axis in shown.figure.select_xaxes()}
    assert title == "time since the first of these arrivals, at 2026-11-01 09:21:30.000000 UTC [s]"
    assert ticks(load_against_capacity(trace, PLAIN, 3.0))[59.5] == "10:00"
    assert ticks(load_against_capacity(trace, dataclasses.replace(PLAIN, rate_scale=2.0), 3.0)) == {}
    (tmp_path / "fleet.toml").write_text("minimum = 1\nmaximum = 2\ninterval_s = 60\nstartup = { warmup_s = 5 }\n"
                                         '[[metric]]\nname = "concurrency"\ntarget = 2\n')
    scaled = replay(trace, dataclasses.replace(PLAIN, autoscale=str(tmp_path / "fleet.toml")), recording=EVERYTHING)
    result = SavedResult(name="r", summary=scaled.summary, requests=scaled.result.requests_table(),
                         steps=scaled.result.steps_table())
    assert "10:00" in ticks(replicas(result)).values()
