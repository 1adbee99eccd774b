"""An autoscaler's file: bounds, start-up, how fast a fleet grows and shrinks, and the metrics that say by how much."""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import read_toml
from planner.deployment.foresight import Forecast
from planner.deployment.kubernetes_rules import read_rules
from planner.deployment.named_files import path_of
from planner.deployment.recommendation import Direction, Rules
from planner.errors import AutoscaleError, CatalogError, UsageError, told_as
from planner.files.nested import parse_json
from planner.loop.compiled.fields_read import fields_read
from planner.policies.autoscaler import Autoscaler, FleetLoad
from planner.policies.by_name import load_autoscaler
from planner.settings.objectives import request_limits
from planner.settings.slo import Slo
from planner.traces.shaping.forecast import DAY_S
from planner.traces.shaping.rate_series import read_rate_series
from planner.traces.synthesis.fields import fill, not_negative, positive, whole

WINDOW_S = 60.0  # that a metric over time looks back, if its table does not say
UP = {"stabilization_window_s": 0.0, "max_step": 4, "max_step_percent": 100.0}  # Kubernetes' defaults
DOWN = {"stabilization_window_s": 300.0, "max_step": None, "max_step_percent": 100.0}
STEPS = ("max_step", "max_step_percent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """The time from the decision for a replica until it serves.

    Parameters
    ----------
    node_s : until there is a node; 0 if one waits [s].
    image_s : the engine's container [s].
    weights_s : loading the weights [s]; or
    weights_gb_per_s : of all GPUs of a replica together [GB/s].
    warmup_s : compilation, CUDA graphs, health checks [s].
    """

    node_s: float = 0.0
    image_s: float = 0.0
    weights_s: float | None = None
    weights_gb_per_s: float | None = None
    warmup_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("node_s", "image_s", "warmup_s"):
            not_negative(name, getattr(self, name))
        if self.weights_s is not None and self.weights_gb_per_s is not None:
            raise UsageError("weights_s and weights_gb_per_s exclude each other; give one of them")
        if self.weights_s is not None:
            not_negative("weights_s", self.weights_s)
        if self.weights_gb_per_s is not None:
            positive("weights_gb_per_s", self.weights_gb_per_s)

    def delay_s(self, weight_bytes: float | None) -> float:
        """Return how long it takes [s].

        Parameters
        ----------
        weight_bytes : of a replica; None if they are not known.

        Raises
        ------
        UsageError : the weights' time follows from their size, which is not known.
        """
        weights_s = self.weights_s or 0.0
        if self.weights_gb_per_s is not None:
            if weight_bytes is None:
                raise UsageError("weights_gb_per_s: --num-gpu-blocks turns off the memory model, so the size of the "
                                 "weights is unknown; give weights_s")
            weights_s = weight_bytes / (self.weights_gb_per_s * 1e9)
        return self.node_s + self.image_s + weights_s + self.warmup_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSchedule:
    """Replicas by time.

    Parameters
    ----------
    start_s : from when on each number holds, ascending, shape [num_parts] [s].
    num_replicas : shape [num_parts].
    period_s : after which it begins anew; inf for never [s].
    offset_s : its clock, less the replay's; from the first arrival on if it does not begin anew [s].
    """

    start_s: tuple[float, ...]
    num_replicas: tuple[int, ...]
    period_s: float
    offset_s: float

    def at(self, now_s: float, first_s: float) -> int:
        """Return the number at an instant of a replay whose first request arrives at `first_s`.

        >>> day = ReplicaSchedule(start_s=(21600.0, 72000.0), num_replicas=(8, 2), period_s=86400.0, offset_s=0.0)
        >>> [day.at(3600.0 * hour, 0.0) for hour in (0, 6, 19, 20, 31)]
        [2, 8, 8, 2, 8]
        """
        if self.period_s < math.inf:
            return self.num_replicas[bisect.bisect_right(self.start_s, (now_s + self.offset_s) % self.period_s) - 1]
        place = bisect.bisect_right(self.start_s, now_s - first_s + self.offset_s) - 1
        return self.num_replicas[max(place, 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """An autoscaler with its parameters.

    Parameters
    ----------
    target : of its metric; NaN without one.
    window_s : how far it looks back [s].
    slo, percentile : objectives, and which percentile of each is held against its limit, in (0, 100); None without.
    schedule : None without one.
    forecast : None without one.
    """

    autoscaler: Autoscaler
    target: float
    window_s: float
    slo: Slo | None
    percentile: float | None
    schedule: ReplicaSchedule | None
    forecast: Forecast | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscale:
    """How a fleet follows its load.

    Parameters
    ----------
    source : the file.
    rules : bounds, and how fast.
    initial : replicas that serve from the first arrival on [1].
    interval_s : from one evaluation to the next [s].
    startup : of a replica.
    metrics : of which the one that asks for the most counts.
    """

    source: str
    rules: Rules
    initial: int
    interval_s: float
    startup: Startup
    metrics: tuple[Metric, ...]


def read_autoscale(path: Path) -> Autoscale:
    """Read an autoscaler's file. Files that it names are looked for beside it.

    Raises
    ------
    AutoscaleError : the file cannot be read, or something in it is wrong.
    """
    with told_as(AutoscaleError, path):
        return parse_autoscale(read_rules(path), path)


def named_files(path: Path) -> list[Path]:
    """Return the files that an autoscaler's file names, schedules and autoscalers of one's own, if they exist."""
    try:
        table = read_toml(path)
    except CatalogError:
        return []
    metrics = table.get("metric")
    tables = [file for file in metrics if isinstance(file, Mapping)] if isinstance(metrics, list) else []
    names = [table.get("manifest"), *(file.get(key) for file in tables for key in ("name", "schedule", "history"))]
    paths = (path.parent / path_of(name) for name in names if isinstance(name, str))
    return [file for file in paths if file.is_file()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The keys of the file."""

    minimum: int
    maximum: int
    startup: Any
    metric: Any
    initial: int | None = None
    interval_s: float = 15.0
    tolerance: float = 0.1
    up: Any = None
    down: Any = None

    def __post_init__(self) -> None:
        whole("minimum", self.minimum, least=0, most=100_000)
        whole("maximum", self.maximum, least=max(self.minimum, 1), most=100_000)
        if self.initial is not None:
            whole("initial", self.initial, least=self.minimum, most=self.maximum)
        positive("interval_s", self.interval_s)
        not_negative("tolerance", self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetricKeys:
    """The keys of a metric's table."""

    name: str
    target: float | None = None
    window_s: float | None = None
    slo: str | None = None
    percentile: float | None = None
    schedule: Any = None
    starts_at: str | None = None
    lead_s: float | None = None
    history: str | None = None
    season_s: float | None = None


def parse_autoscale(table: Mapping[str, Any], path: Path) -> Autoscale:
    """Read the keys and values of such a file, whose path is `path`.

    Raises
    ------
    UsageError, UnknownNameError : a key or a value is wrong.
    PolicyError : an autoscaler's own file is broken.
    """
    keys = fill(_File, table, "the file")
    if not isinstance(keys.startup, Mapping) or not keys.startup:
        raise UsageError(f"startup = {keys.startup!r}: must be a table of node_s, image_s, weights_s or "
                         f"weights_gb_per_s, and warmup_s, as in startup = {{ warmup_s = 120 }}")
    if not isinstance(keys.metric, tuple) or not keys.metric:
        raise UsageError(f"metric = {keys.metric!r}: must be one or more tables, each under [[metric]]")
    rules = Rules(minimum=keys.minimum, maximum=keys.maximum, tolerance=float(keys.tolerance),
                  up=_direction("up", keys.up, UP, keys.interval_s),
                  down=_direction("down", keys.down, DOWN, keys.interval_s))
    return Autoscale(
        source=str(path), rules=rules, initial=keys.minimum if keys.initial is None else keys.initial,
        interval_s=float(keys.interval_s), startup=fill(Startup, keys.startup, "[startup]"),
        metrics=tuple(_metric(row, place, path) for place, row in enumerate(keys.metric, 1)))


def _direction(name: str, table: Any, defaults: Mapping[str, Any], interval_s: float) -> Direction:
    """Read [up] or [down]; one limit of a step that is given takes the place of both."""
    values = dict(table) if isinstance(table, Mapping) else table
    if isinstance(values, dict):
        known = {"cooldown_s": 0.0, "step_period_s": interval_s, **defaults}
        if any(key in values for key in STEPS):
            known |= dict.fromkeys(STEPS)
        values = known | values
    elif values is None:
        values = {"cooldown_s": 0.0, "step_period_s": interval_s, **defaults}
    direction = fill(Direction, values, f"[{name}]")
    not_negative(f"[{name}] stabilization_window_s", direction.stabilization_window_s)
    not_negative(f"[{name}] cooldown_s", direction.cooldown_s)
    positive(f"[{name}] step_period_s", direction.step_period_s)
    if direction.max_step is not None:
        whole(f"[{name}] max_step", direction.max_step)
    if direction.max_step_percent is not None:
        positive(f"[{name}] max_step_percent", direction.max_step_percent)
    return direction


def _metric(table: Any, place: int, path: Path) -> Metric:
    """Read a metric's table: exactly the keys that its autoscaler asks for."""
    where = f"[[metric]] {place}"
    keys = fill(_MetricKeys, table, where)
    if not isinstance(keys.name, str):
        raise UsageError(f"{where}: name = {keys.name!r}: must be text in quotes")
    beside = path.parent / path_of(keys.name)
    is_file = ".py:" in keys.name and beside.is_file()
    autoscaler = load_autoscaler(str(path.parent / keys.name) if is_file else keys.name)
    present = {field.name for field in dataclasses.fields(keys) if getattr(keys, field.name) is not None} - {"name"}
    missing, more = set(autoscaler.needs) - present, present - {*autoscaler.needs, *autoscaler.uses}
    if missing or more:
        wrong = f"lacks {', '.join(sorted(missing))}" if missing else f"has unknown keys {', '.join(sorted(more))}"
        takes = ", ".join([*autoscaler.needs, *autoscaler.uses])
        raise UsageError(f"{where}: {autoscaler.name} {wrong}; it takes {takes}")
    try:
        metric = _checked(keys, autoscaler, path.parent)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    _check_fields(where, metric)
    return metric


def fields_read_by(autoscaler: Autoscaler) -> frozenset[str]:
    """Return the fields of `FleetLoad` that an autoscaler may read, by its own code: all of them if that is unclear.
    """
    functions = (autoscaler.metric, *(() if autoscaler.desired is None else (autoscaler.desired,)))
    return frozenset().union(*(fields_read(function, FleetLoad._fields) for function in functions))


def _check_fields(where: str, metric: Metric) -> None:
    """Raise an error if an autoscaler reads a field that its table has no key for: it would be NaN for ever."""
    read = fields_read_by(metric.autoscaler)
    if read == frozenset(FleetLoad._fields):  # or it cannot be told
        return
    for field, key, value in (("attainment", "slo", metric.slo), ("slo_use", "slo", metric.slo),
                              ("slo_use", "percentile", metric.percentile), ("scheduled", "schedule", metric.schedule),
                              ("forecast_rate", "history", metric.forecast)):
        if field in read and value is None:
            raise UsageError(f"{where}: {metric.autoscaler.name} reads load.{field}, and the table lacks {key}; add it "
                             f"here, and to `needs` of the Autoscaler")


def _checked(keys: _MetricKeys, autoscaler: Autoscaler, folder: Path) -> Metric:
    """Check the values of a metric's table."""
    if keys.target is not None:
        positive("target", keys.target)
    if keys.window_s is not None:
        positive("window_s", keys.window_s)
    if keys.percentile is not None:
        positive("percentile", keys.percentile)
        if keys.percentile >= 100:
            raise UsageError(f"percentile = {keys.percentile!r}; must be below 100, as in 99")
    if keys.lead_s is not None:
        not_negative("lead_s", keys.lead_s)
    if autoscaler.name == "slo-attainment" and not keys.target < 1:  # type: ignore[operator]
        raise UsageError(f"target = {keys.target!r}; must be a share below 1, as in 0.99")
    percentile = keys.percentile
    if "slo" in autoscaler.needs and percentile is None and keys.target is not None and keys.target < 1:
        percentile = 100.0 * keys.target
    if keys.slo is not None and not isinstance(keys.slo, str):
        raise UsageError(f"slo = {keys.slo!r}: must be text in quotes, as in 'ttft:500 tpot:50'")
    return Metric(autoscaler=autoscaler, target=math.nan if keys.target is None else float(keys.target),
                  window_s=float(keys.window_s or WINDOW_S),
                  slo=None if keys.slo is None else request_limits(keys.slo, "slo"),
                  percentile=percentile, schedule=_schedule(keys, folder), forecast=_forecast(keys, folder))


def _forecast(keys: _MetricKeys, folder: Path) -> Forecast | None:
    """Return the rates of the past that a forecast rests on; without `starts_at` the replay has the history's clock."""
    if keys.history is None:
        return None
    if not isinstance(keys.history, str):
        raise UsageError(f"history = {keys.history!r}: must be the CSV file of past rates in quotes")
    if keys.season_s is not None:
        positive("season_s", keys.season_s)
    forecast = Forecast(history=read_rate_series(folder / keys.history), season_s=float(keys.season_s or DAY_S),
                        offset_s=_time_of_day(keys.starts_at or "00:00"), lead_s=float(keys.lead_s or 0.0))
    forecast.of_startup(0.0)  # so that a bad history is told of with its key
    return forecast


def _schedule(keys: _MetricKeys, folder: Path) -> ReplicaSchedule | None:
    """Return a schedule by time of day, or the one that `planner size --json` wrote."""
    if keys.schedule is None:
        return None
    lead_s = float(keys.lead_s or 0.0)
    if isinstance(keys.schedule, Mapping) and keys.schedule:
        parts = sorted((_time_of_day(key), key) for key in keys.schedule)
        for _, key in parts:
            whole(f"schedule {key!r}", keys.schedule[key], least=0, most=100_000)
        return ReplicaSchedule(start_s=tuple(start_s for start_s, _ in parts), period_s=DAY_S,
                               num_replicas=tuple(keys.schedule[key] for _, key in parts),
                               offset_s=_time_of_day(keys.starts_at or "00:00") + lead_s)
    if not isinstance(keys.schedule, str):
        raise UsageError(f"schedule = {keys.schedule!r}: must be a table of times of day, as in "
                         f"{{ \"07:30\" = 6, \"20:00\" = 2 }}, or the JSON that planner size wrote")
    if keys.starts_at is not None:
        raise UsageError(f"starts_at = {keys.starts_at!r}: is for times of day only; a schedule of planner size "
                         f"begins with the first arrival; leave it out")
    return _sized(folder / keys.schedule, lead_s)


def _sized(path: Path, lead_s: float) -> ReplicaSchedule:
    """Return the schedule in the JSON of `planner size`."""
    try:
        parts = parse_json(path.read_text(encoding="utf-8"))["schedule"]["parts"]
        starts, counts = [float(row["start_s"]) for row in parts], [row["num_replicas"] for row in parts]
    except OSError as error:
        raise UsageError(f"schedule {path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"schedule {path}: has no schedule; write one with planner size --json, and --period or "
                         f"--rate-series") from error
    for start_s, count in zip(starts, counts, strict=True):
        whole(f"{path}: num_replicas from {start_s:g} s on", count, least=0, most=100_000)
    if not starts or any(second <= first for first, second in itertools.pairwise(starts)):
        raise UsageError(f"schedule {path}: each part must start later than the part before it")
    return ReplicaSchedule(start_s=tuple(start_s - starts[0] for start_s in starts), num_replicas=tuple(counts),
                           period_s=math.inf, offset_s=lead_s)


def _time_of_day(text: Any) -> float:
    """Return the seconds since midnight of "07:30"."""
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) != 2 or not all(len(part) == 2 and part.isdecimal() for part in parts) or int(parts[0]) > 23 \
            or int(parts[1]) > 59:
        raise UsageError(f"{text!r}: must be a time of day from 00:00 to 23:59, as in \"07:30\"")
    return 3600.0 * int(parts[0]) + 60.0 * int(parts[1])
