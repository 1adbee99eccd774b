"""The fewest replicas that serve a trace within its objectives, all alike or divided into prefill and decode."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from planner.deployment.deploy import Deployment, Pool, in_role
from planner.deployment.pools import Role
from planner.files.counts import count_text
from planner.planning.missed import UnreachableError, missed_objectives, unreachable
from planner.planning.strain import MOST_FORETOLD, foretold
from planner.replays.fleet.replicas import is_dealt, serve
from planner.replays.hope import LostError
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import Objectives, Verdict, judge
from planner.traces import Trace
from planner.traces.shaping.window_and_rate import limit

LOST = Verdict(is_met=False, attainment=0.0, limiting_metric="none", strain=math.inf)  # of a replay that has no end
MOST_GPUS = 100_000
LONG, PARTS = 20_000, 8  # requests of a load from which on a part of it is searched first, and which part
ROUGHLY = 0.05  # precision of that [1]
STRAINED = 1.25  # strain from which a load is too far from the edge to foretell it
CHECKED = (0.0, 0.02, 0.05, 0.1)  # above the answer, as shares of it
SAFE = 0.97  # strain of a number, from which down no number above it is tried: chance does not make it miss
MOST_REPAIRS = 5  # answers that a number above them which misses sends back to the search
SAMPLED_PART, SAMPLED = 4_000, 20_000  # requests of the replicas that are replayed for all: of a part, of a load
MANY = 8  # replicas that miss the objectives: before more are tried, requests are tried alone

Divided = Callable[[Trace, Deployment, Objectives, int], tuple[ReplayResult, Verdict]]


def together(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how `count` replicas serve if all of them prefill and decode."""
    served = serve(trace, deployment, count)
    return served, judge(objectives, served.times_s)


def together_or_lost(trace: Trace, deployment: Deployment, objectives: Objectives, count: int | None = None,
                     strain: float = 1.0) -> tuple[ReplayResult, Verdict] | None:
    """Return how `count` replicas serve; None as soon as their strain must exceed `strain`."""
    try:
        served = serve(trace, deployment, count, objectives=objectives.scaled(strain))
    except LostError:
        return None
    return served, judge(objectives, served.times_s)


def verdict_alone(trace: Trace, deployment: Deployment, objectives: Objectives, count: int,
                  strain: float = 1.0) -> Verdict:
    """Judge `count` replicas if only the verdict counts: the replay ends once their strain must exceed `strain`."""
    served = together_or_lost(trace, deployment, objectives, count, strain)
    return LOST if served is None else served[1]


