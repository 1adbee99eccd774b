"""Figures of a watched plan: one quantity over the intervals, measured and predicted."""

from collections.abc import Sequence
from typing import Any

from planner.planning.watch_answer import WatchAnswer
from planner.report.figures.style import BLUE, GREY, VERMILLION, figure_of_rows, finish

LINES = (("measured", "measured", BLUE, "solid"), ("predicted", "predicted at this traffic", VERMILLION, "dash"),
         ("planned", "plan", GREY, "dot"), ("low", "lower limit", GREY, "dash"), ("high", "upper limit", GREY, "dash"))


def over_time(intervals: Sequence[WatchAnswer], name: str) -> Any:
    """Draw a quantity at the end of each interval, beside its predictions and limits.

    Parameters
    ----------
    intervals : with values, in order.
    name : of the quantity, as mean_tpot_ms.
    """
    points = [(interval.end, quantity) for interval in intervals for quantity in interval.quantities
              if quantity.name == name]
    unit = points[0][1].unit if points else "1"
    figure = figure_of_rows([name if unit == "1" else f"{name} [{unit}]"], "end of the interval, UTC")
    for field, words, color, dash in LINES:
        values = [getattr(quantity, field) for _, quantity in points]
        if any(value is not None for value in values):
            figure.add_scatter(x=[end for end, _ in points], y=values, mode="lines+markers", name=words,
                               marker={"size": 5}, line={"color": color, "width": 2, "dash": dash}, row=1, col=1)
    return finish(figure, f"{name} over time", f"{len(points):,} intervals")
