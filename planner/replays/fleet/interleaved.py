"""Replicas on one clock: requests are routed by load, wait for each other, or are sent by a client with a limit."""

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.conditions import Routes
from planner.deployment.deploy import Pool
from planner.errors import PolicyError
from planner.loop.compiled.fields_read import fields_read
from planner.loop.compiled.function_rows import ADVANCE_SIGNATURE, PLAN_SIGNATURE, SCORE_SIGNATURE, function_row
from planner.loop.compiled.generator import seeded
from planner.loop.compiled.jit import compile_with_signature, uncompiled
from planner.loop.compiled.tournament import CONTENDER, empty_tree
from planner.loop.fleet.fleet_loop import advance_fleet
from planner.loop.fleet.routing import load_of, num_cached_tokens
from planner.loop.state import engine_state as st
from planner.loop.state import entries
from planner.loop.state import fleet_state as fs
from planner.loop.state.binding import pointers
from planner.loop.state.engine_settings import Recording
from planner.policies.functions import failing_place, said, where
from planner.policies.policy import NO_LIMIT, Policy
from planner.policies.router import OF_ADAPTERS, OF_CACHES, OF_ENGINES, OF_REQUESTS, ReplicaLoad, Router
from planner.progress import stage
from planner.replays.attempts import Attempts, attempts_of, empty_rows
from planner.replays.compiling import compiled_function
from planner.replays.dependencies import Dependencies
from planner.replays.driver import ReplayRecords, TakenRows, compiled_plan, failed_plan, fault, num_arrived
from planner.replays.fleet.disaggregation import Transfer, halved
from planner.replays.fleet.failures import failure_timers
from planner.replays.fleet.kv_store import numbered_blocks, sharing_store
from planner.replays.fleet.overload import Overload, gateway_memory, with_patience
from planner.replays.fleet.routes import enter_all, limits_by_route, routed_replicas, routes_memory
from planner.replays.fleet.timers import RunningFleet, Timer, Timers
from planner.replays.initial import holding, initial_state, pulling, routed, sharing_requests
from planner.replays.request_columns import RequestMemory, limits_of_requests
from planner.settings.tier_options import shares_store
from planner.traces import Trace
from planner.traces.shaping.session_start import session_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedFleet:
    """The replicas of a fleet, and the way of requests to them.

    Parameters
    ----------
    pools : equal replicas each, pools that only prefill before pools that only decode.
    router : places each request.
    report_interval_s : how often the router hears of its replicas [s]; 0: it always knows.
    seed : of its random choices.
    routes : which pools each request of the trace may go to; None if all pools accept all requests.
    transfer : how prefill replicas pass KV on; None if all do both.
    overload : rules of clients and the router's gateway for overload; None without rules.
    """

    pools: tuple[Pool, ...]
    router: Router
    report_interval_s: float
    seed: int
    routes: Routes | None = None
    transfer: Transfer | None = None
    overload: Overload | None = None

    @property
    def num_replicas(self) -> int:
        """Replicas of all pools."""
        return sum(pool.num_replicas for pool in self.pools)

    @property
    def num_prefill(self) -> int:
        """Replicas, the first ones, that prefill only; 0 if all do both."""
        return sum(pool.num_replicas for pool in self.pools if pool.role == "prefill")

    @property
    def routed(self) -> list[NDArray[np.int64]]:
        """The replicas of each route, by number."""
        return routed_replicas(self.pools, self.routes)

    @property
    def ranks(self) -> list[tuple[int, int]]:
        """Of each replica the first rank of its group and how many these are; none of a replica by itself."""
        spans: list[tuple[int, int]] = []
        for pool in self.pools:
            size, first = pool.deployment.layout.data_parallel_size, len(spans)
            spans += [(k - (k - first) % size, size if size > 1 else 0)
                      for k in range(first, first + pool.num_replicas)]
        return spans

    @property
    def shares_store(self) -> bool:
        """Whether replicas find each other's KV in a remote store."""
        return any(shares_store(pool.deployment.scenario) for pool in self.pools)

    @property
    def steps_together(self) -> bool:
        """Whether some replicas are ranks of data-parallel attention."""
        return any(count > 0 for _, count in self.ranks)

    @property
    def policies(self) -> list[Policy]:
        """The policy of each replica."""
        return [pool.deployment.policy for pool in self.pools for _ in range(pool.num_replicas)]

    @property
    def weights(self) -> list[int]:
        """The weight of each replica."""
        return [pool.weight for pool in self.pools for _ in range(pool.num_replicas)]


