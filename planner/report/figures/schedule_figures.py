"""The schedule: a lane of steps for each GPU group, and requests as rows with waits, prompt chunks and decodes."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from planner.report.figures.phase_colors import PHASE_COLORS, SPAN_COLORS
from planner.report.figures.style import Theme, finish, plot_text
from planner.results.spans import spans

ROW_PX = 18
STEP_KINDS = {  # of steps, and their colours
    "step of prompts": PHASE_COLORS["prefill"], "step of decodes": PHASE_COLORS["decode"],
    "step of both": PHASE_COLORS["interference"],
}
MOST_LANES = 8  # replicas whose steps are drawn
MOST_STEPS = 5_000  # that are drawn


def schedule_timeline(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame, *,
                      theme: Theme = "light") -> Any:
    """Draw the steps of each replica, then the spans of requests, one row each, in order of arrival.

    Parameters
    ----------
    requests, steps, schedule : as of `spans`; steps of other requests are drawn too, in the time of these.
    theme : "light" or "dark".
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
                # not %{x}, which is where a bar with a base ends
                hovertemplate=f"%{{y}}: {kind}, %{{customdata[2]:,.2f}} ms from %{{base:.4f}} s, %{{customdata[0]:,}} "
                              f"tokens<extra></extra>")
    names = [*lanes, *(plot_text(name) for name in requests["request_id"])]
    figure.update_layout(barmode="overlay", bargap=0.25, height=190 + ROW_PX * max(6, len(names)))
    figure.update_xaxes(title_text="time since the first of these arrivals [s]")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    left_out = f"; the {within.height:,} steps are too many to draw" if within.height > MOST_STEPS else ""
    note = f"{requests.height:,} requests in order of arrival{left_out}" if figure.data else "no request ran"
    return finish(figure, "Schedule", note, theme, hovermode="closest")


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
