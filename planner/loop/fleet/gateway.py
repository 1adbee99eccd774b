"""The router's gateway: quotas of tenants, and a queue before the replicas, in order of arrival or in fair shares.

If all replicas are full (`max_dispatched`), a request waits; if the queue is full, it is turned away. A quota
is two token buckets, of requests and of tokens; the prompt is charged when a request is sent, its output when it ends.
Fair shares follow the virtual token counter (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024):
the tenant with the least service, in tokens over its weight, goes first; a tenant that comes back to the queue is
lifted to the least in it.
"""

import math

from planner.loop.compiled.jit import jit
from planner.loop.fleet.clients import (
    attempt_ends_s,
    begin_attempt,
    conclude,
    next_wake_s,
    num_output_tokens,
    pop_wake,
    turn_away,
    wake_at,
)
from planner.loop.fleet.routing import route_of
from planner.loop.fleet.transfers import last_half
from planner.loop.state.binding import bind_at
from planner.loop.state.client_state import BACKED_OFF, DELAYED, GONE, QUEUED, SENT
from planner.loop.state.engine_state import CANCELLED, NONE, OVERLOADED, THROTTLED, TIMED_OUT, UNAVAILABLE
from planner.loop.state.fleet_state import FleetState

OUTPUT_WEIGHT = 2.0  # an output token counts as two prompt tokens, as in the paper


@jit
def has_room(f: FleetState) -> bool:
    """Tell whether replicas may be sent one more."""
    return bool(f.gateway.num_dispatched < f.gateway.max_dispatched)


@jit
def is_served(f: FleetState, i: int) -> bool:
    """Tell whether a replica is open for request `i`, and one that decodes if these are apart."""
    return bool(f.routes[route_of(f, i)].num_open > 0 and (f.fleet.num_prefill == 0 or f.decode_tree[1] != NONE))


@jit
def may_leave_queue(f: FleetState) -> bool:
    """Tell whether a request of the router's queue may go to a replica now."""
    return bool(f.gateway.num_queued > 0 and has_room(f) and next_queued(f) != NONE)


@jit
def next_call_s(f: FleetState) -> float:
    """Return when the gateway acts next, first sends of requests excluded."""
    if may_leave_queue(f):
        return float(f.fleet.now_s)
    return next_wake_s(f)


@jit
def answer_call(f: FleetState) -> int:
    """Run the gateway's next action; return a request that goes to a replica now, or NONE."""
    if may_leave_queue(f):
        i = next_queued(f)
        unlink(f, i)
        return dispatched(f, i)
    return wake(f, pop_wake(f))


@jit
def wake(f: FleetState, i: int) -> int:
    """Go on with a request that was at no replica."""
    client, now_s = f.clients[i], f.fleet.now_s
    stage = client.stage
    if stage == QUEUED:
        unlink(f, i)
    if stage == BACKED_OFF and now_s < client.gives_up_s:
        return attempt(f, i)
    if stage == BACKED_OFF:
        request = f.requests[last_half(f, i)]
        request.state = CANCELLED
        request.finished_s = now_s
        client.stage = GONE
        conclude(f, i)
        return NONE
    if now_s >= client.gives_up_s:
        return refused(f, i, CANCELLED)
    if now_s >= attempt_ends_s(f, i):
        return refused(f, i, TIMED_OUT)
    if stage == QUEUED:  # as long as the queue keeps it
        return refused(f, i, OVERLOADED)
    return enter(f, i)


@jit
def attempt(f: FleetState, i: int) -> int:
    """Take a request that its client has just sent; return it if it goes to a replica at once, else NONE."""
    begin_attempt(f, i)
    delay_s = charge(f, i)
    if delay_s == 0.0:
        return enter(f, i)
    if delay_s == math.inf:
        return refused(f, i, THROTTLED)
    wake_at(f, i, DELAYED, min(f.fleet.now_s + delay_s, attempt_ends_s(f, i)))
    return NONE


@jit
def enter(f: FleetState, i: int) -> int:
    """Let a request go on to a replica, wait for one, or be turned away."""
    gateway = f.gateway
    if gateway.rejects_unserved and not is_served(f, i):
        return refused(f, i, UNAVAILABLE)
    if has_room(f) and is_served(f, i) and (gateway.num_queued == 0 or next_queued(f) == NONE):
        lift(f, queue_of(f, i))
        return dispatched(f, i)
    if gateway.num_queued >= gateway.max_queued:
        return refused(f, i, OVERLOADED)
    enqueue(f, i)
    return NONE


@jit
def refused(f: FleetState, i: int, outcome: int) -> int:
    """Turn a request away; NONE."""
    if not turn_away(f, i, outcome):
        conclude(f, i)
    return NONE


@jit
def dispatched(f: FleetState, i: int) -> int:
    """Return a request that goes to a replica now, and set the rest of its client's patience."""
    client, gateway, now_s = f.clients[i], f.gateway, f.fleet.now_s
    client.stage = SENT
    gateway.num_dispatched += 1
    gateway.last_queue = queue_of(f, i)
    tenant = f.tenants[client.tenant]
    tenant.served += f.requests[i].input_tokens / tenant.weight
    if bind_at(f.memories, 0).settings.may_cancel:
        if now_s > client.first_sent_s:  # until then it is the trace's value, to the last bit
            f.cancel_after_s[i] = client.gives_up_s - now_s
        waited_s = now_s - client.sent_s
        f.cancel_after_s[i] = min(f.cancel_after_s[i], gateway.request_timeout_s - waited_s)
        f.first_token_within_s[i] = gateway.ttft_timeout_s - waited_s
    return i


