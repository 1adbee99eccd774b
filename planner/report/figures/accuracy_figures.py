"""Accuracy drawn: predictions over measurements, and the project's own errors against their targets."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from planner.measured.published import Published
from planner.report.figures.style import (
    BLUE,
    GREY,
    LINE_COLORS,
    VERMILLION,
    figure_of_rows,
    finish,
    log_axis,
    plot_text,
    wrapped,
)
from planner.settings.statistic import LABELS, parse_statistic

LABEL_CHARS = 26  # of a line of a bar's name: a phone has room for it


def predicted_over_measured(table: pl.DataFrame, metric: str) -> Any:
    """Draw each prediction over its measurement, with the line on which they are equal.

    Parameters
    ----------
    table : as `validate.predictions_table`.
    metric : of its columns, "ttft" of `measured_ttft` and `predicted_ttft`.
    """
    rows = table.select("id", measured=f"measured_{metric}", predicted=f"predicted_{metric}").drop_nulls()
    words, unit = metric_name(metric)
    figure = figure_of_rows([f"predicted {words}{unit}"], f"measured {words}{unit}", row_px=320)
    if rows.height:
        both = [*rows["measured"].cast(pl.Float64).to_list(), *rows["predicted"].cast(pl.Float64).to_list()]
        ends = [min(both), max(both)]
        figure.add_scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "dash": "dot"}, showlegend=False,
                           hoverinfo="skip")
        figure.add_scatter(x=rows["measured"].to_list(), y=rows["predicted"].to_list(), mode="markers",
                           marker={"color": BLUE, "size": 7, "opacity": 0.7}, showlegend=False,
                           text=[plot_text(str(name)) for name in rows["id"]],
                           hovertemplate="%{text}: measured %{x:,.4g}, predicted %{y:,.4g}<extra></extra>")
        figure.update_xaxes(**log_axis(both))
        figure.update_yaxes(**log_axis(both))
    note = f"{rows.height:,} runs; on the line, predicted equals measured" if rows.height else "no run has both values"
    return finish(figure, f"{words}: predicted over measured", note, hovermode="closest")


def metric_name(metric: str) -> tuple[str, str]:
    """Return a measured metric in words, and its unit in brackets.

    >>> metric_name("p99_ttft_ms"), metric_name("tpot_ms"), metric_name("throughput")
    (('p99 TTFT', ' [ms]'), ('TPOT', ' [ms]'), ('throughput', ''))
    """
    name = metric.removesuffix("_ms")
    statistic = parse_statistic(name)
    words = statistic.label if statistic is not None else LABELS.get(name, name.replace("_", " "))
    return words, " [ms]" if metric.endswith("_ms") else ""


def measured_percentiles(row: Mapping[str, Any], metrics: Sequence[str]) -> Any:
    """Draw the percentiles of one run, measured and predicted: the two distributions on the same axes.

    Parameters
    ----------
    row : of `validate.predictions_table`.
    metrics : names of measured values; only percentiles are drawn, as "median_ttft_ms" and "p99_tpot_ms".
    """
    figure = figure_of_rows(["requests"], "latency [ms]", row_px=320)
    levels: dict[str, list[tuple[float, str]]] = {}
    for name in metrics:
        statistic = parse_statistic(name)
        if statistic is not None and statistic.percentile is not None:
            levels.setdefault(statistic.metric, []).append((statistic.percentile, name))
    for place, (metric, names) in enumerate(levels.items()):
        ordered = sorted(names)
        for kind, dash in (("measured", "solid"), ("predicted", "dash")):
            figure.add_scatter(x=[row[f"{kind}_{name}"] for _, name in ordered], y=[level for level, _ in ordered],
                               mode="lines+markers", name=f"{LABELS[metric]}, {kind}",
                               line={"color": LINE_COLORS[place % len(LINE_COLORS)], "dash": dash, "width": 2},
                               hovertemplate="p%{y:g}: %{x:,.4g} ms<extra>%{fullData.name}</extra>")
    figure.update_xaxes(**log_axis([value for trace in figure.data for value in trace.x]))
    figure.update_yaxes(range=[0, 101], ticksuffix=" %")
    note = "share of requests that are at least as fast" if figure.data else "the file has no percentiles"
    return finish(figure, "Measured and predicted", note, hovermode="closest")


def published_errors(rows: Sequence[Published]) -> Any:
    """Draw each published figure as a bar, with a mark at its target.

    Parameters
    ----------
    rows : of one section; those without a value are left out.
    """
    known = [row for row in rows if row.value is not None]
    names = [wrapped(row.words, LABEL_CHARS) for row in known]
    figure = go.Figure()
    for is_met, color, name in ((True, BLUE, "target met"), (False, VERMILLION, "target missed"),
                                (None, GREY, "no target")):
        chosen = [(label, row) for label, row in zip(names, known, strict=True) if row.is_met is is_met]
        if chosen:
            figure.add_bar(y=[label for label, _ in chosen], x=[100 * (row.value or 0.0) for _, row in chosen],
                           orientation="h", name=name, marker_color=color,
                           hovertemplate="%{y}: %{x:.1f} %<extra></extra>")
    limits = [(label, row.limit) for label, row in zip(names, known, strict=True) if row.limit is not None]
    if limits:
        figure.add_scatter(y=[label for label, _ in limits], x=[100 * limit for _, limit in limits], mode="markers",
                           name="target", hovertemplate="%{y}: target %{x:.1f} %<extra></extra>",
                           marker={"symbol": "line-ns-open", "size": 14, "color": GREY, "line": {"width": 2}})
    figure.update_layout(height=170 + 38 * max(3, len(known)), barmode="overlay")
    figure.update_xaxes(ticksuffix=" %", rangemode="tozero", nticks=6, tickangle=0)
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    return finish(figure, rows[0].section if rows else "Accuracy", "lines: targets" if known else "no figure",
                  hovermode="closest")
