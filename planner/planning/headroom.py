"""The headroom of a fleet: the share by which its load may grow before it misses the objectives."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace

from planner.deployment.deploy import Deployment
from planner.errors import UsageError
from planner.planning.bracket import STEP, TOLERANCE, UNKNOWNS, UnlimitedError, UnreachableLoadError, find_edge
from planner.planning.capacity import largest_load
from planner.planning.fewest import PARTS, STRAINED, verdict_alone
from planner.planning.fleets import Kind
from planner.planning.loads import StrataTraffic, Traffic, UsersLoad
from planner.planning.replay_line import of_replicas
from planner.planning.search_options import MOST_LOAD, Choices, Search
from planner.planning.study import without_rate
from planner.planning.user_loads import limited
from planner.settings.objectives import Objectives, Verdict
from planner.traces import Trace
from planner.traces.shaping.client_load import NAME

ROUGHLY = 0.02  # precision of the headroom of fleets that are not the cheapest [1]
DEAR_TIMES, DEAR_PRECISION = 2, 0.1  # price over the cheapest's from which on a fleet is no choice, and its precision
PART_PRECISION = 0.05  # of the headroom on the first part of the load [1]
MANY = 10_000  # requests of a load from which on its first part is searched first
NEAR = 1.1  # first step from there [1]


def has_capacity(traffic: Traffic) -> bool:
    """Tell whether `capacity` searches the traffic: not of a rate series, nor of a client's random prompts."""
    return traffic.duration_s is None and not isinstance(traffic, StrataTraffic) and traffic.trace.format != NAME


def headroom_precision(traffic: Traffic, precision: float) -> float:
    """Return the share by which the headroom of a fleet of a given precision may be off [1]."""
    return precision or (ROUGHLY if has_capacity(traffic) else TOLERANCE)


def capacity_headroom(trace: Trace, traffic: Traffic, kind: Kind, count: int, prefill: int, objectives: Objectives,
                      choices: Choices) -> float | None:
    """Return the headroom of a fleet by the answer of `capacity` for it; None without an end.

    Parameters
    ----------
    trace : as read.
    count, prefill : replicas without spares, and the replicas among them that prefill alone [1].
    """
    search = Search(scaling=traffic.named_scaling, quick=True, jobs=choices.jobs, seed=traffic.seed)
    load: float = traffic.mean_rps
    if isinstance(traffic, UsersLoad):
        search = replace(search, of=traffic.of, think_time=choices.think_time, scaling=choices.scaling)
        load = traffic.users
    try:
        largest = largest_load(trace, without_rate(of_replicas(kind, count, prefill)), objectives, search)
    except UnlimitedError:
        return None
    return max(largest / load - 1.0, 0.0)


def headroom(traffic: Traffic, deployment: Deployment, objectives: Objectives, count: int, copies: int,
             verdict: Verdict, precision: float, tolerance: float) -> float | None:
    """Return the share by which the load may grow before the replicas miss the objectives [1]; None without an end.

    The load is as long as the one that the number of replicas rests on. The search begins at the answer for the first
    part of it, and ends at `MOST_LOAD`. A number of replicas that is known roughly just serves its load: the headroom
    is 0 then.

    Parameters
    ----------
    count, copies, verdict : replicas, repeats of the trace in the load that they were found on, and how they serve it.
    precision, tolerance : of the number of replicas, and of the headroom [1].
    """
    if precision:
        return 0.0
    if isinstance(traffic, UsersLoad):
        return _user_headroom(traffic, deployment, objectives, count, copies, tolerance)

    def edge(grown: Traffic, start: float, step: float, tolerance: float, known: Mapping[float, Verdict]) -> float:
        def judged(growth: float) -> Verdict:
            return verdict_alone(grown.grown(growth, copies), deployment, objectives, count, STRAINED)

        lowest, highest = (rate / grown.mean_rps for rate in grown.limits_rps)
        try:
            return find_edge(judged, start, tolerance=tolerance, step=step, limits=(lowest, min(highest, MOST_LOAD)),
                             known=known).load
        except UnlimitedError:
            if highest < MOST_LOAD:
                raise
            return MOST_LOAD

    start, step = 1.0, count / (count - 1) if count > 1 else STEP
    if has_capacity(traffic) and copies * traffic.num_requests >= MANY:
        with contextlib.suppress(UsageError, UnreachableLoadError):
            start, step = edge(traffic.first(PARTS), start, step, PART_PRECISION, {}), NEAR
    try:
        return max(edge(traffic, start, step, tolerance, {1.0: verdict} if traffic.is_rescaled else {}) - 1.0, 0.0)
    except UnlimitedError:
        return None
    except UnreachableLoadError:  # a short trace at the edge: at other lengths and rates it is missed, at its own met
        return 0.0


def _user_headroom(traffic: UsersLoad, deployment: Deployment, objectives: Objectives, count: int, copies: int,
                   tolerance: float) -> float | None:
    """Return the share by which the number of users may grow [1]."""
    def evaluate(users: float) -> Verdict:
        own = _with_users(deployment, traffic, round(users))
        return verdict_alone(traffic.with_users(round(users), copies), own, objectives, count, STRAINED)

    there, most = copies * traffic.trace.requests["arrival_s"].n_unique(), MOST_LOAD * traffic.users
    try:
        edge = find_edge(evaluate, traffic.users, unknown=UNKNOWNS[traffic.of], limits=(1.0, min(there, most)),
                         tolerance=tolerance)
    except UnlimitedError:
        return None if there < most else MOST_LOAD - 1.0
    return max(math.floor(edge.load) / traffic.users - 1.0, 0.0)


def _with_users(deployment: Deployment, traffic: UsersLoad, users: int) -> Deployment:
    """Return a deployment, and its pools, with the limit of another number of users."""
    scenario = limited(deployment.scenario, traffic.of, users, traffic.think_time_s)
    pools = tuple(replace(pool, deployment=_with_users(pool.deployment, traffic, users)) for pool in deployment.pools)
    return replace(deployment, scenario=scenario, pools=pools,
                   settings=replace(deployment.settings, max_concurrency=scenario.max_concurrency))
