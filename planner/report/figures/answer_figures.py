"""Answers drawn: capacities, limits over the load, fleets with cost and sensitivity, targets, and watched plans."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from planner.catalog.gpu_label import gpu_label
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import TargetVerdict
from planner.planning.other_targets import tried_loads
from planner.planning.sensitivity_answer import Changed, Sensitivity
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.planning.watch_answer import WatchAnswer
from planner.report.capacity_sentence import limit_words
from planner.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LINE_COLORS,
    ORANGE,
    VERMILLION,
    figure_of_rows,
    finish,
    plot_text,
)
from planner.settings.statistic import parse_statistic

MOST_USED = 2.5  # times a limit, of the axis
SHOWN = (0.4, 1.5)  # times the capacity, of the axis
SHARE = "requests outside their limits"
HOUR_S = 3600.0
ENDS = (("low", "lighter or cheaper", BLUE), ("high", "heavier or dearer", ORANGE))
WATCHED = (("measured", "measured", BLUE, "solid"), ("predicted", "predicted at this traffic", VERMILLION, "dash"),
           ("planned", "plan", GREY, "dot"), ("low", "lower limit", GREY, "dash"),
           ("high", "upper limit", GREY, "dash"))


def attainment_over_load(found: CapacityAnswer) -> Any:
    """Draw the share of requests within their objectives at each load that was tried, and the capacity.

    Parameters
    ----------
    found : as `capacity.capacity`.
    """
    probes, (capacity, axis, unit) = found.probes, load_axis(found)
    figure = figure_of_rows(["requests within objectives"], axis, row_px=300)
    figure.add_scatter(x=[probe.load for probe in probes], y=[100 * probe.attainment for probe in probes],
                       mode="lines", line={"color": GREY, "width": 1}, showlegend=False, hoverinfo="skip")
    for is_met, color, name in ((True, BLUE, "holds"), (False, VERMILLION, "missed")):
        chosen = [probe for probe in probes if probe.is_met == is_met]
        figure.add_scatter(x=[probe.load for probe in chosen], y=[100 * probe.attainment for probe in chosen],
                           mode="markers", name=name, text=[plot_text(probe.limiting_metric) for probe in chosen],
                           marker={"color": color, "size": 8, "symbol": "circle" if is_met else "x"},
                           hovertemplate=f"%{{x:,.4g}}{unit}: " + "%{y:.2f} %, limited by %{text}<extra></extra>")
    if found.attainment is not None:  # objectives of statistics alone ask for no share of requests
        figure.add_hline(y=100 * found.attainment, line={"color": GREY, "dash": "dot", "width": 1})
    figure.add_vline(x=capacity, line={"color": GREEN, "width": 2},
                     annotation_text=f"capacity {capacity:.4g}{unit}",
                     annotation_position="bottom right")
    if found.confidence is not None:
        figure.add_vrect(x0=found.confidence.p10, x1=found.confidence.p90, fillcolor=GREEN, opacity=0.12,
                         line_width=0)
    figure.update_yaxes(range=[0, 103], ticksuffix=" %")
    shade = "; shaded: 90 to 10 % confidence" if found.confidence is not None else ""
    name = axis.partition(" [")[0]
    return finish(figure, f"Attainment over the {name}", f"every {name} that was tried{shade}",
                  hovermode="closest")


def load_axis(found: CapacityAnswer) -> tuple[float, str, str]:
    """Return the capacity, the name of its axis and its unit."""
    if found.is_rate:
        return found.capacity, "request rate [1/s]", "/s"
    return found.capacity, found.unknown.name, f" {found.unknown.unit}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def fleet_costs(found: SizeAnswer) -> Any:
    """Draw the hourly cost of each kind of fleet, with its replicas; fleets that cannot serve are left out.

    Parameters
    ----------
    found : as `sizing.size`.
    """
    able = [fleet for fleet in found.alternatives if isinstance(fleet, Fleet)]
    kinds = [fleet.kind for fleet in able]
    others = [f" + {plot_text(gpu_label(kind.decode_gpu))} × {kind.decode_tensor_parallel_size}"
              if kind.decode_gpu else "" for kind in kinds]
    names = [f"{plot_text(gpu_label(kind.gpu))} × {kind.tensor_parallel_size}{other} {plot_text(kind.quantization)}"
             f"<br>{_count(fleet.num_replicas, 'replica')}, {_count(fleet.num_gpus, 'GPU')}"
             for fleet, kind, other in zip(able, kinds, others, strict=True)]
    figure = go.Figure()
    figure.add_bar(y=names, x=[fleet.cost_usd_per_hour for fleet in able], orientation="h",
                   marker_color=[BLUE if place == 0 else ORANGE for place in range(len(able))], showlegend=False,
                   hovertemplate="%{y}: %{x:,.2f} USD/h<extra></extra>")
    figure.update_layout(height=170 + 46 * max(2, len(able)))
    figure.update_xaxes(title_text="USD per hour", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return finish(figure, "Fleets that serve the traffic", "GPU × tensor-parallel size, weights; the cheapest first",
                  hovermode="closest")


def target_margins(checks: Sequence[TargetVerdict]) -> Any:
    """Draw how much room each target leaves, as a share of its limit; below zero it is missed.

    Parameters
    ----------
    checks : as of `gate.check`; those without a margin are left out.
    """
    judged = [(row, row.margin / (1.0 if row.kind == "max_regression" else abs(row.limit))) for row in checks
              if row.margin is not None and (row.limit or row.kind == "max_regression")]
    figure = go.Figure()
    names = [plot_text(f"{row.scenario}: {row.metric} {row.kind}") for row, _ in judged]
    room = [100 * share for _, share in judged]
    for passes, color, name in ((True, BLUE, "kept"), (False, VERMILLION, "missed")):
        places = [k for k, value in enumerate(room) if (value >= 0) == passes]
        if places:
            figure.add_bar(y=[names[k] for k in places], x=[room[k] for k in places], orientation="h", name=name,
                           marker_color=color, text=[f"{room[k]:+.1f} %" for k in places], cliponaxis=False,
                           hovertemplate="%{y}: %{x:+.2f} %<extra></extra>")
    figure.update_layout(height=170 + 34 * max(2, len(judged)), barmode="overlay")
    edge = 0.15 * max((abs(value) for value in room), default=1.0)  # room for the numbers beside the bars
    figure.update_xaxes(title_text="margin, share of the limit", ticksuffix=" %", zeroline=True, zerolinewidth=2,
                        range=[min([0.0, *room]) - edge, max([0.0, *room]) + edge])
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    note = "of a regression, the share that is still allowed" if judged else "no target has a margin"
    return finish(figure, "Margins of the targets", note, hovermode="closest")


def capacity_figure(found: CapacityAnswer) -> Any:
    """Draw a capacity: limits over the load if statistics are limited, else the share of requests within theirs."""
    return limits_over_load(found) if limited_statistics(found) else attainment_over_load(found)


def limited_statistics(found: CapacityAnswer) -> dict[str, float]:
    """Return the limits of statistics by name [ms]; none if no tried load has statistics."""
    limits_ms = {name: 1e3 * limit for name, limit in found.slo.limits_s.items() if parse_statistic(name) is not None}
    return limits_ms if tried_loads(found) else {}


def limits_over_load(found: CapacityAnswer) -> Any:
    """Draw each objective's value over its limit at each load that was tried; at 1 it stops being kept.

    Parameters
    ----------
    found : as `capacity.capacity`.
    """
    tried, (capacity, axis, unit) = tried_loads(found), load_axis(found)
    figure = figure_of_rows(["value ÷ limit"], axis, row_px=330)
    lines: dict[str, list[float | None]] = {
        f"{limit_words(name)} ÷ {limit:,.6g} ms": [_used((each.statistics_ms or {}).get(name), limit) for each in tried]
        for name, limit in limited_statistics(found).items()}
    if found.attainment is not None and found.attainment < 1:
        lines[f"{SHARE} ÷ {1 - found.attainment:.3g}"] = [(1 - each.attainment) / (1 - found.attainment)
                                                          for each in tried]
    for place, (name, used) in enumerate(lines.items()):
        figure.add_scatter(x=[each.load for each in tried], y=used, mode="lines+markers", name=name,
                           line={"color": LINE_COLORS[place % len(LINE_COLORS)], "width": 2},
                           hovertemplate=f"%{{x:,.4g}}{unit}: %{{y:,.3g}} × the limit<extra>{name}</extra>")
    figure.add_hline(y=1, line={"color": GREY, "dash": "dash", "width": 2}, annotation_text="limit",
                     annotation_position="bottom left")
    figure.add_vline(x=capacity, line={"color": GREY, "width": 2}, annotation_text=f"capacity {capacity:.4g}{unit}",
                     annotation_position="top left")
    figure.update_yaxes(range=[0, MOST_USED])
    if capacity:
        figure.update_xaxes(range=[factor * capacity for factor in SHOWN])
    return finish(figure, "Use of each limit", "loads that were tried, near the capacity; double-click for all",
                  hovermode="closest")


def _used(value: float | None, limit: float) -> float | None:
    return None if value is None else value / limit


def fleet_load(found: SizeAnswer) -> Any:
    """Draw the rate of a load over time with the fleet's capacity, and the replicas on a schedule and without.

    Parameters
    ----------
    found : as `sizing.size`, with a schedule.
    """
    figure = figure_of_rows(["requests/s", "replicas"], "time", row_px=230)
    fleet = found.cheapest
    if fleet is None or fleet.schedule is None:
        return finish(figure, "Load against the fleet", "no schedule was asked for")
    schedule, parts = fleet.schedule, fleet.schedule.parts
    end_s = parts[-1].start_s + parts[-1].duration_s
    unit, unit_s = ("h", HOUR_S) if end_s > 2 * HOUR_S else ("s", 1.0)
    times = [part.start_s / unit_s for part in parts] + [end_s / unit_s]
    _steps(figure, times, [part.rate_rps for part in parts], "load", BLUE, row=1)
    served_rps = [part.served_rps for part in parts if part.served_rps is not None]
    if served_rps:
        _steps(figure, times, served_rps, "capacity on the schedule", ORANGE, row=1, dash="dot")
    if fleet.headroom is not None:  # the rate that it was sized for, and its headroom
        sized_rps = (found.workload.rate_rps or 0.0) if schedule.peak_rps is None else schedule.peak_rps
        _steps(figure, times, [sized_rps * (1.0 + fleet.headroom)] * len(parts), "capacity of the whole fleet", GREEN,
               row=1, dash="dash")
    _steps(figure, times, [part.num_replicas for part in parts], "replicas on the schedule", ORANGE, row=2)
    _steps(figure, times, [fleet.num_replicas] * len(parts), "replicas of the whole fleet", GREY, row=2, dash="dash")
    figure.update_xaxes(title_text=f"time [{unit}]", row=2, col=1)
    mean = "; capacity is a mean rate with the load's own bursts" if schedule.peak_rps is None else ""
    note = f"{len(parts):,} parts; means of each{mean}"
    return finish(figure, "Load against the fleet", note)


def _steps(figure: Any, times: Sequence[float], values: Sequence[float], name: str, color: str, *, row: int,
           dash: str = "solid") -> None:
    figure.add_scatter(x=times, y=[*values, values[-1]], name=name, row=row, col=1, hovertemplate="%{y:,.4g}",
                       line={"color": color, "width": 2, "dash": dash, "shape": "hv"}, mode="lines")


def tornado(found: Sensitivity) -> Any:
    """Draw the chosen fleet's price after each change, the widest on top; crosses mark changes that flip the choice.

    Parameters
    ----------
    found : as `sensitivity.sensitivity`.
    """
    figure, base = go.Figure(), found.cost_usd_per_hour
    names = [plot_text(swing.assumption) for swing in found.swings]
    flips: list[tuple[str, float, str]] = []
    for end, label, color in ENDS:
        shown = [(name, getattr(swing, end)) for name, swing in zip(names, found.swings, strict=True)]
        ends: list[tuple[str, Changed]] = [(name, changed) for name, changed in shown if changed is not None]
        costs = [base if changed.cost_usd_per_hour is None else changed.cost_usd_per_hour for _, changed in ends]
        figure.add_bar(y=[name for name, _ in ends], x=[cost - base for cost in costs], base=base, orientation="h",
                       name=label, marker_color=color, customdata=[_about(changed) for _, changed in ends],
                       hovertemplate="%{y} %{customdata}<extra></extra>")
        flips += [(name, cost, _about(changed)) for (name, changed), cost in zip(ends, costs, strict=True)
                  if changed.is_flipped]
    if flips:
        figure.add_scatter(y=[name for name, _, _ in flips], x=[cost for _, cost, _ in flips], mode="markers",
                           name="another fleet is cheaper", text=[text for _, _, text in flips],
                           marker={"color": VERMILLION, "size": 11, "symbol": "x"},
                           hovertemplate="%{y} %{text}<extra></extra>")
    figure.add_vline(x=base, line={"color": GREY, "width": 1})
    figure.update_layout(height=170 + 40 * max(2, len(names)), barmode="overlay")
    figure.update_xaxes(title_text="USD per hour")
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    return finish(figure, "Sensitivity of the cheapest fleet", f"price of {plot_text(found.chosen)} if one assumption "
                  "changes", hovermode="closest")


def _about(changed: Changed) -> str:
    size = "no number of GPUs" if changed.num_gpus is None else f"{changed.num_gpus:,} GPUs"
    return plot_text(f"{changed.change}: {size}; cheapest {changed.cheapest}")


def watched_over_time(intervals: Sequence[WatchAnswer], name: str) -> Any:
    """Draw a quantity at the end of each interval, beside its predictions and limits.

    Parameters
    ----------
    intervals : with values, in order.
    name : of the quantity, as mean_tpot_ms.
    """
    points = [(interval.end, quantity) for interval in intervals for quantity in interval.quantities
              if quantity.name == name]
    unit = points[0][1].unit if points else "1"
    figure = figure_of_rows([name if unit == "1" else f"{name} [{unit}]"], "end of the interval, UTC")
    for field, words, color, dash in WATCHED:
        values = [getattr(quantity, field) for _, quantity in points]
        if any(value is not None for value in values):
            figure.add_scatter(x=[end for end, _ in points], y=values, mode="lines+markers", name=words,
                               marker={"size": 5}, line={"color": color, "width": 2, "dash": dash}, row=1, col=1)
    return finish(figure, f"{name} over time", f"{len(points):,} intervals")
