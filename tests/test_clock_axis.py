"""Clock times of a log on the axes of its figures."""

import dataclasses
from collections.abc import Callable

from helpers import EVERYTHING

from planner.report.figures.rate_figures import arrivals
from planner.report.figures.timeline_figures import throughput
from planner.results.saved import SavedResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.window_and_rate import scale_rate, slice_time

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
