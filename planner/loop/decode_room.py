"""Room in memory for a run of decode steps."""

from planner.loop.admissible import is_known_blocked
from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import first_waiting
from planner.loop.decodes import blocks_needed
from planner.loop.overlap import kept_blocks, over_blocks
from planner.loop.state.engine_state import State
from planner.loop.step_shape import free_seats


@jit
def has_blocks(s: State) -> bool:
    """Tell whether all decodes may take a step: there are blocks, and the waiting head cannot have found its prefix."""
    need = max(blocks_needed(s) + over_blocks(s) + kept_blocks(s), least_blocks_wanted(s))
    if s.settings.num_gpu_blocks - s.engine.num_free_blocks + need > most_used_blocks(s):
        return False
    return not (s.settings.enable_prefix_caching and may_have_found(s))


@jit
def may_have_found(s: State) -> bool:
    """Tell whether the waiting head may have a seat, and a content that it missed may have become findable."""
    return bool(s.engine.num_waiting > 0 and free_seats(s) > 0 and not is_known_blocked(s, first_waiting(s)))


@jit
def most_used_blocks(s: State) -> int:
    return int(s.settings.num_gpu_blocks - s.engine.num_evictable - (1 if s.settings.fits_with_spare else 0))


@jit
def least_blocks_wanted(s: State) -> int:
    """Return the blocks that must be free for a step though it may need fewer: else the radix tree evicts."""
    return int(s.engine.num_decodes + s.engine.num_over) if s.engine.num_evictable > 0 else 0


@jit
def steps_in_memory(s: State, most: int) -> int:
    """Return how many decode steps the free blocks last, `most` at most; a step needs the blocks of a ring's place."""
    free = max(s.engine.num_free_blocks - kept_blocks(s) - (1 if s.settings.fits_with_spare else 0), 0)
    size = s.settings.block_size
    rounds = free // max(s.engine.num_decodes, 1)  # in each of which a decode takes one block at most
    if rounds * size >= most:
        return most
    steps = rounds * size
    free -= rounds * s.engine.num_decodes
    while steps < most:
        free -= s.ring[(s.engine.decode_step + steps) % size].count
        if free < 0:
            break
        steps += 1
    return int(steps)
