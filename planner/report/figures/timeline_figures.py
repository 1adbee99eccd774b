"""Figures of the engine over time: throughput, queues, KV cache, and the content and time of steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from planner.report.figures.bins import BinnedSteps, Span, TimeBins, Values, bin_steps, num_replicas, time_bins
from planner.report.figures.clock_axis import show_clock, zero_of
from planner.report.figures.phase_colors import TERM_COLORS
from planner.report.figures.style import (
    GREY,
    Results,
    as_list,
    figure_of_rows,
    finish,
    labels,
    line_style,
    plot_text,
)
from planner.results.saved import SavedResult

TIME_AXIS = "time since the first arrival [s]"
NO_STEPS = "no steps were recorded"


class Series(NamedTuple):
    """A result's values in one row of a figure: a mean, and a peak if it matters, one number a bin."""

    mean: Values
    peak: Values | None


def throughput(results: Results, *, span: Span | None = None) -> Any:
    """Draw output tokens and computed prompt tokens per second over time.

    Cached prompt tokens are not computed and not in it; recomputed ones are. All replicas count together.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    rows = ["output tokens/s", "prompt tokens/s"]
    return _timeline(results, rows, lambda steps, _: [Series(steps.rate("num_sampled"), None),
                                                      Series(steps.rate("num_prompt_tokens"), None)],
                     "Throughput over time", "computed tokens, without cached tokens; means of", span)


def queue(results: Results, *, span: Span | None = None) -> Any:
    """Draw how many requests run and how many wait over time, per replica: mean and peak of each bin.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    columns = ("num_running", "num_waiting")
    return _timeline(results, ["running requests", "waiting requests"],
                     lambda steps, _: [Series(steps.mean(column), steps.peak(column)) for column in columns],
                     "Running and waiting requests over time", "mean (line) and peak (dotted) of", span)


def kv_use(results: Results, *, span: Span | None = None) -> Any:
    """Draw the KV cache in use over time, in tokens' worth of blocks, per replica, with its capacity.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    def series(steps: BinnedSteps, result: SavedResult) -> list[Series]:
        return [Series(steps.mean("num_used_blocks"), steps.peak("num_used_blocks"))]

    in_tokens = [_in_tokens(result) for result in as_list(results)]
    figure = _timeline(in_tokens, ["KV cache in use [tokens]"], series, "KV cache in use over time",
                       "mean (line) and peak (dotted) of", span, row_px=300)
    capacities = {capacity for result in as_list(results) for capacity in _capacities(result)}
    for capacity in sorted(capacities - {0}) if figure.data else ():
        figure.add_hline(y=capacity, line={"color": GREY, "dash": "dash"}, annotation_text=f"capacity {capacity:,}",
                         annotation_position="bottom right")
    if figure.data and capacities:
        figure.update_yaxes(range=[0, 1.05 * max(capacities)])
    return figure


def step_composition(results: Results, *, span: Span | None = None) -> Any:
    """Draw the prompt tokens and the decodes of a step, and how long it takes: mean over the steps of a bin, and peak.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    def series(steps: BinnedSteps, _: SavedResult) -> list[Series]:
        scales = {"num_prompt_tokens": 1.0, "num_decodes": 1.0, "duration_s": 1e3}
        return [Series(scale * steps.mean_of_steps(column), scale * steps.peak(column, idle=np.nan))
                for column, scale in scales.items()]

    return _timeline(results, ["prompt tokens", "decodes", "step time [ms]"], series,
                     "Tokens and duration of steps", "mean of steps (line) and largest step (dotted) of", span,
                     row_px=180)


