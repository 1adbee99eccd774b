"""Failure of a replica: running, loading and waiting requests are lost; it returns as a new engine.

The step that runs at that instant is counted as work, and its tokens are lost.
"""

import math

from planner.loop.api_server import forget_patience, pass_time, withdraw
from planner.loop.compiled.jit import jit
from planner.loop.fleet.transfers import abandon, holds_kv, last_half
from planner.loop.overlap import land_ends
from planner.loop.state.binding import bind_at
from planner.loop.state.client_state import SENT
from planner.loop.state.engine_state import DECODE, LOADING, LOST, NONE, NOT_ARRIVED, REJECTED, WAITING, State
from planner.loop.state.fleet_state import FleetState


@jit
def len_halves(f: FleetState) -> int:
    """Return the number of request records, with the decode halves of split requests."""
    return int(f.fleet.num_requests * (2 if f.fleet.num_prefill > 0 else 1))


@jit
def is_there(f: FleetState, i: int) -> bool:
    """Tell whether a request, or the half of one, was sent to a replica and has not left it."""
    first = i - f.fleet.num_requests if i >= f.fleet.num_requests else i
    return bool(f.clients[first].stage == SENT and last_half(f, first) == i)


@jit
def is_lost(f: FleetState, i: int) -> bool:
    """Tell whether a request has just been lost; a request on its way is reported by its replica once it arrives."""
    return bool(f.requests[i].state == LOST and not math.isnan(f.requests[i].finished_s) and is_there(f, i))


@jit
def lose_requests(f: FleetState, s: State, k: int) -> None:
    """Take from replica `k` all requests that were sent to it and have not left it before now."""
    now_s = f.fleet.now_s
    land_ends(s)
    for i in range(len_halves(f)):
        if f.replica_of[i] != k or not is_there(f, i):
            continue
        request = f.requests[i]
        if WAITING <= request.state <= DECODE:
            withdraw(s, i)
        elif request.state == NOT_ARRIVED or request.state == REJECTED or request.state == LOST:
            request.reached_s = now_s  # on its way to the scheduler
        request.state = LOST
        request.finished_s = now_s
        if request.first_token_s > now_s:
            request.first_token_s = math.nan
            request.num_output_tokens = 0
        if request.first_scheduled_s > now_s:
            request.first_scheduled_s = math.nan


@jit
def lose_kv(f: FleetState, k: int) -> None:
    """Lose the KV that replica `k` holds for others, and their requests with it, unless it is there by now."""
    if k >= f.fleet.num_prefill:
        return
    now_s = f.fleet.now_s
    for i in range(f.fleet.num_requests):
        if f.replica_of[i] != k or f.clients[i].stage != SENT or not holds_kv(f, i):
            continue
        leg = f.fleet.num_requests + i
        request, s = f.requests[leg], bind_at(f.memories, f.replica_of[leg])
        is_waiting = request.state == WAITING and request.num_cached_tokens < 0
        is_loading = request.state == LOADING and f.pulls[leg].loaded_s > now_s
        abandon(f, i)
        if request.state == NOT_ARRIVED:
            request.state = LOST
        elif is_waiting or is_loading:
            withdraw(s, leg)
            if s.settings.may_cancel:
                forget_patience(s, leg)
            request.state = LOST
            request.finished_s = now_s
            if s.engine.now_s < now_s:
                pass_time(s, now_s)


@jit
def restart(s: State) -> None:
    """Reset an engine without requests to its first state, except its clock, its totals and its cache."""
    e = s.engine
    e.next_request = NONE
    e.last_to_leave = NONE
    e.num_heaped = 0
    e.num_finish_entries = 0
    e.num_cancel_entries = 0
    e.num_loads = 0
    e.num_flights = 0
    e.num_stalled = 0
    e.is_paused = 0
    e.is_full = 0
    e.passes_to_hold = 0
    e.num_lingering = 0
    e.lingering_output = 0
    e.frontend_free_s = -math.inf
    e.link_free_s = -math.inf
    e.last_step_had_prompts = 0
    e.num_decode_only_steps = 0
    e.num_empty_turns = 0
    e.num_held_steps = 0
    e.released_step = e.num_steps
    e.steps_to_poll = 0
    e.step_swapped = 0
    e.promised_blocks = 0
    e.promised_tokens = 0.0
    e.ratio = s.settings.first_ratio
    e.ratio_steps = 0
    e.blocked_request = NONE
    e.blocked_content = NONE
    for stage in range(s.settings.pipeline_parallel_size):
        s.flights[stage].stage_free_s = 0.0


@jit
def know_idle(f: FleetState, k: int) -> None:
    """Let the router know that replica `k` has nothing to do, and nothing on its link."""
    replica = f.replicas[k]
    replica.link_free_s = -math.inf
    replica.known_requests = 0
    replica.known_tokens = 0
    replica.known_running = 0
    replica.known_waiting = 0
    replica.known_blocks = 0
    replica.num_unreported = 0
