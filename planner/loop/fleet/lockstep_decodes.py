"""Runs of decode steps that ranks of data-parallel attention take together.

Every step takes as long as the slowest rank's, whose time is a straight line; if another rank becomes the slowest, the
stretch ends.
"""

import math
from typing import Any, NamedTuple

from planner.loop.api_server import next_arrival_s
from planner.loop.compiled.jit import jit
from planner.loop.decode_room import has_blocks, least_blocks_wanted, most_used_blocks
from planner.loop.decode_runs import (
    decode_terms,
    end_stretch,
    may_run_decodes,
    move_decode_blocks,
    own_decode_terms,
    steps_to_bend,
    steps_to_look,
    watched_arrival_s,
)
from planner.loop.memory.blocks import ceil_div
from planner.loop.overlap import forget_lingering
from planner.loop.state.binding import bind_at
from planner.loop.state.engine_state import State
from planner.loop.state.fleet_state import FleetState
from planner.loop.timing import composition_bytes, context_s, is_graph


class Joint(NamedTuple):
    """The steps of all ranks together.

    A step that runs as a CUDA graph at every rank is padded to the largest of them; else each runs its own tokens, and
    the experts see the sum of all. A step time that is a line knows of no graphs: there it is padded.
    """

    largest: int  # tokens of the rank that has most
    shared: int  # tokens that the experts see of each rank, on average
    is_padded: bool  # every rank runs as many as the largest
    as_graph: bool


@jit
def run_decodes_together(f: FleetState, first: int, last: int, until_s: float) -> bool:
    """Take decode steps until something else may happen at a rank; False if not even one could be taken."""
    joint = joint_decodes(f, first, last)
    if joint.largest == 0:
        return False
    leader = set_paces(f, first, last, joint)
    is_async = bind_at(f.memories, first).settings.async_scheduling
    arrival_s, stop_s, steps = math.inf, until_s, steps_to_leave_line(f, leader)
    for k in range(first, last):
        s = bind_at(f.memories, k)
        stop_s = min(stop_s, s.cancels[0].key if s.engine.num_cancel_entries > 0 else math.inf)
        stop_s = min(stop_s, s.loads[0].key if s.engine.num_loads > 0 else math.inf)
        if f.paces[k].decodes == 0:
            stop_s = min(stop_s, next_arrival_s(s))
            continue
        forget_lingering(s)
        steps = min(steps, steps_to_look(s))
        arrival_s = min(arrival_s, watched_arrival_s(s))
        if s.settings.enable_prefix_caching:  # blocks of the later steps would have to be moved here too
            steps = 1
            move_decode_blocks(s)
    one = bind_at(f.memories, first).engine
    start_s, end_s = one.last_start_s, one.now_s
    first_s = duration_s = 0.0
    taken = 0
    while taken < steps:
        if taken > 0 and (arrival_s <= (start_s if is_async else end_s) or stop_s <= end_s):
            break
        longest_s = longest_pace_s(f, first, last)
        if pace_s(f, leader) < longest_s or not may_go_on(f, first, last, taken):
            break
        duration_s = longest_s
        first_s = duration_s if taken == 0 else first_s
        go_on(f, first, last, taken, duration_s)
        start_s = end_s
        end_s += duration_s
        taken += 1
    for k in range(first, last):
        end_rank(f, k, taken, joint.shared, first_s, duration_s, start_s, end_s)
    return True


@jit
def join(t: Any, largest: int, total: int, num_ranks: int, as_graph: bool) -> Joint:
    """Return the joint step of some ranks, from their tokens and whether all of their steps are CUDA graphs."""
    is_padded = as_graph or t.is_linear > 0
    return Joint(largest, largest if is_padded else ceil_div(total, num_ranks), is_padded, as_graph)


@jit
def run_tokens(joint: Joint, rank_tokens: int) -> int:
    """Return the tokens that a rank runs in a step of all ranks."""
    return joint.largest if joint.is_padded else rank_tokens


@jit
def joint_decodes(f: FleetState, first: int, last: int) -> Joint:
    """Return the coming step if it has only decodes, else one without tokens."""
    largest = total = 0
    as_graph = True
    t = bind_at(f.memories, first).step_time
    for k in range(first, last):
        s = bind_at(f.memories, k)
        if rests(s):
            continue
        if s.engine.num_ended > 0 or not may_run_decodes(s) or not has_blocks(s):
            return Joint(0, 0, False, False)
        decodes = s.engine.num_decodes
        largest, total = max(largest, decodes), total + decodes
        as_graph = as_graph and is_graph(t, 0, decodes, decodes)
    return join(t, largest, total, last - first, as_graph)


