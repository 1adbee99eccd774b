"""The fleet's loop: requests are sent to replicas, and each replica runs alone until another depends on its state.

Everything happens in the order of time: at one instant requests leave, the router hears of its replicas, others are
sent, and steps begin. A replica without a new request is left alone until a request may leave it
(`stretch.quiet_until_s`); nothing depends on its state before. So an event costs the search for the replica that is
due next, log₂ of their number, unless a router reads engines, caches or adapters: then all are brought up to the
instant of each request, or of each report.
"""

import math
from typing import Any

import numpy as np

from planner.loop.api_server import forget_patience, next_event_s
from planner.loop.compiled.function_rows import plan_at, score_at
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import heap_pop, heap_push
from planner.loop.compiled.tournament import enter
from planner.loop.decode_runs import quiet_until_s
from planner.loop.fleet.clients import conclude, end_attempt, is_late, release_children
from planner.loop.fleet.gateway import answer_call, attempt, charge_output, next_call_s
from planner.loop.fleet.lockstep import lags, run_ranks, watch_ranks
from planner.loop.fleet.outages import is_lost, know_idle, len_halves, lose_kv, lose_requests, restart
from planner.loop.fleet.routing import arrange, choose, count_adapter, decodes_only, rate
from planner.loop.fleet.transfers import abandon, holds_kv, is_split, note_pulls, put_on_link, release_next
from planner.loop.loop import run_until
from planner.loop.state.binding import bind_at, bind_fleet
from planner.loop.state.engine_state import BAD_SCORE, COMPLETED, DONE, FLUSH, NONE, PAUSED, STUCK, UNAVAILABLE, State
from planner.loop.state.fleet_state import LEFT, WORKS, FleetState


def advance_fleet(memories: Any, scores: Any) -> int:
    """Replay until all have left (DONE), `until_s` is reached (PAUSED), or a replica stops (`Fleet.faulty`)."""
    f, score = bind_fleet(memories), score_at(scores, 0)
    fleet = f.fleet
    if fleet.is_rearranged:
        arrange(f, score)
    elif fleet.num_sent == 0:
        rate_all(f, score)
    if f.gateway.failing != NONE:
        outcome = fail(f, score)
        if outcome != DONE:
            return outcome
    while True:
        k = f.due_tree[1]
        due_s, sent_s = f.due[k].key, next_sent_s(f)
        if f.gateway.is_on:
            if f.gateway.num_attempt_rows + fleet.num_requests > f.gateway.most_attempt_rows:
                fleet.faulty = NONE
                return FLUSH
            sent_s = min(sent_s, max(next_call_s(f), fleet.now_s))
        freed_s = f.releases[0].key if fleet.num_releases > 0 else math.inf
        next_s = min(due_s, sent_s, freed_s)
        if fleet.has_bad_score:
            return BAD_SCORE
        if fleet.num_left == 0:
            return finish_steps(f)
        if next_s >= fleet.until_s and (fleet.next_report_s >= fleet.until_s or next_s == math.inf):
            outcome = bring_up(f, fleet.until_s) if fleet.is_watched and fleet.until_s < math.inf else DONE
            if outcome != DONE:
                return outcome
            fleet.now_s = max(fleet.now_s, fleet.until_s)
            return PAUSED if fleet.until_s < math.inf else STUCK
        if freed_s <= min(due_s, sent_s, fleet.next_report_s):
            watch(f, release_next(f), False)
        elif f.due[k].tie == LEFT and due_s <= min(sent_s, fleet.next_report_s):
            publish(f, k, score)
        elif fleet.next_report_s <= next_s:
            outcome = bring_up(f, fleet.next_report_s)
            if outcome != DONE:
                return outcome
            report(f, score, next_s)
        elif sent_s <= due_s:
            outcome = bring_up(f, sent_s)
            if outcome != DONE:
                return outcome
            if f.gateway.is_on:
                call(f, sent_s, score)
            else:
                send(f, sent_s, score)
        else:
            until_s = min(sent_s, freed_s, fleet.until_s, np.nextafter(due_s, math.inf))
            outcome = run(f, k, until_s)
            if outcome != DONE:
                return outcome


