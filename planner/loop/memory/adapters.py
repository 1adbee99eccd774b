"""LoRA adapters: in use, on the GPU, in host memory, and the time to load one.

As in vLLM, a step has at most max_loras adapters, and waiting requests of others are passed over (`scheduled_loras` in
`Scheduler.schedule`); on the GPU and in host memory, the adapter goes first that was used longest ago and is not in use
(`LRUCacheWorkerLoRAManager`). An adapter counts as in use while a request of it runs, in this step or not.
"""

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import NONE, State


@jit
def lacks_adapter_slot(s: State, i: int) -> bool:
    """Tell whether a waiting request must wait for another adapter to be free."""
    if s.settings.max_loras == 0 or s.adapters[i] == NONE:
        return False
    is_used = s.adapter_states[s.adapters[i]].num_requests > 0
    return bool(not is_used and s.engine.num_adapters >= s.settings.max_loras)


@jit
def claim_adapter(s: State, i: int) -> None:
    """Make a request that is admitted a user of its adapter, which is brought to the GPU if it is not there."""
    if s.settings.max_loras == 0 or s.adapters[i] == NONE:
        return
    a = s.adapters[i]
    state = s.adapter_states[a]
    state.num_requests += 1
    if state.num_requests > 1:
        return
    s.engine.num_adapters += 1
    if not state.is_on_host:
        state.is_on_host = 1
        s.engine.step_adapter_s += s.settings.adapter_read_s
        slot = free_slot(s, s.settings.max_loras, s.settings.max_cpu_loras)
        evicted = s.adapter_slots[slot]
        if evicted != NONE:
            s.adapter_states[evicted].is_on_host = 0
        s.adapter_slots[slot] = a
    if not state.is_on_gpu:
        state.is_on_gpu = 1
        s.engine.step_adapter_s += s.settings.adapter_load_s
        s.engine.total_adapter_loads += 1
        slot = free_slot(s, 0, s.settings.max_loras)
        evicted = s.adapter_slots[slot]
        if evicted != NONE:
            s.adapter_states[evicted].is_on_gpu = 0
        s.adapter_slots[slot] = a


@jit
def free_slot(s: State, first: int, count: int) -> int:
    """Return an empty slot of several, else that of the adapter, not in use, that was used longest ago."""
    best = NONE
    for k in range(first, first + count):
        a = s.adapter_slots[k]
        if a == NONE:
            return k
        state = s.adapter_states[a]
        if state.num_requests == 0 and (best == NONE or state.used < s.adapter_states[s.adapter_slots[best]].used):
            best = k
    return int(best)


@jit
def drop_adapter(s: State, i: int) -> None:
    """End a request's use of its adapter."""
    if s.settings.max_loras == 0 or s.adapters[i] == NONE:
        return
    state = s.adapter_states[s.adapters[i]]
    state.num_requests -= 1
    if state.num_requests == 0:
        s.engine.num_adapters -= 1
        s.engine.adapter_clock += 1
        state.used = s.engine.adapter_clock
