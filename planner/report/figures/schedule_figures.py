"""The schedule: a lane of steps for each GPU group, and requests as rows with waits, prompt chunks and decodes."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from planner.files.counts import count_text
from planner.report.figures.bins import numbers
from planner.report.figures.clock_axis import show_clock
from planner.report.figures.phase_colors import PHASE_COLORS, SPAN_COLORS
from planner.report.figures.style import BLUE, GREY, VERMILLION, figure_of_rows, finish, plot_text
from planner.results.spans import spans

ROW_PX = 18
STRIP_PX, MOST_BINS = 90, 300  # of the strip of a whole trace
LEAST_SHADE = 0.005  # of the strip's width, so that a few requests are seen
STEP_KINDS = {  # of steps, and their colours
    "step of prompts": PHASE_COLORS["prefill"], "step of decodes": PHASE_COLORS["decode"],
    "step of both": PHASE_COLORS["interference"],
}
MOST_LANES = 8  # replicas whose steps are drawn
MOST_STEPS = 5_000  # that are drawn


def schedule_timeline(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame, *,
                      zero_at_s: float | None = None) -> Any:
    """Draw the steps of each replica, then the spans of requests, one row each, in order of arrival.

    Parameters
    ----------
    requests, steps, schedule : as of `spans`; steps of other requests are drawn too, in the time of these.
    zero_at_s : instant of the first of these arrivals, from 1970 [s]; None without dates.
    """
    found = spans(requests, steps, schedule)
    origin = 0.0 if requests.is_empty() else float(requests["arrival_s"][0])
    figure = go.Figure()
    within = _steps_within(requests, steps)
    lanes = _add_steps(figure, within, origin) if within.height <= MOST_STEPS else []
    for kind, color in SPAN_COLORS.items():
        rows = found.filter(kind=kind)
        if rows.height:
            figure.add_bar(
                y=[plot_text(name) for name in rows["request_id"]], x=(rows["end_s"] - rows["start_s"]).to_list(),
                base=(rows["start_s"] - origin).to_list(), orientation="h", name=kind,
                customdata=list(zip(rows["num_tokens"].to_list(), rows["request_id"].to_list(),
                                    (1e3 * (rows["end_s"] - rows["start_s"])).to_list(), strict=True)),
                marker={"color": color, "line": {"width": 0.5 if kind == "prompt chunk" else 0, "color": "white"}},
                unselected={"marker": {"opacity": 1}},  # a click on one keeps the others
                # not %{x}, which is the end of a bar with a base
                hovertemplate=f"%{{y}}: {kind}, %{{customdata[2]:,.2f}} ms from %{{base:.4f}} s, %{{customdata[0]:,}} "
                              f"tokens<extra></extra>")
    names = [*lanes, *(plot_text(name) for name in requests["request_id"])]
    figure.update_layout(barmode="overlay", bargap=0.25, height=190 + ROW_PX * max(6, len(names)))
    clock = "" if zero_at_s is None else f", at {datetime.fromtimestamp(zero_at_s, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    figure.update_xaxes(title_text=f"time since the first of these arrivals{clock} [s]")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    left_out = f"; the {within.height:,} steps are too many to draw" if within.height > MOST_STEPS else ""
    in_order = f"{count_text(requests.height, 'request')} in order of arrival{left_out}"
    note = in_order if figure.data else "no request ran"
    return finish(figure, "Schedule", note, hovermode="closest")


def whole_strip(requests: pl.DataFrame, shown: pl.DataFrame, *, zero_at_s: float | None = None) -> Any:
    """Draw the rate and the slowest first token of all requests over time, with the requests that are shown shaded.

    The custom data of a point are the requests that arrive before its bin, and before the bin's end.

    Parameters
    ----------
    requests : of the whole replay, in order of arrival.
    shown : the requests that are shown.
    zero_at_s : instant of the first arrival, from 1970 [s]; None without dates.
    """
    figure = figure_of_rows(["requests/s", "TTFT [s]"], "time since the first arrival [s]", row_px=STRIP_PX)
    sent_s = numbers(requests, "arrival_s") - float(requests["arrival_s"][0])
    width_s = float(sent_s[-1]) / (count := max(1, min(MOST_BINS, requests.height // 4))) or 1.0
    place = np.minimum(sent_s // width_s, count - 1).astype(np.int64)
    num = np.bincount(place, minlength=count)
    ttft_s = np.full(count, -math.inf)
    np.maximum.at(ttft_s, place, np.nan_to_num(numbers(requests, "ttft_s"), nan=-math.inf))
    before = np.cumsum(num) - num
    common = {"x0": 0.5 * width_s, "dx": width_s, "showlegend": False, "col": 1,
              "customdata": np.column_stack([before, before + num]).tolist()}
    figure.add_scatter(y=num / width_s, name="requests", row=1, mode="lines", line={"color": BLUE, "width": 1.5},
                       hovertemplate="%{y:,.3g} requests/s<extra></extra>", **common)
    figure.add_scatter(y=np.where(np.isinf(ttft_s), math.nan, ttft_s), name="slowest first token", row=2,
                       mode="lines+markers", line={"color": VERMILLION, "width": 1.5}, marker={"size": 3},
                       hovertemplate="slowest first token %{y:,.3g} s<extra></extra>", **common)
    figure.update_xaxes(range=[0, count * width_s])
    show_clock(figure, zero_at_s, 0.0, count * width_s)
    note = (f"{count_text(requests.height, 'request')} in {count} bins of {width_s:,.3g} s, and the slowest first "
            f"token of each; shaded: the requests below")
    figure = finish(figure, "Whole trace", note)
    if shown.height:
        begin_s, end_s = (float(shown["arrival_s"][k]) - float(requests["arrival_s"][0]) for k in (0, -1))
        figure.add_shape(type="rect", xref=figure.data[0].xaxis, yref="paper", x0=begin_s, y0=0, y1=1, opacity=0.5,
                         x1=max(end_s, begin_s + LEAST_SHADE * count * width_s), fillcolor=GREY, line_width=0)
    return figure


def _steps_within(requests: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps between the first arrival and the last end, with their replica and kind."""
    replica = pl.col("replica").cast(pl.Int64) if "replica" in steps.columns else pl.lit(0, pl.Int64)
    end_s = requests["finished_at_s"].max()
    within = (pl.col("start_s") >= pl.lit(requests["arrival_s"].min())) & (
        pl.lit(end_s, pl.Float64).is_null() | (pl.col("start_s") < pl.lit(end_s, pl.Float64)))
    has_prompts, has_decodes = pl.col("num_prompts") > 0, pl.col("num_decodes") > 0
    kind = (pl.when(has_prompts & has_decodes).then(pl.lit("step of both")).when(has_prompts)
            .then(pl.lit("step of prompts")).otherwise(pl.lit("step of decodes")))
    return steps.filter(within).with_columns(replica=replica, kind=kind)


