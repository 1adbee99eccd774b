"""A sweep's file: the fixed options, the axes that vary, and the metrics of its Pareto front."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from planner.catalog.catalog_files import read_toml
from planner.deployment.named_files import beside, trace_beside
from planner.errors import SweepError, UnknownNameError, UsageError, told_as
from planner.files.nested import parse_toml
from planner.planning.pareto import is_less_better
from planner.planning.study import number_of, text_of
from planner.planning.targets import Target, parse_target
from planner.settings.crossing import check_axes, crossed
from planner.settings.objectives import Objectives, given_objectives
from planner.settings.option_text import is_none, option_values
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, given_options, parse_scenario
from planner.settings.statistic import Statistic, metric_key
from planner.traces.results import generates

KEYS = ("trace", "format", "slo", "attainment", "pareto", "constraint", "scenario", "axes")
DEFAULT_FRONT = ("cost_usd_per_million_output_tokens", "p99_ttft_ms", "p99_tpot_ms")
POOLED_FRONT = ("cost_usd_per_million_input_tokens", "p99_e2el_ms")  # of pooling models, in its place
MOST_METRICS = 4
OBJECTIVE = "objective_"  # before the summary's name of a statistic, in columns of a sweep's table


def objective_column(statistic: Statistic) -> str:
    """Return the name of a statistic objective's value in a sweep's table.

    Unlike the summary's statistic of that name, it counts requests without an answer, and is empty if they make it
    infinite.
    """
    return f"{OBJECTIVE}{statistic.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration of a grid: its values by axis, as a scenario, and notes on fixed values that do not hold."""

    values: Mapping[str, Any]
    scenario: Scenario
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The contents of a sweep's file.

    Parameters
    ----------
    trace, format : as `planner replay` takes them.
    objectives : of each request, with the share of requests that a configuration on the front must serve within them,
        and of statistics, which it must keep; None if none are given.
    front : two to four metrics of the summary; the best in the first is looked for if not all are replayed.
    constraints : further limits that a configuration on the front must keep.
    fixed : options that do not vary.
    axes : values by option.
    """

    trace: str
    format: str | None
    objectives: Objectives | None
    front: tuple[str, ...]
    fixed: Mapping[str, Any]
    constraints: tuple[Target, ...] = ()
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def limits(self) -> tuple[Target, ...]:
        """All that a configuration on the front must keep: constraints, statistic objectives and the attainment."""
        objectives = self.objectives or Objectives()
        found = [*self.constraints,
                 *(Target(metric=objective_column(statistic), minimum=None, maximum=1e3 * limit_s, max_regression=None)
                   for statistic, limit_s in objectives.statistics.items())]
        if objectives.attainment is not None:
            found.append(Target(metric="slo_attainment", minimum=objectives.attainment, maximum=None,
                                max_regression=None))
        return tuple(found)

    def points(self) -> "Points":
        """Return the grid, its last axis fastest.

        Raises
        ------
        UsageError : a value is not of its option's type.
        """
        check_axes(self.axes)
        points, first = Points(self.fixed, self.axes), {axis: values[0] for axis, values in self.axes.items()}
        for axis, values in self.axes.items():
            for value in values:
                points.made({**first, axis: value})
        return points


class Points(Sequence[Point]):
    """The configurations of a grid, its last axis fastest. A configuration is made when it is asked for."""

    def __init__(self, fixed: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> None:
        self._fixed, self._axes = fixed, axes

    def __len__(self) -> int:
        return math.prod(len(values) for values in self._axes.values())

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> list[Point]: ...

    def __getitem__(self, place: int | slice) -> Point | list[Point]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return self.made(self.values(place))

    def made(self, chosen: dict[str, Any]) -> Point:
        """Return the configuration of values by axis; fixed values belong to the fixed engine."""
        owner = self._fixed.get("engine", OPTION_DEFAULTS["engine"])
        fixed = {name: value for name, value in self._fixed.items() if name not in chosen}
        taken, notes = crossed(fixed, dict.fromkeys(fixed, owner), chosen.get("engine", owner))
        return Point(values=chosen, scenario=parse_scenario({**taken, **chosen}), notes=tuple(notes))

    def values(self, place: int) -> dict[str, Any]:
        """Return a configuration's values by axis.

        Raises
        ------
        IndexError : the grid has no such place.
        """
        if not -len(self) <= place < len(self):
            raise IndexError(f"{place}: the grid has {len(self)} configurations")
        rest, chosen = place % len(self), {}
        for axis, values in reversed(list(self._axes.items())):
            rest, own = divmod(rest, len(values))
            chosen[axis] = values[own]
        return {axis: chosen[axis] for axis in self._axes}


def plan_sweep(trace: str, scenario: Scenario, axes: Mapping[str, Sequence[Any]], *, slo: str | None = None,
               attainment: float | None = None, front: Sequence[str] = DEFAULT_FRONT,
               constraints: Sequence[Mapping[str, Any]] = (), format: str | None = None) -> Sweep:
    """Plan a sweep without a file.

    Parameters
    ----------
    trace, format : as `planner replay` takes them.
    scenario : options that do not vary.
    axes, slo, attainment, front, constraints : as a sweep's file has them.

    Raises
    ------
    UsageError, UnknownNameError : something in it is wrong.
    """
    asked = {"trace": trace, "format": format, "slo": slo, "attainment": attainment, "pareto": list(front),
             "scenario": {name: value for name, value in given_options(scenario).items()
                          if name not in axes or name == "engine"},  # whose the fixed values are
             "constraint": [dict(each) for each in constraints], "axes": {name: list(axes[name]) for name in axes}}
    return parse_sweep({key: value for key, value in asked.items() if value is not None}, Path())


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read `"max_num_seqs=64,128"`: an option with its values.

    >>> parse_axis("async-scheduling=true,false")
    ('async_scheduling', [True, False])

    Raises
    ------
    UsageError, UnknownNameError : it has no name, no values, or one that is not of the option's type.
    """
    name, _, values = text.partition("=")
    if not name.strip() or not values.strip():
        raise UsageError(f"--axis {text!r}: must be an option with values, as in 'max_num_seqs=64,128'")
    option = name.strip().replace("-", "_")
    return option, option_values(option, values, f"--axis {text}")


