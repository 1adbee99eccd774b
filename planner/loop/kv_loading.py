"""KV from another engine or a tier: the request has its blocks and a seat, and waits until it is loaded.

As with vLLM's KV connectors, blocks are taken when the request is admitted, and its KV is pulled then; another engine
keeps its own until that is done. Transfers to one engine follow each other on its link. Here a request has a seat while
it waits (vLLM counts it when its KV is there).
"""

from planner.loop.compiled.jit import jit
from planner.loop.compiled.queues import append_prompt, append_running, heap_pop, heap_push
from planner.loop.memory.blocks import ceil_div, take_blocks
from planner.loop.reservation import reserve_for
from planner.loop.state.engine_state import LOADING, State


@jit
def begin_pull(s: State, i: int) -> None:
    """Give a request its blocks, and let its KV come."""
    engine, request, pull = s.engine, s.requests[i], s.pulls[i]
    take_blocks(s, i, 0, ceil_div(request.input_tokens, s.settings.block_size))
    reserve_for(s, request)
    request.num_computed_tokens = pull.tokens
    request.num_cached_tokens = 0
    request.first_scheduled_s = engine.now_s
    begin_s = max(engine.now_s, engine.link_free_s)
    engine.link_free_s = pull.received_s = begin_s + pull.transfer_s
    pull.loaded_s = max(engine.link_free_s, pull.sendable_s) + pull.latency_s
    await_load(s, i, float(pull.loaded_s))
    s.pulled[engine.num_pulls] = i
    engine.num_pulls += 1


@jit
def await_load(s: State, i: int, loaded_s: float) -> None:
    """Let an admitted request wait for its KV."""
    engine = s.engine
    s.requests[i].state = LOADING
    engine.num_loading += 1
    engine.num_loads = heap_push(s.loads, engine.num_loads, loaded_s, i)


@jit
def land_loads(s: State) -> None:
    """Let requests run whose KV is there; entries of requests that were cancelled meanwhile are swept."""
    engine = s.engine
    while engine.num_loads > 0 and s.loads[0].key <= engine.now_s:
        i = s.loads[0].request
        engine.num_loads = heap_pop(s.loads, engine.num_loads)
        request = s.requests[i]
        if request.state != LOADING:
            continue
        engine.num_loading -= 1
        append_running(s, i)
        append_prompt(s, i)
        if s.settings.has_tiers:
            s.fetches[i].waited_s += engine.now_s - s.fetches[i].begun_s
