"""Figures of a sweep: its Pareto front among all configurations, and each axis' effect."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from planner.planning.cheapest_kept import CHEAPEST
from planner.report.column_words import column_words
from planner.report.difference_words import setting_label, setting_words
from planner.report.figures.style import BLUE, GREEN, GREY, VERMILLION, finish, log_axis, plot_text, wrapped
from planner.results.summary import HEADLINES

LABEL_CHARS = 13  # of a line of an axis's name: a phone has room for four side by side
MOST_LABELS = 12  # points of a front that are labelled
ALIKE = 0.03  # relative distance of points whose labels would lie on each other
MOST_TICKS = 12  # values of an axis of numbers that all have a tick
NO_LIMITS: Mapping[str, float] = MappingProxyType({})


def metric_words(metric: str) -> str:
    """Return a metric of the summary in words, with its unit.

    >>> metric_words("p99_ttft_ms"), metric_words("num_steps"), metric_words("cost_usd_per_million_output_tokens")
    ('TTFT, p99 [ms]', 'steps', 'USD per million output tokens')
    """
    for key, label, unit in HEADLINES:
        if key == metric:
            return f"{unit} {label}" if label.startswith("per ") else (
                f"{label} [{unit}]" if unit not in ("", "%") else label)
    return column_words(metric)


def front_scatter(table: pl.DataFrame, axes: Sequence[str], metrics: Sequence[str], *,
                  limits: Mapping[str, float] = NO_LIMITS) -> Any:
    """Draw all configurations over two metrics, the front joined; a point's custom data is its row in the table.

    Latencies have a logarithmic axis. A region beyond a limit is shaded.

    Parameters
    ----------
    table : as `sweeping.sweep`, or as `cheapest_kept.by_choice`, whose cheapest configuration gets a star.
    axes : options that vary.
    metrics : two or more; the first two are drawn.
    limits : by metric, in its unit.
    """
    figure = go.Figure()
    done = table.with_row_index("place").filter(pl.col("status") == "done")
    for on_front, name, color in ((False, "not on the front", GREY), (True, "on the front", BLUE)):
        rows = done.filter(pl.col("is_pareto") == on_front)
        rows = rows.sort(metrics[0]) if on_front else rows
        if rows.height:
            has_labels = on_front and rows.height <= MOST_LABELS
            labels = _apart(rows, metrics, [", ".join(str(row[axis]) for axis in axes) for row in rows.to_dicts()])
            figure.add_scatter(
                x=rows[metrics[0]].to_list(), y=rows[metrics[1]].to_list(), name=name,
                mode="+".join(["lines"] * on_front + ["markers"] + ["text"] * has_labels),
                line={"color": color, "width": 1, "dash": "dot"}, textposition="top right",
                marker={"color": color, "size": 9 if on_front else 6, "opacity": 1.0 if on_front else 0.5},
                unselected={"marker": {"opacity": 1.0 if on_front else 0.5}},  # a click on one keeps the others
                text=list(map(plot_text, labels)),
                customdata=[[row["place"], plot_text(_values(row, axes))] for row in rows.to_dicts()],
                hovertemplate="%{customdata[1]}<br>%{x:,.4g}, %{y:,.4g}<extra></extra>")
    _add_cheapest(figure, done, axes, metrics)
    for metric, update, shade in ((metrics[0], figure.update_xaxes, figure.add_vrect),
                                  (metrics[1], figure.update_yaxes, figure.add_hrect)):
        scale = log_axis([*done[metric].to_list(), limits.get(metric)]) if metric.endswith("_ms") else {}
        update(title_text=plot_text(metric_words(metric)), **scale)
        if metric in limits and figure.data:
            _shade(figure, metric, limits[metric], done, shade, is_x=metric == metrics[0])
    figure.update_layout(height=460)
    note = (f"{done.height:,} configurations; labels: {plot_text('; '.join(map(setting_label, axes)))}" if figure.data
            else "no configuration could be replayed")
    return finish(figure, "Pareto front", note, hovermode="closest")


def _apart(rows: pl.DataFrame, metrics: Sequence[str], labels: list[str]) -> list[str]:
    """Return the labels of points; a point that lies on an earlier one has no label."""
    seen: list[tuple[float, float]] = []
    shown = []
    for place, label in zip(rows.select(metrics[:2]).rows(), labels, strict=True):
        is_alone = not any(all(math.isclose(*pair, rel_tol=ALIKE) for pair in zip(place, other, strict=True))
                           for other in seen)
        seen += [place] if is_alone else []
        shown.append(label if is_alone else "")
    return shown


def _add_cheapest(figure: Any, done: pl.DataFrame, axes: Sequence[str], metrics: Sequence[str]) -> None:
    """Draw a star at the cheapest configuration within the targets."""
    if CHEAPEST not in done.columns:
        return
    rows = done.filter(pl.col(CHEAPEST))
    if rows.height:
        figure.add_scatter(
            x=rows[metrics[0]].to_list(), y=rows[metrics[1]].to_list(), mode="markers",
            name="cheapest within the targets", marker={"color": GREEN, "size": 16, "symbol": "star"},
            customdata=[[row["place"], plot_text(_values(row, axes))] for row in rows.to_dicts()],
            hovertemplate="%{customdata[1]}<br>%{x:,.4g}, %{y:,.4g}<extra></extra>")


def _shade(figure: Any, metric: str, limit: float, done: pl.DataFrame, shade: Any, *, is_x: bool) -> None:
    """Draw a limit as a line, and shade the region beyond it."""
    line = {"color": VERMILLION, "dash": "dash", "width": 1}
    if is_x:
        figure.add_vline(x=limit, line=line)
    else:
        figure.add_hline(y=limit, line=line)
    most: Any = done[metric].max()
    if most is not None and most > limit:
        ends = {"x0": limit, "x1": most} if is_x else {"y0": limit, "y1": most}
        shade(**ends, fillcolor=VERMILLION, opacity=0.08, line_width=0)


def parallel_axes(table: pl.DataFrame, axes: Sequence[str], metrics: Sequence[str]) -> Any:
    """Draw a line for each configuration through its values and its metrics; the front is darker.

    Parameters
    ----------
    table, axes, metrics : as of `front_scatter`.
    """
    done = table.filter(pl.col("status") == "done").drop_nulls(list(metrics))
    figure = go.Figure()
    if done.height:
        figure.add_trace(go.Parcoords(
            domain={"x": [0.1, 0.9], "y": [0.22, 0.92]}, labelside="bottom",  # room for names in several lines
            line={"color": done["is_pareto"].cast(int).to_list(), "colorscale": [[0, "#c4ccd4"], [1, BLUE]],
                  "cmin": 0, "cmax": 1},
            dimensions=[*(_axis(done, axis) for axis in axes),
                        *({"label": wrapped(metric_words(name), LABEL_CHARS), "values": done[name].to_list()}
                          for name in metrics)]))
    figure.update_layout(height=420)
    return finish(figure, "Configurations",
                  "a line per configuration; drag along an axis to filter" if done.height else "nothing to draw",
                  hovermode="closest")


def _axis(done: pl.DataFrame, axis: str) -> dict[str, Any]:
    """Return an axis of names or numbers; names stand at whole places, and few numbers have a tick each."""
    values = done[axis].to_list()
    if all(type(value) in (int, float) for value in values):
        known = sorted(set(values))
        ticks = {"tickvals": known, "ticktext": [f"{value:g}" for value in known]} if len(known) <= MOST_TICKS else {}
        return {"label": wrapped(setting_label(axis), LABEL_CHARS), "values": values, **ticks}
    names = list(dict.fromkeys(map(str, values)))
    return {"label": wrapped(setting_label(axis), LABEL_CHARS), "values": [names.index(str(value)) for value in values],
            "tickvals": np.arange(len(names)).tolist(), "ticktext": [plot_text(name) for name in names]}


def _values(row: Mapping[str, Any], axes: Sequence[str]) -> str:
    return ", ".join(setting_words(axis, row[axis]) for axis in axes)