def run_interleaved(trace: Trace, fleet: RoutedFleet, waits: Dependencies | None, recording: Recording,
                    timers: Iterable[Timer] = (),
                    ) -> tuple[list[ReplayRecords], NDArray[np.int32], Any, Attempts | None]:
    """Replay a trace on replicas, all on one clock.

    Parameters
    ----------
    waits : dependencies among requests, or None.
    timers : actions on the fleet from outside, with their times.

    Returns
    -------
    records, replica, pulls, attempts
        One replica's records each, which share the requests' records; the replica that took each request last, shape
        [num_requests]; and its transfer (entries.PULL). If some replicas only prefill, of halves: see
        `disaggregation.halved`. The attempts are None if the fleet has no rules for overload.

    Raises
    ------
    PolicyError : a policy or the router cannot be compiled, raised an error, or made no progress.
    """
    states, requests = fleet_states(trace, fleet, recording)
    memory = fleet_memory(trace, states, [compiled_plan(policy) for policy in fleet.policies], fleet, waits)
    failures = () if fleet.overload is None else failure_timers(fleet.overload.failures, fleet.num_replicas)
    scores, loop = laid_out_score(fleet.router), compiled_fleet_loop()
    taken, attempts = [TakenRows(state) for state in states], [empty_rows()]
    pending = Timers([*failures, *timers])
    with stage("replaying requests", trace.num_requests, num_arrived(trace, memory.fleet)):
        loop_s = _run_through(loop, scores, fleet, memory, taken, attempts, pending)
    for part in taken:
        part.take()
    ended = None
    if fleet.overload is not None:
        rows = np.concatenate([*attempts, _take_attempts(memory)])
        ended = attempts_of(rows, memory.clients, memory.requests[:trace.num_requests],
                            int(memory.gateway.peak_queued))
    columns = requests.columns()
    records = [part.records(loop_s / len(taken), columns) for part in taken]
    return records, memory.replica_of.astype(np.int32), states[0].pulls, ended


def _run_through(loop: Callable[[Any, Any], int], scores: Any, fleet: RoutedFleet, memory: fs.FleetState,
                 taken: Sequence[TakenRows], attempts: list[NDArray[np.void]], pending: Timers) -> float:
    """Drive the loop until nothing is left, keep the rows that it writes, and return the wall time spent in it [s]."""
    states = [part.state for part in taken]
    running = RunningFleet(memory=memory, states=states, shares_store=fleet.shares_store)
    loop_s, flushed = 0.0, (-1, math.nan)
    while True:
        memory.fleet.until_s = pending.next_s
        begin = time.perf_counter()
        try:
            outcome = loop(pointers([memory]), scores)
        except Exception as error:  # a policy or a router may raise any
            k = int(memory.fleet.running)
            scoring = memory.fleet.scored_replica != st.NONE
            told = failed_score(fleet.router, memory, states) if scoring else failed_plan(fleet.policies[k], states[k])
            if told is None:
                raise
            raise told from error
        loop_s += time.perf_counter() - begin
        if outcome == st.DONE:
            return loop_s
        if outcome == st.PAUSED:
            pending.act(running)
            continue
        if outcome == st.BAD_SCORE:
            raise PolicyError(f"router {fleet.router.name!r} ({where(fleet.router.score)}): its score "
                              f"{_instant(memory)} is NaN; it must return a number for every replica")
        k = int(memory.fleet.faulty)
        if k == st.NONE:
            attempts.append(_take_attempts(memory))
            continue
        taken[k].take()
        here = (k, float(states[k].engine.now_s))
        if outcome != st.FLUSH or here == flushed:  # tens of thousands of rows, and no time passed
            raise fault(fleet.policies[k], states[k], outcome)
        flushed = here


def _take_attempts(memory: fs.FleetState) -> NDArray[np.void]:
    """Copy the rows of attempts out of their buffer and empty it."""
    rows = np.asarray(memory.attempts[:memory.gateway.num_attempt_rows]).copy()
    memory.gateway.num_attempt_rows = 0
    return rows


