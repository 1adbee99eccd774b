"""The schedule as one sees it: requests as rows, their waits, prompt chunks and decodes as spans of time."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from planner.figures.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILLION, Theme, finish, plot_text

KINDS = {"waiting": GREY, "prompt chunk": ORANGE, "decode": BLUE, "decode beside prompts": SKY, "recompute": VERMILLION,
         "left out": GREEN}
ROW_PX = 18


def spans(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame) -> pl.DataFrame:
    """Return what each request did when, in order: one row a span.

    Each prompt chunk is a span of its own, and so is a run of decode steps, without prompts or with. A request
    waits until it is first scheduled, and is left out while it runs or was preempted and has no token in the steps.

    Parameters
    ----------
    requests, steps, schedule : as the tables of `ReplayResult`; spans are of the requests given.

    Returns
    -------
    polars.DataFrame
        `request_id, kind, start_s, end_s, num_tokens`.
    """
    given = schedule if "replica" in schedule.columns else schedule.with_columns(replica=pl.lit(0, pl.Int32))
    known = requests.select("request_id", "first_token_at_s")
    rows = given.join(known, on="request_id").join(
        steps.select("step", pl.col("replica").cast(pl.Int32), "start_s", "duration_s", "num_prompts"),
        on=["step", "replica"]).sort("request_id", "start_s")
    kind = (pl.when(pl.col("first_token_at_s").is_null() | (pl.col("start_s") < pl.col("first_token_at_s")))
            .then(pl.lit("prompt chunk")).when(pl.col("num_scheduled_tokens") > 1).then(pl.lit("recompute"))
            .when(pl.col("num_prompts") > 0).then(pl.lit("decode beside prompts")).otherwise(pl.lit("decode")))
    rows = rows.with_columns(kind=kind, end_s=pl.col("start_s") + pl.col("duration_s"))
    breaks = (~pl.col("kind").str.starts_with("decode") | (pl.col("kind") != pl.col("kind").shift().over("request_id"))
              | (pl.col("start_s") > pl.col("end_s").shift().over("request_id") + 1e-9)).fill_null(value=True)
    worked = rows.with_columns(place=breaks.cum_sum()).group_by("request_id", "place", maintain_order=True).agg(
        pl.col("kind").first(), pl.col("start_s").first(), pl.col("end_s").last(),
        num_tokens=pl.col("num_scheduled_tokens").sum()).drop("place")
    waits = requests.filter(pl.col("first_scheduled_at_s").is_not_null()).select(
        "request_id", kind=pl.lit("waiting"), start_s="arrival_s", end_s="first_scheduled_at_s",
        num_tokens=pl.lit(0, pl.Int64))
    gaps = worked.with_columns(before=pl.col("end_s").shift().over("request_id")).filter(
        pl.col("start_s") > pl.col("before") + 1e-9).select(
        "request_id", kind=pl.lit("left out"), start_s="before", end_s="start_s", num_tokens=pl.lit(0, pl.Int64))
    found = pl.concat([each.with_columns(pl.col("num_tokens").cast(pl.Int64)) for each in (waits, worked, gaps)])
    return found.filter(pl.col("end_s") > pl.col("start_s")).sort("request_id", "start_s")


def schedule_timeline(requests: pl.DataFrame, steps: pl.DataFrame, schedule: pl.DataFrame, *,
                      theme: Theme = "light") -> Any:
    """Draw the spans of requests, one row each, in order of arrival.

    Parameters
    ----------
    requests, steps, schedule : as of `spans`.
    theme : "light" or "dark".
    """
    found = spans(requests, steps, schedule)
    origin = 0.0 if requests.is_empty() else float(requests["arrival_s"][0])
    figure = go.Figure()
    for kind, color in KINDS.items():
        rows = found.filter(kind=kind)
        if rows.height:
            figure.add_bar(
                y=[plot_text(name) for name in rows["request_id"]], x=(rows["end_s"] - rows["start_s"]).to_list(),
                base=(rows["start_s"] - origin).to_list(), orientation="h", name=kind, customdata=rows["num_tokens"],
                marker={"color": color, "line": {"width": 0.5 if kind == "prompt chunk" else 0, "color": "white"}},
                hovertemplate=f"%{{y}}: {kind}, %{{x:.4f}} s from %{{base:.4f}} s, %{{customdata:,}} "
                              f"tokens<extra></extra>")
    figure.update_layout(barmode="overlay", bargap=0.25, height=190 + ROW_PX * max(6, requests.height))
    figure.update_xaxes(title_text="time since the first of them came [s]")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array",
                        categoryarray=[plot_text(name) for name in requests["request_id"]])
    note = f"{requests.height:,} requests in order of arrival" if figure.data else "no request ran"
    return finish(figure, "Schedule", note, theme, hovermode="closest")
