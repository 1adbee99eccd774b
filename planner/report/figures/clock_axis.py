"""Clock times on the time axes of figures, if the log has dates."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from planner.results.saved import SavedResult
from planner.results.summary_answer import Summary
from planner.traces import Trace

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
MOST_TICKS = 10
MONTH_S = 2_592_000.0


def zero_of(results: Sequence[SavedResult]) -> float | None:
    """Return the instant of the first arrival, from 1970 [s]; None if results differ in it or have none."""
    instants = {zero_of_summary(result.summary) for result in results}
    return instants.pop() if len(instants) == 1 else None


def zero_of_summary(summary: Summary) -> float | None:
    """Return the instant of the first arrival of a replay, from 1970 [s]; None if its load has no dates."""
    text = summary.workload.get("first_arrival_at")
    return None if text is None else datetime.fromisoformat(text).timestamp()


def first_at_s(trace: Trace) -> float | None:
    """Return the instant of a trace's first arrival, from 1970 [s]; None if it has no dates."""
    return None if trace.zero_at_s is None else trace.zero_at_s + float(trace.requests["arrival_s"][0])


def show_clock(figure: Any, zero_at_s: float | None, begin_s: float, end_s: float, *,
               unit_s: float = 1.0, has_dates: bool = True) -> None:
    """Put clock times in UTC on the x axes of a figure; without an instant the axes stay as they are.

    Parameters
    ----------
    zero_at_s : instant of 0 on the axis, from 1970 [s].
    begin_s, end_s : part that is drawn [s].
    unit_s : unit of the axis [s].
    has_dates : the axis shows certain days, not the hours of any day.
    """
    if zero_at_s is None or not end_s > begin_s:
        return
    step_s = next((step for step in STEPS_S if (end_s - begin_s) / step <= MOST_TICKS), MONTH_S)
    first = -(-(zero_at_s + begin_s) // step_s) * step_s
    at_s = [first + k * step_s for k in range(int((zero_at_s + end_s - first) // step_s) + 1)]
    texts = [datetime.fromtimestamp(at, UTC) for at in at_s]
    days = ["", *(f"{at:%Y-%m-%d}" for at in texts)]
    shown = [f"{at:%H:%M:%S}" if step_s < 60 else f"{at:%H:%M}" for at in texts]
    figure.update_xaxes(tickmode="array", tickvals=[(at - zero_at_s) / unit_s for at in at_s],
                        ticktext=[text if day == before or not has_dates else f"{text}<br>{day}"
                                  for text, day, before in zip(shown, days[1:], days, strict=False)])
    for axis in figure.select_xaxes():
        if axis.title.text:
            axis.title.text = f"clock time of the log [UTC]; 0 s is {datetime.fromtimestamp(zero_at_s, UTC):%H:%M:%S}"
