"""How much of each limit a load uses: a line for each objective over the loads that a search has tried."""

from typing import Any

from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.other_targets import tried_loads
from planner.report.capacity_sentence import limit_words
from planner.report.figures.answer_figures import attainment_over_load, load_axis
from planner.report.figures.style import GREY, LINE_COLORS, figure_of_rows, finish
from planner.settings.statistic import parse_statistic

MOST_USED = 2.5  # times a limit, of the axis
SHOWN = (0.4, 1.5)  # times the capacity, of the axis
SHARE = "requests outside their limits"


def capacity_figure(found: CapacityAnswer) -> Any:
    """Draw a capacity: limits over the load if statistics are limited, else the share of requests within theirs."""
    return limits_over_load(found) if limited_statistics(found) else attainment_over_load(found)


def limited_statistics(found: CapacityAnswer) -> dict[str, float]:
    """Return the limits of statistics by name [ms]; none if no tried load has statistics."""
    limits_ms = {name: 1e3 * limit for name, limit in found.slo.limits_s.items() if parse_statistic(name) is not None}
    return limits_ms if tried_loads(found) else {}


def limits_over_load(found: CapacityAnswer) -> Any:
    """Draw each objective's value over its limit at each load that was tried; at 1 it stops being kept.

    Parameters
    ----------
    found : as `capacity.capacity`.
    """
    tried, (capacity, axis, unit) = tried_loads(found), load_axis(found)
    figure = figure_of_rows(["value ÷ limit"], axis, row_px=330)
    lines: dict[str, list[float | None]] = {
        f"{limit_words(name)} ÷ {limit:,.6g} ms": [_used((each.statistics_ms or {}).get(name), limit) for each in tried]
        for name, limit in limited_statistics(found).items()}
    if found.attainment is not None and found.attainment < 1:
        lines[f"{SHARE} ÷ {1 - found.attainment:.3g}"] = [(1 - each.attainment) / (1 - found.attainment)
                                                          for each in tried]
    for place, (name, used) in enumerate(lines.items()):
        figure.add_scatter(x=[each.load for each in tried], y=used, mode="lines+markers", name=name,
                           line={"color": LINE_COLORS[place % len(LINE_COLORS)], "width": 2},
                           hovertemplate=f"%{{x:,.4g}}{unit}: %{{y:,.3g}} × the limit<extra>{name}</extra>")
    figure.add_hline(y=1, line={"color": GREY, "dash": "dash", "width": 2}, annotation_text="limit",
                     annotation_position="bottom left")
    figure.add_vline(x=capacity, line={"color": GREY, "width": 2}, annotation_text=f"capacity {capacity:.4g}{unit}",
                     annotation_position="top left")
    figure.update_yaxes(range=[0, MOST_USED])
    if capacity:
        figure.update_xaxes(range=[factor * capacity for factor in SHOWN])
    return finish(figure, "Use of each limit", "loads that were tried, near the capacity; double-click for all",
                  hovermode="closest")


def _used(value: float | None, limit: float) -> float | None:
    return None if value is None else value / limit
