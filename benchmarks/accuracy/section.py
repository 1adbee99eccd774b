"""A section of the accuracy report: verdicts against targets, tables, figures and notes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.measured.run_table import METRICS
from planner.measured.validate import Prediction, errors
from planner.report.content import Listing
from planner.report.figures.style import LINE_COLORS, finish

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One headline figure and its target.

    Parameters
    ----------
    name : what is measured.
    value : of it; None where it could not be measured.
    limit : the target; met where value <= limit, or >= where `at_least`; None for no target.
    unit : "%" for fractions shown in per cent.
    peers : what others reach, as text.
    """

    name: str
    value: float | None
    limit: float | None
    unit: str = "%"
    at_least: bool = False
    peers: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.limit is None or self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report.

    Parameters
    ----------
    title, lead : heading; what was run, in a sentence or two.
    verdicts, tables, notes : in the order of reading.
    figures : by name.
    data : figures for machines, by name; written to reports/accuracy.json.
    """

    title: str
    lead: str
    verdicts: Sequence[Verdict] = ()
    tables: Sequence[Listing] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


def percent(value: float | None) -> str:
    """Return a fraction in per cent, or a dash."""
    return "–" if value is None or not np.isfinite(value) else f"{100 * value:.1f} %"


def median(column: pl.Series) -> float:
    """Return the median of a column that has rows."""
    return float(column.median())  # type: ignore[arg-type]


def ape(predicted: Any, measured: Any) -> Floats:
    """Return |predicted / measured − 1| where both are numbers and the measured one is positive."""
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    good = np.isfinite(predicted) & np.isfinite(measured) & (measured > 0)
    found: Floats = np.abs(predicted[good] / measured[good] - 1)
    return found


def error_row(predicted: Any, measured: Any) -> list[Any]:
    """Return n, median APE, MAPE and bias (geometric mean of predicted / measured, less 1), as text."""
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    good = np.isfinite(predicted) & np.isfinite(measured) & (measured > 0) & (predicted > 0)
    if not good.any():
        return [0, "–", "–", "–"]
    ratio = predicted[good] / measured[good]
    off = np.abs(ratio - 1)
    return [int(good.sum()), percent(float(np.median(off))), percent(float(off.mean())),
            percent(float(np.expm1(np.log(ratio).mean())))]


def error_verdicts(table: pl.DataFrame, name: str, statistic: str, limits: tuple[float | None, float | None],
                   peers: str = "") -> list[Verdict]:
    """Return the median and the mean of a statistic's absolute error against their limits; None for no limit."""
    errors = ape(table[f"predicted_{statistic}"], table[f"measured_{statistic}"])
    shown = (("median APE", float(np.median(errors)), limits[0]), ("MAPE", float(errors.mean()), limits[1]))
    return [Verdict(name=f"{name}: {what}", value=value, limit=limit, peers=peers) for what, value, limit in shown]


def statistic_rows(table: pl.DataFrame, keys: Sequence[str], statistics: Sequence[str]) -> list[list[Any]]:
    """Return `error_row` of each statistic for each group of a table, by the group's name."""
    groups = table.group_by(*keys, maintain_order=True)
    return [[*names, statistic, *error_row(part[f"predicted_{statistic}"], part[f"measured_{statistic}"])]
            for names, part in sorted(groups, key=lambda group: group[0]) for statistic in statistics]


def four_digits(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return rows with their fractional numbers as text of four digits."""
    return [[f"{value:.4g}" if isinstance(value, float) else value for value in row] for row in rows]


ERROR_COLUMNS = ("n", "median APE", "MAPE", "bias")


def outcomes(table: pl.DataFrame) -> list[list[Any]]:
    """Return how many rows came to each `status`, and what it is, the most first, equals by name."""
    counts = table.group_by("status").len().sort("len", "status", descending=[True, False])
    return [[count, status] for status, count in counts.iter_rows()]


def scatter(series: Mapping[str, tuple[Any, Any]], title: str, note: str, unit: str) -> Any:
    """Return predicted against measured on logarithmic axes, one colour a series, and the line of equality."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, (name, (measured, predicted)) in enumerate(series.items()):
        figure.add_scatter(x=_shown(measured), y=_shown(predicted), mode="markers", name=name,
                           marker={"size": 5, "opacity": 0.6, "color": LINE_COLORS[place % len(LINE_COLORS)]})
    values = np.concatenate([np.concatenate((np.asarray(m, float), np.asarray(p, float)))
                             for m, p in series.values()] or [np.ones(1)])
    values = values[np.isfinite(values) & (values > 0)]
    ends = [float(values.min()), float(values.max())] if len(values) else [1.0, 1.0]
    figure.add_scatter(x=ends, y=ends, mode="lines", name="equal", line={"width": 1, "color": "#8C8C8C"})
    figure.update_xaxes(type="log", title_text=f"measured [{unit}]")
    figure.update_yaxes(type="log", title_text=f"predicted [{unit}]")
    figure.update_layout(height=420)
    return finish(figure, title, note, hovermode="closest")


def _shown(values: Any) -> list[float]:
    """Return values with four digits: enough for a figure, and short."""
    return [float(f"{value:.4g}") for value in np.asarray(values, float)]


def prediction_errors(predictions: Sequence[Any]) -> list[Any]:
    """Return n, coverage, then median APE, MAPE and bias of TPOT and of TTFT, as text."""
    found = errors(predictions)
    cells = [found.n, percent(found.coverage)]
    for metric in ("tpot_ms", "ttft_ms"):
        part = found.by_metric.get(metric)  # of a group that has it at all
        cells += ["–"] * 3 if part is None else [percent(part.median_ape), percent(part.mape), percent(part.bias)]
    return cells


PREDICTION_COLUMNS = ("rows", "predicted", "TPOT median", "TPOT MAPE", "TPOT bias", "TTFT median", "TTFT MAPE",
                      "TTFT bias")


def grouped(title: str, column: str, predictions: Sequence[Prediction], key_of: Callable[[Prediction], str]) -> Listing:
    """Return the errors of each group of predictions, in the order of the groups' names."""
    rows = [[value, *prediction_errors([p for p in predictions if key_of(p) == value])]
            for value in sorted({key_of(p) for p in predictions})]
    return Listing(title=title, columns=(column, *PREDICTION_COLUMNS), rows=rows)


def run_by_run(title: str, predictions: Sequence[Prediction]) -> Listing:
    """Return what was measured and what was predicted of each run, TTFT and TPOT [ms]."""
    rows = [[p.measurement.id, *(beside(p, metric) for metric in METRICS)] for p in predictions]
    return Listing(title=title, columns=("row", "TTFT", "TPOT"), rows=rows)


def beside(prediction: Prediction, metric: str) -> str:
    """Return what was measured and what was predicted of a metric as text, a dash where one of them is missing."""
    if not _has(prediction, metric):
        return "–"
    return f"{prediction.measurement.measured[metric]:.4g} → {prediction.predicted[metric]:.4g}"


def measured_and_predicted(predictions: Sequence[Prediction], metric: str) -> tuple[list[float], list[float]]:
    """Return both of each run that has both, as `scatter` draws them."""
    kept = [p for p in predictions if _has(p, metric)]
    return [p.measurement.measured[metric] for p in kept], [p.predicted[metric] for p in kept]


def _has(prediction: Prediction, metric: str) -> bool:
    return metric in prediction.measurement.measured and metric in prediction.predicted
