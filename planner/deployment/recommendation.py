"""How many replicas a fleet is to have: its autoscalers' demands, within bounds, steadied, and in steps.

The rules follow Kubernetes' HorizontalPodAutoscaler (autoscaling/v2, `behavior`), with cool-downs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.errors import PolicyError
from planner.policies.autoscaler import Autoscaler, FleetLoad
from planner.policies.functions import where

ROUNDING = 1e-9  # of a number of replicas


class Timed(NamedTuple):
    """A number of replicas at an instant: one that was recommended, or a change of it."""

    at_s: float
    num_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """How fast a fleet may grow, or shrink.

    Parameters
    ----------
    stabilization_window_s : the least change that was recommended within it counts [s].
    cooldown_s : no change within this time of the last change: of growing the last growth, of shrinking either [s].
    max_step, max_step_percent : changes within `step_period_s` at most, in replicas and in per cent of those at its
        begin, the larger of the two; without both there is no limit.
    step_period_s : see there [s].
    """

    stabilization_window_s: float
    cooldown_s: float
    max_step: int | None
    max_step_percent: float | None
    step_period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The limits on every autoscaler's demand.

    Parameters
    ----------
    minimum, maximum : of replicas that serve, start or drain; draining ones are beyond the minimum [1].
    tolerance : of a metric against its target within which nothing changes [1].
    up, down : how fast the fleet grows and shrinks.
    """

    minimum: int
    maximum: int
    tolerance: float
    up: Direction
    down: Direction


class Recommendation(NamedTuple):
    """How many replicas a fleet is to have, and why."""

    num_replicas: int
    asked: int  # within the bounds, before it was steadied
    place: int  # of the autoscaler that asked for the most
    metric: float  # its metric
    wanted: int  # the number that it asked for
    limited_by: str  # the reason against that: minimum, maximum, stabilization, step, cooldown, draining; else ""


def recommend(wanted: Sequence[tuple[float, int | None]], count: int, num_draining: int, now_s: float,
              asked: Sequence[Timed], changes: Sequence[Timed], rules: Rules) -> Recommendation | None:
    """Return the number of replicas for a fleet in which `count` serve or start; None if no autoscaler asks for one.

    Parameters
    ----------
    wanted : of each autoscaler its metric and its demand, as `wanted_by`; the most counts.
    num_draining : replicas that drain, each of which holds a place of the maximum.
    asked : earlier recommendations, by the demand.
    changes : earlier changes of the number.
    """
    if count == 0:
        return _from_none(wanted, rules)
    known = [(number, -place) for place, (_, number) in enumerate(wanted) if number is not None]
    if not known:
        return None
    most, place = max(known)
    bounded = min(max(most, rules.minimum), rules.maximum)
    steady = stabilized(bounded, count, now_s, asked, rules.up, rules.down)
    stepped = within_step(steady, count, now_s, changes, rules.up, rules.down)
    settled = count if is_cooling(stepped, count, now_s, changes, rules.up, rules.down) else stepped
    placed = min(settled, max(rules.maximum - num_draining, count))
    reasons = (("draining", placed != settled), ("cooldown", settled != stepped), ("step", stepped != steady),
               ("stabilization", steady != bounded), ("minimum", bounded > most), ("maximum", bounded < most))
    limited_by = next((name for name, binds in reasons if binds), "")
    return Recommendation(placed, bounded, -place, wanted[-place][0], most, limited_by)


def _from_none(wanted: Sequence[tuple[float, int | None]], rules: Rules) -> Recommendation:
    """Return how many replicas a fleet of none is to have: it grows at once, as KEDA and Knative activate theirs.

    Only the autoscalers' demand counts. A mean over no replicas asks for one replica if a request waits; the rules
    of growth are shares of the present number.
    """
    most, place = max((number or 0, -place) for place, (_, number) in enumerate(wanted))
    bounded = min(max(most, rules.minimum), rules.maximum)
    limited_by = "minimum" if bounded > most else "maximum" if bounded < most else ""
    return Recommendation(bounded, bounded, -place, wanted[-place][0], most, limited_by)


