"""The tornado of a sizing: the chosen fleet's price if one assumption changes, around its price as sized."""

from typing import Any

import plotly.graph_objects as go

from planner.planning.sensitivity_answer import Changed, Sensitivity
from planner.report.figures.style import BLUE, GREY, ORANGE, VERMILLION, finish, plot_text

ENDS = (("low", "lighter or cheaper", BLUE), ("high", "heavier or dearer", ORANGE))


def tornado(found: Sensitivity) -> Any:
    """Draw the chosen fleet's price after each change, the widest on top; crosses mark changes that flip the choice.

    Parameters
    ----------
    found : as `sensitivity.sensitivity`.
    """
    figure, base = go.Figure(), found.cost_usd_per_hour
    names = [plot_text(swing.assumption) for swing in found.swings]
    flips: list[tuple[str, float, str]] = []
    for end, label, color in ENDS:
        shown = [(name, getattr(swing, end)) for name, swing in zip(names, found.swings, strict=True)]
        ends: list[tuple[str, Changed]] = [(name, changed) for name, changed in shown if changed is not None]
        costs = [base if changed.cost_usd_per_hour is None else changed.cost_usd_per_hour for _, changed in ends]
        figure.add_bar(y=[name for name, _ in ends], x=[cost - base for cost in costs], base=base, orientation="h",
                       name=label, marker_color=color, customdata=[_about(changed) for _, changed in ends],
                       hovertemplate="%{y} %{customdata}<extra></extra>")
        flips += [(name, cost, _about(changed)) for (name, changed), cost in zip(ends, costs, strict=True)
                  if changed.is_flipped]
    if flips:
        figure.add_scatter(y=[name for name, _, _ in flips], x=[cost for _, cost, _ in flips], mode="markers",
                           name="another fleet is cheaper", text=[text for _, _, text in flips],
                           marker={"color": VERMILLION, "size": 11, "symbol": "x"},
                           hovertemplate="%{y} %{text}<extra></extra>")
    figure.add_vline(x=base, line={"color": GREY, "width": 1})
    figure.update_layout(height=170 + 40 * max(2, len(names)), barmode="overlay")
    figure.update_xaxes(title_text="USD per hour")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    return finish(figure, "Sensitivity of the cheapest fleet", f"price of {plot_text(found.chosen)} if one assumption "
                  "changes", hovermode="closest")


def _about(changed: Changed) -> str:
    size = "no number of GPUs" if changed.num_gpus is None else f"{changed.num_gpus:,} GPUs"
    return plot_text(f"{changed.change}: {size}; cheapest {changed.cheapest}")
