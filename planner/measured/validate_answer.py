"""The answer of `planner validate`: errors of predictions, overall and by group, and limits on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """How far predictions of one metric are off."""

    n: Annotated[int, Key("1", "Predictions with a measurement above 0")]
    mape: Annotated[float, Key("1", "Mean of the APE, |predicted − measured| / measured")]
    median_ape: Annotated[float, Key("1", "Median of the APE")]
    bias: Annotated[float, Key("1", "Geometric mean of predicted / measured, less 1")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far predictions are off."""

    n: Annotated[int, Key("1", "Measured rows")]
    coverage: Annotated[float, Key("1", "Share of the rows with a prediction")]
    by_metric: Annotated[Mapping[str, ErrorSummary | None], Spread("Error of each measured metric by its name. Null if "
                                                                   "no row has one")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupErrors:
    """How far predictions of a group are off."""

    group: Annotated[str, Key("", "What the rows have in common: gpu, engine, model …")]
    value: Annotated[str, Key("", "Its value")]
    errors: Annotated[Errors, Spread()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measured row beside its prediction."""

    id: Annotated[str, Key("", "Row")]
    measured: Annotated[Mapping[str, float], Key("of the metric", "Measured values by metric")]
    predicted: Annotated[Mapping[str, float], Key("of the metric", "Predicted values by metric")]
    intervals: Annotated[Mapping[str, tuple[float, float]], Key("of the metric", "Interval of each prediction by "
                                                                "metric. Empty without --interval")]
    outside: Annotated[tuple[str, ...], Key("", "Metrics whose measured value is outside its interval")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpredictedRow:
    """A row without a prediction."""

    id: Annotated[str, Key("", "Row")]
    status: Annotated[str, Key("", "Why there is no prediction")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRow:
    """A run in which one wave of requests waited."""

    id: Annotated[str, Key("", "Row")]
    stall_s: Annotated[float, Key("s", "Length of the stall")]
    num_waiting: Annotated[int, Key("1", "Requests that waited")]
    num_requests: Annotated[int, Key("1", "Requests of the run")]
    mean_ttft_ms: Annotated[float, Key("ms", "Measured mean TTFT")]
    steady_ttft_ms: Annotated[float | None, Key("ms", "The mean without the stall. Null if the mean shows another "
                                                "number of waiting requests than were in flight")]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCoverage:
    """How often the intervals of predictions hold the measurements."""

    level: Annotated[float, Key("1", "Share of measurements that an interval should hold (--interval)")]
    without: Annotated[tuple[str, ...], Key("", "Engines without held-out errors")]
    coverage: Annotated[Mapping[str, float], Key("1", "Share of measurements inside their intervals, by metric")]
    n: Annotated[Mapping[str, int], Key("1", "Measurements with an interval, by metric")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLimit:
    """A limit on a metric's MAPE."""

    limit: Annotated[float, Key("1", "Largest allowed MAPE (--max-error)")]
    mape: Annotated[float | None, Key("1", "MAPE. Null if there is none")]
    met: Annotated[bool, Key("", "Whether the MAPE is within the limit")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateAnswer:
    """The JSON of `planner validate --json`."""

    coverage: Annotated[float, Key("1", "Share of the rows with a prediction")]
    overall: Annotated[Errors, Key("", "Errors of all rows")]
    groups: Annotated[tuple[GroupErrors, ...], Key("", "Errors by group")]
    rows: Annotated[tuple[MeasuredRow, ...] | None, Key("", "Rows one by one. Null if there are more than 8")]
    unpredicted: Annotated[tuple[UnpredictedRow, ...], Key("", "Rows without a prediction")]
    stalls: Annotated[tuple[StalledRow, ...], Key("", "Runs in which one wave of requests waited. If there are any, "
                                                  "the metric steady_ttft_ms is the mean TTFT without stalls")]
    interval: Annotated[IntervalCoverage | None, Key("", "Coverage of intervals. Null without --interval")]
    max_error: Annotated[Mapping[str, ErrorLimit], Key("", "Limits by metric")]
    met: Annotated[bool, Key("", "Whether all limits are met, and each row has a prediction if there are limits. With "
                              "--interval and at most 8 rows: and no measured value is outside its interval")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
