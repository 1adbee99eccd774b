"""The job of measurements: predictions of an uploaded file, as rows with signed errors, and their figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from planner.files.table_file import columns_of
from planner.measured.accuracy import predict_file
from planner.measured.runs import is_table
from planner.measured.validate import errors, metrics_of, predictions_table
from planner.measured.validate_answer import ErrorSummary
from planner.planning.study import without_load
from planner.report.figures.accuracy_figures import measured_percentiles, predicted_over_measured
from planner.settings.scenario import Scenario
from planner.ui.named_deployment import check_deployment, check_errors
from planner.ui.uploads import as_file

PERCENTILES = "percentiles"  # name of the figure of a single run


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements beside their predictions, as a page shows them.

    Parameters
    ----------
    overall : errors by metric, over all runs.
    table : a row for each run and metric, with `measured`, `predicted` and `error`, signed [1].
    figures : by metric; of a single run its percentiles alone.
    """

    notes: tuple[str, ...]
    num_runs: int
    overall: Mapping[str, ErrorSummary | None]
    table: pl.DataFrame
    figures: dict[str, Any]


def measured(name: str, content: bytes, scenario: Scenario) -> Measured:
    """Predict the runs that were measured.

    Raises
    ------
    UsageError : the file's deployment is not the scenario's.
    PlannerError : the file cannot be read, or a prediction cannot be made.
    """
    with as_file(name, content) as path:
        is_own = is_table(columns_of(path))
        if not is_own:
            check_deployment(path, scenario)
        predicted = predict_file(path, deployment_of(scenario, is_table=is_own), client=None, jobs=-1)
        if not is_own:
            check_errors(path, predicted.predictions)
        notes = tuple(note.replace(str(path), name) for note in predicted.notes)
    runs, metrics = predictions_table(predicted.predictions), metrics_of(predicted.predictions)
    figures = {metric: predicted_over_measured(runs, metric) for metric in metrics}
    if runs.height == 1:
        figures = {PERCENTILES: measured_percentiles(runs.row(0, named=True), metrics)}
    return Measured(notes=notes, num_runs=runs.height, overall=errors(predicted.predictions).by_metric,
                    table=_signed(runs, metrics), figures=figures)


def deployment_of(scenario: Scenario, *, is_table: bool) -> Scenario:
    """Return the scenario for a file of measurements: a table names its own deployments."""
    return Scenario(calibration=scenario.calibration) if is_table else without_load(scenario)


def _signed(runs: pl.DataFrame, metrics: list[str]) -> pl.DataFrame:
    """Return a row for each run and metric that has a measurement, with the signed error."""
    groups = [column for column in runs.columns if column.partition("_")[0] not in ("measured", "predicted")]
    parts = [runs.select(*groups, metric=pl.lit(metric), measured=pl.col(f"measured_{metric}").cast(pl.Float64),
                         predicted=pl.col(f"predicted_{metric}").cast(pl.Float64)) for metric in metrics]
    rows = pl.concat(parts).filter(pl.col("measured").is_not_null())
    return rows.with_columns(error=pl.col("predicted") / pl.col("measured") - 1).select(
        "metric", "measured", "predicted", "error", *groups)
