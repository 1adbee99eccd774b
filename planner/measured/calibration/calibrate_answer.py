"""The answer of `planner calibrate`: fitted constants, their intervals and errors, and the source of the fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.measured.validate_answer import ErrorSummary

UNIT = "of the constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """A constant that was fitted."""

    start: Annotated[float, Key(UNIT, "Value before the fit")]
    value: Annotated[float, Key(UNIT, "Fitted value")]
    low: Annotated[float, Key(UNIT, "Lower end of the 80 % interval")]
    high: Annotated[float, Key(UNIT, "Upper end of the 80 % interval")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Quantiles of log(predicted / measured) on runs left out of the fit."""

    probabilities: Annotated[tuple[float, ...], Key("1", "Probabilities of the quantiles")]
    log_errors: Annotated[Mapping[str, tuple[float, ...]], Key("1", "Quantiles of log(predicted / measured) by metric")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSource:
    """The measurements to which the constants were fitted."""

    engine: Annotated[str, Key("", "Engine")]
    measured: Annotated[str, Key("", "File of the measurements")]
    sha256: Annotated[str, Key("", "Its hash")]
    num_runs: Annotated[int | None, Key("1", "Runs that were fitted to", only="for runs")] = None
    num_blocks: Annotated[int | None, Key("1", "Blocks of time into which these runs were divided. Each is fitted to",
                                          only="for requests with measured times")] = None
    num_steps: Annotated[int | None, Key("1", "Steps that were fitted to", only="for a log of steps")] = None
    num_left_out: Annotated[int, Key("1", "Rows or steps that were left out")]
    gpu: Annotated[tuple[str, ...], Key("", "GPUs")]
    model: Annotated[tuple[str, ...], Key("", "Models")]
    layout: Annotated[tuple[str, ...], Key("", "Layouts")]
    planner: Annotated[str, Key("", "Version of the planner")]
    doubts: Annotated[tuple[str, ...] | None, Key("", "Metrics whose error before the fit is too large for a "
                                                  "deployment that was read right", only="if there are any")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateAnswer:
    """The JSON of `planner calibrate --json`."""

    engine: Annotated[str, Key("", "Engine")]
    fitted: Annotated[Mapping[str, FittedConstant], Key("", "Fitted constants by name")]
    left: Annotated[Mapping[str, str], Key("", "Why each other constant was not fitted")]
    constants: Annotated[Mapping[str, float], Key(UNIT, "All constants by name, fitted or not")]
    before: Annotated[Mapping[str, ErrorSummary | None], Key("", "Errors by metric before the fit")]
    after: Annotated[Mapping[str, ErrorSummary | None], Key("", "Errors by metric after the fit, in sample")]
    held_out: Annotated[Mapping[str, ErrorSummary | None], Key("", "Errors by metric on folds left out of the fit. "
                                                               "Null if the others are too few")]
    folds: Annotated[int, Key("1", "Folds")]
    residuals: Annotated[Quantiles, Key("", "Quantiles of the held-out errors")]
    left_out: Annotated[Mapping[str, int], Key("1", "Rows or steps that were not fitted to, by reason")]
    num_values: Annotated[int, Key("1", "Measured values that were fitted to: runs, blocks of time or steps, times the "
                                   "metrics of each")]
    source: Annotated[FitSource, Key("", "What the constants were fitted to")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
