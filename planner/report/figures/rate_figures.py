"""Figures of the traffic: the rate of requests, and the lengths of their prompts and outputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.files.counts import count_text
from planner.report.figures.clock_axis import first_at_s, show_clock
from planner.report.figures.phase_colors import PHASE_COLORS
from planner.report.figures.style import BLUE, GREEN, figure_of_rows, finish, log_axis
from planner.traces import Trace

MOST_BINS = 240
PROMPT, OUTPUT = PHASE_COLORS["prefill"], PHASE_COLORS["decode"]
LEVELS = np.concatenate([np.linspace(0, 99, 199), np.linspace(99, 100, 51)[1:]])


def arrivals(trace: Trace, *, capacity_rps: float | None = None) -> Any:
    """Draw the rate of arrivals over time, and of the tokens that they bring.

    Parameters
    ----------
    capacity_rps : mean rate of this traffic that a deployment bears, drawn as a line; None for none [1/s].
    """
    times, edges = trace.requests["arrival_s"].to_numpy(), _edges(trace)
    middles, rates, width_s = binned_rate(trace)
    figure = figure_of_rows(["requests/s", "tokens/s"], "time [s]")
    counts = rates * width_s
    figure.add_scatter(x=middles, y=rates, mode="lines", name="requests", line={"color": BLUE, "width": 2},
                       row=1, col=1)
    if capacity_rps is not None:
        figure.add_scatter(x=[middles[0], middles[-1]], y=[capacity_rps] * 2, mode="lines", name="capacity, mean rate",
                           line={"color": GREEN, "width": 2, "dash": "dash"}, row=1, col=1)
    for column, name, color in _lengths(trace):
        tokens, _ = np.histogram(times, edges, weights=trace.requests[column].to_numpy().astype(float))
        figure.add_scatter(x=middles, y=tokens / width_s, mode="lines", name=f"{name} tokens",
                           line={"color": color, "width": 2}, row=2, col=1)
    burst = float(counts.var() / counts.mean()) if counts.mean() > 0 else 0.0
    note = f"means over {width_s:,.3g} s; variance ÷ mean of the counts: {burst:,.3g} (a Poisson process has 1)"
    show_clock(figure, first_at_s(trace), 0.0, float(times[-1] - times[0]))
    return finish(figure, "Arrivals over time", note)


def binned_rate(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the middles of bins since the first arrival [s], the rate in each [requests/s], and their width [s]."""
    times, edges = trace.requests["arrival_s"].to_numpy(), _edges(trace)
    width_s = float(edges[1] - edges[0])
    counts, _ = np.histogram(times, edges)
    return (edges[:-1] + edges[1:]) / 2 - times[0], counts / width_s, width_s


def _lengths(trace: Trace) -> list[tuple[str, str, str]]:
    """Return the columns of lengths with their words and colours; of outputs only if the trace has any."""
    parts = (("input_tokens", "prompt", PROMPT), ("output_tokens", "output", OUTPUT))
    return [part for part in parts if (trace.requests[part[0]] > 0).any()]


def _edges(trace: Trace) -> NDArray[np.float64]:
    """Return the edges of bins of equal width over the arrivals [s]."""
    times = trace.requests["arrival_s"].to_numpy()
    bins = max(1, min(MOST_BINS, trace.num_requests // 4))
    return np.linspace(times[0], times[0] + max(float(times[-1] - times[0]), 1e-9), bins + 1)


def lengths(trace: Trace) -> Any:
    """Draw which share of the requests has prompts and outputs of at most a length."""
    figure = figure_of_rows(["requests"], "tokens", row_px=280)
    for column, name, color in _lengths(trace):
        values = trace.requests[column].to_numpy()
        p50, p99 = np.percentile(values, (50, 99))
        figure.add_scatter(x=np.percentile(values, LEVELS), y=LEVELS, mode="lines", line={"color": color, "width": 2},
                           name=f"{name}: p50 {p50:,.0f}, p99 {p99:,.0f}",
                           hovertemplate="p%{y:.4g}: %{x:,.0f} tokens<extra></extra>")
    figure.update_xaxes(**log_axis([value for trace in figure.data for value in trace.x]))
    figure.update_yaxes(range=[0, 101], ticksuffix=" %")
    return finish(figure, "Lengths of prompts and outputs", f"of {count_text(trace.num_requests, 'request')}",
                  hovermode="closest")
