"""The longest context of the decodes: all grow by a token a step, so it stays the same decode's while that one runs."""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.memory.blocks import is_aggregated
from planner.loop.state.engine_state import NONE, State
from planner.policies.policy import NO_LIMIT

UNKNOWN = -NO_LIMIT  # to be looked for when it is asked for next


@jit
def context_start(request: Any) -> int:
    """Return an aggregated decode's context less `decode_step` [tokens]."""
    return int(request.input_tokens - request.decode_offset - 1)


@jit
def note_longest(s: State, request: Any) -> None:
    """Let a request that has just begun to decode be the longest, if it is."""
    if s.engine.num_decodes == 1:
        s.engine.longest_start = context_start(request)
    elif s.engine.longest_start != UNKNOWN:
        s.engine.longest_start = max(s.engine.longest_start, context_start(request))


@jit
def forget_longest(s: State, request: Any) -> None:
    """Let the longest be looked for again, if it was this request's."""
    if s.engine.longest_start == context_start(request):
        s.engine.longest_start = UNKNOWN


@jit
def longest_context(s: State) -> int:
    """Return the longest context of the decodes [tokens]; 0 if no kernel waits for it, or decodes run step by step.

    Notes
    -----
    Looking for it takes a walk over the batch, once after the longest has left: with n decodes one leaver in n.
    """
    e = s.engine
    if s.step_time.own_s_per_token == 0.0 or e.num_decodes == 0 or not s.settings.aggregates_decodes:
        return 0
    if e.longest_start == UNKNOWN:
        i = e.running_head
        while i != NONE:
            request = s.requests[i]
            if is_aggregated(s, request):
                e.longest_start = max(e.longest_start, context_start(request))
            i = request.next
    return int(max(e.longest_start + e.decode_step, 0))
