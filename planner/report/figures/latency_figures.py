"""Figures of latency: its distributions, and a request's time divided into phases."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
from numpy.typing import NDArray

from planner.errors import UnknownNameError
from planner.report.figures.bins import numbers
from planner.report.figures.phase_colors import PHASE_COLORS
from planner.report.figures.style import (
    GREY,
    ORANGE,
    PURPLE,
    Results,
    as_list,
    figure_of_rows,
    finish,
    labels,
    line_style,
    plot_text,
)
from planner.results.phases import PHASES, request_phases
from planner.results.saved import SavedResult
from planner.results.short_times import time_text
from planner.results.summary_answer import Figures

METRICS = {  # column, title
    "ttft": ("ttft_s", "Time to first token"),
    "tpot": ("tpot_s", "Time per output token"),
    "e2el": ("e2e_s", "End-to-end latency"),
}
LEVELS = ("mean", "median", "p90", "p95", "p99")
AXES = {"ttft": "TTFT [ms]", "tpot": "TPOT [ms]", "e2el": "end to end [ms]"}
MARKED = (50, 90, 99)  # percentiles that carry a marker
SLO_COLORS = (GREY, ORANGE, PURPLE)

GROUPS = (("all", 1.0), ("slowest 10 %", 0.1), ("slowest 1 %", 0.01))


def latency_cdf(results: Results, metric: str) -> Any:
    """Draw which share of the completed requests is at least as fast as a latency, with a line at each objective.

    Percentiles are linear between order statistics, as in the summary.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    metric : "ttft", "tpot" or "e2el".

    Raises
    ------
    UnknownNameError : the metric is none of these.
    """
    if metric not in METRICS:
        raise UnknownNameError("latency metric", metric, METRICS)
    found = as_list(results)
    column, title = METRICS[metric]
    figure = figure_of_rows(["completed requests"], f"{title} [ms]", row_px=300)
    counts = []
    for place, (label, result) in enumerate(zip(labels(found), found, strict=True)):
        values_ms = _values_ms(result, column)
        counts.append(len(values_ms))
        if len(values_ms) > 0:
            _add_cdf(figure, plot_text(label), values_ms, place, percentile_levels(len(found)), len(found) > 1)
    if figure.data:
        _add_objectives(figure, found, metric)
    figure.update_xaxes(**_log_axis(figure))
    figure.update_yaxes(range=[0, 101], ticksuffix=" %")
    shown = ", ".join(f"{count:,}" for count in counts[:4]) + (" …" if len(counts) > 4 else "")
    note = f"requests with a value: {shown}; markers at p50, p90, p99" if figure.data else "no request has a value"
    return finish(figure, title + _percentiles_text(found, column), note, hovermode="closest")


def percentile_levels(num_results: int) -> NDArray[np.float64]:
    """Return the percentiles at which a distribution is drawn: at most 447, with `MARKED`, denser above 99."""
    per_percent = max(1, min(4, 16 // max(1, num_results)))
    return np.concatenate([np.linspace(0, 99, 99 * per_percent + 1), np.linspace(99, 100, 51)[1:]])


def time_by_phase(results: Results) -> Any:
    """Draw the mean time that completed requests spend in each phase; together they are the end-to-end latency.

    Parameters
    ----------
    results : one saved result, or several to draw below each other.
    """
    found = as_list(results)
    names, means_ms, counts = _phase_means(found)
    figure = go.Figure()
    for phase, color in PHASE_COLORS.items():
        if phase in means_ms and means_ms[phase].any():
            figure.add_bar(y=names, x=means_ms[phase], name=phase, orientation="h", marker_color=color,
                           customdata=counts, hovertemplate=f"{PHASES[phase]} %{{x:,.1f}} ms, mean of "
                           f"%{{customdata:,}} requests<extra></extra>")
    figure.update_layout(barmode="stack", height=190 + (36 if len(found) == 1 else 42) * max(3, len(names)))
    figure.update_xaxes(title_text="mean time per request [ms]", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    note = "means of completed requests; slowest by end-to-end latency" if names else "no request was completed"
    return finish(figure, "Time per request by phase", note, hovermode="closest")


def _completed(result: SavedResult) -> pl.DataFrame:
    return result.requests.filter(pl.col("status") == "completed")


def _values_ms(result: SavedResult, column: str) -> NDArray[np.float64]:
    values = numbers(_completed(result), column)
    return values[~np.isnan(values)] * 1e3


def _add_cdf(figure: Any, name: str, values_ms: NDArray[np.float64], place: int, levels: NDArray[np.float64],
             is_named: bool) -> None:
    style = line_style(place)
    common = {"legendgroup": name, "name": name, "hovertemplate": "p%{y:.4g}: %{x:,.4g} ms<extra>" + name + "</extra>"}
    figure.add_scatter(x=np.percentile(values_ms, levels), y=levels, mode="lines", line=style, showlegend=is_named,
                       **common)
    figure.add_scatter(x=np.percentile(values_ms, MARKED), y=np.array(MARKED, float), mode="markers", showlegend=False,
                       marker={"color": style["color"], "size": 8}, **common)


def _add_objectives(figure: Any, results: Sequence[SavedResult], metric: str) -> None:
    limits_s = [(result.summary.slo or {}).get(metric) for result in results]
    for place, limit_s in enumerate(sorted({limit for limit in limits_s if limit is not None})):
        color = SLO_COLORS[place % len(SLO_COLORS)]
        figure.add_scatter(x=[limit_s * 1e3] * 2, y=[0, 100], mode="lines", name=f"SLO {limit_s * 1e3:,g} ms",
                           line={"color": color, "dash": "dash", "width": 2}, showlegend=True,
                           hovertemplate=f"SLO {limit_s * 1e3:,g} ms<extra></extra>")


def _log_axis(figure: Any) -> dict[str, Any]:
    """Return a log axis over the drawn values, ticked at powers of ten, and at 2 and 5 times them if they are few."""
    values = np.concatenate([np.ones(0), *(np.asarray(trace.x, float) for trace in figure.data)])
    values = values[values > 0]
    if len(values) == 0:
        return {"type": "log"}
    low, high = math.log10(values.min()), math.log10(values.max())
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [step * 10.0**power for power in powers for step in ((1, 2, 5) if len(powers) <= 4 else (1,))]
    margin = max(0.04 * (high - low), 0.2 - (high - low) / 2)
    return {"type": "log", "tickvals": ticks, "tickformat": ",~f", "range": [low - margin, high + margin]}


def _percentiles_text(results: Sequence[SavedResult], column: str) -> str:
    values_ms = _values_ms(results[0], column) if len(results) == 1 else np.zeros(0)
    if len(values_ms) == 0:
        return ""
    p50, p99 = np.percentile(values_ms, (50, 99))
    return f": p50 {time_text(p50)}, p99 {time_text(p99)}"


def _phase_means(results: Sequence[SavedResult]) -> tuple[list[str], dict[str, NDArray[np.float64]], list[int]]:
    """Return per bar its name, the mean of each phase [ms] and how many requests it stands for."""
    names: list[str] = []
    rows: list[dict[str, float]] = []
    counts: list[int] = []
    for label, result in zip(labels(results), results, strict=True):
        times = request_phases(result.requests).sort("e2e_s", descending=True, nulls_last=True)
        for group, share in GROUPS if times.height > 0 else ():
            slowest = times.head(max(1, math.ceil(share * times.height)))
            names.append(group if len(results) == 1 else f"{plot_text(label)}<br>{group}")
            rows.append({phase: float(np.nan_to_num(numbers(slowest, phase)).mean()) * 1e3 for phase in PHASES})
            counts.append(slowest.height)
    return names, {phase: np.array([row[phase] for row in rows]) for phase in PHASES if rows}, counts


def latency_levels(replays: Sequence[Figures], names: Sequence[str]) -> Any:
    """Draw mean, median and percentiles of TTFT, TPOT and end-to-end latency.

    Parameters
    ----------
    replays, names : figures and names of the compared replays, in the same order; names are not escaped.
    """
    figure = figure_of_rows(list(AXES.values()), "", row_px=190)
    for place, (figures, name) in enumerate(zip(replays, names, strict=True)):
        for row, metric in enumerate(AXES, 1):
            values = [getattr(getattr(figures, metric), level) for level in LEVELS]
            if any(value is not None for value in values):
                figure.add_scatter(x=list(LEVELS), y=values, mode="lines+markers", name=plot_text(name), row=row, col=1,
                                   legendgroup=str(place), showlegend=row == 1 and len(names) > 1,
                                   line=line_style(place), hovertemplate="%{y:,.4g} ms")
    note = "of completed requests" if figure.data else "no request has a value"
    return finish(figure, "Latency", note)


def mean_phases(explanations: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Any:
    """Draw the mean time that completed requests spend in each phase, a bar for each explanation.

    Parameters
    ----------
    explanations, names : as `explanation.explain`, and the name of each; names are not escaped.
    """
    figure = go.Figure()
    means = [found["phases"]["all"]["mean_ms"] for found in explanations]
    for phase, color in PHASE_COLORS.items():
        values = [each.get(phase) or 0.0 for each in means]
        if any(values):
            figure.add_bar(y=[plot_text(name) for name in names], x=values, name=phase, orientation="h",
                           marker_color=color, hovertemplate=f"{PHASES[phase]} %{{x:,.1f}} ms<extra></extra>")
    figure.update_layout(barmode="stack", height=190 + 42 * max(2, len(names)))
    figure.update_xaxes(title_text="mean time per request [ms]", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return finish(figure, "Time per request by phase", "means of completed requests" if figure.data else
                  "no request was completed", hovermode="closest")