def parse_constraint(text: str) -> dict[str, Any]:
    """Read `"p99_ttft_ms<=500"`: a metric with its limit.

    >>> parse_constraint("output_throughput >= 1000")
    {'metric': 'output_throughput', 'min': 1000}

    Raises
    ------
    UsageError : it has neither sign.
    """
    for sign, key in (("<=", "max"), (">=", "min")):
        if sign in text:
            metric, _, limit = text.partition(sign)
            return {"metric": metric.strip(), key: _value(limit.strip())}
    raise UsageError(f"--constraint {text!r}: must be a metric with a limit, as in 'p99_ttft_ms<=500'")


def _value(text: str) -> Any:
    """Return a value as TOML would have it: a number, a truth value, or else the text."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def read_sweep(path: Path) -> Sweep:
    """Read a sweep's file. Files that it names are looked for beside it.

    Raises
    ------
    SweepError : the file cannot be read, or something in it is wrong.
    """
    with told_as(SweepError, path):
        return parse_sweep(read_toml(path), path.parent)


def parse_sweep(table: Mapping[str, Any], folder: Path) -> Sweep:
    """Read a sweep from the keys and values of a table; files that it names are looked for in `folder`.

    Raises
    ------
    UsageError, UnknownNameError : something in it is wrong.
    """
    for key in table:
        if key not in KEYS:
            raise UnknownNameError("key", key, KEYS)
    trace, format, slo = (text_of(table, key) for key in ("trace", "format", "slo"))
    if trace is None:
        raise UsageError("has no trace = \"…\"; give a path, or a bundled sample")
    scenario, axes = _table(table, "scenario"), _table(table, "axes")
    front = _front(table.get("pareto", list(DEFAULT_FRONT)))
    return Sweep(
        trace=trace_beside(folder, trace), format=format,
        objectives=given_objectives(slo, number_of(table, "attainment")),
        front=POOLED_FRONT if front == DEFAULT_FRONT and _pools(scenario, axes) else front,
        constraints=_constraints(table.get("constraint", [])),
        fixed={key: beside(folder, key, value) for key, value in scenario.items()},
        axes={key: _axis(folder, key, values) for key, values in axes.items()})


def _pools(scenario: Mapping[str, Any], axes: Mapping[str, Any]) -> bool:
    """Tell whether all models of a sweep are pooling models."""
    models, asked = (axes.get(name, [scenario.get(name)]) for name in ("model", "pooling"))
    return isinstance(models, list) and isinstance(asked, list) and not any(
        generates(Scenario(model=model, pooling=pooling)) for model in models for pooling in asked)


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise UsageError(f"{key} = {found!r}: must be a table, [{key}]")
    return found


def _axis(folder: Path, name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise UsageError(f"axes: {name} = {values!r}: must be a list of values")
    if any(value in values[:place] for place, value in enumerate(values)):
        raise UsageError(f"axes: {name} = {values!r}: has a value twice")
    return [None if is_none(name, value) else beside(folder, name, value) for value in values]


def _constraints(values: Any) -> tuple[Target, ...]:
    if not isinstance(values, list):
        raise UsageError(f"constraint = {values!r}: must be tables, [[constraint]]")
    found = tuple(parse_target(each) for each in values)
    if any(each.max_regression is not None for each in found):
        raise UsageError("a constraint has no max_regression; give it min or max")
    return found


def _front(metrics: Any) -> tuple[str, ...]:
    if not isinstance(metrics, list) or not 2 <= len(metrics) <= MOST_METRICS or len(set(metrics)) < len(metrics):
        raise UsageError(f"pareto = {metrics!r}: must be two to four metrics, each once")
    keys = tuple(metric_key(metric) if isinstance(metric, str) else "" for metric in metrics)
    for metric, key in zip(metrics, keys, strict=True):
        if is_less_better(key) is None:
            raise UsageError(f"pareto: {metric!r}: must be a metric where less or more is better, as p99_ttft_ms")
    return keys
