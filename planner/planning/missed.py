"""Objectives that nothing keeps: which are missed, by how much, and the best value of each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.settings.objectives import Objectives
from planner.settings.statistic import LABELS, parse_statistic

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """One objective at the lightest load.

    Parameters
    ----------
    objective : in the grammar, "ttft" or "p99_ttft".
    limit_ms : the limit [ms].
    best_ms : the statistic, or the limit that the required share of the requests meets; None where a request of that
        share is never answered [ms].
    required : share of requests that must be within a limit of each request; None for a statistic [1].
    """

    objective: str
    limit_ms: float
    best_ms: float | None
    required: float | None

    @property
    def missed_by(self) -> float | None:
        """By what share of the limit the best value is above it, 0 where it is not [1]; None without an end."""
        return None if self.best_ms is None else max(self.best_ms / self.limit_ms - 1.0, 0.0)

    @property
    def sentence(self) -> str:
        """The best value against the limit, in words."""
        statistic = parse_statistic(self.objective)
        who = statistic.label if statistic is not None else LABELS[self.objective]
        if self.required is not None:
            who = f"{who} of {100 * self.required:.12g} % of the requests"
        best = "is infinite (not completed)" if self.best_ms is None else f"is {self.best_ms:,.4g} ms at best"
        more = f"{100 * self.missed_by:.1f} % above" if self.missed_by else "against"
        return f"{who} {best}, {more} the limit of {self.limit_ms:,.6g} ms"


class UnreachableError(UsageError):
    """Nothing keeps the objectives; `missed` has the best values where they are known."""

    missed: tuple[Missed, ...] = ()


def unreachable(text: str, missed: Sequence[Missed]) -> UnreachableError:
    """Return an error with the best values."""
    error = UnreachableError(text)
    error.missed = tuple(missed)
    return error


def missed_objectives(objectives: Objectives, times_s: Mapping[str, Floats]) -> list[Missed]:
    """Return the objectives that a load misses, worst first; all of them where only all together are missed.

    Parameters
    ----------
    times_s : by metric, "ttft", "tpot", "e2el", shape [num_requests]; NaN where a request has none.
    """
    answered = ~np.isnan(times_s["e2el"])
    found = [Missed(objective=name, limit_ms=1e3 * limit_s, required=objectives.attainment,
                    best_ms=_share_ms(times_s[name], answered, objectives.attainment or 1.0))
             for name, limit_s in objectives.slo.limits_s.items()]
    found += [Missed(objective=statistic.name, limit_ms=1e3 * limit_s, required=None,
                     best_ms=_ms(statistic.over(times_s)))
              for statistic, limit_s in objectives.statistics.items()]
    missed = [each for each in found if each.best_ms is None or each.best_ms > each.limit_ms]
    return sorted(missed or found, key=lambda each: -math.inf if each.missed_by is None else -each.missed_by)


def describe_missed(missed: Sequence[Missed]) -> list[dict[str, Any]]:
    """Return the objectives that are missed as plain values."""
    return [{"objective": each.objective, "limit_ms": each.limit_ms, "best_ms": each.best_ms,
             "missed_by": each.missed_by, "required": each.required, "sentence": each.sentence} for each in missed]


def _share_ms(values_s: Floats, answered: NDArray[np.bool_], share: float) -> float | None:
    """Return the least limit that so large a share of the requests meets [ms]; one-token outputs have a TPOT of 0."""
    values = np.where(answered, np.nan_to_num(values_s), math.inf)
    place = max(math.ceil(share * len(values) - 1e-9), 1) - 1
    return _ms(float(np.sort(values)[place]))


def _ms(time_s: float) -> float | None:
    return 1e3 * time_s if math.isfinite(time_s) else None
