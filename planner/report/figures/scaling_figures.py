"""Replicas over time: how many an autoscaler had paid for and serving, the load, and the objectives missed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from planner.replays.scaling_record import counts_over_time
from planner.report.figures.bins import Span, TimeBins, Values, numbers, origin_s, time_bins, within
from planner.report.figures.clock_axis import show_clock, zero_of
from planner.report.figures.style import Results, as_list, figure_of_rows, finish, labels, line_style, plot_text
from planner.results.saved import SavedResult
from planner.settings.slo import Slo, meets

HOUR_S = 3600.0
NO_SCALING = "no fleet was autoscaled"


def is_autoscaled(result: SavedResult) -> bool:
    """Tell whether a result's replicas came and went."""
    scaling = result.summary.figures.scaling
    return scaling is not None and bool(scaling.autoscale["replicas"])


def replicas(results: Results, *, span: Span | None = None) -> Any:
    """Draw replicas, load, missed objectives and TTFT over time, autoscaled fleets beside fixed ones.

    Requests count in the bin in which they were sent. Without objectives there are no misses.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    span : the time that is drawn, since the first arrival [s]; None for all of it.
    """
    found = as_list(results)
    bins = time_bins(found, span)
    unit, unit_s = ("h", HOUR_S) if bins.end_s > 2 * HOUR_S else ("s", 1.0)
    rows = ["replicas", "requests/s", "SLO misses [%]", "TTFT, p95 [ms]"]
    figure = figure_of_rows(rows, f"time since the first arrival [{unit}]", row_px=180)
    if not any(map(is_autoscaled, found)) or bins.count == 0:
        return finish(figure, "Replicas over time", NO_SCALING)
    for place, (label, result) in enumerate(zip(labels(found), found, strict=True)):
        style, name = line_style(place), plot_text(label)
        common = {"legendgroup": name, "col": 1, "hovertemplate": "%{y:,.4g}"}
        for kind, times_s, counts in _counts(result, bins):
            is_paid = kind == "paid for"
            figure.add_scatter(x=times_s / unit_s, y=counts, name=f"{name}, {kind}" if len(found) > 1 else kind, row=1,
                               line={**style, "shape": "hv", "dash": style["dash"] if is_paid else "dot"}, mode="lines",
                               showlegend=is_paid or len(found) == 1, **common)
        for row, values in enumerate(_requests(within(result, span), bins, origin_s(result)), 2):
            if not np.isnan(values).all():
                figure.add_scatter(x=bins.middle_s / unit_s, y=values, name=name, row=row, line=style, mode="lines",
                                   showlegend=False, **common)
    figure.update_layout(meta={"unit_s": unit_s})
    if span is not None:
        figure.update_xaxes(range=[bins.start_s / unit_s, bins.end_s / unit_s])
    show_clock(figure, zero_of(found), bins.start_s, bins.end_s, unit_s=unit_s)
    note = f"paid for (line) and serving (dotted); requests by send time, in {bins}"
    return finish(figure, "Replicas over time", note)


def _counts(result: SavedResult, bins: TimeBins) -> list[tuple[str, Values, Values]]:
    """Return the numbers of replicas paid for and of replicas that serve, with the times at which they change."""
    scaling = result.summary.figures.scaling
    if scaling is None or not scaling.autoscale["replicas"]:
        count = result.summary.deployment.get("num_replicas") or 1
        return [("paid for", np.array([bins.start_s, bins.end_s]), np.array([count, count], np.float64))]
    times_s, paid, ready = (np.array(column, np.float64)
                            for column in zip(*counts_over_time(scaling.spans), strict=True))
    return [("paid for", times_s - origin_s(result), paid), ("serving", times_s - origin_s(result), ready)]


def _requests(result: SavedResult, bins: TimeBins, origin: float) -> Sequence[Values]:
    """Return of each bin the rate of requests, the share that missed [%], and the 95th percentile of TTFT [ms]."""
    requests = result.requests
    sent_s = numbers(requests, "arrival_s") - origin - bins.start_s
    place = np.clip(np.nan_to_num(sent_s) // bins.width_s, 0, bins.count - 1).astype(np.int64)
    count = np.bincount(place, minlength=bins.count)
    missed = np.full(bins.count, math.nan)
    limits = result.summary.slo
    if limits:
        slo = Slo(**{f"{name}_s": limit for name, limit in limits.items()})
        good = meets(slo, *(numbers(requests, f"{name}_s") for name in ("ttft", "tpot", "e2e")))
        lost = np.bincount(place, (~good).astype(np.float64), minlength=bins.count)
        missed = 100.0 * lost / np.where(count > 0, count, math.nan)
    by_bin = pl.DataFrame({"place": place, "ttft_s": requests["ttft_s"]}).group_by("place").agg(
        pl.col("ttft_s").quantile(0.95, "linear"))
    ttft_ms = np.full(bins.count, math.nan)
    ttft_ms[by_bin["place"].to_numpy()] = 1e3 * numbers(by_bin, "ttft_s")
    return count / bins.width_s, missed, ttft_ms
