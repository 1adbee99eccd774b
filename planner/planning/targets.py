"""The targets file of the gate: named scenarios, and the targets of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import read_toml
from planner.errors import PlannerError, TargetsError, UnknownNameError, UsageError, told_as
from planner.planning.pareto import is_less_better
from planner.planning.study import Study, number_of, parse_study, text_of
from planner.settings.statistic import is_share, metric_key

TARGET_KEYS = ("metric", "min", "max", "max_regression")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The limits on one metric of a scenario.

    Parameters
    ----------
    metric : a key of the summary, a statistic's key such as `p99.9_ttft_ms`, or `capacity_rps`,
        `capacity_rps_per_gpu`, `capacity_concurrency`, `capacity_sessions`.
    minimum, maximum : limits in the metric's unit; None if there is none.
    max_regression : share of the baseline by which the metric may become worse; None for no limit [1].
    """

    metric: str
    minimum: float | None
    maximum: float | None
    max_regression: float | None

    def margins(self, value: float | None) -> list[tuple[str, float, float | None]]:
        """Return the kind of each limit, the limit, and how far inside it a value is, None without a value."""
        limits = (("min", self.minimum, 1), ("max", self.maximum, -1))
        return [(kind, limit, None if value is None else sign * (value - limit))
                for kind, limit, sign in limits if limit is not None]

    def shortfall(self, value: float | None) -> float:
        """Return the share of a limit by which a value misses it, 0 if none is missed; infinite without a value [1]."""
        return max((math.inf if margin is None else max(-margin, 0.0) / (abs(limit) or 1.0)
                    for _, limit, margin in self.margins(value)), default=0.0)

    @property
    def is_less_better(self) -> bool:
        """Which way is better: as the limit says, or else the metric's name.

        Raises
        ------
        UsageError : neither says.
        """
        if (self.minimum is None) != (self.maximum is None):
            return self.minimum is None
        found = is_less_better(self.metric)
        if found is None:
            raise UsageError(f"{self.metric}: max_regression needs a min or a max, which tells what is worse")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A study with its targets, of which there is at least one."""

    study: Study
    targets: tuple[Target, ...]


def read_targets(path: Path) -> list[Gated]:
    """Read a targets file. Files that it names are looked for beside it.

    Raises
    ------
    TargetsError : the file cannot be read, or something in it is wrong.
    """
    with told_as(TargetsError, path):
        table = read_toml(path)
    scenarios = table.get("scenario")
    if not isinstance(scenarios, dict) or not scenarios or not all(isinstance(each, dict) for each in
                                                                   scenarios.values()):
        raise TargetsError(f"{path}: has no [scenario.NAME] with a trace, and [[scenario.NAME.target]] with a metric")
    if unknown := set(table) - {"scenario"}:
        raise TargetsError(f"{path}: unknown key {min(unknown)!r}; all keys are in [scenario.NAME]")
    groups = []
    for name, values in scenarios.items():
        try:
            groups.append(_gated(name, values, path.parent))
        except PlannerError as error:
            raise TargetsError(f"{path}: scenario.{name}: {error}") from error
    return groups


def _gated(name: str, values: Mapping[str, Any], folder: Path) -> Gated:
    targets = values.get("target")
    if not isinstance(targets, list) or not targets:
        raise UsageError("has no [[scenario.NAME.target]]; give it at least one, with metric and min or max")
    found = tuple(parse_target(each) for each in targets)
    if len({each.metric for each in found}) < len(found):
        raise UsageError("a metric has two targets; give both limits in one")
    study = parse_study(name, {key: value for key, value in values.items() if key != "target"}, folder)
    return Gated(study=study, targets=found)


def parse_target(values: Any) -> Target:
    """Read one target: a metric with its limits.

    Raises
    ------
    UsageError, UnknownNameError : a key or a value is wrong, or there is no limit.
    """
    if not isinstance(values, dict):
        raise UsageError(f"target = {values!r}: must be a table with a metric and its limits")
    for key in values:
        if key not in TARGET_KEYS:
            raise UnknownNameError("key of a target", key, TARGET_KEYS)
    metric = text_of(values, "metric")
    if metric is None:
        raise UsageError("a target has no metric, as in metric = \"p99_ttft_ms\"")
    minimum, maximum, regression = (number_of(values, key) for key in TARGET_KEYS[1:])
    if minimum is None and maximum is None and regression is None:
        raise UsageError(f"{metric}: has neither min, max nor max_regression")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise UsageError(f"{metric}: min = {minimum:g} is above max = {maximum:g}")
    for key, limit in (("min", minimum), ("max", maximum)):
        if limit is not None and is_share(metric) and not 0 <= limit <= 1:
            raise UsageError(f"{metric}: {key} = {limit:g}: must be a share from 0 to 1; 99 % is 0.99")
    if regression is not None and regression < 0:
        raise UsageError(f"{metric}: max_regression = {regression:g}: must be 0 or more; 0.05 allows 5 %")
    target = Target(metric=metric_key(metric), minimum=minimum, maximum=maximum, max_regression=regression)
    if regression is not None:
        _ = target.is_less_better
    return target
