"""A token is emitted: the first one ends the TTFT, later ones a gap between tokens."""

from planner.engine.jit import jit
from planner.engine.state import State


@jit
def add_gap(s: State, gap_s: float, count: int) -> None:
    """Record that `count` tokens came `gap_s` after the token before them."""
    row = s.gaps[s.engine.num_gap_rows]
    row.gap_s = gap_s
    row.growth_s = 0.0
    row.steps = 1
    row.count = count
    s.engine.num_gap_rows += 1


@jit
def emit_token(s: State, i: int) -> bool:
    """Let a request emit the token that its prompt, or its recomputation, ends with; tell whether it was the last."""
    request = s.requests[i]
    if request.num_output_tokens == 0:
        request.first_token_s = s.engine.now_s
    else:
        add_gap(s, s.engine.now_s - request.last_token_s, 1)
    request.num_output_tokens += 1
    request.last_token_s = s.engine.now_s
    return bool(request.num_output_tokens == request.output_tokens)
