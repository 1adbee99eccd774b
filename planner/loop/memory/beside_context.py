"""Blocks that a request takes beside its context's: for recurrent states, and for the windows of sliding layers.

vLLM has one pool for all of them. While a prompt is computed, sliding layers keep the window and the tokens in flight
(`window_chunk`); then the window, or the whole request if it is shorter. The blocks that a request will take are
charged when it is admitted, and the chunk's part returns once its prompt is computed.
"""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.memory import window_pages
from planner.loop.state.engine_state import State

window_blocks = jit(window_pages.window_blocks)


@jit
def blocks_beside(s: State, request: Any, known: int, computed: int) -> int:
    """Return the blocks beside its context's of a request with `known` tokens, `computed` of them computed."""
    if s.settings.window_tokens == 0:
        return int(s.settings.state_blocks)
    chunk = window_blocks(s.settings, known, min(s.settings.window_chunk, known - computed))
    decoding = window_blocks(s.settings, request.input_tokens + request.output_tokens, 1)
    return int(s.settings.state_blocks + max(chunk, decoding))


@jit
def blocks_to_enter(s: State, request: Any, computed: int) -> int:
    """Return the blocks beside its context's that a waiting request takes when it is admitted."""
    return blocks_beside(s, request, int(request.input_tokens + request.num_output_tokens), computed)


@jit
def most_beside(s: State, request: Any) -> int:
    """Return the most blocks beside its context's that a request takes, for the largest output."""
    return blocks_beside(s, request, int(request.input_tokens + request.max_output_tokens), 0)


@jit
def blocks_to_return(s: State, request: Any) -> int:
    """Return the blocks that a request has for its prompt's windows and needs no longer as a decode."""
    kept = s.settings.state_blocks + window_blocks(s.settings, request.input_tokens + request.output_tokens, 1)
    return int(max(request.num_beside - kept, 0))
