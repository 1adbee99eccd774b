"""The most users that a deployment serves within its objectives: requests in flight, or sessions open at once."""

from dataclasses import dataclass, replace
from typing import Any

from planner.deployment.deploy import Deployment, resolve
from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import UsageError
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.bracket import UNKNOWNS, Unknown, UnreachableLoadError
from planner.planning.capacity_search import Settled, confidence_of, largest_from, search_notes, settled
from planner.planning.highest_rate import (
    NO_INTERVAL,
    NUM_WINDOWS,
    check_search,
    is_routed,
    other_routers,
    tenants_of,
)
from planner.planning.missed import missed_objectives
from planner.planning.replay_line import replay_line
from planner.planning.search_options import Search
from planner.planning.user_loads import beginning, limited, of_users, think_time
from planner.planning.users_answer import (
    RouterUsers,
    UserBracket,
    UserConfidence,
    UserHorizon,
    UserProbe,
    UsersAnswer,
    UserTraffic,
)
from planner.progress import in_parallel, later
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.results.notes import notes
from planner.results.rejections import rejected_by_reason, rejection_notes
from planner.results.resolved import describe_deployment
from planner.results.summary import summarize
from planner.settings.objectives import Objectives, Verdict, judge, required_of
from planner.settings.scenario import Scenario
from planner.settings.statistic import statistics_ms
from planner.traces import Trace
from planner.traces.shaping.closed_load import in_turn, load_of, pausing, with_pauses
from planner.traces.shaping.rescaling import repeated, windows

START = 16  # users of a replica that are tried first


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """One deployment under requests or sessions in turn, to be judged with any number of users.

    Parameters
    ----------
    trace : as `closed_load.in_turn`.
    pace : by which pauses of users are divided [1].
    """

    deployment: Deployment
    trace: Trace
    objectives: Objectives
    search: Search
    pace: float = 1.0

    @property
    def unknown(self) -> Unknown:
        """What users are."""
        return UNKNOWNS[self.search.of]

    @property
    def limits(self) -> tuple[float, float]:
        """One user, and as many as there are in the traffic."""
        return 1.0, self.trace.requests["arrival_s"].n_unique()

    def load(self, users: int) -> tuple[Trace, Deployment]:
        """Return the requests of so many users, and the deployment with their limit."""
        of, pause_s = self.search.of, self.search.think_time
        turns = self.trace if self.pace == 1 else pausing(self.trace, 1 / self.pace)
        trace = load_of(turns, of, users, None if pause_s is None else pause_s / self.pace)
        return trace, resolve(limited(self.deployment.scenario, of, users, pause_s), trace)

    def served(self, users: int) -> ReplayResult:
        """Replay so many users."""
        return serve(*self.load(users))

    def judged(self, result: ReplayResult) -> Verdict:
        """Judge a replay."""
        verdict = judge(self.objectives, result.times_s, tenants_of(result.trace) if self.search.by_tenant else None)
        return replace(verdict, statistics_ms=statistics_ms(result.times_s))

    def verdict(self, load: float) -> Verdict:
        """Replay so many users and judge them."""
        return self.judged(self.served(round(load)))

    def behind(self, router: str) -> "Users":
        """Return the users of the same replicas behind another router."""
        scenario = replace(self.deployment.scenario, router=router)
        return replace(self, deployment=replace(self.deployment, scenario=scenario))

    def longer(self, times: int) -> "Users":
        """Return the users of a trace that goes on with itself so many times."""
        return replace(self, trace=repeated(self.trace, times))

    def num_requests_at(self, load: float) -> int:
        """Return the requests, which do not depend on the number of users."""
        return self.trace.num_requests

    def drawn(self, factor: float, seed: int | None) -> "Users":
        """Return resampled requests or sessions, by the clock of a deployment whose steps take `factor` times as long.

        By that clock pauses are shorter and objectives tighter by the factor.
        """
        trace = self.trace if seed is None else windows(self.trace, min(NUM_WINDOWS, int(self.limits[1])), seed)
        return replace(self, trace=trace, pace=factor, objectives=self.objectives.scaled(1 / factor))

    def at_pace(self, load: float, factor: float) -> float:
        """Return a number of users, which no clock changes."""
        return load


