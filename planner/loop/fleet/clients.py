"""Clients: attempts of a request until an answer, its client's patience, or the retry limit ends it.

An attempt ends when its request leaves its replica, is turned away, or is lost with a replica. After a back-off it is
sent again, as a request of which nothing is known. The end of the last attempt is the request's.
"""

import math
from typing import Any

from planner.loop.api_server import forget_finishes, forget_patience
from planner.loop.compiled.generator import MODULUS, following
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import heap_pop, heap_push
from planner.loop.fleet.transfers import is_split, last_half
from planner.loop.overlap import is_end_in_flight, yield_ended
from planner.loop.state.binding import bind_at
from planner.loop.state.client_state import BACKED_OFF, DELAYED, GONE, QUEUED
from planner.loop.state.engine_state import (
    CANCELLED,
    COMPLETED,
    LOST,
    NONE,
    NOT_ARRIVED,
    OVERLOADED,
    REJECTED,
    THROTTLED,
    TIMED_OUT,
    UNAVAILABLE,
)
from planner.loop.state.fleet_state import FleetState


@jit
def begin_attempt(f: FleetState, i: int) -> None:
    """Let a request's client send it, for the first time or again."""
    client = f.clients[i]
    client.sent_s = f.fleet.now_s
    client.num_attempts += 1
    if client.num_attempts > 1:
        forget(f, i)
        return
    client.first_sent_s = f.fleet.now_s
    client.gives_up_s += f.fleet.now_s  # until now it was how long its user waits


@jit
def forget(f: FleetState, i: int) -> None:
    """Let a request be as if it had never been sent, both halves of it."""
    forget_half(f, i)
    if is_split(f, i):
        leg = f.fleet.num_requests + i
        forget_half(f, leg)
        f.pulls[leg].sendable_s = 0.0
        f.pulls[leg].received_s = 0.0
        f.pulls[leg].loaded_s = 0.0
        f.pulls[leg].transfer_s = 0.0


@jit
def forget_half(f: FleetState, i: int) -> None:
    request = f.requests[i]
    request.state = REJECTED if request.max_output_tokens < 1 else NOT_ARRIVED
    request.first_scheduled_s = math.nan
    request.first_token_s = math.nan
    request.finished_s = math.nan
    request.last_token_s = math.nan
    request.preempted_s = 0.0
    request.stalled_s = 0.0
    request.num_output_tokens = 0
    request.num_computed_tokens = 0
    request.num_scheduled_tokens = 0
    request.num_offered_tokens = 0
    request.num_cached_tokens = NONE
    request.num_lost_tokens = 0
    request.input_tokens += request.num_skipped_tokens
    request.num_skipped_tokens = 0
    request.num_recomputed_tokens = 0
    request.num_preemptions = 0
    request.flight = NONE
    s = bind_at(f.memories, 0)  # of any replica: the memories share the requests' records
    if f.gateway.has_tiers:
        fetch = s.fetches[i]
        fetch.waited_s = 0.0
        fetch.cpu_tokens = 0
        fetch.remote_tokens = 0
    if s.settings.records_steps:
        phases = f.phases[i]
        phases.prefill_s = 0.0
        phases.decode_s = 0.0
        phases.interference_s = 0.0
        phases.transfer_s = 0.0
    f.replica_of[i] = NONE


@jit
def attempt_ends_s(f: FleetState, i: int) -> float:
    """Return when the client ends an attempt that has brought no token."""
    client, gateway = f.clients[i], f.gateway
    patience_s = min(gateway.request_timeout_s, gateway.ttft_timeout_s)
    return float(min(client.gives_up_s, client.sent_s + patience_s))


@jit
def turn_away(f: FleetState, i: int, outcome: int) -> bool:
    """End an attempt that has reached no replica; tell whether its request goes on."""
    request, now_s = f.requests[i], f.fleet.now_s
    request.state = outcome
    request.arrival_s = now_s
    request.reached_s = now_s
    request.finished_s = now_s
    return end_attempt(f, i)


@jit
def end_attempt(f: FleetState, i: int) -> bool:
    """Write an attempt down that has ended as the request's state says; tell whether the request goes on."""
    request, client, gateway, now_s = f.requests[i], f.clients[i], f.gateway, f.fleet.now_s
    half = last_half(f, i)
    last = f.requests[half]
    if last.state == CANCELLED and now_s < client.gives_up_s:
        last.state = TIMED_OUT
    if last.state == COMPLETED and is_late(f, i):
        last.state = TIMED_OUT  # it came in the step in which its client hung up
        s = bind_at(f.memories, f.replica_of[half])
        forget_patience(s, half)
        forget_finishes(s)
        if is_end_in_flight(s, half):
            yield_ended(s, half)
    computed = num_computed(request)
    if half != i and last.num_cached_tokens >= 0:
        computed += max(num_computed(last) - f.pulls[half].tokens, 0)
    row = f.attempts[gateway.num_attempt_rows]
    gateway.num_attempt_rows += 1
    row.sent_s = client.sent_s
    row.first_scheduled_s = request.first_scheduled_s
    row.first_token_s = request.first_token_s
    row.ended_s = last.finished_s
    row.request = i
    row.number = client.num_attempts
    row.replica = f.replica_of[i]
    row.decode_replica = f.replica_of[half]
    row.outcome = last.state
    row.num_output_tokens = num_output_tokens(f, i)
    row.num_computed_tokens = computed
    client.stage = GONE
    if not tries_again(f, i):
        return False
    backoff_s = draw_backoff_s(f, client.num_attempts) if gateway.max_retries > 0 else 0.0
    wake_at(f, i, BACKED_OFF, min(now_s + backoff_s, client.gives_up_s))
    return True


