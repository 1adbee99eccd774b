"""Objectives that nothing keeps: which are missed, by how much, and the best value of each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.files.counts import figure_text
from planner.files.keys import Key
from planner.settings.objectives import Objectives
from planner.settings.statistic import LABELS, parse_statistic

Floats = NDArray[np.float64]

LARGE = 9.0  # share of a limit from which a miss is stated as a factor [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """One objective at the lightest load."""

    objective: Annotated[str, Key("", "Objective in the grammar, ttft or p99_ttft")]
    limit_ms: Annotated[float, Key("ms", "Limit")]
    best_ms: Annotated[float | None, Key("ms", "Best value: the statistic, or the limit that the required share of "
                                         "requests meets. Null if so many requests are never answered")]
    missed_by: Annotated[float | None, Key("1", "Share of the limit by which best_ms is above it, 0 if it is not. Null "
                                           "if best_ms is")]
    required: Annotated[float | None, Key("1", "Share of requests that must be within the limit. Null for a "
                                          "statistic")]
    sentence: Annotated[str, Key("", "Best value against the limit, in words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """One objective at the load that is served."""

    objective: Annotated[str, Key("", "Objective in the grammar, ttft or p99_ttft")]
    limit_ms: Annotated[float, Key("ms", "Limit")]
    value_ms: Annotated[float | None, Key("ms", "Value: the statistic, or the limit that the required share of "
                                          "requests meets. Null if so many requests are never answered")]
    required: Annotated[float | None, Key("1", "Share of requests that must be within the limit. Null for a "
                                          "statistic")]


class UnreachableError(UsageError):
    """Nothing keeps the objectives; `missed` has the best values if they are known."""

    missed: tuple[Missed, ...] = ()


def unreachable(text: str, missed: Sequence[Missed]) -> UnreachableError:
    """Return an error with the best values."""
    error = UnreachableError(text)
    error.missed = tuple(missed)
    return error


def missed_objectives(objectives: Objectives, times_s: Mapping[str, Floats]) -> list[Missed]:
    """Return the objectives that a load misses, worst first; all of them if only all together are missed.

    Parameters
    ----------
    times_s : by metric, "ttft", "tpot", "e2el", shape [num_requests]; NaN if a request has no value.
    """
    found = [_missed(each) for each in reached_objectives(objectives, times_s)]
    missed = [each for each in found if each.best_ms is None or each.best_ms > each.limit_ms]
    return sorted(missed or found, key=lambda each: -math.inf if each.missed_by is None else -each.missed_by)


def reached_objectives(objectives: Objectives, times_s: Mapping[str, Floats]) -> tuple[Reached, ...]:
    """Return each objective with the value that a load reaches.

    Parameters
    ----------
    times_s : as of `missed_objectives`.
    """
    answered, share = ~np.isnan(times_s["e2el"]), objectives.attainment
    return (*(Reached(objective=name, limit_ms=1e3 * limit_s, required=share,
                      value_ms=_share_ms(times_s[name], answered, share or 1.0))
              for name, limit_s in objectives.slo.limits_s.items()),
            *(Reached(objective=statistic.name, limit_ms=1e3 * limit_s, required=None,
                      value_ms=_ms(statistic.over(times_s))) for statistic, limit_s in objectives.statistics.items()))


def _missed(reached: Reached) -> Missed:
    """Return an objective with its best value, and by how much that misses the limit."""
    objective, limit_ms, best_ms, required = reached.objective, reached.limit_ms, reached.value_ms, reached.required
    missed_by = None if best_ms is None else max(best_ms / limit_ms - 1.0, 0.0)
    statistic = parse_statistic(objective)
    name = statistic.label if statistic is not None else LABELS[objective]
    if required is not None:
        name = f"{name} of {100 * required:.12g} % of the requests"
    best = "is infinite (not completed)" if best_ms is None else f"is {figure_text(best_ms)} ms at best"
    more = "against" if not missed_by else (
        f"{100 * missed_by:.1f} % above" if missed_by < LARGE else f"{1 + missed_by:,.3g} times")
    return Missed(objective=objective, limit_ms=limit_ms, best_ms=best_ms, missed_by=missed_by, required=required,
                  sentence=f"{name} {best}, {more} the limit of {limit_ms:,.6g} ms")


def _share_ms(values_s: Floats, answered: NDArray[np.bool_], share: float) -> float | None:
    """Return the least limit that so large a share of the requests meets [ms]; one-token outputs have a TPOT of 0."""
    values = np.where(answered, np.nan_to_num(values_s), math.inf)
    place = max(math.ceil(share * len(values) - 1e-9), 1) - 1
    return _ms(float(np.sort(values)[place]))


def _ms(time_s: float) -> float | None:
    return 1e3 * time_s if math.isfinite(time_s) else None
