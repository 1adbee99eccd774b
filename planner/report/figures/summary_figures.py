"""Summaries drawn without tables of requests: percentiles of latency, and the mean time by phase."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from planner.report.figures.phase_colors import PHASE_COLORS
from planner.report.figures.style import figure_of_rows, finish, line_style, plot_text
from planner.results.phases import PHASES
from planner.results.summary_answer import Figures

LEVELS = ("mean", "median", "p90", "p95", "p99")
METRICS = {"ttft": "TTFT [ms]", "tpot": "TPOT [ms]", "e2el": "end to end [ms]"}


def latency_levels(replays: Sequence[Figures], names: Sequence[str]) -> Any:
    """Draw mean, median and percentiles of TTFT, TPOT and end-to-end latency.

    Parameters
    ----------
    replays, names : figures and names of the compared replays, in the same order; names are not escaped.
    """
    figure = figure_of_rows(list(METRICS.values()), "", row_px=190)
    for place, (figures, name) in enumerate(zip(replays, names, strict=True)):
        for row, metric in enumerate(METRICS, 1):
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