@jit
def is_late(f: FleetState, i: int) -> bool:
    """Tell whether an answer that is there now comes after its client hung up, for want of it or of a first token."""
    client, gateway = f.clients[i], f.gateway
    is_slow = f.fleet.now_s > client.sent_s + gateway.request_timeout_s
    return bool(is_slow or f.requests[i].first_token_s > client.sent_s + gateway.ttft_timeout_s)


@jit
def num_computed(request: Any) -> int:
    """Return the tokens that steps have computed for a request, with repeats after preemption."""
    computed = request.num_computed_tokens - max(request.num_cached_tokens, 0) + request.num_recomputed_tokens
    return int(max(computed, 0))


@jit
def num_output_tokens(f: FleetState, i: int) -> int:
    """Return the output of an attempt, of both halves."""
    tokens, half = f.requests[i].num_output_tokens, last_half(f, i)
    return int(tokens if half == i else tokens + f.requests[half].num_output_tokens)


@jit
def tries_again(f: FleetState, i: int) -> bool:
    """Tell whether a client sends a request again; one that a replica has lost is sent again once at least."""
    state, client = f.requests[last_half(f, i)].state, f.clients[i]
    if client.gives_up_s <= f.fleet.now_s:
        return False
    if state == LOST:
        return bool(client.num_attempts <= max(f.gateway.max_retries, 1))
    may = state in (TIMED_OUT, OVERLOADED, THROTTLED, UNAVAILABLE)
    return bool(may and client.num_attempts <= f.gateway.max_retries)


@jit
def draw_backoff_s(f: FleetState, num_attempts: int) -> float:
    """Return the pause after `num_attempts` attempts [s]: min(initial · multiplier^(n − 1), most), and a drawn share.

    Source: SGLang's router, `BackoffCalculator` (sgl-model-gateway/src/core/retry.rs).
    """
    gateway = f.gateway
    backoff_s = min(gateway.initial_backoff_s * gateway.backoff_multiplier ** (num_attempts - 1.0),
                    gateway.max_backoff_s)
    if gateway.jitter == 0.0:
        return float(backoff_s)
    gateway.random = following(gateway.random)
    return float(backoff_s * (1.0 + gateway.jitter * (2.0 * gateway.random / MODULUS - 1.0)))


@jit
def wake_at(f: FleetState, i: int, stage: int, instant_s: float) -> None:
    """Let something happen to a request that is at no replica, at an instant."""
    client, gateway = f.clients[i], f.gateway
    client.stage = stage
    client.wake_s = instant_s
    if instant_s == math.inf:
        return
    if gateway.num_wakes == gateway.most_wakes:
        rebuild_wakes(f)
    else:
        gateway.num_wakes = heap_push(f.wakes, gateway.num_wakes, instant_s, i)


@jit
def rebuild_wakes(f: FleetState) -> None:
    """Fill the heap anew, without the entries of requests that went on before their instant."""
    size = 0
    for i in range(f.fleet.num_requests):
        if is_asleep(f, i) and f.clients[i].wake_s < math.inf:
            size = heap_push(f.wakes, size, f.clients[i].wake_s, i)
    f.gateway.num_wakes = size


@jit
def is_asleep(f: FleetState, i: int) -> bool:
    """Tell whether a request waits outside replicas for an instant."""
    return bool(f.clients[i].stage in (BACKED_OFF, DELAYED, QUEUED))


@jit
def next_wake_s(f: FleetState) -> float:
    """Return when something happens next to a request that is at no replica; outdated entries are swept."""
    gateway = f.gateway
    while gateway.num_wakes > 0:
        i = f.wakes[0].request
        if is_asleep(f, i) and f.clients[i].wake_s == f.wakes[0].key:
            return float(f.wakes[0].key)
        gateway.num_wakes = heap_pop(f.wakes, gateway.num_wakes)
    return math.inf


@jit
def pop_wake(f: FleetState) -> int:
    """Take the request out to which something happens next."""
    i = f.wakes[0].request
    f.gateway.num_wakes = heap_pop(f.wakes, f.gateway.num_wakes)
    return int(i)


@jit
def release_children(f: FleetState, i: int) -> None:
    """Send requests, after their pause, whose last parent has just finished, and start the next session."""
    fleet = f.fleet
    if not fleet.has_children:
        return
    for place in range(f.first_child[i], f.first_child[i + 1]):
        child = f.children[place]
        f.num_parents[child] -= 1
        if f.num_parents[child] == 0:
            fleet.num_ready = heap_push(f.ready, fleet.num_ready, fleet.now_s + f.think_s[child], child)
    if fleet.num_sessions > 0:
        leave_session(f, i)


@jit
def leave_session(f: FleetState, i: int) -> None:
    """Start the next session if this request was the last of its own.

    Its first requests keep their distances from its first arrival, which may be later than now.
    """
    fleet, session = f.fleet, f.session_of[i]
    f.session_left[session] -= 1
    if f.session_left[session] > 0 or fleet.next_session >= fleet.num_sessions:
        return
    first, last = f.first_root[fleet.next_session], f.first_root[fleet.next_session + 1]
    fleet.next_session += 1
    late_s = max(fleet.now_s - f.requests[f.roots[first]].arrival_s, 0.0)
    for place in range(first, last):
        root = f.roots[place]
        fleet.num_ready = heap_push(f.ready, fleet.num_ready, f.requests[root].arrival_s + late_s, root)


@jit
def conclude(f: FleetState, i: int) -> None:
    """Account for a request that is through, with both halves of it."""
    f.fleet.num_left -= 2 if is_split(f, i) else 1
    f.fleet.num_in_flight -= 1
    release_children(f, i)
