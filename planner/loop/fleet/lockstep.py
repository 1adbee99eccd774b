"""Ranks of data-parallel attention: engines that take their steps together.

Each rank has its own scheduler, queue and KV cache, and requests are dealt to ranks. Their experts are spread over all
of them, so a step is one of all ranks: they begin it together, a rank without work with a dummy batch, and it is over
when the slowest rank is through. If it runs as a CUDA graph at every rank, all are padded to the largest rank's
tokens; else each runs its own, and the experts see the sum (`together.Joint`). While all only decode or rest,
`run_decodes_together` takes step after step as `engine.stretch` does for one engine. A rank's wait is the step's time
beyond the time it would take if no rank had more than it; for a resting rank, the whole step.

Sources: vLLM, `DPEngineCoreProc.run_busy_loop`, `execute_dummy_batch` and `coordinate_batch_across_dp`, which takes
the least of the ranks' CUDA graph modes and pads unless that is none (older releases padded every step, but under
--enforce-eager); SGLang, `prepare_mlp_sync_batch`, `get_idle_batch` and `DpPaddingMode`, which pads steps of decodes
and gathers the tokens of others as they are; TensorRT-LLM, `_pad_attention_dp_dummy_request` and
`all_rank_num_tokens`. Left out: a dummy batch has a token of its own, and vLLM's ranks look every 32 steps only whether
all are through, so that an idle group goes on with dummy batches for a moment.
"""

import math

from planner.loop.api_server import cancel_due, hand_over_arrivals, next_arrival_s, next_event_s, pass_time
from planner.loop.compiled.function_rows import plan_at
from planner.loop.compiled.jit import jit
from planner.loop.compiled.tournament import enter
from planner.loop.decode_room import steps_in_memory
from planner.loop.decode_runs import ROUNDING
from planner.loop.decodes import next_finish
from planner.loop.fleet.lockstep_decodes import (
    Joint,
    join,
    joint_decodes,
    longest_pace_s,
    rest,
    rests,
    run_decodes_together,
    run_tokens,
    set_paces,
)
from planner.loop.kv_loading import land_loads
from planner.loop.loop import compose_step
from planner.loop.overlap import forget_lingering, process_result
from planner.loop.reservation import forget_promises
from planner.loop.state.binding import bind_at
from planner.loop.state.engine_state import BAD_PLAN, DONE, FLUSH, NONE, PAUSED, STUCK, State
from planner.loop.state.fleet_state import LEFT, WORKS, FleetState
from planner.loop.step import rows_left, run_step
from planner.loop.step_shape import begin_step
from planner.loop.timing import own_step_s, step_is_graph, step_s, step_tokens
from planner.policies.policy import NO_LIMIT


@jit
def run_ranks(f: FleetState, first: int, until_s: float) -> int:
    """Let a group of ranks take the steps that start before an instant, up to the next departure (PAUSED).

    Otherwise as `loop.run_until`, with the rank that it is about in `Fleet.running`.
    """
    last = first + f.replicas[first].num_ranks
    while True:
        for k in range(first, last):
            f.fleet.running = k
            if not rows_left(bind_at(f.memories, k)):
                return FLUSH
        if bind_at(f.memories, first).engine.now_s >= until_s or look_around(f, first, last, until_s):
            return PAUSED
        if is_idle(f, first, last):
            arrival_s = next_arrival_at_ranks_s(f, first, last)
            if arrival_s >= until_s:
                return DONE if arrival_s == math.inf else PAUSED
            wait_together(f, first, last, arrival_s)
        elif not run_decodes_together(f, first, last, until_s):
            outcome = take_turn(f, first, last, until_s)
            if outcome != DONE:
                return outcome


@jit
def look_around(f: FleetState, first: int, last: int, until_s: float) -> bool:
    """Let the ranks handle arrivals, cancellations and loaded KV; tell whether a request has left one of them."""
    has_left = False
    for k in range(first, last):
        s = bind_at(f.memories, k)
        s.engine.until_s = until_s
        hand_over_arrivals(s)
        cancel_due(s)
        land_loads(s)
        has_left = has_left or s.engine.last_to_leave != NONE
    return has_left


@jit
def is_idle(f: FleetState, first: int, last: int) -> bool:
    """Tell whether no rank has anything to do."""
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if not rests(s) or s.engine.num_loads > 0:
            return False
    return True


@jit
def next_arrival_at_ranks_s(f: FleetState, first: int, last: int) -> float:
    """Return when the next request reaches a rank."""
    arrival_s = math.inf
    for k in range(first, last):
        arrival_s = min(arrival_s, next_arrival_s(bind_at(f.memories, k)))
    return arrival_s


@jit
def next_event_at_ranks_s(f: FleetState, first: int, last: int) -> float:
    """Return the instant at which a request next arrives at a rank, hangs up or has its KV."""
    event_s = math.inf
    for k in range(first, last):
        event_s = min(event_s, next_event_s(bind_at(f.memories, k)))
    return event_s


@jit
def wait_together(f: FleetState, first: int, last: int, arrival_s: float) -> None:
    """Let time pass to the next arrival at an idle group, which sees it at once."""
    for k in range(first, last):
        s = bind_at(f.memories, k)
        s.engine.now_s = max(s.engine.now_s, arrival_s)
        s.engine.passes_to_hold = 0
        forget_lingering(s)
        forget_promises(s)


