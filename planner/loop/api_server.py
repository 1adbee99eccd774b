"""Arrivals and departures: the API server, the closed-loop client, rejections and cancellations."""

import math
from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import (
    append_waiting,
    heap_pop,
    heap_push,
    heap_without,
    remove_heaped,
    remove_listed,
    remove_prompt,
    remove_running,
)
from planner.loop.decodes import depart, leave_decode, rebuild_finishes
from planner.loop.memory.adapters import drop_adapter
from planner.loop.memory.blocks import release_blocks
from planner.loop.overlap import forget_lingering, forget_missing
from planner.loop.preemption import leave_cpu
from planner.loop.reservation import forget_promises
from planner.loop.state.engine_state import (
    CANCELLED,
    DECODE,
    LOADING,
    NONE,
    NOT_ARRIVED,
    OVERLOADED,
    PROMPT,
    WAITING,
    State,
)
from planner.policies.policy import NO_LIMIT


@jit
def visible_until_s(s: State) -> float:
    """Return up to when arrivals are seen: with async scheduling a step is composed while the one before it runs.

    An engine without requests sees all at once, unless one came before the step that has just finished began: it was
    not without work then, since a row of an ended request ran. Text Embeddings Inference composes a step as soon as
    one request waits, if none of its two steps is composed ahead.
    """
    e = s.engine
    if s.settings.starts_alone and e.num_waiting == 0 and next_arrival_s(s) > e.last_start_s:
        return float(min(next_arrival_s(s), e.now_s))
    if s.settings.has_placeholders:
        if e.num_running + e.num_waiting == 0:
            e.composed_s = max(e.composed_s, min(next_arrival_s(s), e.now_s))
        return float(e.composed_s)
    if s.settings.async_scheduling and (e.num_running + e.num_waiting > 0 or next_arrival_s(s) <= e.last_start_s):
        return float(e.last_start_s)
    return float(e.now_s)


@jit
def poll(s: State) -> float:
    """Return up to when arrivals have been seen; SGLang looks for them every `scheduler_recv_interval` decode steps.

    A step with prompts counts for 1,000 (scheduler_recv_skipper.py), and an idle engine does nothing but look.
    """
    e = s.engine
    is_idle = e.num_running + e.num_waiting == 0
    if is_idle or e.steps_to_poll <= 0 or s.settings.scheduler_recv_interval == 1:
        e.polled_until_s = visible_until_s(s)
        e.steps_to_poll = s.settings.scheduler_recv_interval
    return float(e.polled_until_s)


@jit
def next_sent_s(s: State) -> float:
    """Return when the client sends the next request; in a closed loop it does so once a place is free."""
    i = s.engine.next_request
    if i == NONE:
        return math.inf
    freed_by = i - s.settings.max_concurrency  # the departure that frees its place
    if freed_by >= s.engine.num_done:
        return math.inf
    if freed_by >= 0:
        return float(max(s.requests[i].arrival_s, s.departed_s[freed_by]))
    return float(s.requests[i].arrival_s)


@jit
def frontend_s(s: State) -> float:
    """Return how long the API server is busy with the next request: parsing, tokenising, handing over [s].

    A request that was prefilled elsewhere may come with its tokens.
    """
    i = s.engine.next_request
    has_tokens = s.settings.pulls_kv and s.pulls[i].tokens > 0 and not s.settings.rereads_prompts
    tokens = 0 if has_tokens else s.requests[i].input_tokens
    return float(s.step_time.frontend_s + tokens * s.step_time.frontend_s_per_token)


@jit
def latency_s(s: State) -> float:
    """Return the delay of the next request and its first token, except the time that occupies the API server [s].

    The process that tokenises also streams the tokens of running sequences, and a new request waits for it. A request
    that was prefilled elsewhere has paid this delay already.
    """
    if s.settings.pulls_kv and s.pulls[s.engine.next_request].tokens > 0:
        return 0.0
    t, tokens = s.step_time, s.requests[s.engine.next_request].input_tokens
    return float(t.latency_s + tokens * t.latency_s_per_token + s.engine.num_running * t.latency_s_per_seq)