@jit
def rate_all(f: FleetState, score: Any) -> None:
    for k in range(f.fleet.num_replicas):
        rate(f, k, score)


@jit
def next_sent_s(f: FleetState) -> float:
    """Return when the next request is sent: as planned, or after its parents; in a closed loop once a place is free."""
    fleet = f.fleet
    if fleet.num_in_flight >= fleet.max_concurrency or (fleet.num_closed_routes > 0 and not f.gateway.is_on):
        return math.inf
    sent_s = math.inf
    if fleet.next_planned < fleet.num_planned:
        sent_s = f.requests[f.planned[fleet.next_planned]].arrival_s
    if fleet.num_ready > 0:
        sent_s = min(sent_s, f.ready[0].key)
    return float(max(sent_s, fleet.now_s))


@jit
def send(f: FleetState, sent_s: float, score: Any) -> None:
    """Send the next request to a replica."""
    f.fleet.now_s = sent_s
    f.fleet.num_in_flight += 1
    hand_to(f, take_next(f), sent_s, score)


@jit
def call(f: FleetState, sent_s: float, score: Any) -> None:
    """Run the gateway's next action, or take the next request that is sent for the first time."""
    f.fleet.now_s = sent_s
    if next_call_s(f) <= sent_s:
        i = answer_call(f)
    else:
        f.fleet.num_in_flight += 1
        i = attempt(f, take_next(f))
    if i != NONE:
        hand_to(f, i, sent_s, score)


@jit
def hand_to(f: FleetState, i: int, sent_s: float, score: Any) -> None:
    """Give a request to the replica that the router chooses."""
    fleet = f.fleet
    k = choose(f, i, score)
    fleet.num_sent += 1
    request = f.requests[i]
    request.arrival_s = sent_s
    request.next = NONE
    replica = f.replicas[k]
    s = bind_at(f.memories, k)
    if s.engine.next_request == NONE:
        s.engine.next_request = i
    else:
        f.requests[replica.inbox_tail].next = i
    replica.inbox_tail = i
    f.replica_of[i] = k
    if fleet.reads_adapters:
        count_adapter(f, k, i, 1)
    replica.num_sent += 1
    replica.num_requests += 1
    replica.num_tokens += request.input_tokens
    replica.num_unreported += 1
    replica.known_requests += 1
    replica.known_tokens += request.input_tokens
    f.load[k].tie = fleet.num_sent
    if fleet.is_sticky and not decodes_only(f, k):
        f.home[f.session[i]] = k
    rate(f, k, score)
    watch(f, k, False)


@jit
def take_next(f: FleetState) -> int:
    """Take out the request that is sent next: of equal instants, the first in the trace."""
    fleet = f.fleet
    i = f.planned[fleet.next_planned] if fleet.next_planned < fleet.num_planned else NONE
    if fleet.num_ready > 0:
        j = f.ready[0].request
        planned_s = math.inf if i == NONE else f.requests[i].arrival_s
        if f.ready[0].key < planned_s or (f.ready[0].key == planned_s and j < i):
            fleet.num_ready = heap_pop(f.ready, fleet.num_ready)
            return int(j)
    fleet.next_planned += 1
    return int(i)


@jit
def run(f: FleetState, k: int, until_s: float) -> int:
    """Let a replica take its steps that start before an instant; DONE unless the fleet's loop has to stop there."""
    replica = f.replicas[k]
    if replica.num_ranks > 0:
        outcome = run_ranks(f, replica.first_rank, until_s)
    else:
        s = bind_at(f.memories, k)
        s.engine.until_s = until_s
        f.fleet.running = k
        outcome = run_until(s, plan_at(f.plans, k))
    if outcome not in (DONE, PAUSED, STUCK):  # a row buffer is full, or the policy is at fault
        f.fleet.faulty = f.fleet.running
        return int(outcome)
    for rank in range(replica.first_rank, replica.first_rank + max(replica.num_ranks, 1)):
        note_pulls(f, rank)
    watch(f, k, outcome == STUCK)
    return DONE


