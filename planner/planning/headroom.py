"""The headroom of a fleet: the share by which its load may grow before it misses the objectives."""

import functools
from dataclasses import replace

from planner.deployment.deploy import Deployment
from planner.planning.bracket import STEP, UNKNOWNS, Bracket, UnlimitedError, UnreachableLoadError, find_bracket
from planner.planning.fewest import verdict_alone
from planner.planning.loads import Traffic, UsersLoad
from planner.planning.user_loads import limited
from planner.settings.objectives import Objectives, Verdict

NEAR, FAR = 2, 11  # times the load's rate
ROUGHLY = 0.02  # precision of a rate above `NEAR` [1]


def headroom(traffic: Traffic, deployment: Deployment, objectives: Objectives, count: int, copies: int,
             verdict: Verdict, tolerance: float) -> float | None:
    """Return the share by which the load may grow before the replicas miss the objectives [1]; None without an end.

    The load is as long as the one that the number of replicas rests on. Up to `NEAR` times the rate, the rate is
    searched as finely as a capacity; above, within `ROUGHLY`; from `FAR` on, in steps of two. One copy of a
    repeated trace is searched first, to begin nearby.

    Parameters
    ----------
    count, copies, verdict : replicas, repeats of the trace in the load that they were found on, and how they serve it.
    """
    if isinstance(traffic, UsersLoad):
        return _user_headroom(traffic, deployment, objectives, count, copies)
    own = traffic.mean_rps

    @functools.cache
    def judged(times: int, rate: float) -> Verdict:
        if rate == own and times == copies and traffic.is_rescaled:  # the load that the replicas were found on
            return verdict
        return verdict_alone(traffic.grown(rate / own, times), deployment, objectives, count)

    def bracket(times: int, start: float, step: float) -> Bracket:
        search = functools.partial(find_bracket, functools.partial(judged, times), start, checks=(),
                                   limits=traffic.limits_rps)
        edge = search(step=step, tolerance=STEP - 1)
        for most, precision in ((FAR, max(tolerance, ROUGHLY)), (NEAR, tolerance)):
            if edge.lower < most * own:
                edge = search(within=(edge.lower, edge.upper), tolerance=precision)
        return edge

    start, step = own, max(_first_step(count), 1 + tolerance)
    if copies > 1:
        try:
            near = bracket(1, start, step)
            start, step = near.lower, near.upper / near.lower
        except (UnlimitedError, UnreachableLoadError):  # one copy may be too short for a queue to grow
            pass
    try:
        return max(bracket(copies, start, step).lower / own - 1.0, 0.0)
    except UnlimitedError:
        return None
    except UnreachableLoadError:  # a short trace at the edge: at other lengths and rates it is missed, at its own met
        return 0.0


def _first_step(count: int) -> float:
    """Return the growth at which as many replicas have the load that one less misses.

    >>> _first_step(4), _first_step(1)
    (1.3333333333333333, 2.0)
    """
    return count / (count - 1) if count > 1 else STEP


def _user_headroom(traffic: UsersLoad, deployment: Deployment, objectives: Objectives, count: int,
                   copies: int) -> float | None:
    """Return the share by which the number of users may grow [1]."""
    def evaluate(users: float) -> Verdict:
        own = _with_users(deployment, traffic, round(users))
        return verdict_alone(traffic.with_users(round(users), copies), own, objectives, count)

    there = copies * traffic.trace.requests["arrival_s"].n_unique()
    try:
        bracket = find_bracket(evaluate, traffic.users, unknown=UNKNOWNS[traffic.of], checks=(), limits=(1.0, there))
        return max(bracket.lower / traffic.users - 1.0, 0.0)
    except UnlimitedError:
        return None


def _with_users(deployment: Deployment, traffic: UsersLoad, users: int) -> Deployment:
    """Return a deployment, and its pools, with the limit of another number of users."""
    scenario = limited(deployment.scenario, traffic.of, users, traffic.think_time_s)
    pools = tuple(replace(pool, deployment=_with_users(pool.deployment, traffic, users)) for pool in deployment.pools)
    return replace(deployment, scenario=scenario, pools=pools,
                   settings=replace(deployment.settings, max_concurrency=scenario.max_concurrency))
