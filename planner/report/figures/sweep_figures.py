"""Figures of a sweep: its Pareto front among all configurations, and each axis' effect."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from planner.report.figures.style import BLUE, GREY, Theme, finish, plot_text, wrapped

LABEL_CHARS = 13  # of a line of an axis's name: a phone has room for four side by side


def front_scatter(table: pl.DataFrame, axes: Sequence[str], metrics: Sequence[str], *, theme: Theme = "light") -> Any:
    """Draw all configurations over two metrics, those on the front joined; point k of either trace is row k of it.

    Parameters
    ----------
    table : as `sweeping.sweep`.
    axes : options that vary.
    metrics : two or more; the first two are drawn.
    theme : "light" or "dark".
    """
    figure = go.Figure()
    done = table.filter(pl.col("status") == "done")
    for on_front, name, color in ((False, "beaten", GREY), (True, "on the front", BLUE)):
        rows = done.filter(pl.col("is_pareto") == on_front)
        rows = rows.sort(metrics[0]) if on_front else rows
        if rows.height:
            figure.add_scatter(
                x=rows[metrics[0]].to_list(), y=rows[metrics[1]].to_list(), name=name,
                mode="lines+markers" if on_front else "markers", line={"color": color, "width": 1, "dash": "dot"},
                marker={"color": color, "size": 9 if on_front else 6, "opacity": 1.0 if on_front else 0.5},
                text=[plot_text(_values(row, axes)) for row in rows.to_dicts()],
                hovertemplate="%{text}<br>%{x:,.4g}, %{y:,.4g}<extra></extra>")
    figure.update_xaxes(title_text=plot_text(metrics[0]))
    figure.update_yaxes(title_text=plot_text(metrics[1]))
    figure.update_layout(height=460)
    note = f"{done.height:,} configurations" if figure.data else "no configuration could be replayed"
    return finish(figure, "Pareto front", note, theme, hovermode="closest")


def parallel_axes(table: pl.DataFrame, axes: Sequence[str], metrics: Sequence[str], *, theme: Theme = "light") -> Any:
    """Draw a line for each configuration through its values and its metrics; the front is darker.

    Parameters
    ----------
    table, axes, metrics : as of `front_scatter`.
    theme : "light" or "dark".
    """
    done = table.filter(pl.col("status") == "done").drop_nulls(list(metrics))
    figure = go.Figure()
    if done.height:
        figure.add_trace(go.Parcoords(
            domain={"x": [0.1, 0.9], "y": [0.22, 0.92]}, labelside="bottom",  # room for names in several lines
            line={"color": done["is_pareto"].cast(int).to_list(), "colorscale": [[0, "#c4ccd4"], [1, BLUE]],
                  "cmin": 0, "cmax": 1},
            dimensions=[*(_axis(done, axis) for axis in axes),
                        *({"label": wrapped(name, LABEL_CHARS), "values": done[name].to_list()} for name in metrics)]))
    figure.update_layout(height=420)
    return finish(figure, "Configurations",
                  "a line per configuration; drag along an axis to filter" if done.height else "nothing to draw", theme,
                  hovermode="closest")


def _axis(done: pl.DataFrame, axis: str) -> dict[str, Any]:
    """Return an axis of names or numbers; names stand at whole places."""
    values = done[axis].to_list()
    if all(type(value) in (int, float) for value in values):
        return {"label": wrapped(axis, LABEL_CHARS), "values": values}
    names = list(dict.fromkeys(map(str, values)))
    return {"label": wrapped(axis, LABEL_CHARS), "values": [names.index(str(value)) for value in values],
            "tickvals": np.arange(len(names)).tolist(), "ticktext": [plot_text(name) for name in names]}


def _values(row: Mapping[str, Any], axes: Sequence[str]) -> str:
    return ", ".join(f"{axis} {row[axis]}" for axis in axes)
