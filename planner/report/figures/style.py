"""How every figure looks: colours, themes, the names of results, and empty figures."""

import functools
import html
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from planner.results.saved import SavedResult

Theme = Literal["light", "dark"]
Results = SavedResult | Sequence[SavedResult]

# Okabe and Ito's palette for colour-blind readers, its black replaced by a grey that shows on light and dark.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW, GREY, OLIVE, INDIGO = "#E69F00", "#56B4E9", "#F0E442", "#8C8C8C", "#999933", "#6A51A3"
WINE, TEAL, BROWN, SALMON, SAND, ROSE = "#882255", "#44AA99", "#5C3B1E", "#F2786B", "#C9B36B", "#EE99AA"
LINE_COLORS = (BLUE, VERMILLION, GREEN, PURPLE)  # of results; no phase has one of them
ON_DARK = {BLUE: "#4DA6E8", VERMILLION: "#FF8A3D", GREEN: "#2BC79A", INDIGO: "#A58BEA", WINE: "#D46A9C",
           BROWN: "#B98B5E", OLIVE: "#BDBD4A"}  # in place of colours that are dim on a dark page
DASHES = ("solid", "dash", "dashdot", "longdash")  # a second cue once the colours are used up

PAPER = {"light": ("#ffffff", "#1f2328", "#d8dee4"), "dark": ("#0d1117", "#e6edf3", "#30363d")}  # paper, ink, grid
MOST_LABEL_CHARS = 40
WIDE_DECADES = 4  # of a logarithmic axis, from which only powers of ten have a number


@functools.cache
def template(theme: Theme) -> Any:
    """Return the Plotly template of a theme; its background is transparent, so that the page's shows through."""
    _, ink, grid = PAPER[theme]
    axis = {"gridcolor": grid, "linecolor": grid, "zerolinecolor": grid, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(LINE_COLORS),
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": PAPER[theme][0], "font": {"color": ink}},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": ink},
            "margin": {"l": 10, "r": 15, "t": 85, "b": 10},
        }
    )


def as_list(results: Results) -> list[SavedResult]:
    """Return one result, or several, as a list."""
    return [results] if isinstance(results, SavedResult) else list(results)


def clean(text: object) -> str:
    """Return text without line breaks, control, direction-changing or unpaired characters, which become U+FFFD."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def labels(results: Sequence[SavedResult]) -> list[str]:
    """Return the results' names, short and each only once, not yet escaped."""
    names: list[str] = []
    for result in results:
        name = clean(result.name) or "result"
        short = name if len(name) <= MOST_LABEL_CHARS else name[: MOST_LABEL_CHARS - 1] + "…"
        label, copies = short, 1
        while label in names:
            copies += 1
            label = f"{short} ({copies})"
        names.append(label)
    return names


def plot_text(text: str) -> str:
    """Return text that Plotly shows as it is: it reads a few HTML tags and entities in names and titles."""
    return html.escape(text, quote=False)


def wrapped(text: str, most_chars: int) -> str:
    """Return text for Plotly in lines of at most `most_chars` characters, broken after blanks and underscores.

    >>> wrapped("cost_usd_per_million_output_tokens", 14)
    'cost_usd_per_<br>million_<br>output_tokens'
    """
    lines = [""]
    for word in re.findall(r"[^\s_]*[\s_]*", text):
        if lines[-1] and len(lines[-1] + word.rstrip()) > most_chars:
            lines.append("")
        lines[-1] += word
    return "<br>".join(plot_text(line.strip()) for line in lines)


def line_style(place: int) -> dict[str, Any]:
    """Return the colour and dash of the result at a place."""
    rounds, color = divmod(place, len(LINE_COLORS))
    return {"color": LINE_COLORS[color], "dash": DASHES[rounds % len(DASHES)], "width": 2}


def figure_of_rows(titles: Sequence[str], x_title: str, *, row_px: int = 210) -> Any:
    """Return a figure of rows that share the x axis, each with the title of its y axis."""
    figure = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.07 / max(1, len(titles) - 1))
    for row, title in enumerate(titles, 1):
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text=x_title, row=len(titles), col=1)
    figure.update_layout(height=max(330, row_px * len(titles) + 120))
    return figure


def log_axis(values: Sequence[float | None]) -> dict[str, Any]:
    """Return a logarithmic axis with numbers at 1, 2 and 5 times powers of ten, or at powers alone over a wide range.

    >>> log_axis([30.0, 1500.0])["ticktext"]
    ['20', '50', '100', '200', '500', '1,000', '2,000']

    Parameters
    ----------
    values : that the axis has; none of zero or less is drawn.
    """
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if not known:
        return {"type": "log"}
    low, high = math.floor(math.log10(min(known))), math.floor(math.log10(max(known)))
    steps = (1, 2, 5) if high - low < WIDE_DECADES else (1,)
    ticks = [step * 10.0 ** power for power in range(low, high + 2) for step in steps]
    first = max((place for place, tick in enumerate(ticks) if tick <= min(known)), default=0)
    last = next((place for place, tick in enumerate(ticks) if tick >= max(known)), len(ticks) - 1)
    shown = ticks[first:last + 1]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:,.10g}" for tick in shown]}


def finish(figure: Any, title: str, note: str, *, hovermode: str = "x unified") -> Any:
    """Return the figure with its title, its note, and the legend below, for a light page; see `themed`."""
    named = sum(getattr(trace, "showlegend", False) is not False for trace in figure.data)
    height = figure.layout.height + 12 * max(0, named - 2)
    figure.update_layout(
        template=template("light"),
        height=height,
        hovermode=hovermode,
        title={"text": title, "subtitle": {"text": note}, "x": 0, "xanchor": "left", "xref": "container",
               "pad": {"l": 10}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container",
                "traceorder": "normal"},
    )
    if hovermode == "x unified":
        _share_cursor(figure)
    if not figure.data:
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False)
        figure.update_layout(height=180)
        figure.add_annotation(text=note, x=0.5, y=0.5, xref="paper", yref="paper",
                              showarrow=False)
    return figure


def themed(figure: Any, theme: Theme) -> Any:
    """Return a finished figure in the colours of a page's theme."""
    return figure if theme == "light" else go.Figure(_on_dark(figure.update_layout(template=template(theme)).to_dict()))


def _share_cursor(figure: Any) -> None:
    """Put the rows of a figure on one x axis, so that the cursor is at the same place in all of them."""
    axes = list(figure.select_xaxes())
    if len(axes) > 1:
        last = f"x{len(axes)}"
        figure.update_traces(xaxis=last)
        figure.update_yaxes(anchor=last)
        figure.update_layout(hoversubplots="axis", **{axis.plotly_name: None for axis in axes[:-1]})
        figure.update_xaxes(matches=None)


def _on_dark(part: Any) -> Any:
    """Return a part of a figure with colours that stand out on a dark page."""
    if isinstance(part, dict):
        return {key: _on_dark(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_on_dark(value) for value in part]
    return ON_DARK.get(part, part) if isinstance(part, str) else part
