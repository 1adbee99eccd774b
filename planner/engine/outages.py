"""A replica fails: what runs, loads and waits there is lost. It comes back as an engine that has just started.

The step that runs at that instant is counted as work, and what it would have brought is not.
"""

import math

from planner.engine.arrivals import withdraw
from planner.engine.client_state import SENT
from planner.engine.fleet_state import FleetState
from planner.engine.jit import jit
from planner.engine.state import DECODE, LOST, NONE, NOT_ARRIVED, REJECTED, WAITING, State


@jit
def lose_requests(f: FleetState, s: State, k: int) -> None:
    """Take from replica `k` all requests that were sent to it and have not left it before now."""
    now_s = f.fleet.now_s
    for i in range(f.fleet.num_requests):
        if f.replica_of[i] != k or f.clients[i].stage != SENT:
            continue
        request = f.requests[i]
        if WAITING <= request.state <= DECODE:
            withdraw(s, i)
        elif request.state == NOT_ARRIVED or request.state == REJECTED:
            request.reached_s = now_s  # on its way to the scheduler
        request.state = LOST
        request.finished_s = now_s
        if request.first_token_s > now_s:
            request.first_token_s = math.nan
            request.num_output_tokens = 0
        if request.first_scheduled_s > now_s:
            request.first_scheduled_s = math.nan


@jit
def restart(s: State) -> None:
    """Let an engine that holds no request be as it was at first, but for its clock, its totals and what it caches."""
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
    e.frontend_free_s = -math.inf
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
    for stage in range(s.settings.pipeline_depth):
        s.flights[stage].stage_free_s = 0.0


@jit
def know_idle(f: FleetState, k: int) -> None:
    """Let the router know that replica `k` has nothing to do."""
    replica = f.replicas[k]
    replica.known_requests = 0
    replica.known_tokens = 0
    replica.known_running = 0
    replica.known_waiting = 0
    replica.known_blocks = 0
    replica.num_unreported = 0