@jit
def set_paces(f: FleetState, first: int, last: int, joint: Joint) -> int:
    """Note how fast the decodes of each rank can run in a step of all; return the slowest rank."""
    leader = first
    for k in range(first, last):
        s, pace = bind_at(f.memories, k), f.paces[k]
        if rests(s):
            pace.decodes = 0
            continue
        decodes = s.engine.num_decodes
        run = run_tokens(joint, decodes)
        gpu_s, slopes, least_s, extra_s = decode_terms(s, decodes, run, joint.shared, joint.as_graph)
        s.engine.step_spared = max(decodes - joint.shared, 0)
        own_gpu_s, _, own_least_s, _ = own_decode_terms(s, int(decodes))
        pace.decodes = decodes
        pace.gpu_s, pace.least_s, pace.extra_s = gpu_s, least_s, extra_s
        pace.own_gpu_s, pace.own_least_s = own_gpu_s, own_least_s
        pace.slope_s, pace.window_slope_s = slopes
        pace.context, pace.total_context = s.engine.decode_context_tokens, 0
        pace.used, pace.most_used = s.settings.num_gpu_blocks - s.engine.num_free_blocks, most_used_blocks(s)
        pace.block_s = pace.wait_s = 0.0
        if f.paces[leader].decodes == 0 or pace_s(f, k) > pace_s(f, leader):
            leader = k
    return leader


@jit
def pace_s(f: FleetState, k: int) -> float:
    """Return the time of the next step for a rank's decodes, without other ranks' decodes [s]."""
    pace = f.paces[k]
    return float(max(pace.gpu_s + pace_context_s(f, k), pace.least_s) + pace.extra_s)


@jit
def pace_context_s(f: FleetState, k: int) -> float:
    pace, t = f.paces[k], bind_at(f.memories, k).step_time
    return context_s(t, (float(pace.slope_s), float(pace.window_slope_s)), pace.decodes, pace.context)


@jit
def longest_pace_s(f: FleetState, first: int, last: int) -> float:
    longest_s = 0.0
    for k in range(first, last):
        if f.paces[k].decodes > 0:
            longest_s = max(longest_s, pace_s(f, k))
    return longest_s


@jit
def steps_to_leave_line(f: FleetState, leader: int) -> int:
    """Return after how many steps the slowest rank's time leaves its straight line."""
    pace = f.paces[leader]
    slopes = (float(pace.slope_s), float(pace.window_slope_s))
    return steps_to_bend(bind_at(f.memories, leader), float(pace.gpu_s), slopes, float(pace.least_s))


@jit
def may_go_on(f: FleetState, first: int, last: int, taken: int) -> bool:
    """Tell whether every rank has the blocks of one step more."""
    for k in range(first, last):
        pace = f.paces[k]
        if pace.decodes == 0:
            continue
        need = max(blocks_of_step(f, k, taken), least_blocks_wanted(bind_at(f.memories, k)))
        if pace.used + need > pace.most_used:
            return False
    return True


@jit
def blocks_of_step(f: FleetState, k: int, taken: int) -> int:
    s = bind_at(f.memories, k)
    return int(s.ring[(s.engine.decode_step + taken) % s.settings.block_size].count)


@jit
def go_on(f: FleetState, first: int, last: int, taken: int, duration_s: float) -> None:
    """Let the decodes of every rank go one step on."""
    for k in range(first, last):
        pace = f.paces[k]
        if pace.decodes == 0:
            continue
        own_s = max(pace.own_gpu_s + pace_context_s(f, k), pace.own_least_s) + pace.extra_s
        pace.wait_s += duration_s - own_s
        pace.used += blocks_of_step(f, k, taken)
        pace.block_s += pace.used * duration_s
        pace.total_context += pace.context
        pace.context += pace.decodes


@jit
def end_rank(f: FleetState, k: int, taken: int, shared: int, first_s: float, last_s: float, start_s: float,
             end_s: float) -> None:
    """Account for a stretch at one rank; see `stretch.end_stretch`."""
    s, pace = bind_at(f.memories, k), f.paces[k]
    if pace.decodes == 0:
        rest(s, taken, shared, start_s, end_s)
        return
    s.engine.kv_block_s += pace.block_s
    s.engine.step_wait_s = pace.wait_s
    s.engine.total_wait_s += pace.wait_s
    end_stretch(s, taken, int(pace.decodes), shared, first_s, last_s, start_s, end_s, int(pace.used),
                int(pace.total_context))


@jit
def rest(s: State, steps: int, shared: int, start_s: float, end_s: float) -> None:
    """Let a rank that has nothing in some steps run dummy batches; `start_s` is when the last of them begins."""
    engine = s.engine
    duration_s = end_s - engine.now_s
    engine.last_start_s = start_s
    engine.now_s = end_s
    engine.busy_s += duration_s
    engine.total_wait_s += duration_s
    engine.kv_block_s += (s.settings.num_gpu_blocks - engine.num_free_blocks) * duration_s
    engine.total_hbm_bytes += steps * composition_bytes(s.step_time, s.curve, shared, tokens=0, context=0,
                                                         decodes=0, sampled=0, drafted=0)
    if engine.num_decodes > 0:
        engine.is_paused = 1
    for k in range(engine.num_prompts):
        s.requests[s.prompts[k]].stalled_s += duration_s


@jit
def rests(s: State) -> bool:
    """Tell whether a rank has nothing to put in a step."""
    return bool(s.engine.num_running + s.engine.num_waiting == 0)
