"""A fleet whose requests are not known before they arrive: the loop of a replay, fed and looked at while it runs.

The fleet's loop pauses at any instant when all that happens before has happened (`planner.replays.fleet.timers`), and
nothing that it has done depends on later arrivals. So requests enter here at the instant of their arrival, and the
schedule is that of a replay of all that arrived. A place in the loop's memory is used again once its request has left.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import pools_of, resolve
from planner.errors import UsageError
from planner.loop.compiled.generator import MODULUS
from planner.loop.state import engine_state as st
from planner.loop.state.binding import pointers
from planner.loop.state.client_state import CLIENT, SENT
from planner.loop.state.engine_settings import Recording
from planner.loop.state.entries import FLOAT_HEAP
from planner.policies.policy import NO_LIMIT
from planner.replays.driver import TakenRows, compiled_plan, fault
from planner.replays.fleet.failures import Failure, failure_timers
from planner.replays.fleet.interleaved import (
    RoutedFleet,
    compiled_fleet_loop,
    fleet_memory,
    fleet_states,
    laid_out_score,
)
from planner.replays.fleet.lifecycle import Lifecycle
from planner.replays.fleet.replicas import NOTHING
from planner.replays.fleet.scaler import kv_cache_usage
from planner.replays.fleet.timers import RunningFleet, Timers
from planner.replays.initial import most_rows, most_tokens
from planner.replays.request_columns import limits_of_requests, strictest
from planner.settings.scenario import Scenario
from planner.traces import PrefixIds, Trace
from planner.traces.shaping.client_load import burst
from planner.twin.contents import PIECE_TOKENS, Contents, Keys
from planner.twin.live_options import KILL, check_options, check_replicas, check_rules

PLACES = 1 << 14  # of requests in the fleet; a place is used again once its request has left
MOST_PIECES = 1 << 20  # of text whose block tables are in use at once

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it reaches the server.

    Parameters
    ----------
    at_s : when, on the fleet's clock [s].
    input_tokens : of its prompt [tokens].
    output_tokens : that the model generates unless a limit ends it [tokens].
    max_output_tokens : the client's limit; None without one [tokens].
    keys : of its prompt's pieces, by `contents.keys_of`.
    """

    at_s: float
    input_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    keys: Keys = ()


