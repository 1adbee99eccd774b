"""The schedule as one sees it: requests as rows, their waits, prompt chunks and decodes as spans of time."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from planner.report.figures.phase_colors import SPAN_COLORS
from planner.report.figures.style import Theme, finish, plot_text
from planner.results.spans import spans

ROW_PX = 18


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
    for kind, color in SPAN_COLORS.items():
        rows = found.filter(kind=kind)
        if rows.height:
            figure.add_bar(
                y=[plot_text(name) for name in rows["request_id"]], x=(rows["end_s"] - rows["start_s"]).to_list(),
                base=(rows["start_s"] - origin).to_list(), orientation="h", name=kind,
                customdata=list(zip(rows["num_tokens"].to_list(), rows["request_id"].to_list(),
                                    (1e3 * (rows["end_s"] - rows["start_s"])).to_list(), strict=True)),
                marker={"color": color, "line": {"width": 0.5 if kind == "prompt chunk" else 0, "color": "white"}},
                # not %{x}, which is where a bar with a base ends
                hovertemplate=f"%{{y}}: {kind}, %{{customdata[2]:,.2f}} ms from %{{base:.4f}} s, %{{customdata[0]:,}} "
                              f"tokens<extra></extra>")
    figure.update_layout(barmode="overlay", bargap=0.25, height=190 + ROW_PX * max(6, requests.height))
    figure.update_xaxes(title_text="time since the first of these arrivals [s]")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array",
                        categoryarray=[plot_text(name) for name in requests["request_id"]])
    note = f"{requests.height:,} requests in order of arrival" if figure.data else "no request ran"
    return finish(figure, "Schedule", note, theme, hovermode="closest")
