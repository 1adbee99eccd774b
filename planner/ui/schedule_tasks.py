"""Jobs of the schedule: some requests of a replay with their steps, and a replay as a file for Perfetto."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from planner.deployment.shaped_load import shape_load
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.replays.result_tables import ReplayResult
from planner.report.figures.clock_axis import zero_of_summary
from planner.report.figures.schedule_figures import schedule_timeline, whole_strip
from planner.results.timeline import write_timeline
from planner.run import Outcome, replay
from planner.traces.shaping.window_and_rate import limit
from planner.ui.replay_tasks import MOST_STEPS, ReplayQuestion, as_shaped, check_load

SLOWEST = {  # the request that a window is around, by the column that it has the largest value of
    "slowest first token": "ttft_s", "slowest per token": "tpot_s", "slowest from end to end": "e2e_s",
    "longest in the queue": "queue_s",
}
MOST_TIMELINE_STEPS = 200_000  # about 100 bytes each in the compressed file


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWindow:
    """Some requests of a replay, with the rows of steps and of the schedule that are about them, and their figure.

    Parameters
    ----------
    first : place of the first of them, in order of arrival.
    subject : the request that the window is around; None if a place was asked for.
    strip : figure of all requests, with these shaded.
    """

    first: int
    subject: str | None
    requests: pl.DataFrame
    steps: pl.DataFrame
    schedule: pl.DataFrame
    figure: Any
    strip: Any


def window(asked: ReplayQuestion, first: int | str, count: int) -> ScheduleWindow:
    """Replay with the schedule, up to the end of some requests: later arrivals cannot change them.

    Parameters
    ----------
    first : place of the first request, in order of arrival; or a name of `SLOWEST`, for the requests around that one.
    count : of requests.

    Raises
    ------
    UsageError : too many steps come before them.
    PlannerError : as `run.replay`.
    """
    check_load(asked.trace, asked.study.scenario)
    whole = replay(asked.trace, asked.study.scenario, slo=None)
    place, subject = (first, None) if isinstance(first, int) else _around(whole.requests, SLOWEST[first], count)
    chosen = whole.requests.slice(place, count)
    if chosen.is_empty():
        raise UsageError(f"from request {place:,}: there are {whole.requests.height:,}")
    result = _up_to(asked, whole, chosen, place)
    schedule = result.schedule_table().join(chosen.select("request_id"), on="request_id", how="semi")
    of_step = [name for name in ("step", "replica") if name in schedule.columns]
    steps = result.steps_table()
    zero_at_s = zero_of_summary(whole.summary)
    since_s = float(chosen["arrival_s"][0] - whole.requests["arrival_s"][0])
    first_at_s = None if zero_at_s is None else zero_at_s + since_s
    own = steps.join(schedule.select(of_step), on=of_step, how="semi")
    return ScheduleWindow(first=place, subject=subject, requests=chosen, steps=own, schedule=schedule,
                          figure=schedule_timeline(chosen, steps, schedule, zero_at_s=first_at_s),
                          strip=whole_strip(whole.requests, chosen, zero_at_s=zero_at_s))


def _around(requests: pl.DataFrame, column: str, count: int) -> tuple[int, str | None]:
    """Return the start of a window around the largest value, and that request; the first one if none has a value."""
    values = requests[column].fill_nan(None)
    place = values.arg_max()
    if place is None or values[place] is None:
        return 0, None
    first = min(max(place - count // 2, 0), max(requests.height - count, 0))
    return first, str(requests["request_id"][place])


def _up_to(asked: ReplayQuestion, whole: Outcome, chosen: pl.DataFrame, first: int) -> ReplayResult:
    """Replay with the schedule until requests have ended."""
    until_s: Any = chosen["finished_at_s"].max()
    shaped = shape_load(asked.study.scenario, asked.trace)
    num_before = shaped.num_requests if until_s is None else int((shaped.requests["arrival_s"] <= until_s).sum())
    num_steps = whole.summary.figures.engine.num_steps * num_before // shaped.num_requests
    if num_steps > MOST_STEPS:
        raise UsageError(f"from request {first:,}: about {num_steps:,} steps pass before these requests end, and at "
                         f"most {MOST_STEPS:,} are recorded here; set start_at (Load) to begin closer to them")
    return replay(limit(shaped, num_before), as_shaped(asked.study.scenario), slo=None,
                  recording=Recording(steps=True, schedule=True)).result


def timeline(asked: ReplayQuestion) -> bytes:
    """Return a replay as a compressed Chrome trace, as `planner replay --timeline` writes it.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    result = replay(asked.trace, asked.study.scenario, slo=None, recording=Recording(steps=True)).result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json.gz"
        write_timeline(result, path)
        return path.read_bytes()