def fleet_states(trace: Trace, fleet: RoutedFleet, recording: Recording) -> tuple[list[st.State], RequestMemory]:
    """Return the replicas' memories and the requests' memory; decode replicas have no use for a prefix cache."""
    pulls = None
    if fleet.transfer is not None:
        trace, pulls = halved(trace, fleet.transfer)
    engines = [pool.deployment for pool in fleet.pools]
    limits = [limits_of_requests(engine.policy, engine.settings) for engine in engines]
    requests = RequestMemory(trace, *limits_by_route(limits, None if pulls is not None else fleet.routes))
    requests.lay_out_all()
    kinds = [_laid_out(trace, pool, recording, requests) for pool in fleet.pools]
    kinds = [kind if numbered is None else _laid_out(trace, pool, recording, requests, numbered)
             for pool, kind, numbered in zip(fleet.pools, kinds, numbered_blocks(fleet.pools, kinds), strict=True)]
    if fleet.overload is not None:
        kinds = [with_patience(kind, fleet.overload, is_split=pulls is not None) for kind in kinds]
    kinds = sharing_store(fleet.pools, kinds)
    made: dict[str, Callable[[st.State], st.State]] = {"both": lambda state: state, "prefill": holding,
                                                       "decode": pulling}
    states = [state for pool, kind in zip(fleet.pools, sharing_requests(kinds, pulls), strict=True)
              for state in routed(made[pool.role](kind), pool.num_replicas, fleet.num_replicas,
                                 shares_store=fleet.shares_store)]
    for k, (first, _) in enumerate(fleet.ranks):
        if k != first:
            states[k].engine.step_adapter_s = 0.0  # ranks step together: the first one's first use is the group's
    return states, requests


def _laid_out(trace: Trace, pool: Pool, recording: Recording, requests: RequestMemory,
              numbered: NDArray[np.int64] | None = None) -> st.State:
    """Return the memory of one engine of a pool, by itself."""
    engine = pool.deployment
    settings = engine.settings
    if pool.role == "decode":
        settings = replace(settings, enable_prefix_caching=False, cpu_tier=None, remote_tier=None)
    return initial_state(trace, engine.policy, settings, engine.step_time, recording, requests.records, numbered)


@functools.cache
def compiled_fleet_loop() -> Callable[[Any, Any], int]:
    """Return the fleet loop's machine code, compiled once and kept between processes."""
    return compile_with_signature(advance_fleet, ADVANCE_SIGNATURE, what="fleet's replay loop", shares_helpers=True)


@functools.cache
def compiled_score(router: Router) -> Any:
    """Return a router's score as a typed function that the loop can call."""
    return compiled_function(f"router {router.name!r}", "score", router.score, SCORE_SIGNATURE, "a number")


@functools.cache
def laid_out_score(router: Router) -> Any:
    """Return a router's score as the loop reads it."""
    return function_row([compiled_score(router)], SCORE_SIGNATURE)


def failed_score(router: Router, memory: fs.FleetState, states: list[st.State]) -> PolicyError | None:
    """Return the error of a score that failed, by asking for it again uncompiled; None if it does not fail then."""
    k, i = int(memory.fleet.scored_replica), int(memory.fleet.scored_request)
    cached_tokens = uncompiled(num_cached_tokens)(memory, states[k], i)
    load = uncompiled(load_of)(memory, states[k], k, i, cached_tokens)
    try:
        router.score(ReplicaLoad(*(np.asarray(value).item() for value in load)))
    except Exception as error:
        return PolicyError(f"router {router.name!r}: {failing_place(router.score, error)}: score failed "
                           f"{_instant(memory)}: {said(error)}; it must return a number for every replica")
    return None


def _instant(memory: fs.FleetState) -> str:
    now_s = float(memory.fleet.now_s)
    return f"at {now_s:.6f} s" if math.isfinite(now_s) else "before the first request"


