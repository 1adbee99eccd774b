"""One replay: a trace through a policy on one engine, by the compiled loop."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import PolicyError
from planner.loop.compiled.function_rows import ADVANCE_SIGNATURE, PLAN_SIGNATURE, function_row
from planner.loop.compiled.jit import compile_with_signature, uncompiled
from planner.loop.loop import advance, step_state
from planner.loop.state import engine_state as st
from planner.loop.state.binding import pointers
from planner.loop.state.engine_settings import EngineSettings, Recording
from planner.loop.state.terms import StepTime
from planner.policies.functions import failing_place, said, where
from planner.policies.policy import Policy, StepState
from planner.progress import stage
from planner.replays.compiling import compiled_function
from planner.replays.gaps import Gaps, GapTally
from planner.replays.hope import USED, Hope, looks_s
from planner.replays.initial import initial_state
from planner.replays.request_columns import RequestMemory, Requests, limits_of_requests
from planner.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRecords:
    """The loop's raw outcome: one record per request and one for the engine, and the rows that were asked for."""

    requests: Requests  # rows aligned with the trace
    phases: Any  # st.PHASES, the same if steps are recorded
    engine: Any  # st.ENGINE
    settings: Any  # st.SETTINGS
    links: Any  # entries.LINK, to the tiers
    fetches: Any  # entries.FETCH, rows aligned with the trace if there are tiers
    tally: GapTally
    steps: NDArray[np.void]
    schedule: NDArray[np.void]
    preemptions: NDArray[np.void]
    loop_s: float  # wall time spent in the loop

    @property
    def gaps(self) -> Gaps:
        """Gaps between tokens; most searches do without."""
        return self.tally.gaps()


def run(trace: Trace, policy: Policy, settings: EngineSettings, step_time: StepTime,
        recording: Recording, hope: Hope | None = None) -> ReplayRecords:
    """Replay a trace.

    Parameters
    ----------
    trace : requests in order of arrival.
    policy : order of admissions and preemptions.
    settings : the engine's limits.
    step_time : terms and curve.
    recording : which rows to keep.
    hope : of the objectives; the replay ends once they are lost.

    Raises
    ------
    LostError : the objectives are lost.
    PolicyError : the policy cannot be compiled, raised an error, or made no progress.
    UsageError : a setting does not fit the trace.
    """
    requests = RequestMemory(trace, [limits_of_requests(policy, settings)])
    state = initial_state(trace, policy, settings, step_time, recording, requests.records)
    requests.lay_out(state.engine)
    plans, loop = _laid_out_plan(policy), compiled_loop()
    with stage("replaying requests", trace.num_requests, num_arrived(trace, state.engine)):
        return _run_through(loop, plans, policy, state, requests, _Looks(trace, state.engine, hope))


def _run_through(loop: Callable[[Any, Any], int], plans: Any, policy: Policy, state: st.State,
                 requests: RequestMemory, looks: "_Looks") -> ReplayRecords:
    """Drive the loop until nothing is left, and return its records."""
    taken = TakenRows(state, has_gaps=looks.is_for_result)
    memories = pointers([state])
    loop_s, flushed_at_s = 0.0, -1.0
    while True:
        begin = time.perf_counter()
        try:
            outcome = loop(memories, plans)
        except Exception as error:  # a policy may raise any
            told = failed_plan(policy, state)
            if told is None:
                raise
            raise told from error
        loop_s += time.perf_counter() - begin
        if outcome == st.FLUSH and requests.lay_out(state.engine):
            continue
        if outcome in (st.PAUSED, st.STUCK) and looks.look(requests):
            continue
        taken.take()
        if outcome == st.DONE:
            return taken.records(loop_s, requests.columns())
        if outcome != st.FLUSH or state.engine.now_s == flushed_at_s:  # tens of thousands of rows, and no time passed
            raise fault(policy, state, outcome)
        flushed_at_s = float(state.engine.now_s)


class _Looks:
    """Pauses of a replay, at which its objectives may be lost; none without hope."""

    def __init__(self, trace: Trace, engine: Any, hope: Hope | None) -> None:
        self._engine, self._hope = engine, hope
        self._at_s = iter(() if hope is None else looks_s(trace.requests["arrival_s"].to_numpy()))
        engine.until_s = next(self._at_s, math.inf)
        self.is_for_result = hope is None  # not for a verdict alone
        self._num_ended = 0  # requests of the trace's beginning that have ended
        self._used = np.zeros(1)  # by them

    def look(self, requests: RequestMemory) -> bool:
        """Judge the requests so far and set the next pause; False if the loop did not stop for one."""
        if self._hope is None or self._engine.until_s == math.inf:
            return False
        now_s, used, is_beginning = float(self._engine.last_start_s), np.zeros(1), True
        arrived = len(requests.records) if self._engine.next_request == st.NONE else int(self._engine.next_request)
        for columns in requests.parts(self._num_ended, arrived, USED):
            (by_ended, by_others), num_ended = self._hope.used(columns, now_s, is_beginning=is_beginning)
            self._used, used = self._used + by_ended, used + by_others
            self._num_ended += num_ended
            is_beginning = is_beginning and num_ended == len(columns[0])
        self._hope.check(self._used + used)
        self._engine.until_s = next(self._at_s, math.inf)
        return True


