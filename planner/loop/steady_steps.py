"""Steps in which nothing but time, context and the number of blocks changes: a few nanoseconds each."""

from typing import NamedTuple

from planner.loop.compiled.jit import jit
from planner.loop.decode_room import least_blocks_wanted, most_used_blocks
from planner.loop.state.engine_state import State
from planner.loop.timing import context_s


class Run(NamedTuple):
    """Steps of the same decodes: how many, blocks in use, context of the next and of all, instants and times [s]."""

    taken: int
    used: int
    context: int
    total_context: int
    start_s: float  # of the last step
    end_s: float
    last_s: float  # its duration
    block_s: float  # blocks in use, integrated over time
    is_over: bool  # else it stops, because blocks must be followed


@jit
def take_steps(s: State, run: Run, decodes: int, terms: tuple[float, tuple[float, float], float, float], steps: int,
               place: int, arrival_s: float, stop_s: float) -> Run:
    """Take steps of a run until something else may happen. No helper is called that might change values in registers.

    Parameters
    ----------
    terms : as of `decode_terms`.
    steps : of the run, at most [1].
    place : in the ring, of the next step, which can be taken.
    arrival_s, stop_s : when a watched request arrives, and when the run ends in any case [s].
    """
    taken, used, context, total_context, start_s, end_s, last_s, block_s, is_over = run
    gpu_s, slopes, least_s, extra_s = terms
    follows_blocks, is_async = s.settings.enable_prefix_caching, s.settings.async_scheduling
    block_size = s.settings.block_size
    most_used, least_wanted = most_used_blocks(s), least_blocks_wanted(s)
    need = s.ring[place].count
    while True:
        used += need
        last_s = max(gpu_s + context_s(s.step_time, slopes, decodes, context), least_s) + extra_s
        start_s = end_s
        end_s += last_s
        block_s += used * last_s
        total_context += context
        context += decodes
        taken += 1
        place += 1
        if place == block_size:
            place = 0
        need = s.ring[place].count
        is_over = taken == steps or used + max(need, least_wanted) > most_used
        if is_over or stop_s <= end_s or arrival_s <= (start_s if is_async else end_s):
            return Run(taken, used, context, total_context, start_s, end_s, last_s, block_s, True)
        if follows_blocks and (need > 0 or fills_blocks(s, place)):
            return Run(taken, used, context, total_context, start_s, end_s, last_s, block_s, False)


@jit
def fills_blocks(s: State, place: int) -> bool:
    """Tell whether decodes fill a block in the step that is at this place of the ring, and it is findable at once."""
    return bool(not s.settings.enters_late and s.ring[(place + 1) % s.settings.block_size].count > 0)