def step_terms(results: Results, *, span: Span | None = None) -> Any:
    """Draw the shares of the GPUs' time, by term of the step time: stacked, with idle time missing to 100 %.

    Parameters
    ----------
    results : one saved result, or several to draw below each other.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    found = as_list(results)
    bins = time_bins(found, span)
    titles = ["share of time"] if len(found) == 1 else [plot_text(label) for label in labels(found)]
    figure = figure_of_rows(titles, TIME_AXIS, row_px=300 if len(found) == 1 else 200)
    for row, result in enumerate(found, 1):
        if bins.count > 0 and result.steps.height > 0:
            _add_terms(figure, row, result, bins)
    figure.update_xaxes(range=[bins.start_s, bins.end_s])
    show_clock(figure, zero_of(found), bins.start_s, bins.end_s)
    figure.update_yaxes(ticksuffix=" %")
    note = f"step time by term; the rest to 100 % is idle; means of {bins}" if bins.count else NO_STEPS
    return finish(figure, "Time by step term", note)


def _timeline(results: Results, rows: Sequence[str], series: Any, title: str, note: str,
              span: Span | None, row_px: int = 210) -> Any:
    """Draw a row of axes per quantity, and in each a line per result."""
    found = as_list(results)
    bins = time_bins(found, span)
    if any(num_replicas(result) > 1 for result in found) and "mean (line)" in note:
        note = f"per replica: {note}"
    figure = figure_of_rows(rows, TIME_AXIS, row_px=row_px)
    figure.update_xaxes(range=[bins.start_s, bins.end_s])
    show_clock(figure, zero_of(found), bins.start_s, bins.end_s)
    for place, (label, result) in enumerate(zip(labels(found), found, strict=True)):
        if bins.count == 0 or result.steps.height == 0:
            continue
        for row, drawn in enumerate(series(bin_steps(result, bins), result), 1):
            _add_series(figure, row, drawn, bins, place, plot_text(label), len(found) > 1)
            figure.update_traces(hovertemplate=f"%{{y:,.4g}} {rows[row - 1]}", row=row, col=1)
    return finish(figure, title, f"{note} {bins}" if bins.count else NO_STEPS)


def _add_series(figure: Any, row: int, drawn: Series, bins: TimeBins, place: int, label: str, is_named: bool) -> None:
    style = line_style(place)
    prefix = f"{label}, " if is_named else ""
    common = {"x0": bins.start_s + 0.5 * bins.width_s, "dx": bins.width_s, "mode": "lines", "legendgroup": label,
              "row": row, "col": 1}
    if drawn.peak is not None:
        figure.add_scatter(y=drawn.peak, name=f"{prefix}peak", showlegend=False, opacity=0.8,
                           line={**style, "dash": "dot", "width": 1}, **common)
    figure.add_scatter(y=drawn.mean, name=label if is_named else "mean", showlegend=is_named and row == 1, line=style,
                       **common)


def _add_terms(figure: Any, row: int, result: SavedResult, bins: TimeBins) -> None:
    steps = bin_steps(result, bins)
    stages = result.summary.deployment.get("pipeline_parallel_size") or 1
    named = {trace.name for trace in figure.data}
    for term, color in TERM_COLORS.items():
        share = 100 * steps.rate(term) / (stages * steps.paid_replicas)
        name = term.removesuffix("_s").replace("_", " ")
        if np.nansum(share) > 0:
            figure.add_scatter(y=share, x0=bins.start_s + 0.5 * bins.width_s, dx=bins.width_s, mode="lines", name=name,
                               row=row, col=1, legendgroup=name, showlegend=name not in named, stackgroup=f"row {row}",
                               line={"width": 0, "color": color}, fillcolor=color, hovertemplate="%{y:.1f} %")


def _in_tokens(result: SavedResult) -> SavedResult:
    """Return a result whose steps count used blocks in tokens, by the block size of the deployment or of each pool."""
    if "num_used_blocks" not in result.steps.columns:
        return result
    pools = result.summary.pools or ()
    size = pl.col("pool").replace_strict({pool["name"]: pool["block_size"] for pool in pools},
                                         return_dtype=pl.Int64) if pools else pl.lit(_block_size(result))
    return replace(result, steps=result.steps.with_columns(pl.col("num_used_blocks") * size))


def _capacities(result: SavedResult) -> list[int]:
    """Return the KV capacities of a replica of each kind [tokens]."""
    pools = result.summary.pools
    if pools:
        return [pool["num_gpu_blocks"] * pool["block_size"] for pool in pools]
    return [(result.summary.figures.engine.num_gpu_blocks or 0) * _block_size(result)]


def _block_size(result: SavedResult) -> int:
    return int(result.summary.deployment.get("block_size") or 1)