def num_arrived(trace: Trace, clock: Any) -> Callable[[], float]:
    """Return a function that counts the requests which arrived by a record's `now_s`, beside the loop that moves it."""
    arrival_s = trace.requests["arrival_s"].to_numpy()
    return lambda: float(np.searchsorted(arrival_s, float(clock.now_s), side="right"))


class TakenRows:
    """The rows that were taken out of a loop's buffers so far."""

    def __init__(self, state: st.State, *, has_gaps: bool = True) -> None:
        self.state = state
        self._rows: dict[str, list[NDArray[np.void]]] = {"steps": [], "schedule": [], "preemptions": []}
        self._gaps = GapTally(is_kept=has_gaps)

    def take(self) -> None:
        """Copy the filled rows out of the buffers and empty them."""
        state, engine = self.state, self.state.engine
        self._gaps.add(np.asarray(state.gaps[: engine.num_gap_rows]))
        engine.num_gap_rows = 0
        for name, count in (("steps", "num_step_rows"), ("schedule", "num_schedule_rows"),
                            ("preemptions", "num_preemption_rows")):
            filled = int(getattr(engine, count))
            if filled:
                self._rows[name].append(np.asarray(getattr(state, name)[:filled]).copy())
                setattr(engine, count, 0)

    def records(self, loop_s: float, requests: Requests) -> ReplayRecords:
        """Return the outcome of a loop that is through; the rows that were taken are in it alone."""
        state = self.state
        rows = {name: _joined(parts, getattr(state, name).dtype) for name, parts in self._rows.items()}
        return ReplayRecords(requests=requests, phases=state.phases, engine=state.engine,
                             settings=state.settings, links=state.links, fetches=state.fetches, loop_s=loop_s,
                             tally=self._gaps, **rows)


def _joined(parts: list[NDArray[np.void]], dtype: Any) -> NDArray[np.void]:
    """Return rows in one array; each part is given up once it is copied, since all together may be half the memory."""
    joined = np.empty(sum(map(len, parts)), dtype)
    end = len(joined)
    while parts:
        part = parts.pop()
        joined[end - len(part):end] = part
        end -= len(part)
    return joined


@functools.cache
def compiled_loop() -> Callable[[Any, Any], int]:
    """Return the loop's machine code, compiled once and kept between processes."""
    return compile_with_signature(advance, ADVANCE_SIGNATURE, what="replay loop", shares_helpers=True)


@functools.cache
def compiled_plan(policy: Policy) -> Any:
    """Return a policy's step plan as a typed function that the loop can call."""
    return compiled_function(f"policy {policy.name!r}", "plan_step", policy.plan_step, PLAN_SIGNATURE,
                             "a StepPlan of four integers")


@functools.cache
def _laid_out_plan(policy: Policy) -> Any:
    """Return a policy's step plan as the loop reads it."""
    return function_row([compiled_plan(policy)], PLAN_SIGNATURE)


def failed_plan(policy: Policy, state: st.State) -> PolicyError | None:
    """Return the error of a plan that failed, by asking it again uncompiled: the state is as it was.

    None if the plan does not fail then: the loop is at fault.
    """
    try:
        policy.plan_step(StepState(*(np.asarray(value).item() for value in uncompiled(step_state)(state))))
    except Exception as error:
        return PolicyError(f"policy {policy.name!r}: {failing_place(policy.plan_step, error)}: plan_step failed at "
                           f"{state.engine.now_s:.6f} s: {said(error)}; it must return a StepPlan in every state")
    return None


def fault(policy: Policy, state: st.State, outcome: int) -> PolicyError:
    """Return the error of a loop that has stopped because of the policy."""
    engine = state.engine
    at = f"policy {policy.name!r} ({where(policy.plan_step)}) at {engine.now_s:.6f} s"
    if outcome == st.BAD_PLAN:
        return PolicyError(f"{at}: plan_step returned a negative limit or an unknown order; must be >= 0, and one of "
                           f"four")
    return PolicyError(f"{at}: scheduled nothing while {engine.num_running} requests run and {engine.num_waiting} "
                       f"wait, and no arrival is left to change that")
