"""The answer of `planner check`: a verdict on each limit of each target, and the metrics of each scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """The verdict on one limit of a target."""

    scenario: Annotated[str, Key("", "Scenario")]
    metric: Annotated[str, Key("", "Metric, a key of the summary or of a capacity")]
    predicted: Annotated[float | None, Key("of the metric", "Value. Null if there is none")]
    baseline: Annotated[float | None, Key("of the metric", "Value in the baseline. Null if there is none")]
    margin: Annotated[float | None, Key("of the metric", "Distance inside the limit, below 0 if it is missed; of a "
                                        "regression the share that is still allowed [1]. Null if there is none")]
    reason: Annotated[str | None, Key("", "Why there is no value, or no comparison")]
    kind: Annotated[str, Key("", "Kind of limit: min, max or max_regression")]
    limit: Annotated[float, Key("of the metric", "Limit; of a regression the allowed share [1]")]
    verdict: Annotated[str, Key("", "met, missed, regressed, not compared, no baseline or recorded")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioMetrics:
    """The metrics of a scenario's targets."""

    trace_sha256: Annotated[str, Key("", "Hash of the trace's file")]
    metrics: Annotated[Mapping[str, float | None], Key("of the metric", "Values by metric. Null if there is none")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckAnswer(Answer):
    """The output of `planner check --json`."""

    targets: Annotated[str, Key("", "Targets file")]
    met: Annotated[bool, Key("", "Whether no limit is missed and no baseline lacks a metric")]
    checks: Annotated[tuple[TargetVerdict, ...], Key("", "A verdict for each limit of each target")]
    scenarios: Annotated[Mapping[str, ScenarioMetrics], Key("", "Metrics by scenario")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
