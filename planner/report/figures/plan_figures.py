"""Figures of a plan: the load beside the fleet's capacity, and the capacity of each option by price."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from planner.deployment.shaped_load import shape_load
from planner.report.figures.clock_axis import first_at_s, show_clock
from planner.report.figures.rate_figures import binned_rate
from planner.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    figure_of_rows,
    finish,
    line_style,
    log_axis,
    plot_text,
)
from planner.results.short_times import time_text
from planner.settings.scenario import Scenario
from planner.traces import Trace

TIMES = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))  # least length [s], unit [s], its name
WIDE = 20.0  # dearest over cheapest, from which the axis of money is logarithmic


def load_against_capacity(trace: Trace, scenario: Scenario, capacity_rps: float | None) -> Any:
    """Draw the rate of requests over time with the highest mean rate that a fleet serves.

    Parameters
    ----------
    trace, scenario : the load, as it is replayed.
    capacity_rps : None for no limit [1/s].
    """
    shaped = shape_load(scenario, trace)
    middles, rates, width_s = binned_rate(shaped)
    unit_s, unit = next((size, name) for least, size, name in TIMES if middles[-1] >= least)
    figure = figure_of_rows(["requests/s"], f"time [{unit}]", row_px=300)
    figure.add_scatter(x=middles / unit_s, y=rates, mode="lines", name="your traffic", fill="tozeroy",
                       fillcolor="rgba(0, 114, 178, 0.12)", line={"color": BLUE, "width": 2},
                       hovertemplate="%{y:.3g} requests/s<extra></extra>")
    if capacity_rps is not None:
        figure.add_hline(y=capacity_rps, line={"color": GREEN, "dash": "dash", "width": 2},
                         annotation_text=f"serves up to {capacity_rps:,.3g}/s on average",
                         annotation_position="top left")
        figure.update_yaxes(range=[0, 1.15 * max(capacity_rps, float(rates.max()))])
    figure.update_layout(height=420, showlegend=False)
    show_clock(figure, first_at_s(shaped), 0.0, float(middles[-1]) + width_s / 2, unit_s=unit_s)
    return finish(figure, "Your traffic against the fleet", f"means over {time_text(1e3 * width_s)}")


def money_against_headroom(fleets: Sequence[tuple[str, float, float]], asked: float) -> Any:
    """Draw fleets by their cost and the traffic that they serve; the first is the chosen fleet.

    Parameters
    ----------
    fleets : name, cost a month [USD] and the most traffic that the fleet serves over the traffic of the log [1].
    asked : traffic that was asked for, with its headroom [1].
    """
    figure, costs = go.Figure(), [cost for _, cost, _ in fleets]
    most = max(costs)
    for place, (name, cost, factor) in enumerate(fleets):
        figure.add_scatter(x=[cost], y=[factor], mode="markers+text", name=plot_text(name), cliponaxis=False,
                           text=[plot_text(name)], textposition=(f"{'top' if place else 'bottom'} "
                                                                 f"{'right' if cost < most / 2 else 'left'}"),
                           marker={"color": line_style(place)["color"], "size": 12 if place else 18,
                                   "symbol": "circle" if place else "star"},
                           hovertemplate="%{x:,.0f} USD a month serve %{y:.2f} × the traffic")
    figure.add_hline(y=asked, line={"color": GREY, "dash": "dash", "width": 2},
                     annotation_text=f"asked for: {asked:.3g} ×", annotation_position="bottom right")
    if most > WIDE * min(costs) > 0:
        figure.update_xaxes(**log_axis(costs))
    else:
        figure.update_xaxes(range=[0, 1.1 * most], tickformat=",")
    figure.update_xaxes(title_text="USD a month")
    figure.update_yaxes(title_text="traffic it serves [× the log's]",
                        range=[0, 1.25 * max(asked, *(factor for *_, factor in fleets))])
    figure.update_layout(height=420, showlegend=False)
    return finish(figure, "What more money buys", "the best layout of each GPU; the star is the cheapest",
                  hovermode="closest")
