"""Figures of a plan: the load beside the fleet's capacity, and the capacity of each option by price."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from planner.deployment.deploy import shape_load
from planner.report.figures.rate_figures import arrivals
from planner.report.figures.style import GREY, Theme, finish, line_style, plot_text
from planner.settings.scenario import Scenario
from planner.traces import Trace

WIDE = 20.0  # dearest over cheapest, from which the axis of money is logarithmic


def load_against_capacity(trace: Trace, scenario: Scenario, capacity_rps: float | None, theme: Theme = "light") -> Any:
    """Draw a load over time with the mean rate that a fleet bears.

    Parameters
    ----------
    trace, scenario : the load, as it is replayed.
    capacity_rps : None for no limit [1/s].
    theme : "light" or "dark".
    """
    return arrivals(shape_load(scenario, trace), capacity_rps=capacity_rps, theme=theme)


def money_against_headroom(fleets: Sequence[tuple[str, float, float]], asked: float, *, theme: Theme = "light") -> Any:
    """Draw fleets by what they cost and what they bear; the first is the one that was chosen.

    Parameters
    ----------
    fleets : name, cost a month [USD] and traffic that the fleet bears over the traffic of the log [1].
    asked : traffic that was asked for, with its headroom [1].
    theme : "light" or "dark".
    """
    figure, costs = go.Figure(), [cost for _, cost, _ in fleets]
    for place, (name, cost, factor) in enumerate(fleets):
        figure.add_scatter(x=[cost], y=[factor], mode="markers", name=plot_text(name), cliponaxis=False,
                           marker={"color": line_style(place)["color"], "size": 12 if place else 18,
                                   "symbol": "circle" if place else "star"},
                           hovertemplate="%{x:,.0f} USD a month bear %{y:.2f} × the traffic")
    figure.add_hline(y=asked, line={"color": GREY, "dash": "dash", "width": 2},
                     annotation_text=f"asked for: {asked:.3g} ×", annotation_position="bottom right")
    if max(costs) > WIDE * min(costs) > 0:
        figure.update_xaxes(type="log", dtick=1)
    else:
        figure.update_xaxes(range=[0, 1.1 * max(costs)])
    figure.update_xaxes(title_text="USD a month")
    figure.update_yaxes(title_text="traffic [× the log's]",
                        range=[0, 1.25 * max(asked, *(factor for *_, factor in fleets))])
    figure.update_layout(height=420, showlegend=True)
    return finish(figure, "What more money buys", "the best layout of each GPU; the star is the cheapest", theme,
                  hovermode="closest")
