"""Answers drawn: attainment over the rate with the capacity, the cost of fleets, and the room that targets leave."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from planner.catalog.gpu_label import gpu_label
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import TargetVerdict
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.report.figures.style import BLUE, GREEN, GREY, ORANGE, VERMILLION, figure_of_rows, finish, plot_text


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