@jit
def finish_steps(f: FleetState) -> int:
    """Let replicas whose requests have all left take the step in which the last has a row after its end."""
    for k in range(f.fleet.num_replicas):
        if lags(f, k, math.inf):
            outcome = run(f, k, math.inf)
            if outcome != DONE:
                return outcome
    return DONE


@jit
def watch(f: FleetState, k: int, is_stuck: bool) -> None:
    """Note when a replica has to be looked at next."""
    if f.replicas[k].num_ranks > 0:
        watch_ranks(f, f.replicas[k].first_rank, is_stuck)
        return
    s = bind_at(f.memories, k)
    fleet = f.fleet
    if s.engine.last_to_leave != NONE:
        enter(f.due, f.due_tree, 0, fleet.tree_size, k, s.engine.now_s, LEFT)
    elif is_stuck:
        fleet.faulty = k
        enter(f.due, f.due_tree, 0, fleet.tree_size, k, max(next_event_s(s), s.engine.now_s), WORKS)
    else:
        enter(f.due, f.due_tree, 0, fleet.tree_size, k, quiet_until_s(s), WORKS)


@jit
def publish(f: FleetState, k: int, score: Any) -> None:
    """Tell the client, the router and dependent requests that requests have just left a replica."""
    f.fleet.now_s = max(f.fleet.now_s, f.due[k].key)
    for rank in range(k, k + max(f.replicas[k].num_ranks, 1)):
        see_off(f, rank, score)
    watch(f, k, False)


@jit
def see_off(f: FleetState, k: int, score: Any) -> None:
    """Account for the requests that have just left a replica, and let the router know of them."""
    fleet, replica = f.fleet, f.replicas[k]
    s = bind_at(f.memories, k)
    i = first_to_leave(s)
    while i != NONE:
        following = s.left_before[i]
        leave(f, k, i, score)
        i = following
    if fleet.report_interval_s == 0.0:
        replica.known_requests = replica.num_requests
        replica.known_tokens = replica.num_tokens
    if fleet.report_interval_s == 0.0 or decodes_only(f, k):
        rate(f, k, score)


@jit
def first_to_leave(s: State) -> int:
    """Return the first of the requests that left since the fleet was last told, and reverse their list."""
    i, following = s.engine.last_to_leave, NONE
    while i != NONE:
        before = s.left_before[i]
        s.left_before[i] = following
        following, i = i, before
    s.engine.last_to_leave = NONE
    return int(following)


@jit
def leave(f: FleetState, k: int, i: int, score: Any) -> None:
    """Account for a request that has left replica `k`: it is through, or goes on to be decoded."""
    fleet, replica = f.fleet, f.replicas[k]
    if fleet.reads_adapters:
        count_adapter(f, k, i, -1)
    replica.num_requests -= 1
    replica.num_tokens -= f.requests[i].input_tokens
    if f.gateway.is_on:
        settle(f, k, i, score)
        return
    fleet.num_left -= 1
    if fleet.num_prefill > 0 and i < fleet.num_requests and f.pulls[i].is_held:
        hand_over(f, k, i, score)
        return
    fleet.num_in_flight -= 1
    first = i - fleet.num_requests if i >= fleet.num_requests else i
    if first != i and f.requests[i].num_cached_tokens < 0:  # it left before its KV was asked for
        fleet.num_releases = heap_push(f.releases, fleet.num_releases, fleet.now_s, first)
    release_children(f, first)


@jit
def settle(f: FleetState, k: int, i: int, score: Any) -> None:
    """Go on with a request that has left replica `k`, by its client's rules: to its decode, to another attempt, or not.
    """
    first = i - f.fleet.num_requests if i >= f.fleet.num_requests else i
    if first == i and is_split(f, i) and f.requests[i].state == COMPLETED and not is_late(f, i):
        if f.decode_tree[1] != NONE:
            hand_over(f, k, i, score)
            return
        f.requests[i].state = UNAVAILABLE
    f.gateway.num_dispatched -= 1
    charge_output(f, first)
    goes_on = end_attempt(f, first)
    if holds_kv(f, first):
        abandon(f, first)
        watch(f, f.replica_of[first], False)
    if not goes_on:
        conclude(f, first)


