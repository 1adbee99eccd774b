"""Loads of users: so many at once of a trace's requests or sessions, with their pauses."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.deployment.deploy import Deployment, resolve
from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import UsageError
from planner.planning.bracket import UNKNOWNS, Unknown
from planner.planning.capacity_answer import SearchedTraffic
from planner.planning.capacity_search import NUM_WINDOWS, Posed, judged
from planner.planning.search_options import Search
from planner.replays.dependencies import dependencies
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import Objectives, Verdict
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.closed_load import in_turn, load_of, pausing, with_pauses
from planner.traces.shaping.rescaling import repeated, windows
from planner.traces.shaping.session_start import session_numbers

START = 16  # users of a replica that are tried first


def limited(scenario: Scenario, of: str, users: int, think_time_s: float | None) -> Scenario:
    """Return a scenario with so many requests in flight, or sessions open; those who take turns need no limit."""
    if of == "sessions":
        return replace(scenario, max_sessions=users)
    return replace(scenario, max_concurrency=users if think_time_s is None else None)


def of_users(scenario: Scenario, of: str, users: int, think_time_s: float | None, times: int) -> Scenario:
    """Return a scenario that replays so many users, of a trace that follows itself so many times."""
    limits: dict[str, Any] = {"max_sessions" if of == "sessions" else "max_concurrency": users}
    return replace(scenario, **limits, ready_at_start=True, think_time=think_time_s, trace_copies=times)


def beginning(of: str) -> str:
    """Return in words how a load of users begins."""
    return f"all {'requests' if of == 'concurrency' else 'sessions'} are ready at the start, and caches are empty"


def think_time(trace: Trace, of: str, asked_s: float | None) -> tuple[float | None, str]:
    """Return the median pause, None if the trace's gaps count, and the assumption in words.

    Parameters
    ----------
    trace : as `with_pauses`.
    asked_s : the pause that is asked for; None for the trace's [s].
    """
    if of == "concurrency" and asked_s is not None:
        return asked_s, f"a user pauses for {asked_s:g} s after each answer (--think-time)"
    waits = dependencies(trace)
    if waits is not None:
        median_s = float(np.median(waits.think_s[waits.num_parents > 0]))
        whose = "--think-time" if asked_s is not None else "the trace's, median"
        return median_s, f"a user pauses between an answer and the next request ({whose} {median_s:.4g} s)"
    if of == "concurrency" or session_numbers(trace).max() + 1 == trace.num_requests:
        return 0.0, "a user sends the next request as soon as the one before is answered: no think time"
    return None, ("a user's requests come at the trace's gaps after the first, whether or not the one before is "
                  "answered; --think-time gives a pause")


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

    def served(self, load: float, objectives: Objectives | None = None) -> ReplayResult:
        """Replay so many users; raise LostError once `objectives` are lost."""
        return serve(*self.load(round(load)), objectives=objectives)

    def verdict(self, load: float) -> Verdict:
        """Replay so many users and judge them."""
        return judged(self, self.served(load))

    def behind(self, router: str) -> "Users":
        """Return the users of the same replicas behind another router."""
        scenario = replace(self.deployment.scenario, router=router)
        return replace(self, deployment=replace(self.deployment, scenario=scenario))

    def other_scalings(self, load: float) -> dict[str, "Users"]:
        """Return nothing: a number of users has no ways of scaling."""
        return {}

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

    def replayed(self, scenario: Scenario, load: float, times: int) -> Scenario:
        """Return a scenario that replays so many users."""
        return of_users(replace(scenario, seed=self.search.seed or None), self.search.of, round(load),
                        self.search.think_time, times)


def pose_users(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> Posed:
    """Return the question for the most users; see `capacity.capacity`.

    With `search.of` "concurrency" all requests are there at the start, and as many as there are users are in flight;
    with "sessions" all sessions are, and as many are open. With a `think_time` and "concurrency" each user sends every
    n-th request, and pauses after the answer to the one before.
    """
    if not scenario.wait_for_parents and (search.of == "sessions" or search.think_time is not None):
        raise UsageError(f"--of {search.of}: without --wait-for-parents no request waits for another; leave it out")
    one = limited(scenario, search.of, 1, None)
    shaped = with_pauses(shape_load(one, trace), search.of, search.think_time)
    turns = in_turn(shaped, search.of)
    started = startable(one if search.of == "sessions" else scenario, turns)
    users = Users(deployment=started.deployment, trace=turns, objectives=objectives, search=search)
    think_s, assumption = think_time(shaped, search.of, search.think_time)
    return Posed(
        sought=users, start=START * max(scenario.data_parallel_size, 1), alone=None, shaped=shaped,
        scenario=replace(scenario, max_model_len=started.scenario.max_model_len), lowered=started.lowered,
        assumptions=(*filter(None, [started.lowered]), assumption, beginning(search.of)), think_time_s=think_s,
        workload=SearchedTraffic(source=trace.source, num_requests=shaped.num_requests, seed=search.seed,
                                 num_sessions=int(users.limits[1]) if search.of == "sessions" else None))