@jit
def has_hung_up(s: State, sent_s: float) -> bool:
    """Tell whether the next request's client hangs up before the API server reads it; the server then drops it."""
    if not s.settings.has_timeouts:
        return False
    i = s.engine.next_request
    patience_s = min(s.cancel_after_s[i], s.first_token_within_s[i])
    return bool(s.engine.frontend_free_s >= sent_s + patience_s)


@jit
def next_arrival_s(s: State) -> float:
    """Return when the next request reaches the engine: the API server takes one at a time."""
    sent_s = next_sent_s(s)
    if sent_s == math.inf:
        return sent_s
    if has_hung_up(s, sent_s):
        return float(max(sent_s, s.engine.frontend_free_s))
    return float(max(sent_s, s.engine.frontend_free_s) + frontend_s(s) + latency_s(s))


@jit
def hand_over_arrivals(s: State) -> None:
    """Give the scheduler all requests that have arrived, in order; reject requests that no setting could serve."""
    engine = s.engine
    until_s = poll(s)
    while True:
        arrival_s = next_arrival_s(s)
        if arrival_s > until_s or arrival_s == math.inf:
            break
        i = engine.next_request
        request = s.requests[i]
        request.arrival_s = next_sent_s(s)
        request.waiting_since_s = request.arrival_s
        request.reached_s = arrival_s
        is_gone = has_hung_up(s, request.arrival_s)
        if not is_gone:
            engine.frontend_free_s = max(request.arrival_s, engine.frontend_free_s) + frontend_s(s)
        engine.next_request = request.next
        if is_gone:
            request.state = CANCELLED
        if request.state != NOT_ARRIVED:  # rejected before the replay began
            request.finished_s = arrival_s
            depart(s, i)
            continue
        if turns_away(s):
            request.state = OVERLOADED
            request.finished_s = engine.now_s
            depart(s, i)
            continue
        append_waiting(s, i)
        if s.settings.may_cancel:
            watch_patience(s, i)
    engine.max_waiting = max(engine.max_waiting, engine.num_waiting)


@jit
def turns_away(s: State) -> bool:
    """Tell whether a limit on the requests in the engine is reached: vLLM's API server answers 503, SGLang's too.

    Source of the limits that count running requests and prompt tokens: vLLM, `AsyncLLM.check_admission`.
    """
    e, settings = s.engine, s.settings
    if e.num_waiting >= settings.max_queued_requests:
        return True
    if e.num_waiting + e.num_running + e.num_loading - e.num_ended >= settings.max_num_queued_reqs:
        return True
    return bool(settings.max_num_queued_tokens < NO_LIMIT and unanswered_tokens(s) >= settings.max_num_queued_tokens)


@jit
def unanswered_tokens(s: State) -> int:
    """Return the prompt tokens of the requests without a first token [tokens]."""
    tokens = 0
    i = s.engine.waiting_head
    while i != NONE:
        tokens += unanswered_prompt(s.requests[i])
        i = s.requests[i].next
    for k in range(s.engine.num_heaped):
        i = s.waiting_heap[k].request
        if s.requests[i].state == WAITING:
            tokens += unanswered_prompt(s.requests[i])
    for k in range(s.engine.num_prompts):
        tokens += unanswered_prompt(s.requests[s.prompts[k]])
    return tokens


@jit
def unanswered_prompt(request: Any) -> int:
    """Return the prompt tokens of a request that has emitted nothing; 0 of others."""
    return int(request.input_tokens) if request.num_output_tokens == 0 else 0


@jit
def watch_patience(s: State, i: int) -> None:
    """Note when the client hangs up: without a first token, or at last."""
    request = s.requests[i]
    patience_s = s.cancel_after_s[i]
    if s.settings.has_ttft_timeout and math.isnan(request.first_token_s):
        patience_s = min(patience_s, s.first_token_within_s[i])
    if patience_s < math.inf:
        due_s = request.arrival_s + patience_s
        s.engine.num_cancel_entries = heap_push(s.cancels, s.engine.num_cancel_entries, due_s, i)