@jit
def fail(f: FleetState, score: Any) -> int:
    """Let a replica fail now; DONE, or why not."""
    fleet, k = f.fleet, f.gateway.failing
    for j in range(fleet.num_replicas):  # decode replicas have received its KV
        s = bind_at(f.memories, j)
        is_met = j == k or (k < fleet.num_prefill and decodes_only(f, j))
        if is_met and lags(f, j, fleet.now_s):
            outcome = run(f, j, fleet.now_s)
            if outcome != DONE:
                return outcome
    s = bind_at(f.memories, k)
    if s.engine.last_to_leave != NONE and s.engine.now_s <= fleet.now_s:
        publish(f, k, score)
    f.gateway.failing = NONE
    lose_requests(f, s, k)
    lose_kv(f, k)
    restart(s)
    for i in range(len_halves(f)):
        if is_lost(f, i):
            j = int(f.replica_of[i])
            leave(f, j, i, score)
            watch(f, j, False)
    know_idle(f, k)
    watch(f, k, False)
    return DONE


@jit
def bring_up(f: FleetState, instant_s: float) -> int:
    """Let all replicas take their steps that start before an instant, if their state is read then; DONE, or why not.

    No request leaves a replica earlier: the loop has handled earlier ends. Caches tell of their blocks at once,
    engines of themselves at once or in reports.
    """
    fleet = f.fleet
    reads_now = fleet.reads_engines and fleet.report_interval_s == 0.0
    is_report = fleet.reads_engines and instant_s == fleet.next_report_s
    is_watched = fleet.is_watched and instant_s == fleet.until_s
    if not (reads_now or is_report or is_watched or fleet.reads_caches or fleet.reads_adapters):
        return DONE
    for k in range(f.fleet.num_replicas):
        if lags(f, k, instant_s):
            outcome = run(f, k, instant_s)
            if outcome != DONE:
                return outcome
        if reads_now:
            read_engine(f, k)
    return DONE


@jit
def read_engine(f: FleetState, k: int) -> None:
    """Give the router the load that an engine reports."""
    replica = f.replicas[k]
    s = bind_at(f.memories, k)
    replica.known_running = s.engine.num_running
    replica.known_waiting = s.engine.num_waiting
    replica.num_unreported = replica.num_requests - replica.known_running - replica.known_waiting
    replica.known_blocks = s.settings.num_gpu_blocks - s.engine.num_free_blocks


@jit
def report(f: FleetState, score: Any, next_s: float) -> None:
    """Let the router hear of all replicas; until the next report it adds the requests that it sends."""
    fleet = f.fleet
    for k in range(fleet.num_replicas):
        replica = f.replicas[k]
        replica.known_requests = replica.num_requests
        replica.known_tokens = replica.num_tokens
        if fleet.reads_engines:
            read_engine(f, k)
    rate_all(f, score)
    interval_s = fleet.report_interval_s
    number = math.floor(next_s / interval_s) + 1.0  # a sum of intervals would depend on the events between
    fleet.next_report_s = (number if number * interval_s > next_s else number + 1.0) * interval_s


@jit
def hand_over(f: FleetState, k: int, i: int, score: Any) -> None:
    """Send a request that replica `k` has prefilled to one that decodes it; one that failed there is through."""
    fleet, request, leg = f.fleet, f.requests[i], f.fleet.num_requests + i
    if request.state != COMPLETED:
        fleet.num_left -= 1
        fleet.num_in_flight -= 1
        f.requests[leg].state = request.state
        f.requests[leg].finished_s = request.finished_s
        release_children(f, i)
        return
    put_on_link(f, k, i)
    s = bind_at(f.memories, k)
    if s.settings.may_cancel:
        f.cancel_after_s[leg] = max(request.arrival_s + f.cancel_after_s[i] - fleet.now_s, 0.0)
        if s.settings.is_retried:
            forget_patience(s, i)
    hand_to(f, leg, fleet.now_s, score)