def fleet_memory(trace: Trace, states: list[st.State], plans: list[Any], fleet: RoutedFleet,
                 waits: Dependencies | None) -> fs.FleetState:
    """Lay out the fleet's memory and fill in its first state."""
    n, count, weights, routed = trace.num_requests, fleet.num_replicas, fleet.weights, fleet.routed
    num_legs = int((states[0].pulls.tokens > 0).sum())
    tree = empty_tree(count)
    planned = np.arange(n) if waits is None else np.flatnonzero(waits.num_parents == 0)
    limit = None if waits is None else waits.sessions
    if limit is not None:
        planned = planned[limit.of_request[planned] < limit.most]
    asks = fields_read(fleet.router.score, ReplicaLoad._fields) & OF_ADAPTERS
    num_adapters = 1 + max(int(state.adapters.max(initial=-1)) for state in states) if asks else 0
    session = session_numbers(trace) if fleet.router.is_sticky else np.empty(0, np.int64)
    memory = fs.FleetState(
        fleet=_fleet_record(fleet, n, num_legs, len(planned), len(tree) // 2),
        memories=pointers(states),
        replicas=st.records(count, fs.REPLICA),
        due=st.records(count, CONTENDER), due_tree=tree,
        load=st.records(count, CONTENDER), load_tree=np.tile(tree, len(routed)), decode_tree=tree.copy(),
        paces=st.records(count if fleet.steps_together else 1, fs.PACE),
        plans=function_row(plans, PLAN_SIGNATURE),
        **routes_memory(routed, weights, fleet.routes),
        ready=st.records(1 if waits is None else n + 1, entries.FLOAT_HEAP),
        releases=st.records(num_legs + 1, entries.FLOAT_HEAP),
        planned=planned,
        requests=states[0].requests,
        pulls=states[0].pulls,
        cancel_after_s=states[0].cancel_after_s,
        first_token_within_s=states[0].first_token_within_s,
        phases=states[0].phases,
        **gateway_memory(trace, fleet.overload),
        replica_of=np.full(len(states[0].requests), st.NONE),
        session=session,
        home=np.full(int(session.max(initial=-1)) + 1, st.NONE),
        adapter_requests=np.zeros(count * num_adapters, np.int64),
        **_waits_memory(waits),
    )
    if limit is not None:
        memory.fleet.num_sessions, memory.fleet.next_session = len(limit.num_requests), limit.most
    memory.fleet.num_adapters = num_adapters
    memory.gateway.has_tiers = any(state.settings.has_tiers for state in states)
    memory.replicas.is_open = 1
    memory.replicas.weight = weights
    memory.replicas.first_rank, memory.replicas.num_ranks = zip(*fleet.ranks, strict=True)
    memory.due.key = math.inf
    enter_all(memory.due_tree, np.arange(count))
    for one_tree, replicas in zip(memory.load_tree.reshape(len(routed), -1), routed, strict=True):
        enter_all(one_tree, replicas)
    enter_all(memory.decode_tree, np.arange(fleet.num_prefill or count, count))
    return memory


def _waits_memory(waits: Dependencies | None) -> dict[str, Any]:
    """Return the fields of the fleet's memory with the dependencies among requests; empty ones without any."""
    limit = None if waits is None else waits.sessions
    nobody = np.empty(0, np.int64)
    parts = (waits, ("first_child", "children", "num_parents")), (limit, ("first_root", "roots"))
    arrays = {name: nobody if part is None else getattr(part, name).copy() for part, names in parts for name in names}
    return arrays | {"think_s": np.empty(0) if waits is None else waits.think_s,
                     "session_of": nobody if limit is None else limit.of_request,
                     "session_left": nobody if limit is None else limit.num_requests.copy()}


def _fleet_record(fleet: RoutedFleet, num_requests: int, num_legs: int, num_planned: int, tree_size: int) -> Any:
    record = st.records(1, fs.FLEET)[0]
    router = fleet.router
    record.now_s = -math.inf
    record.until_s = math.inf
    record.report_interval_s = fleet.report_interval_s
    record.next_report_s = 0.0 if fleet.report_interval_s > 0 else math.inf
    record.num_replicas = fleet.num_replicas
    record.num_routes = 1 if fleet.routes is None else len(fleet.routes.pools)
    record.num_planned = num_planned
    record.num_requests = num_requests
    record.num_left = num_requests + num_legs
    if fleet.transfer is not None:
        record.num_prefill = fleet.num_prefill
        record.pull_s_per_token = fleet.transfer.s_per_token
        record.pull_s_per_request = fleet.transfer.s_per_request
        record.pull_latency_s = fleet.transfer.latency_s
        record.layer_share = fleet.transfer.layer_share
        record.local_prefill_below = fleet.transfer.local_prefill_below
    record.has_children = num_planned < num_requests
    record.max_concurrency = fleet.pools[0].deployment.settings.max_concurrency or NO_LIMIT  # the client's: of all
    record.random = seeded(fleet.seed)
    record.tree_size = tree_size
    record.scored_replica = st.NONE
    for name in ("num_choices", "takes_turns", "is_sticky"):
        setattr(record, name, getattr(router, name))
    read = fields_read(router.score, ReplicaLoad._fields)
    for name, fields in (("reads_engines", OF_ENGINES), ("reads_caches", OF_CACHES), ("reads_adapters", OF_ADAPTERS),
                         ("reads_requests", OF_REQUESTS)):
        setattr(record, name, bool(read & fields))
    return record
