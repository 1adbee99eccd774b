"""An interval of a watch as text: a line, its drift, and a table of measured values beside predictions."""

from collections.abc import Iterator

from planner.files.counts import change_text, count_text, figure_text
from planner.planning.watch_answer import Quantity, WatchAnswer
from planner.report.text import Grid, Text


def watch_line(answer: WatchAnswer) -> str:
    """Return an interval in a line."""
    names = ", ".join(f"{drift.cause} ({drift.name})" for drift in answer.drifts)
    verdict = f"drift: {names}" if names else "ok" if any(one.cause for one in answer.quantities) else "not judged"
    return f"{answer.start}  {count_text(round(answer.num_requests), 'request')}  {verdict}"


def drift_lines(answer: WatchAnswer) -> Iterator[str]:
    """Yield a line for each drift, and the new size."""
    for drift in answer.drifts:
        yield f"{drift.cause} drift since {drift.since}: {drift.sentence}"
    if answer.replan is not None:
        yield answer.replan.sentence


def watch_grid(answer: WatchAnswer) -> Grid:
    """Return measured values beside the plan's replay and a replay at the measured traffic."""
    rows = [(one.name, one.unit, *map(_number, (one.planned, one.predicted, one.measured)), _change(one), _limits(one))
            for one in answer.quantities]
    return Grid(heads=("", "unit", "plan", "at this traffic", "measured", "difference", "limits"), rows=rows,
                left=(0, 1))


def watch_table(answer: WatchAnswer) -> Text:
    """Return measured values beside predictions, then the drift."""
    facts = [f"{one.name}: {one.measured}, the plan has {one.planned}" for one in answer.differences]
    return Text([f"{answer.start} to {answer.end}: {count_text(round(answer.num_requests), 'request')}",
                 watch_grid(answer), *facts,
                 *(drift_lines(answer) if answer.drifts else ["no confirmed drift"])])


def _number(value: float | None) -> str:
    return "–" if value is None else figure_text(value)


def _change(one: Quantity) -> str:
    return change_text(one.measured / one.expected - 1) if one.measured is not None and one.expected else "–"


def _limits(one: Quantity) -> str:
    low, high = (None if value is None else figure_text(value) for value in (one.low, one.high))
    beyond = " !" if one.beyond else ""
    return (f"{low} to {high}" if low and high else f"from {low}" if low else f"to {high}" if high else "") + beyond