@jit
def wait_for_arrival(s: State) -> None:
    """Let time pass to the next arrival; an idle engine sees it at once."""
    s.engine.now_s = max(s.engine.now_s, next_arrival_s(s))
    s.engine.passes_to_hold = 0
    forget_lingering(s)
    forget_promises(s)


@jit
def next_event_s(s: State) -> float:
    """Return the instant at which a request next arrives, hangs up or has its KV."""
    due_s = next_arrival_s(s)
    if s.engine.num_cancel_entries > 0:
        due_s = min(due_s, s.cancels[0].key)
    if s.engine.num_loads > 0:
        due_s = min(due_s, s.loads[0].key)
    return float(due_s)


@jit
def skip_idle(s: State) -> bool:
    """Let time pass to the next event if nothing can be scheduled; False if none will come before `until_s`."""
    due_s = next_event_s(s)
    if due_s >= s.engine.until_s:
        return bool(s.engine.num_running + s.engine.num_waiting + s.engine.num_loads == 0)
    pass_time(s, max(s.engine.now_s, due_s))
    return True


@jit
def pass_time(s: State, instant_s: float) -> None:
    """Let time pass without a step; arrivals up to then are seen."""
    s.engine.last_start_s = s.engine.composed_s = instant_s
    s.engine.now_s = instant_s
    s.engine.steps_to_poll = 0


@jit
def cancel_due(s: State) -> None:
    """Drop the requests whose clients have hung up; their blocks return at once."""
    engine = s.engine
    while engine.num_cancel_entries > 0 and s.cancels[0].key <= engine.now_s:
        due_s, i = s.cancels[0].key, s.cancels[0].request
        request = s.requests[i]
        if request.flight != NONE and (request.state == PROMPT or request.state == DECODE):
            break  # it leaves when its batch has landed
        engine.num_cancel_entries = heap_pop(s.cancels, engine.num_cancel_entries)
        if request.state < WAITING or request.state > DECODE:
            continue
        is_answered = request.first_token_s <= due_s
        if s.settings.has_ttft_timeout and is_answered and due_s < request.arrival_s + s.cancel_after_s[i]:
            watch_patience(s, i)
            continue
        withdraw(s, i)
        request.finished_s = engine.now_s
        depart(s, i)


@jit
def withdraw(s: State, i: int) -> None:
    """Take a request out of the engine that waits, runs or loads; it is cancelled, unless the caller knows better."""
    engine, request = s.engine, s.requests[i]
    if request.state == PROMPT or request.state == DECODE:
        if request.state == DECODE:
            leave_decode(s, i)
        else:
            remove_prompt(s, i)
        remove_running(s, i)
        drop_adapter(s, i)
        request.state = CANCELLED
        release_blocks(s, i)
    elif request.state == LOADING:
        engine.num_loading -= 1
        if s.settings.is_retried:
            engine.num_loads = heap_without(s.loads, engine.num_loads, i)
        drop_adapter(s, i)
        request.state = CANCELLED
        release_blocks(s, i)
    else:
        if request.is_swapped or not s.settings.is_keyed:
            remove_listed(s, i)
        elif s.settings.is_retried:
            remove_heaped(s, i)
        else:
            engine.num_waiting -= 1  # its entry is swept off the heap later
        leave_cpu(s, request)
        request.state = CANCELLED
    forget_missing(request)
    if s.settings.is_retried:
        forget_finishes(s)


@jit
def forget_finishes(s: State) -> None:
    """Remove the entries of a request that may come again: they would be read as entries of its next attempt."""
    if s.settings.aggregates_decodes:
        rebuild_finishes(s)


@jit
def forget_patience(s: State, i: int) -> None:
    """Leave no entry of when the client of a request that has left hangs up."""
    s.engine.num_cancel_entries = heap_without(s.cancels, s.engine.num_cancel_entries, i)
