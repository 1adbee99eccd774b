"""The fewest replicas that serve a trace within its objectives, all alike or divided into prefill and decode."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from planner.deployment.deploy import Deployment, Pool
from planner.deployment.pools import Role
from planner.fleet.replicas import serve
from planner.planning.bracket import UnreachableError
from planner.replays.results import ReplayResult
from planner.settings.objectives import Objectives, Verdict, judge
from planner.trace import Trace

MOST_GPUS = 100_000
MANY = 8  # replicas that miss the objectives: before more are tried, requests are tried alone

Divided = Callable[[Trace, Deployment, Objectives, int], tuple[ReplayResult, Verdict]]


def together(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how so many replicas serve that all prefill and decode."""
    served = serve(trace, deployment, count)
    return served, judge(objectives, served.times_s)


def apart(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how so many replicas serve of which some prefill and the others decode, in the best split that was tried.

    Where first tokens are late, more of them prefill, else fewer, until a split keeps the objectives or none is left.
    """
    low, high = 1, count - 1
    found: tuple[ReplayResult, Verdict] | None = None
    while low <= high:
        prefill = (low + high) // 2
        served, verdict = together(trace, _divided_into(deployment, prefill, count - prefill), objectives, count)
        if found is None or verdict.is_met or verdict.attainment > found[1].attainment:
            found = served, verdict
        if verdict.is_met:
            break
        low, high = (prefill + 1, high) if "ttft" in verdict.limiting_metric else (low, prefill - 1)
    assert found is not None, "at least two replicas"
    return found


def of_two_kinds(prefill: Deployment, decode: Deployment) -> Deployment:
    """Return a fleet that `apart` divides, whose replicas that prefill and that decode are not of the same kind."""
    kinds: dict[Role, Deployment] = {"prefill": prefill, "decode": decode}
    return replace(prefill, pools=tuple(Pool(name=role, role=role, weight=1, num_replicas=1, deployment=own)
                                        for role, own in kinds.items()))


def _divided_into(deployment: Deployment, prefill: int, decode: int) -> Deployment:
    """Return a deployment of so many replicas that prefill, and so many that decode."""
    if not deployment.pools and deployment.layout.data_parallel_size > 1:
        deployment = of_two_kinds(deployment, deployment)
    if deployment.pools:
        pools = tuple(replace(pool, num_replicas=count * pool.deployment.layout.data_parallel_size)
                      for pool, count in zip(deployment.pools, (prefill, decode), strict=True))
        return replace(deployment, pools=pools)
    scenario = replace(deployment.scenario, data_parallel_size=prefill + decode, prefill_replicas=prefill)
    return replace(deployment, scenario=scenario)


def cheapest_split(served: ReplayResult, objectives: Objectives, prices: tuple[float, float]) -> ReplayResult:
    """Return how a fleet of two kinds serves for less, with fewer replicas of the dearer kind and more of the other.

    One by one they are given up for as many as cost less together, as long as the objectives are kept.

    Parameters
    ----------
    served : by the fewest replicas, which keep them.
    prices : of a replica that prefills, and of one that decodes [USD/h].
    """
    dear, cheap = (0, 1) if prices[0] >= prices[1] else (1, 0)
    most = math.ceil(prices[dear] / prices[cheap]) - 1 if prices[cheap] > 0 else 0

    def traded(more: int) -> tuple[ReplayResult, Verdict]:
        counts = [pool.num_groups for pool in served.deployment.pools]
        counts[dear], counts[cheap] = counts[dear] - 1, counts[cheap] + more
        return together(served.trace, _divided_into(served.deployment, *counts), objectives, sum(counts))

    while most > 0 and served.deployment.pools[dear].num_groups > 1:
        low, high, found = 0, most, traded(most)
        if not found[1].is_met:
            break
        while high - low > 1:
            middle = (low + high) // 2
            tried = traded(middle)
            low, high, found = (low, middle, tried) if tried[1].is_met else (middle, high, found)
        served = found[0]
    return served


def fewest_replicas(trace: Trace, deployment: Deployment, objectives: Objectives, guess: int = 1,
                    divided: Divided = together) -> tuple[int, ReplayResult, str]:
    """Return the fewest replicas that keep the objectives, how they serve, and what one less misses.

    One less than the answer misses them, and so does every smaller number that was tried.

    Parameters
    ----------
    guess : that the search begins with [1].
    divided : how so many replicas share the work: `together` or `apart`.

    Raises
    ------
    UnreachableError : not even a replica for each request does.
    """
    known: dict[int, tuple[ReplayResult, Verdict]] = {}

    def is_met(count: int) -> bool:
        if count not in known:
            known[count] = divided(trace, deployment, objectives, count)
        return known[count][1].is_met

    least = 1 if divided is together else 2
    most = max(min(trace.num_requests, MOST_GPUS // deployment.layout.num_gpus), least)
    high = min(max(guess, least), most)
    while not is_met(high):
        if high >= most:
            raise _unreachable(f"{high:,} replicas", known[high][1])
        if high > MANY and not (alone := divided(_apart_in_time(trace), deployment, objectives, least)[1]).is_met:
            raise _unreachable("requests, each alone on its replica,", alone)
        high = min(2 * high, most)
    low = max((count for count in known if not known[count][1].is_met), default=least - 1)
    if low == least - 1 and high > least and not is_met(high - 1):  # the guess was right
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high, known[high][0], known[low][1].limiting_metric if low >= least else "none"


def _apart_in_time(trace: Trace) -> Trace:
    """Return the trace's requests, each an hour after the one before it: nobody waits for another."""
    hours = 3600.0 * np.arange(trace.num_requests)
    return replace(trace, requests=trace.requests.with_columns(pl.Series("arrival_s", hours)))


def _unreachable(who: str, worst: Verdict) -> UnreachableError:
    return UnreachableError(f"{who} still miss the objectives: {worst.shortfall}")