def _add_steps(figure: Any, steps: pl.DataFrame, origin_s: float) -> Sequence[str]:
    """Draw a lane of steps for each of the first replicas; return the names of the lanes."""
    replicas = steps["replica"].unique().sort().to_list()[:MOST_LANES]
    lanes = {replica: "steps" if len(replicas) == 1 else f"steps of replica {replica}" for replica in replicas}
    for kind, color in STEP_KINDS.items():
        rows = steps.filter(pl.col("replica").is_in(replicas), kind=kind)
        if rows.height:
            figure.add_bar(
                y=[lanes[replica] for replica in rows["replica"]], x=rows["duration_s"].to_list(), orientation="h",
                base=(rows["start_s"] - origin_s).to_list(), name=kind, unselected={"marker": {"opacity": 1}},
                customdata=list(zip((1e3 * rows["duration_s"]).to_list(), rows["num_prompt_tokens"].to_list(),
                                    rows["num_decodes"].to_list(), strict=True)),
                marker={"color": color, "line": {"width": 0}}, showlegend=False,
                hovertemplate=f"{kind}, %{{customdata[0]:,.2f}} ms from %{{base:.4f}} s: %{{customdata[1]:,}} prompt "
                              f"tokens, %{{customdata[2]:,}} decodes<extra></extra>")
    return list(lanes.values())
