"""Whether a replay under way can still keep its objectives: a search ends a replay that cannot.

Latencies only grow while requests wait, so a request that is late now is late in the end. As soon as more requests are
late, or have ended without an answer, than an objective allows, the verdict is known.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.compiled.jit import compile_with_signature, numba
from planner.loop.state import engine_state as st
from planner.replays.request_columns import Requests
from planner.settings.objectives import Objectives
from planner.settings.slo import METRICS
from planner.traces import Trace

Floats = NDArray[np.float64]

LOOKS = 16  # at a replay while requests arrive, at most
LOOKS_AFTER = 4  # and within as long a time after the last arrival
BETWEEN = 1_000  # requests from one look to the next at least
USED = ("state", "arrival_s", "first_token_s", "finished_s", "num_output_tokens", "output_tokens")  # of requests


class LostError(Exception):
    """A replay cannot keep its objectives any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allowance:
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

    def __init__(self, rules: Sequence[_Allowance]) -> None:
        self._rules = rules
        self._limits_s = np.array([[rule.limits_s.get(metric, math.inf) for metric in METRICS] for rule in rules])
        self._summed = np.array([-1 if rule.most is not None else METRICS.index(min(rule.limits_s)) for rule in rules])
        self._spent = np.zeros(len(self._rules))

    def used(self, columns: Sequence[Any], now_s: float, *, is_beginning: bool = False) -> tuple[Floats, int]:
        """Return how much of each allowance requests have used at least, and how many of the first have ended.

        Shape [2, num_objectives]: by these first requests, and by the others.

        Parameters
        ----------
        columns : of the requests, arrived or not, by `USED`.
        now_s : nothing that is still to come happens before it; infinite if nothing is to come [s].
        is_beginning : whether all requests before these have ended; else all of these are others.
        """
        used = np.zeros((2, len(self._rules)))
        return used, _compiled_add()(*columns, now_s, is_beginning, self._limits_s, self._summed, used)

    def spend(self, requests: Requests) -> None:
        """Count the allowances that a finished engine's requests have used; raise LostError if they are too much."""
        self._spent = self._spent + self.used(requests.listed(USED), math.inf)[0][1]
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


def _rules(objectives: Objectives, num_requests: int) -> list[_Allowance]:
    """Return the objectives as counts. A percentile lies between two requests in order, so both must be late.

    Requests without a value (a TPOT of one token) leave a smaller number to be exceeded, so the count stays right.
    """
    rules = []
    if objectives.attainment is not None and objectives.slo.limits_s:
        most = _most_late(objectives.attainment, num_requests)
        rules.append(_Allowance(limits_s=dict(objectives.slo.limits_s), most=most))
    for statistic, limit_s in objectives.statistics.items():
        if statistic.percentile is None:
            rules.append(_Allowance(limits_s={statistic.metric: limit_s}, most=None, sum_s=limit_s * num_requests))
        else:
            below = math.floor((num_requests - 1) * (statistic.percentile / 100))  # as NumPy rounds it
            rules.append(_Allowance(limits_s={statistic.metric: limit_s}, most=num_requests - below - 1))
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


def add_used(state: Any, arrival_s: Any, first_token_s: Any, finished_s: Any, num_output_tokens: Any,
             output_tokens: Any, now_s: float, is_beginning: bool, limits_s: Any, summed: Any, used: Any) -> int:
    """Add to `used` whether each request exceeds a limit, or its time, by the least times that it can have in the end.

    A request without an answer is infinitely late: one that has ended so, or all that have none if `now_s` is
    infinite. A request that has not arrived may still be in time. Return how many of the first requests have ended.
    Shape [num_requests] each, except the last three.

    Parameters
    ----------
    output_tokens : that requests under way will have.
    is_beginning : as of `Hope.used`.
    limits_s : of each objective, by metric, shape [num_objectives, num_metrics] [s].
    summed : the metric of an objective on the mean; -1 of all others, shape [num_objectives].
    used : by the first requests, and by the others, shape [2, num_objectives].
    """
    least_s = np.zeros(3)  # by METRICS
    num_ended = 0
    for i in range(len(state)):
        is_beginning = is_beginning and state[i] >= st.COMPLETED
        if is_beginning:
            num_ended += 1
        if state[i] == st.NOT_ARRIVED and not math.isinf(now_s):
            continue
        is_done = state[i] == st.COMPLETED
        if state[i] > st.COMPLETED or (not is_done and math.isinf(now_s)):
            least_s[:] = math.inf
        else:
            end_s = finished_s[i] if is_done else now_s
            length = num_output_tokens[i] if is_done else output_tokens[i]
            least_s[0] = (now_s if math.isnan(first_token_s[i]) else first_token_s[i]) - arrival_s[i]
            least_s[1] = (end_s - first_token_s[i]) / (length - 1.0) if length > 1 else 0.0
            least_s[2] = end_s - arrival_s[i]
        for rule in range(len(summed)):
            metric, late = summed[rule], 0.0
            if metric >= 0:
                late = max(least_s[metric], 0.0) if least_s[metric] == least_s[metric] else 0.0
            else:
                for k in range(3):
                    if least_s[k] > limits_s[rule, k]:
                        late = 1.0
            used[0 if is_beginning else 1, rule] += late
    return num_ended


@functools.cache
def _compiled_add() -> Any:
    """Return `add_used`, compiled once and kept between processes."""
    floats, ints, anywhere = numba.float64[:], numba.int64, numba.float64[:, :]
    lengths = numba.from_dtype(st.REQUEST["num_output_tokens"])[:]
    return compile_with_signature(add_used, ints(
        numba.from_dtype(st.REQUEST["state"])[:], floats, floats, floats, lengths,
        numba.from_dtype(st.REQUEST["output_tokens"])[:], numba.float64, numba.boolean, anywhere, ints[:], anywhere),
        what="check of objectives")


def looks_s(arrival_s: Floats) -> Floats:
    """Return when a replay is looked at: as requests arrive, and for as long after the last arrival [s]."""
    looks = min(LOOKS, len(arrival_s) // BETWEEN)
    if looks == 0:
        return np.empty(0)
    while_arriving = arrival_s[np.linspace(0, len(arrival_s) - 1, looks + 1).astype(np.int64)[1:]]
    span_s = float(arrival_s[-1] - arrival_s[0])
    return np.unique([*while_arriving, *(arrival_s[-1] + span_s * np.arange(1, LOOKS_AFTER + 1) / LOOKS_AFTER)])