def wanted_by(autoscaler: Autoscaler, load: FleetLoad, target: float, tolerance: float) -> tuple[float, int | None]:
    """Return an autoscaler's metric, and how many replicas it asks for; None if it asks for nothing.

    Without a rule of its own it asks for ⌈replicas · metric / target⌉, and for no change while the metric is within the
    tolerance of its target (kubernetes/pkg/controller/podautoscaler/replica_calculator.go).

    A fleet of none has no mean: only autoscalers with their own number are asked.

    >>> from planner.policies.builtin_autoscalers import AUTOSCALERS
    >>> load = FleetLoad(0.0, 2, 2, 30, 2, 0.0, 0.0, math.nan, math.nan, math.nan)
    >>> wanted_by(AUTOSCALERS["concurrency"], load, 10.0, 0.1)
    (16.0, 4)
    """
    if load.num_replicas == 0 and autoscaler.desired is None:
        return math.nan, None
    metric = _number("metric", autoscaler.metric, autoscaler.metric(load))
    if math.isnan(metric):
        return metric, None
    if autoscaler.desired is not None:
        desired = _number("desired", autoscaler.desired, autoscaler.desired(load, target))
        if math.isnan(desired):
            raise PolicyError(f"{where(autoscaler.desired)}: desired returned NaN; must return a number of replicas")
        return metric, math.ceil(desired - ROUNDING)
    if abs(metric / target - 1.0) <= tolerance:
        return metric, load.num_replicas
    return metric, math.ceil(load.num_replicas * metric / target - ROUNDING)


def _number(field: str, function: Callable[..., float], value: Any) -> float:
    """Return the value of a user's function, unless it is no number or infinite."""
    if not isinstance(value, int | float | np.number) or math.isinf(value):
        raise PolicyError(f"{where(function)}: {field} returned {value!r}; must return a finite number")
    return float(value)


def stabilized(wanted: int, count: int, now_s: float, asked: Sequence[Timed], up: Direction, down: Direction) -> int:
    """Return the recommendation nearest to `count` among the present one and past ones within the windows.

    A fleet grows to the least that was asked for all the time, and shrinks to the most
    (horizontal.go, `stabilizeRecommendationWithBehaviors`).

    Parameters
    ----------
    asked : earlier recommendations.
    """
    grown = min([wanted, *(past.num_replicas for past in asked if past.at_s > now_s - up.stabilization_window_s)])
    shrunk = max([wanted, *(past.num_replicas for past in asked if past.at_s > now_s - down.stabilization_window_s)])
    return min(max(count, grown), shrunk)


def within_step(wanted: int, count: int, now_s: float, changes: Sequence[Timed], up: Direction, down: Direction) -> int:
    """Return as much of a change as its direction allows within a period.

    Parameters
    ----------
    changes : earlier ones, positive if replicas were added.
    """
    way = up if wanted > count else down
    if wanted == count or (way.max_step is None and way.max_step_percent is None):
        return wanted
    recent = (past.num_replicas for past in changes if past.at_s > now_s - way.step_period_s)
    begin = count - sum(recent)
    percent = (way.max_step_percent or 0.0) / 100.0
    if wanted > count:
        most = max(begin + (way.max_step or 0), math.ceil(begin * (1.0 + percent)))
        return min(wanted, max(most, count))
    least = min(begin - (way.max_step or 0), math.floor(begin * (1.0 - percent)))
    return max(wanted, min(least, count))


def is_cooling(wanted: int, count: int, now_s: float, changes: Sequence[Timed], up: Direction, down: Direction) -> bool:
    """Tell whether a change has to wait: a growth for the growth before it, a shrinking for any change."""
    if wanted > count:
        return any(now_s - past.at_s < up.cooldown_s for past in changes if past.num_replicas > 0)
    return wanted < count and any(now_s - past.at_s < down.cooldown_s for past in changes)
