"""A load over time against the fleet that serves it, with how many replicas each part of the time needs."""

from collections.abc import Sequence
from typing import Any

from planner.planning.size_answer import SizeAnswer
from planner.report.figures.style import BLUE, GREEN, GREY, ORANGE, figure_of_rows, finish

HOUR_S = 3600.0


def fleet_load(found: SizeAnswer) -> Any:
    """Draw the rate of a load over time with the fleet's capacity, and the replicas on a schedule and without.

    Parameters
    ----------
    found : as `sizing.size`, with a schedule.
    """
    figure = figure_of_rows(["requests/s", "replicas"], "time", row_px=230)
    fleet = found.cheapest
    if fleet is None or fleet.schedule is None:
        return finish(figure, "Load against the fleet", "no schedule was asked for")
    schedule, parts = fleet.schedule, fleet.schedule.parts
    end_s = parts[-1].start_s + parts[-1].duration_s
    unit, unit_s = ("h", HOUR_S) if end_s > 2 * HOUR_S else ("s", 1.0)
    times = [part.start_s / unit_s for part in parts] + [end_s / unit_s]
    _steps(figure, times, [part.rate_rps for part in parts], "load", BLUE, row=1)
    served_rps = [part.served_rps for part in parts if part.served_rps is not None]
    if served_rps:
        _steps(figure, times, served_rps, "capacity on the schedule", ORANGE, row=1, dash="dot")
    if fleet.headroom is not None:  # the rate that it was sized for, and its headroom
        sized_rps = (found.workload.rate_rps or 0.0) if schedule.peak_rps is None else schedule.peak_rps
        _steps(figure, times, [sized_rps * (1.0 + fleet.headroom)] * len(parts), "capacity of the whole fleet", GREEN,
               row=1, dash="dash")
    _steps(figure, times, [part.num_replicas for part in parts], "replicas on the schedule", ORANGE, row=2)
    _steps(figure, times, [fleet.num_replicas] * len(parts), "replicas of the whole fleet", GREY, row=2, dash="dash")
    figure.update_xaxes(title_text=f"time [{unit}]", row=2, col=1)
    mean = "; capacity is a mean rate with the load's own bursts" if schedule.peak_rps is None else ""
    note = f"{len(parts):,} parts; means of each{mean}"
    return finish(figure, "Load against the fleet", note)


def _steps(figure: Any, times: Sequence[float], values: Sequence[float], name: str, color: str, *, row: int,
           dash: str = "solid") -> None:
    figure.add_scatter(x=times, y=[*values, values[-1]], name=name, row=row, col=1, hovertemplate="%{y:,.4g}",
                       line={"color": color, "width": 2, "dash": dash, "shape": "hv"}, mode="lines")