@jit
def charge_output(f: FleetState, i: int) -> None:
    """Charge a tenant for the output of an attempt that has ended."""
    tenant, tokens = f.tenants[f.clients[i].tenant], num_output_tokens(f, i)
    tenant.served += OUTPUT_WEIGHT * tokens / tenant.weight
    tenant.tokens -= tokens


@jit
def charge(f: FleetState, i: int) -> float:
    """Charge a tenant's quota for a request; return how long it has to wait [s], inf if it is turned away.

    If requests are delayed, a bucket that holds less than the request needs is lent the rest, so that later requests
    wait behind it. A prompt larger than the bucket needs a full one.
    """
    tenant, now_s = f.tenants[f.clients[i].tenant], f.fleet.now_s
    if tenant.requests_per_s == math.inf and tenant.tokens_per_s == math.inf:
        return 0.0
    passed_s = now_s - tenant.filled_s
    tenant.filled_s = now_s
    input_tokens = float(f.requests[i].input_tokens)
    wait_s = 0.0
    if tenant.requests_per_s < math.inf:
        tenant.requests = min(tenant.requests + passed_s * tenant.requests_per_s, tenant.most_requests)
        wait_s = max((1.0 - tenant.requests) / tenant.requests_per_s, 0.0)
    if tenant.tokens_per_s < math.inf:
        tenant.tokens = min(tenant.tokens + passed_s * tenant.tokens_per_s, tenant.most_tokens)
        needed = min(input_tokens, tenant.most_tokens)
        wait_s = max(wait_s, (needed - tenant.tokens) / tenant.tokens_per_s)
    if wait_s > 0.0 and not tenant.is_delayed:
        return math.inf
    tenant.requests -= 1.0
    tenant.tokens -= input_tokens
    return float(wait_s)


@jit
def queue_of(f: FleetState, i: int) -> int:
    """Return whose queue a request waits in: its tenant's, or that of all."""
    return int(f.clients[i].tenant) if f.gateway.is_fair else 0


@jit
def lift(f: FleetState, q: int) -> None:
    """Raise the service of a tenant that had no request in the queue, so that idle time earns no credit."""
    gateway = f.gateway
    if not gateway.is_fair or f.tenants[q].head != NONE:
        return
    if gateway.num_queued == 0:
        f.tenants[q].served = max(f.tenants[q].served, f.tenants[gateway.last_queue].served)
    else:
        f.tenants[q].served = max(f.tenants[q].served, f.tenants[least_served(f)].served)


@jit
def least_served(f: FleetState) -> int:
    """Return the waiting tenant that goes first; of equals the first."""
    best = NONE
    for q in range(f.gateway.num_tenants):
        if f.tenants[q].head != NONE and (best == NONE or f.tenants[q].served < f.tenants[best].served):
            best = q
    return best


@jit
def next_queued(f: FleetState) -> int:
    """Return the request that leaves the router's queue next: its route has an open replica; NONE if there is none."""
    if not f.gateway.is_fair:
        return first_served(f, 0)
    best = NONE
    for q in range(f.gateway.num_tenants):
        if first_served(f, q) != NONE and (best == NONE or f.tenants[q].served < f.tenants[best].served):
            best = q
    return NONE if best == NONE else first_served(f, best)


@jit
def first_served(f: FleetState, q: int) -> int:
    """Return the first request of a queue with an open replica; NONE if there is none."""
    i = f.tenants[q].head
    while i != NONE and not is_served(f, i):
        i = NONE if f.fleet.num_routes == 1 else f.clients[i].next
    return int(i)


@jit
def enqueue(f: FleetState, i: int) -> None:
    """Let a request wait at the end of its queue, as long as its client and the queue allow."""
    client, gateway, q = f.clients[i], f.gateway, queue_of(f, i)
    lift(f, q)
    client.next = NONE
    client.previous = f.tenants[q].tail
    if f.tenants[q].tail == NONE:
        f.tenants[q].head = i
    else:
        f.clients[f.tenants[q].tail].next = i
    f.tenants[q].tail = i
    gateway.num_queued += 1
    gateway.peak_queued = max(gateway.peak_queued, gateway.num_queued)
    wake_at(f, i, QUEUED, min(attempt_ends_s(f, i), f.fleet.now_s + gateway.queue_timeout_s))


@jit
def unlink(f: FleetState, i: int) -> None:
    """Take a request out of its queue."""
    client, q = f.clients[i], queue_of(f, i)
    if client.previous == NONE:
        f.tenants[q].head = client.next
    else:
        f.clients[client.previous].next = client.next
    if client.next == NONE:
        f.tenants[q].tail = client.previous
    else:
        f.clients[client.next].previous = client.previous
    f.gateway.num_queued -= 1