class LiveFleet:
    """A deployment's replicas, and the requests that are in them.

    Parameters
    ----------
    scenario : the deployment; options of its load are refused.
    recording : which rows of steps to keep; a server that runs for long keeps none.
    failures : replicas that stop, on the fleet's clock.
    max_replicas : that `scale` may ask for; None for the number of the scenario.
    startup_s : from `scale` until a new replica serves [s].

    Raises
    ------
    UsageError : an option that a live fleet does not follow.
    PlannerError : the deployment is impossible, as `planner.deployment.deploy.resolve` says.
    """

    def __init__(self, scenario: Scenario, recording: Recording = NOTHING, failures: Sequence[Failure] = (),
                 max_replicas: int | None = None, startup_s: float = 0.0) -> None:
        check_options(scenario)
        vacant = _vacant(PLACES, PIECE_TOKENS)
        self.deployment = deployment = resolve(scenario, vacant)
        self.max_replicas = scenario.data_parallel_size if max_replicas is None else max_replicas
        check_replicas(failures, self.max_replicas, scenario)
        pools = pools_of(deployment, self.max_replicas)
        self._fleet = RoutedFleet(pools=pools, router=deployment.router, seed=scenario.seed or 0,
                                  report_interval_s=scenario.router_report_interval)
        states, _ = fleet_states(vacant, self._fleet, recording)
        settings = states[0].settings
        check_rules(deployment, states[0])
        self._limits = strictest([limits_of_requests(deployment.policy, deployment.settings)])
        self.contents: Contents | None = None
        if settings.enable_prefix_caching or settings.caches_in_tree:
            self.contents = Contents(states, MOST_PIECES)
            states = self.contents.states
        self.states, self._settings, self._aggregates = states, settings, bool(settings.aggregates_decodes)
        plans = [compiled_plan(policy) for policy in self._fleet.policies]
        self.memory = fleet_memory(vacant, states, plans, self._fleet, None)._replace(
            clients=st.records(PLACES, CLIENT))
        self._timers = Timers(failure_timers(failures, len(states), KILL))
        self._lifecycle = Lifecycle(range(len(states)), scenario.data_parallel_size, startup_s, 0.0)
        self._lifecycle.begin(self._running())
        self._clear()
        self._loop, self._scores = compiled_fleet_loop(), laid_out_score(deployment.router)
        self._pointers = pointers([self.memory])
        self._taken = [TakenRows(state, has_gaps=False) for state in states]
        self._draws = np.random.default_rng(deployment.settings.seed)
        self.now_s = 0.0
        self._columns = {name: self._field(self.requests, name) for name in (
            "state", "num_output_tokens", "decode_offset", "num_blocks", "num_cached_tokens")}
        self._engines = [{name: self._field(np.frombuffer(state.engine, st.ENGINE), name) for name in (
            "now_s", "num_running", "num_waiting", "num_loads", "next_request", "decode_step")} for state in states]

    @staticmethod
    def _field(records: Any, name: str) -> NDArray[Any]:
        """Return a field's values in the loop's memory: a record's attribute takes a hundred times as long to read."""
        return records.view(np.ndarray)[name]  # type: ignore[no-any-return]

    def _clear(self) -> None:
        """Take the requests out of the memory that it was laid out for."""
        self.requests, fleet = self.memory.requests, self.memory.fleet
        self._blank = np.asarray(self.requests[:1]).copy()[0]
        self._blank["input_tokens"] = self._blank["output_tokens"] = self._blank["max_output_tokens"] = 0
        self._blank["next"] = st.NONE
        self.requests.state = st.COMPLETED
        self.memory.cancel_after_s[:] = math.inf
        fleet.num_planned = fleet.next_planned = 0
        fleet.num_left = NO_LIMIT  # the loop is never through
        fleet.is_watched = 1  # engines are looked at whenever it pauses
        self._free = deque(range(PLACES))
        self.in_use = np.zeros(PLACES, bool)

    @property
    def num_in_use(self) -> int:
        """Requests in the fleet."""
        return PLACES - len(self._free)

    @property
    def piece_tokens(self) -> int:
        """Tokens of a piece of text that prefixes are compared by."""
        return PIECE_TOKENS if self.contents is None else self.contents.piece_tokens

    @property
    def max_prompt(self) -> int:
        """The shortest prompt that the engine refuses [tokens]."""
        return self._limits.max_prompt

    @property
    def max_model_len(self) -> int:
        """The longest context [tokens]."""
        return self._limits.max_model_len

    def send(self, arrival: Arrival) -> int | None:
        """Take a request in, at the fleet's clock or later; return its place, None if the memory is full."""
        inputs = np.array([arrival.input_tokens], np.int64)
        asked = None if arrival.max_output_tokens is None else np.array([float(arrival.max_output_tokens)])
        outputs, limits = self._limits.outputs(inputs, np.array([arrival.output_tokens]), asked)
        i = self._place()
        if i is None:
            return None
        if self.contents is not None:
            num_blocks = most_rows(self._settings, most_tokens(self._settings, inputs, outputs, limits))
            if not self.contents.lay_out(i, arrival.keys, arrival.input_tokens, int(num_blocks[0]), self._held):
                self._free.appendleft(i)
                return None
        self.requests[i] = self._blank
        self.memory.replica_of[i] = st.NONE
        request = self.requests[i]
        request.arrival_s = arrival.at_s
        request.input_tokens, request.output_tokens = arrival.input_tokens, int(outputs[0])
        request.max_output_tokens = int(limits[0])
        request.state = st.REJECTED if arrival.input_tokens >= self._limits.max_prompt else st.NOT_ARRIVED
        self._blank_beside(i)
        self.in_use[i] = True
        if self.is_served:
            self._plan(i)
        else:
            request.state = st.UNAVAILABLE
        return i

    def _place(self) -> int | None:
        """Return a place whose request has left, and all that it held; the one that has been free for longest."""
        for _ in range(len(self._free)):
            i = self._free.popleft()
            if self._columns["num_blocks"][i] == 0:
                return i
            self._free.append(i)  # its end is in flight
        return None

    def _held(self) -> Ints:
        """Return the places whose block tables are in use."""
        return np.flatnonzero(self.in_use | (self._columns["num_blocks"] > 0))

    def _blank_beside(self, i: int) -> None:
        """Empty the columns of a place beside its record."""
        state = self.states[0]
        self.memory.cancel_after_s[i] = math.inf
        for name, value in (("seen_s", 0.0), ("seen_steps", 0), ("token_before_s", math.nan)):
            column = getattr(state, name)
            if len(column):
                column[i] = value
        for column in (state.stands, state.phases):
            if len(column) == PLACES:
                column[i] = np.zeros(1, column.dtype)[0]
        if len(state.draws):
            state.draws[i] = self._draws.integers(1, MODULUS)

    def _plan(self, i: int) -> None:
        """Put a request at the end of the requests to come."""
        fleet, planned = self.memory.fleet, self.memory.planned
        if fleet.next_planned == fleet.num_planned:
            fleet.next_planned = fleet.num_planned = 0
        elif fleet.num_planned == len(planned):
            left = int(fleet.num_planned - fleet.next_planned)
            planned[:left] = planned[fleet.next_planned:].copy()
            fleet.next_planned, fleet.num_planned = 0, left
        planned[fleet.num_planned] = i
        fleet.num_planned += 1

    def cancel(self, i: int, at_s: float) -> None:
        """Let the client of a request hang up, at the fleet's clock or later [s]; without effect if it has left."""
        request = self.requests[i]
        if not self.in_use[i] or request.state >= st.COMPLETED:
            return
        self.memory.cancel_after_s[i] = max(at_s - request.arrival_s, 0.0)  # if it has not reached the engine
        if request.state >= st.WAITING:
            state = self.states[self.memory.replica_of[i]]
            count = int(state.engine.num_cancel_entries)
            entries = sorted([*state.cancels[:count].tolist(), (at_s, i)])  # sorted entries are a heap
            state.cancels[:count + 1] = np.array(entries, FLOAT_HEAP)
            state.engine.num_cancel_entries = count + 1

    def advance(self, until_s: float) -> None:
        """Take all steps that start before an instant.

        Raises
        ------
        PolicyError : the policy or the router is at fault.
        """
        while (at_s := self._timers.next_s) < until_s:
            self._run(at_s)
            self._act(at_s)
        self._run(until_s)

    @property
    def num_ready(self) -> int:
        """Replicas that accept requests."""
        return int((self.memory.replicas.num_closures == 0).sum())

    @property
    def is_served(self) -> bool:
        """Whether a replica accepts requests."""
        return self.num_ready > 0

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV blocks in use, of the replicas that accept requests or have some [1]."""
        there = (self.memory.replicas.num_closures == 0) | (self.memory.replicas.num_requests > 0)
        shares = [kv_cache_usage(state) for state, is_there in zip(self.states, there, strict=True) if is_there]
        return sum(shares) / max(len(shares), 1)

    @property
    def num_replicas(self) -> int:
        """Replicas that serve or start."""
        return self._lifecycle.count

    @property
    def num_draining(self) -> int:
        """Replicas that answer their last requests."""
        self._lifecycle.end_drained(self._running())
        return self._lifecycle.num_draining

    def scale(self, num_replicas: int) -> None:
        """Start or drain replicas until `num_replicas` serve or start, at the fleet's clock.

        Raises
        ------
        UsageError : they are more than `max_replicas`, draining ones included.
        """
        num_draining = self.num_draining
        most = self.max_replicas - num_draining
        if not 0 <= num_replicas <= most:
            drain = f", less {num_draining} that drain" if num_draining else ""
            raise UsageError(f"replicas = {num_replicas}: must be from 0 to {most} (--max-replicas "
                             f"{self.max_replicas}{drain}); start the twin with a larger --max-replicas")
        self._timers.add(self._lifecycle.change(self._running(), num_replicas, self.now_s))
        self._refuse_unserved()

    def _running(self) -> RunningFleet:
        return RunningFleet(memory=self.memory, states=self.states, shares_store=self._fleet.shares_store)

    def _act(self, at_s: float) -> None:
        """Let a replica start, stop or come back."""
        is_there = self.in_use & (self.memory.replica_of != st.NONE) & ~(self.requests.finished_s <= at_s)
        self.memory.clients.stage = np.where(is_there, SENT, 0)
        self._timers.act(self._running())
        self._refuse_unserved()

    def _refuse_unserved(self) -> None:
        """Refuse the requests that were to be sent if no replica is left."""
        if not self.is_served:
            memory, fleet = self.memory, self.memory.fleet
            self.requests.state[memory.planned[fleet.next_planned:fleet.num_planned]] = st.UNAVAILABLE
            fleet.next_planned = fleet.num_planned = 0

    def _run(self, until_s: float) -> None:
        fleet = self.memory.fleet
        fleet.until_s = self.now_s = until_s
        while True:
            outcome = self._loop(self._pointers, self._scores)
            if outcome == st.PAUSED:
                return
            k = int(fleet.faulty)
            if outcome != st.FLUSH:
                raise fault(self._fleet.policies[k], self.states[k], outcome)
            self._taken[k].take()

    def taken_rows(self) -> list[TakenRows]:
        """Return the rows of steps so far, of each replica, if they are recorded."""
        for part in self._taken:
            part.take()
        return self._taken

    def next_s(self) -> float:
        """Return when the next step ends, or begins at an idle replica; inf if nothing is to be done [s]."""
        fleet, planned = self.memory.fleet, self.memory.planned
        first_s = self._timers.next_s
        if fleet.next_planned < fleet.num_planned:
            first_s = float(self.requests[planned[fleet.next_planned]].arrival_s)
        for k, engine in enumerate(self._engines):
            end_s = engine["now_s"][0]
            if end_s >= self.now_s and engine["num_running"][0] + engine["num_waiting"][0] + engine["num_loads"][0] > 0:
                first_s = min(first_s, float(end_s))
            elif engine["next_request"][0] != st.NONE:
                first_s = min(first_s, float(self.memory.due[k].key))
        return first_s

    def ends_s(self) -> NDArray[np.float64]:
        """Return when the last step of each replica ends, shape [num_replicas] [s]."""
        return np.array([engine["now_s"][0] for engine in self._engines])

    def num_output_tokens(self, places: Ints) -> Ints:
        """Return the tokens that requests have emitted, the step in flight included, shape [num_places]."""
        columns = self._columns
        counts = columns["num_output_tokens"][places].astype(np.int64)
        if self._aggregates:
            steps = np.array([engine["decode_step"][0] for engine in self._engines])[self.memory.replica_of[places]]
            is_decode = columns["state"][places] == st.DECODE
            counts = np.where(is_decode, steps - columns["decode_offset"][places], counts)
        return counts

    def num_cached_tokens(self, i: int) -> int:
        """Return the tokens of a request's prompt that the prefix cache had."""
        return max(int(self._columns["num_cached_tokens"][i]), 0)

    def state(self, i: int) -> int:
        """Return the state of a request, as `planner.loop.state.engine_state` has them."""
        return int(self._columns["state"][i])

    def is_cut_off(self, places: Ints) -> NDArray[np.bool_]:
        """Return which requests ended without a step: their replica stopped, or none was left; shape [num_places]."""
        cut_off: NDArray[np.bool_] = self._columns["state"][places] >= st.UNAVAILABLE
        return cut_off

    def has_left(self, places: Ints) -> NDArray[np.bool_]:
        """Return which requests have left, shape [num_places]."""
        left: NDArray[np.bool_] = self._columns["state"][places] >= st.COMPLETED
        return left

    def free(self, i: int) -> None:
        """Give up the place of a request that has left."""
        self.in_use[i] = False
        self._free.append(i)


def _vacant(places: int, piece_tokens: int) -> Trace:
    """Return requests of one token, for which the loop's memory is laid out; any may be cancelled."""
    ones = np.ones(places, np.int64)
    trace = burst(ones, ones, "live requests")
    prefix = PrefixIds(values=np.zeros(places, np.int64), offsets=np.arange(places + 1), block_tokens=piece_tokens)
    return replace(trace, prefix=prefix, requests=trace.requests.with_columns(pl.lit(1.0).alias("cancel_after_s")))
