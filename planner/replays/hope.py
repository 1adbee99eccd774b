"""Whether a replay under way can still keep its objectives: a search ends a replay that cannot.

Latencies only grow while requests wait, so a request that is late now is late in the end. As soon as more requests are
late, or have ended without an answer, than an objective allows, the verdict is known.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.settings.objectives import Objectives
from planner.traces import Trace

Floats = NDArray[np.float64]

LOOKS = 16  # at a replay while requests arrive, at most
LOOKS_AFTER = 4  # and within as long a time after the last arrival
BETWEEN = 1_000  # requests from one look to the next at least: a look takes as long as the replay of some hundred


class LostError(Exception):
    """A replay cannot keep its objectives any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """An objective as a count: more than `most` requests above a limit, or a larger sum, and it is missed.

    Parameters
    ----------
    limits_s : by metric; a request is late if it exceeds one of them [s].
    most : requests that may be late [1]; None for the mean.
    sum_s : largest sum of the metric over all requests, of a mean [s].
    """

    limits_s: dict[str, float]
    most: float | None
    sum_s: float = math.inf

    def used(self, times_s: dict[str, Floats]) -> NDArray[Any]:
        """Return how much of the allowance each request has used: whether it is late, or its time."""
        if self.most is None:
            (metric,) = self.limits_s
            return times_s[metric]
        late = [times_s[metric] > limit_s for metric, limit_s in self.limits_s.items()]
        return np.asarray(np.any(late, axis=0))

    @property
    def allowed(self) -> float:
        """Late requests, or the sum, above which the objective is missed."""
        return self.sum_s if self.most is None else self.most


class Hope:
    """The allowances of a replay's objectives, and the parts of them that its requests have used.

    Parameters
    ----------
    rules : of the whole replay, over all replicas; one at least.
    """

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self._metrics = {metric for rule in self._rules for metric in rule.limits_s}
        self._spent = np.zeros(len(self._rules))

    def used(self, requests: Any, now_s: float, num_ended: int = 0) -> tuple[Floats, Floats]:
        """Return how much of each allowance the first requests and the others have used at least.

        Shape [num_objectives] each.

        Parameters
        ----------
        requests : as records or columns, arrived or not.
        now_s : nothing that is still to come happens before it; infinite if nothing is to come [s].
        num_ended : the first requests, which have ended [1].
        """
        times_s = least_times_s(requests, now_s, self._metrics)
        used = np.array([rule.used(times_s) for rule in self._rules], np.float64)
        return used[:, :num_ended].sum(1), used[:, num_ended:].sum(1)

    def spend(self, requests: Any) -> None:
        """Count the allowances that a finished engine's requests have used; raise LostError if they are too much."""
        self._spent = self._spent + self.used(requests, math.inf)[1]
        self.check(np.zeros(1))

    def check(self, used: Floats) -> None:
        """Raise LostError if requests have used more, with the ones counted before, than is allowed."""
        if np.any(self._spent + used > [rule.allowed for rule in self._rules]):
            raise LostError


def hope_of(objectives: Objectives | None, trace: Trace) -> Hope | None:
    """Return the hope of a replay; None if nothing is asked for, or if requests have deadlines of their own."""
    if objectives is None or "deadline_s" in trace.requests.columns:
        return None
    rules = _rules(objectives, trace.num_requests)
    return Hope(rules) if rules else None


def _rules(objectives: Objectives, num_requests: int) -> list[_Rule]:
    """Return the objectives as counts. A percentile lies between two requests in order, so both must be late.

    Requests without a value (a TPOT of one token) leave a smaller number to be exceeded, so the count stays right.
    """
    rules = []
    if objectives.attainment is not None and objectives.slo.limits_s:
        most = _most_late(objectives.attainment, num_requests)
        rules.append(_Rule(limits_s=dict(objectives.slo.limits_s), most=most))
    for statistic, limit_s in objectives.statistics.items():
        if statistic.percentile is None:
            rules.append(_Rule(limits_s={statistic.metric: limit_s}, most=None, sum_s=limit_s * num_requests))
        else:
            below = math.floor((num_requests - 1) * (statistic.percentile / 100))  # as NumPy rounds it
            rules.append(_Rule(limits_s={statistic.metric: limit_s}, most=num_requests - below - 1))
    return rules


def _most_late(attainment: float, num_requests: int) -> int:
    """Return how many requests may be late, by the comparison that the verdict makes.

    >>> _most_late(0.99, 1000)
    10
    """
    most = math.floor((1 - attainment) * num_requests) + 1
    while most > 0 and (num_requests - most) / num_requests < attainment:
        most -= 1
    return most


def least_times_s(requests: Any, now_s: float, metrics: Set[str]) -> dict[str, Floats]:
    """Return the least value of each metric that requests can have in the end, shape [num_requests] [s].

    A request without an answer is infinitely late: one that has ended so, or all that have none if `now_s` is
    infinite. A request that has not arrived may still be in time.
    """
    is_done, is_sent = requests.state == st.COMPLETED, requests.state != st.NOT_ARRIVED
    is_lost = (requests.state > st.COMPLETED) | (~is_done & math.isinf(now_s))
    arrival_s, first_s = np.asarray(requests.arrival_s), np.asarray(requests.first_token_s)
    end_s = np.where(is_done, requests.finished_s, now_s)
    times_s = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        if "ttft" in metrics:
            times_s["ttft"] = np.where(np.isnan(first_s), now_s, first_s) - arrival_s
        if "tpot" in metrics:
            length = np.where(is_done, requests.num_output_tokens, getattr(requests, "output_tokens", 0))
            times_s["tpot"] = np.where(length > 1, (end_s - first_s) / (length - 1.0), 0.0)
        if "e2el" in metrics:
            times_s["e2el"] = end_s - arrival_s
    return {metric: np.where(is_lost, math.inf, np.where(is_sent & ~np.isnan(values), np.maximum(values, 0.0), 0.0))
            for metric, values in times_s.items()}


def looks_s(arrival_s: Floats) -> Floats:
    """Return when a replay is looked at: as requests arrive, and for as long after the last arrival [s]."""
    looks = min(LOOKS, len(arrival_s) // BETWEEN)
    if looks == 0:
        return np.empty(0)
    while_arriving = arrival_s[np.linspace(0, len(arrival_s) - 1, looks + 1).astype(np.int64)[1:]]
    span_s = float(arrival_s[-1] - arrival_s[0])
    return np.unique([*while_arriving, *(arrival_s[-1] + span_s * np.arange(1, LOOKS_AFTER + 1) / LOOKS_AFTER)])
