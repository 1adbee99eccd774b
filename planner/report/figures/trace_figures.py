"""A trace's description drawn: burstiness by window, the rate over the day, and hits by the size of a cache."""

from collections.abc import Mapping
from typing import Any

from planner.files.counts import share_text
from planner.report.figures.clock_axis import first_at_s, show_clock
from planner.report.figures.rate_figures import arrivals, lengths
from planner.report.figures.style import BLUE, GREY, ORANGE, figure_of_rows, finish, log_axis
from planner.traces import Trace
from planner.traces.shaping.description_answer import Description
from planner.traces.shaping.earliest_sends import at_earliest_sends


def workload_figures(trace: Trace, description: Description) -> dict[str, Any]:
    """Return every figure of a trace by name; the hit rate only if sharing is known.

    Parameters
    ----------
    description : of the trace, from `description.describe`.
    """
    found = {"arrivals": arrivals(at_earliest_sends(trace)[0]), "lengths": lengths(trace),
             "burstiness": burstiness(description.burstiness),
             "shape": shape(description.shape, zero_at_s=first_at_s(trace))}
    if description.sharing is not None:
        found["hit_rate"] = hit_rate(description.sharing)
    return found


def burstiness(found: Mapping[str, Any]) -> Any:
    """Draw the variance over the mean of the arrivals, and the peak over the mean, by window."""
    figure = figure_of_rows(["times"], "window [s]", row_px=280)
    for name, label, color in (("dispersion", "variance over mean", BLUE),
                               ("peak_over_mean", "peak over mean", ORANGE)):
        windows = [float(window.removesuffix("s")) for window in found[name]]
        figure.add_scatter(x=windows, y=list(found[name].values()), mode="lines+markers", name=label,
                           line={"color": color, "width": 2}, hovertemplate="%{y:.4g}<extra></extra>")
    figure.add_hline(y=1, line={"color": GREY, "dash": "dot"})
    figure.update_xaxes(**log_axis([value for trace in figure.data for value in trace.x]))
    figure.update_yaxes(**log_axis([1.0, *(value for trace in figure.data for value in trace.y)]))
    cv = "none" if found["gap_cv"] is None else f"{found['gap_cv']:.3g}"
    note = f"a Poisson process has a variance over mean of 1; variation of gaps {cv}"
    return finish(figure, "Burstiness by window", note, hovermode="closest")


def shape(found: Mapping[str, Any], *, zero_at_s: float | None = None) -> Any:
    """Draw the rate by hour of the trace's day, or over a record shorter than a day.

    Parameters
    ----------
    zero_at_s : instant of the first arrival, from 1970, if the log has dates [s].
    """
    is_day = found["period"] == "day"
    unit = 3600.0 if is_day else 1.0
    figure = figure_of_rows(["requests/s"], "hours since the first arrival" if is_day else "time [s]", row_px=280)
    if found["start_s"]:
        figure.add_bar(x=[start / unit for start in found["start_s"]], y=found["requests_per_s"],
                       marker={"color": BLUE}, offset=0, name="requests",
                       hovertemplate="%{y:.4g} requests/s<extra></extra>")
        starts = [float(start) for start in found["start_s"]]
        show_clock(figure, zero_at_s, starts[0], 2 * starts[-1] - starts[-2] if len(starts) > 1 else starts[0],
                   unit_s=unit, has_dates=not is_day)
    peak = found["peak_over_mean"]
    note = "all requests arrive at once" if peak is None else f"peak {peak:.3g} times the mean"
    return finish(figure, "Rate by hour of the day" if is_day else "Rate over the record", note,
                  hovermode="closest")


def hit_rate(found: Mapping[str, Any]) -> Any:
    """Draw the share of prompt tokens that a cache serves, over its size."""
    figure = figure_of_rows(["prompt tokens"], "cache [tokens]", row_px=280)
    figure.add_scatter(x=[row["cache_tokens"] for row in found["curve"]],
                       y=[100 * row["hit_rate"] for row in found["curve"]], mode="lines+markers", name="hit rate",
                       line={"color": BLUE, "width": 2}, hovertemplate="%{x:,.0f} tokens: %{y:.2f} %<extra></extra>")
    figure.add_hline(y=100 * found["infinite_hit_rate"], line={"color": GREY, "dash": "dot"})
    figure.update_xaxes(**log_axis([row["cache_tokens"] for row in found["curve"]]))
    figure.update_yaxes(ticksuffix=" %")
    note = (f"an unlimited cache serves {share_text(found['infinite_hit_rate'])}; LRU eviction, requests run one after "
            f"the other")
    return finish(figure, "Prefix hits by cache size", note, hovermode="closest")
