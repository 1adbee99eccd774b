"""KV transfers between replicas: queues of the links, blocks held meanwhile, and cancelled transfers.

The sender of a request's KV keeps its blocks until the receiver has taken it. An attempt that ends before gives them
back at once, and its places on both links: for later transfers a link is free earlier by the rest of the cancelled
transfer; earlier transfers keep their times.
"""

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import heap_pop, heap_push, heap_without
from planner.loop.fleet.lockstep import pass_time_at
from planner.loop.memory.blocks import release_blocks
from planner.loop.overlap import is_end_in_flight, yield_ended
from planner.loop.state.binding import bind_at
from planner.loop.state.engine_state import NONE
from planner.loop.state.fleet_state import FleetState


@jit
def is_split(f: FleetState, i: int) -> bool:
    """Tell whether a request is prefilled by one replica and decoded by another."""
    return bool(f.fleet.num_prefill > 0 and f.pulls[i].is_held)


@jit
def last_half(f: FleetState, i: int) -> int:
    """Return the current half of a request: its decode, once it was handed over; else itself."""
    leg = int(f.fleet.num_requests + i)
    return leg if is_split(f, i) and f.replica_of[leg] != NONE else i


@jit
def put_on_link(f: FleetState, k: int, i: int) -> None:
    """Put the KV of a request that replica `k` has prefilled on its link at once, after the transfers on it.

    Layer by layer it has been on it since the prompt began, and at least one layer is left.
    """
    fleet, request, pull, replica = f.fleet, f.requests[i], f.pulls[f.fleet.num_requests + i], f.replicas[k]
    whole_s = fleet.pull_s_per_request + pull.tokens * fleet.pull_s_per_token
    left_s = max(whole_s - (fleet.now_s - request.first_scheduled_s), whole_s * fleet.layer_share)
    pull.transfer_s = min(left_s, whole_s)
    pull.latency_s = fleet.pull_latency_s
    replica.link_free_s = max(replica.link_free_s, fleet.now_s) + pull.transfer_s
    pull.sendable_s = replica.link_free_s


@jit
def note_pulls(f: FleetState, k: int) -> None:
    """Note when the transfers that a replica has begun end: until then their senders hold their blocks."""
    fleet = f.fleet
    s = bind_at(f.memories, k)
    for place in range(s.engine.num_pulls):
        leg = s.pulled[place]
        first = leg - fleet.num_requests
        fleet.num_releases = heap_push(f.releases, fleet.num_releases, f.pulls[leg].loaded_s, first)
    s.engine.num_pulls = 0


@jit
def release_next(f: FleetState) -> int:
    """Return the blocks of the next request whose KV has been taken; return the replica that had them."""
    fleet = f.fleet
    fleet.now_s = max(fleet.now_s, f.releases[0].key)
    i = int(f.releases[0].request)
    fleet.num_releases = heap_pop(f.releases, fleet.num_releases)
    give_back(f, i)
    return int(f.replica_of[i])


@jit
def give_back(f: FleetState, i: int) -> None:
    """Return the blocks that a request holds at its prefill replica."""
    s = bind_at(f.memories, f.replica_of[i])
    s.engine.num_held -= 1
    release_blocks(s, i)
    if s.engine.now_s < f.fleet.now_s:  # nothing could be scheduled since then
        pass_time_at(f, f.replica_of[i], f.fleet.now_s)


@jit
def holds_kv(f: FleetState, i: int) -> bool:
    """Tell whether a request that runs at no prefilling replica holds blocks there, for another to take their KV."""
    return bool(is_split(f, i) and f.requests[i].num_blocks > 0)


@jit
def abandon(f: FleetState, i: int) -> None:
    """Give back an ended attempt's time on both replicas' links, and its sender's blocks."""
    fleet, leg = f.fleet, f.fleet.num_requests + i
    pull, s = f.pulls[leg], bind_at(f.memories, f.replica_of[i])
    if is_end_in_flight(s, i):  # its row after the end would take blocks again
        yield_ended(s, i)
    if f.replica_of[leg] != NONE:
        f.replicas[f.replica_of[i]].link_free_s -= left_s(pull.sendable_s, pull.transfer_s, fleet.now_s)
        if f.requests[leg].num_cached_tokens >= 0:  # it was asked for
            receiver = bind_at(f.memories, f.replica_of[leg]).engine
            receiver.link_free_s -= left_s(pull.received_s, pull.transfer_s, fleet.now_s)
            fleet.num_releases = heap_without(f.releases, fleet.num_releases, i)
    give_back(f, i)


@jit
def left_s(end_s: float, transfer_s: float, now_s: float) -> float:
    """Return the remaining time at an instant of a transfer that a link finishes at `end_s` [s]."""
    return float(min(max(end_s - now_s, 0.0), transfer_s))