@keeps_answers
def most_users(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> UsersAnswer:
    """Find the most users with whom a deployment keeps its objectives.

    With `search.of` "concurrency" all requests are there at the start, and as many as there are users are in flight;
    with "sessions" all sessions are, and as many are open. With a `think_time` and "concurrency" each user sends every
    n-th request, and pauses after the answer to the one before.

    Parameters
    ----------
    trace, scenario, objectives, search : as of `highest_rate.capacity`.

    Raises
    ------
    UsageError : an option does not fit; UnlimitedError: the traffic has no more users than the deployment serves.
    PlannerError : as a replay.
    """
    check_search(scenario, search)
    if not scenario.wait_for_parents and (search.of == "sessions" or search.think_time is not None):
        raise UsageError(f"--of {search.of}: without --wait-for-parents no request waits for another; leave it out")
    shaped = shape_load(limited(scenario, search.of, 1, None), trace)
    shaped = with_pauses(shaped, search.of, search.think_time)
    turns = in_turn(shaped, search.of)
    known = limited(scenario, search.of, 1, None) if search.of == "sessions" else scenario  # for the notes
    started = startable(known, turns)
    users = Users(deployment=started.deployment, trace=turns, objectives=objectives, search=search)
    asked = _asked(users, trace, shaped, started.lowered)
    replicas = max(scenario.data_parallel_size, 1)
    try:
        found = settled(users, START * replicas)
    except UnreachableLoadError as error:
        result = users.served(round(error.lowest))
        verdict = users.judged(result)
        return replace(asked, missed=tuple(missed_objectives(objectives, result.times_s)),
                       limiting_metric=verdict.limiting_metric,
                       bracket=UserBracket(lower=0, upper=round(error.lowest)),
                       sentence=f"one user: {verdict.shortfall}")
    longest = users.longer(found.times)
    routers = _behind_routers(longest, found.bracket.lower)
    sure = UserConfidence(**confidence_of(users, found.bracket.lower)) if search.replicates else None
    given = replace(scenario, max_model_len=started.scenario.max_model_len)
    answer = _feasible(longest, asked, found, given)
    return replace(answer, routers=routers, confidence=sure,
                   notes=(*answer.notes, *search_notes(found.bracket, found, users.unknown)))


def _capacity(search: Search, most: int) -> dict[str, Any]:
    """Return the most users by the key that says what they are."""
    return {f"capacity_{search.of}": most}


def _asked(users: Users, trace: Trace, shaped: Trace, lowered: str | None) -> UsersAnswer:
    """Return what was asked, what was assumed and of what, in an answer that has no number yet."""
    objectives, search, scenario = users.objectives, users.search, users.deployment.scenario
    think_s, assumption = think_time(shaped, search.of, search.think_time)
    routed = is_routed(users.deployment)
    assumptions = [*filter(None, [lowered]), assumption, beginning(search.of)]
    assumptions += [f"the router is {scenario.router}"] if routed else []
    return UsersAnswer(
        of=search.of, feasible=False, lowered=lowered, missed=(), capacity_per_gpu=0.0, **_capacity(search, 0),
        request_throughput=None, attainment_at_capacity=None, limiting_metric="none",
        bracket=UserBracket(lower=0, upper=None),
        is_monotone=True, kept_above=(), missed_below=(), probes=(), slo=required_of(objectives),
        attainment=objectives.attainment, think_time_s=think_s, router=scenario.router if routed else None,
        assumptions=tuple(assumptions), num_gpus=users.deployment.num_gpus,
        notes=(*notes(users.deployment, shaped), *([NO_INTERVAL] if scenario.interval is not None else [])),
        workload=UserTraffic(source=trace.source, num_requests=shaped.num_requests,
                             num_sessions=int(users.limits[1]) if search.of == "sessions" else None, seed=search.seed),
        deployment=describe_deployment(users.deployment, scenario.data_parallel_size), trace_sha256=trace.sha256,
        routers=(), stationary=None, horizon=(), confidence=None)


def _feasible(users: Users, asked: UsersAnswer, found: Settled, scenario: Scenario) -> UsersAnswer:
    """Return the most users, and what every tried number came to; `scenario` is as it was given, and starts."""
    bracket, probes = found.bracket, dict(found.bracket.probes)
    most = round(bracket.lower)
    replayed = of_users(replace(scenario, seed=users.search.seed or None), users.search.of, most,
                        users.search.think_time, found.times)
    served = users.served(most)
    rejected = rejection_notes(users.deployment, rejected_by_reason(served))
    return replace(
        asked, feasible=True, notes=(*asked.notes, *rejected),
        replay_command=replay_line(users.trace, replayed, users.objectives),
        capacity_per_gpu=most / users.deployment.num_gpus, **_capacity(users.search, most),
        request_throughput=summarize(served, None)["request_throughput"],
        attainment_at_capacity=probes[bracket.lower].attainment, limiting_metric=probes[bracket.upper].limiting_metric,
        bracket=UserBracket(lower=most, upper=round(bracket.upper)), is_monotone=bracket.is_monotone,
        kept_above=tuple(map(round, bracket.kept_above)), missed_below=tuple(map(round, bracket.missed_below)),
        stationary=found.is_stationary,
        horizon=tuple(UserHorizon(num_requests=count, users=round(load)) for count, load in found.lengths),
        probes=tuple(UserProbe(users=round(load), is_met=verdict.is_met, attainment=verdict.attainment,
                               limiting_metric=verdict.limiting_metric, statistics_ms=verdict.values)
                     for load, verdict in bracket.probes))


def _behind_routers(users: Users, most: float) -> tuple[RouterUsers, ...]:
    """Return the most users behind other routers, the used one first; nothing of one replica."""
    others = other_routers(users.deployment, users.search)
    calls = [later(largest_from)(users.behind(name), most) for name in others]
    found = in_parallel("other routers", calls, len(calls), users.search.jobs)
    if not is_routed(users.deployment):
        return ()
    by_router = zip((str(users.deployment.scenario.router), *others), (most, *found), strict=True)
    return tuple(RouterUsers(router=name, users=None if count is None else round(count)) for name, count in by_router)