@jit
def pass_time_together(f: FleetState, first: int, last: int, instant_s: float) -> None:
    """Let time pass without a step."""
    for k in range(first, last):
        pass_time(bind_at(f.memories, k), instant_s)


@jit
def take_turn(f: FleetState, first: int, last: int, until_s: float) -> int:
    """Compose a step at each rank and run them together; if none has one, let time pass. DONE, or why not."""
    has_work, as_graph = False, True
    largest = total = 0
    for k in range(first, last):
        s = bind_at(f.memories, k)
        f.fleet.running = k
        if rests(s):
            begin_step(s)
        elif not compose_step(s, plan_at(f.plans, k)):
            return BAD_PLAN
        if is_in_step(s):
            has_work, as_graph = True, as_graph and step_is_graph(s)
            largest, total = max(largest, step_tokens(s)), total + step_tokens(s)
    if has_work:
        run_together(f, first, last, join(bind_at(f.memories, first).step_time, largest, total, last - first, as_graph))
        return DONE
    has_yielded = False
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if s.engine.num_ended > 0:
            process_result(s)
            has_yielded = True
    if has_yielded:  # the ranks wait for the step that runs, and see arrivals of that time
        pass_time_together(f, first, last, bind_at(f.memories, first).engine.now_s)
        return DONE
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if s.engine.step_preempted > 0 and s.engine.num_empty_turns <= s.settings.most_running:
            s.engine.num_empty_turns += 1  # a step in which all yielded takes no time
            has_yielded = True
        elif s.engine.is_held:
            forget_promises(s)
            has_yielded = True
    if has_yielded:
        return DONE
    event_s = next_event_at_ranks_s(f, first, last)
    if event_s >= until_s:
        return STUCK
    pass_time_together(f, first, last, max(bind_at(f.memories, first).engine.now_s, event_s))
    return DONE


@jit
def is_in_step(s: State) -> bool:
    return bool(s.engine.step_prompts + s.engine.step_decodes > 0)


@jit
def run_together(f: FleetState, first: int, last: int, joint: Joint) -> None:
    """Let the composed steps run, all for as long as the slowest rank's."""
    duration_s = 0.0
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if is_in_step(s):
            rank_s = step_s(s, run_tokens(joint, step_tokens(s)), joint.shared, joint.as_graph)
            duration_s = max(duration_s, rank_s)
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if is_in_step(s):
            s.engine.num_empty_turns = 0
            s.engine.step_spared = max(step_tokens(s) - joint.shared, 0)
            s.engine.step_wait_s = duration_s - own_step_s(s)
            s.engine.total_wait_s += s.engine.step_wait_s
            run_step(s, duration_s, joint.shared)
        else:
            process_result(s)
            rest(s, 1, joint.shared, s.engine.now_s, s.engine.now_s + duration_s)


@jit
def watch_ranks(f: FleetState, first: int, is_stuck: bool) -> None:
    """Note when a group of ranks has to be looked at next; its first rank stands for it."""
    fleet, last = f.fleet, first + f.replicas[first].num_ranks
    now_s = bind_at(f.memories, first).engine.now_s
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if s.engine.last_to_leave != NONE:
            enter(f.due, f.due_tree, 0, fleet.tree_size, first, now_s, LEFT)
            return
        if is_stuck and not rests(s):
            fleet.faulty = k
    due_s = max(next_event_at_ranks_s(f, first, last), now_s) if is_stuck else quiet_together_until_s(f, first, last)
    enter(f.due, f.due_tree, 0, fleet.tree_size, first, due_s, WORKS)


@jit
def quiet_together_until_s(f: FleetState, first: int, last: int) -> float:
    """Return an instant before which no request can leave a rank; see `stretch.quiet_until_s`."""
    now_s = bind_at(f.memories, first).engine.now_s
    if is_idle(f, first, last):
        return float(max(next_arrival_at_ranks_s(f, first, last), now_s))
    joint = joint_decodes(f, first, last)
    if joint.largest == 0 or bind_at(f.memories, first).remote[0].capacity > 0:
        return float(now_s)
    set_paces(f, first, last, joint)
    steps = NO_LIMIT
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if f.paces[k].decodes > 0:
            steps = min(steps, steps_in_memory(s, next_finish(s) - s.engine.decode_step))
    event_s = max(next_event_at_ranks_s(f, first, last), now_s)
    return float(min(event_s, now_s + steps * longest_pace_s(f, first, last) * ROUNDING))


@jit
def lags(f: FleetState, k: int, instant_s: float) -> bool:
    """Tell whether a replica, or its group of ranks, has work and has not reached an instant."""
    first, has_work = f.replicas[k].first_rank, False
    for rank in range(first, first + max(f.replicas[k].num_ranks, 1)):
        has_work = has_work or not rests(bind_at(f.memories, rank))
    return bool(has_work and bind_at(f.memories, k).engine.now_s < instant_s)


@jit
def pass_time_at(f: FleetState, k: int, instant_s: float) -> None:
    """Let time pass without a step at a replica, and at the ranks that step with it."""
    first = f.replicas[k].first_rank
    pass_time_together(f, first, first + max(f.replicas[k].num_ranks, 1), instant_s)