def apart(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how `count` replicas serve in the best split tried: some prefill and the others decode.

    If first tokens are late, more of them prefill, else fewer, until a split keeps the objectives or none is left.
    """
    low, high = 1, count - 1
    kept: tuple[ReplayResult, Verdict] | None = None
    while low <= high:
        prefill = (low + high) // 2
        served, verdict = together(trace, divided_into(deployment, prefill, count - prefill), objectives, count)
        if kept is None or verdict.is_met or verdict.attainment > kept[1].attainment:
            kept = served, verdict
        if verdict.is_met:
            break
        low, high = (prefill + 1, high) if "ttft" in verdict.limiting_metric else (low, prefill - 1)
    assert kept is not None, "at least two replicas"
    return kept


def of_two_kinds(prefill: Deployment, decode: Deployment) -> Deployment:
    """Return a fleet that `apart` divides, whose replicas that prefill and that decode are not of the same kind."""
    kinds: dict[Role, Deployment] = {"prefill": prefill, "decode": decode}
    return replace(prefill, pools=tuple(
        Pool(name=role, role=role, weight=1, num_replicas=1, deployment=in_role(own, role))
        for role, own in kinds.items()))


def divided_into(deployment: Deployment, first: int, second: int) -> Deployment:
    """Return a deployment with `first` and `second` replicas in its two pools; if it has none, prefill and decode."""
    if not deployment.pools and deployment.layout.data_parallel_size > 1:
        deployment = of_two_kinds(deployment, deployment)
    if deployment.pools:
        pools = tuple(replace(pool, num_replicas=count * pool.deployment.layout.data_parallel_size)
                      for pool, count in zip(deployment.pools, (first, second), strict=True))
        return replace(deployment, pools=pools)
    scenario = replace(deployment.scenario, data_parallel_size=first + second, prefill_replicas=first)
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
        return together(served.trace, divided_into(served.deployment, *counts), objectives, sum(counts))

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
                    divided: Divided = together, bound: int | None = None, *, is_near: bool = False,
                    precision: float = 0.0) -> tuple[int, ReplayResult, str]:
    """Return the fewest replicas that keep the objectives, how they serve, and the metric that one less misses.

    One less than the answer misses them, and every larger number that was tried keeps them: chance may let a number
    keep them that has numbers which miss above it. A long load is searched from the answer for its first eighth, and
    that from the answer for some of the replicas, which takes far fewer replays of all of it.

    Parameters
    ----------
    guess : that the search begins with [1].
    divided : how a number of replicas share the work: `together` or `apart`.
    bound : replicas at most; None for one for each request, once requests are known to keep the objectives alone [1].
    is_near : whether the guess is the answer for a part of the load.
    precision : share of the answer by which it may be too high; above 0, numbers above it are not tried [1].

    Raises
    ------
    UnreachableError : no number up to the bound does.
    """
    known: dict[int, tuple[ReplayResult, Verdict] | None] = {}

    def is_met(count: int) -> bool:
        if count not in known:
            known[count] = divided(trace, deployment, objectives, count) if divided is not together else (
                together_or_lost(trace, deployment, objectives, count, STRAINED))
        tried_before = known[count]
        return tried_before is not None and tried_before[1].is_met

    def whole(count: int) -> tuple[ReplayResult, Verdict]:
        return known.get(count) or divided(trace, deployment, objectives, count)

    def raise_where_none(high: int) -> None:
        if high >= most:
            raise _missed(count_text(high, "replica"), objectives, *whole(high))
        if high > max(MANY, guess + guess // 8) and bound is None and 0 not in known:  # 0 stands for requests alone
            known[0] = alone = divided(apart_in_time(trace), deployment, objectives, least)
            if not alone[1].is_met:
                raise _missed("requests that each run alone on a replica", objectives, *alone)

    def needed() -> int | None:
        return _needed({count: tried[1] for count, tried in known.items() if count and tried is not None})

    least = 1 if divided is together else 2
    most = max(min(trace.num_requests, MOST_GPUS // deployment.layout.num_gpus), least) if bound is None else bound
    if not is_near and trace.num_requests >= LONG:
        guess = guessed(trace, deployment, objectives, guess, divided, bound)
    if divided is together and trace.num_requests >= MANY * SAMPLED:
        guess = _of_some(trace, deployment, objectives, min(guess, most), most, SAMPLED, ROUGHLY)
        if precision >= ROUGHLY:  # chance moves it by less
            for share in (precision / 2, precision):
                count = min(guess + int(share * guess), most)
                if is_met(count):
                    return count, whole(count)[0], "none"
    narrowed = partial(_narrowed, is_met, needed, most=most, raise_where_none=raise_where_none, precision=precision)
    low, high = narrowed(min(max(guess, least), most), least)
    for _ in range(MOST_REPAIRS if precision == 0 else 0):
        missed, strain = [], whole(high)[1].strain
        for count in sorted({min(high + 1 + int(share * high), most) for share in CHECKED} - {high}):
            if strain <= SAFE:
                break
            if is_met(count):
                strain = whole(count)[1].strain
            else:
                missed.append(count)
        if not missed:
            break
        try:
            low, high = narrowed(missed[-1], missed[-1])
        except UnreachableError:  # none above is better
            break
    return high, whole(high)[0], whole(low)[1].limiting_metric if low >= least and precision == 0 else "none"


def _narrowed(is_met: Callable[[int], bool], needed: Callable[[], int | None], guess: int, least: int, *, most: int,
              raise_where_none: Callable[[int], None], precision: float, is_rough: bool = False) -> tuple[int, int]:
    """Return a number that misses the objectives, `least` - 1 if there is none, and a larger one that keeps them.

    They are neighbours, or as near as `precision` asks. After the guess the number is tried that strains foretell. If
    they do not, or if two such numbers have not halved the distance, it goes up by an eighth of the guess and down by
    one, by steps that double, and to the middle.

    Parameters
    ----------
    is_rough : whether a foretold number is enough if a neighbour, or one within `precision` of it, was tried.
    """
    low, high, tried, step, up, foretold_in_turn = least - 1, 0, guess, 1, max(guess // 8, 1), 0
    while True:
        before = high - low if high else 0
        if is_met(tried):
            high = tried
        else:
            low = tried
            if not high:
                raise_where_none(tried)
        least_step = max(1, int(precision * high))
        if high and high - low <= least_step:
            return low, high
        foretold_in_turn = 0 if before and 2 * (high - low) <= before else foretold_in_turn
        count = needed() if foretold_in_turn < MOST_FORETOLD else None
        if is_rough and count is not None and low < count <= most and abs(tried - count) <= max(precision * count, 1):
            return low, count
        if count is not None and low < count and (high or count <= most):
            foretold_in_turn += 1
            tried = min(count, high - least_step) if high else count
            tried = max(tried, low + least_step) if low >= least else max(tried, least)
        elif not high:
            tried, up = min(max(low, guess) + up, most), 2 * up
        elif low < least:
            tried, step = max(high - max(step, least_step), least), max(2 * step, high // 8)
        else:
            tried = (low + high) // 2


def guessed(trace: Trace, deployment: Deployment, objectives: Objectives, guess: int, divided: Divided,
            bound: int | None) -> int:
    """Return the answer for the first part of a load, within `ROUGHLY`; the bound or the guess if there is none."""
    part = limit(trace, trace.num_requests // PARTS)
    try:
        if divided is together:
            alone = verdict_alone(apart_in_time(limit(part, SAMPLED_PART)), deployment, objectives, 1)
            most = bound or MOST_GPUS // deployment.layout.num_gpus
            return _of_some(part, deployment, objectives, guess, most, SAMPLED_PART, ROUGHLY) if alone.is_met else guess
        return fewest_replicas(part, deployment, objectives, guess, divided, bound, is_near=True, precision=ROUGHLY)[0]
    except UnreachableError:
        return guess if bound is None else bound


def _of_some(trace: Trace, deployment: Deployment, objectives: Objectives, guess: int, most: int, least: int,
             precision: float) -> int:
    """Return about how many replicas keep the objectives, of which some with `least` requests are replayed each time.

    `most` if no number up to it does.
    """
    known: dict[int, Verdict] = {}

    def is_met(count: int) -> bool:
        if count not in known:
            load, some = some_replicas(trace, deployment, count, least)
            known[count] = verdict_alone(load, deployment, objectives, some, STRAINED)
        return known[count].is_met

    def raise_where_none(count: int) -> None:
        if count >= most:
            raise UnreachableError(f"{count_text(count, 'replica')} still miss the objectives")

    try:
        return _narrowed(is_met, partial(_needed, known), guess, 1, most=most, raise_where_none=raise_where_none,
                         precision=precision, is_rough=True)[1]
    except UnreachableError:
        return most


def _needed(verdicts: Mapping[int, Verdict]) -> int | None:
    """Return the number of replicas whose strain is foretold to be 1; None if strains do not tell it."""
    edge = foretold({1 / count: verdict for count, verdict in verdicts.items()})
    return None if edge is None else math.ceil(1 / edge - 1e-9)


def some_replicas(trace: Trace, deployment: Deployment, count: int, least: int) -> tuple[Trace, int]:
    """Return the requests of some of a number of replicas that are dealt a load, and how many replicas.

    They have about `least` requests; all if there are no more, or if a replica by itself does not serve as among all.
    """
    n = trace.num_requests
    some = math.ceil(count * least / n)
    if some >= count or not is_dealt(trace, deployment):
        return trace, count
    turns = deployment.router.takes_turns
    is_theirs = np.arange(n) % count < some if turns else np.random.default_rng(0).random(n) < some / count
    return trace.take(np.flatnonzero(is_theirs)), some


def apart_in_time(trace: Trace) -> Trace:
    """Return the trace's requests, each an hour after the one before it: no request waits for another."""
    hours = 3600.0 * np.arange(trace.num_requests)
    return replace(trace, requests=trace.requests.with_columns(pl.Series("arrival_s", hours)))


def _missed(who: str, objectives: Objectives, served: ReplayResult, verdict: Verdict) -> UnreachableError:
    return unreachable(f"{who} still miss the objectives: {verdict.shortfall}",
                       missed_objectives(objectives, served.times_s))
