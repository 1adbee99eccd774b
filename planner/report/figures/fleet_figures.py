"""A load over time against the fleet that serves it, with how many replicas each part of the time needs."""

from collections.abc import Mapping
from typing import Any

from planner.report.figures.style import BLUE, GREEN, GREY, ORANGE, Theme, figure_of_rows, finish

HOUR_S = 3600.0


def fleet_load(found: Mapping[str, Any], *, theme: Theme = "light") -> Any:
    """Draw the rate of a load over time with what the fleet bears, and the replicas on a schedule and without.

    Parameters
    ----------
    found : as `sizing.size`, with a schedule.
    theme : "light" or "dark".
    """
    figure = figure_of_rows(["requests/s", "replicas"], "time", row_px=230)
    schedule = found.get("schedule") or {"parts": []}
    parts = schedule["parts"]
    if not parts:
        return finish(figure, "Load against the fleet", "no schedule was asked for", theme)
    unit, unit_s = ("h", HOUR_S) if _end_s(parts) > 2 * HOUR_S else ("s", 1.0)
    times = [part["start_s"] / unit_s for part in parts] + [_end_s(parts) / unit_s]
    _steps(figure, times, [part["rate_rps"] for part in parts], "load", BLUE, row=1)
    if "served_rps" in parts[0]:
        _steps(figure, times, [part["served_rps"] for part in parts], "capacity on the schedule", ORANGE, row=1,
               dash="dot")
    if found["headroom"] is not None:
        _steps(figure, times, [_borne_rps(found, schedule)] * len(parts), "capacity of the whole fleet", GREEN, row=1,
               dash="dash")
    _steps(figure, times, [part["num_replicas"] for part in parts], "replicas on the schedule", ORANGE, row=2)
    _steps(figure, times, [found["num_replicas"]] * len(parts), "replicas of the whole fleet", GREY, row=2, dash="dash")
    figure.update_xaxes(title_text=f"time [{unit}]", row=2, col=1)
    mean = "" if "peak_rps" in schedule else "; capacity is a mean rate with the load's own bursts"
    note = f"{len(parts):,} parts; means of each{mean}"
    return finish(figure, "Load against the fleet", note, theme)


def _borne_rps(found: Mapping[str, Any], schedule: Mapping[str, Any]) -> float:
    """Return the rate that all replicas bear all the time: what they were sized for, and its headroom."""
    return float(schedule.get("peak_rps", found["workload"]["rate_rps"])) * (1.0 + float(found["headroom"]))


def _steps(figure: Any, times: list[float], values: list[float], name: str, color: str, *, row: int,
           dash: str = "solid") -> None:
    figure.add_scatter(x=times, y=[*values, values[-1]], name=name, row=row, col=1, hovertemplate="%{y:,.4g}",
                       line={"color": color, "width": 2, "dash": dash, "shape": "hv"}, mode="lines")


def _end_s(parts: list[Mapping[str, Any]]) -> float:
    return float(parts[-1]["start_s"] + parts[-1]["duration_s"])
