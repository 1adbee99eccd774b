"""Emission of tokens: the first ends the TTFT, later ones a gap; tokens of one step arrive at once."""

from planner.loop.compiled.jit import jit
from planner.loop.memory.blocks import num_output_tokens
from planner.loop.state.engine_state import DECODE, NONE, State

ROWS_OF_STEP, ROUNDING_S = 64, 1e-9  # rows to look at, and how far a run of gaps may be off its line


@jit
def add_gap(s: State, gap_s: float, count: int) -> None:
    """Record that `count` tokens came `gap_s` after the token before them, if the client sees each by itself."""
    if s.settings.stream_interval == 1:
        add_gap_row(s, gap_s, count)


@jit
def add_gap_row(s: State, gap_s: float, count: int) -> None:
    row = s.gaps[s.engine.num_gap_rows]
    row.gap_s = gap_s
    row.growth_s = 0.0
    row.steps = 1
    row.count = count
    s.engine.num_gap_rows += 1


@jit
def emit_tokens(s: State, i: int, n: int) -> bool:
    """Let a request emit `n` tokens, of a prompt or a recomputation one; tell whether the last was among them."""
    request = s.requests[i]
    if request.is_seen:
        request.is_seen = 0
        request.num_output_tokens += 1
        return bool(request.num_output_tokens == request.output_tokens)
    if request.num_output_tokens == 0:
        is_sent = is_sent_on(s, i)
        request.first_token_s = s.engine.last_start_s if is_sent else s.engine.now_s
        if is_sent and s.settings.stream_interval == 1:
            add_group(s, s.engine.now_s - request.first_token_s)
        if s.settings.records_steps:
            s.phases[i].prefill_s = s.engine.now_s - request.first_scheduled_s - request.preempted_s
            if s.settings.has_tiers:
                s.phases[i].prefill_s -= s.fetches[i].waited_s
    elif s.settings.num_speculative_tokens == 0:
        add_gap(s, s.engine.now_s - request.last_token_s, 1)
    elif s.settings.stream_interval == 1:
        add_group(s, s.engine.now_s - request.last_token_s)
    request.num_output_tokens += n
    if s.settings.drops_tokens:
        s.token_before_s[i] = request.last_token_s
    request.last_token_s = s.engine.now_s
    see_tokens(s, i, int(request.num_output_tokens), n)
    return bool(request.num_output_tokens >= request.output_tokens)


@jit
def is_sent_on(s: State, i: int) -> bool:
    """Tell whether the client has the token that came with a request's KV before the first step here."""
    return bool(s.settings.pulls_kv and s.settings.sends_token_on and s.pulls[i].tokens > 0)


@jit
def remove_gap(s: State, gap_s: float) -> None:
    """Take one token's gap in the last step off its row, if that has not been taken out."""
    for back in range(1, min(s.engine.num_gap_rows, ROWS_OF_STEP) + 1):
        row = s.gaps[s.engine.num_gap_rows - back]
        last_s = row.gap_s + row.growth_s * (row.steps - 1)
        if row.count > 0 and abs(last_s - gap_s) <= ROUNDING_S:
            count = row.count - 1
            if row.steps == 1:
                row.count = count
            else:
                row.steps -= 1
                add_gap_row(s, last_s, int(count))
            return


@jit
def see_decodes(s: State) -> None:
    """Let clients see the tokens that the decodes of the step have just emitted, if tokens are sent in groups."""
    if s.settings.stream_interval == 1:
        return
    i = s.engine.running_head
    while i != NONE:
        request = s.requests[i]
        if request.state == DECODE and (request.num_scheduled_tokens > 0 or not s.engine.step_marks_decodes):
            see_tokens(s, i, num_output_tokens(s, request), 1)
        i = request.next


@jit
def see_tokens(s: State, i: int, count: int, n: int) -> None:
    """Send the last `n` of `count` tokens, or keep them until `stream_interval` wait; first and last go at once.

    TensorRT-LLM counts the steps of a request and not its tokens.
    """
    interval = s.settings.stream_interval
    if interval == 1:
        return
    sent_on = int(is_sent_on(s, i))
    if count == n:
        s.seen_s[i] = s.requests[i].first_token_s
    if count + sent_on > 1:
        later = count - 1 + sent_on
        new = min(n, later)
        if s.settings.streams_by_step:
            s.seen_steps[i] += 1
            later, new = s.seen_steps[i], 1
        fills_group = later // interval > (later - new) // interval
        if not fills_group and count < s.requests[i].output_tokens:
            return
        add_group(s, s.engine.now_s - s.seen_s[i])
    s.seen_s[i] = s.engine.now_s


@jit
def add_group(s: State, gap_s: float) -> None:
    """Record the gap before a group of tokens; an equal gap adds to the last row."""
    k = s.engine.num_gap_rows - 1
    if k >= 0 and s.gaps[k].gap_s == gap_s:
        s.gaps[k].count += 1
    else:
        add_gap_row(s, gap_s, 1)
