"""The queues of the loop: linked lists of running and waiting requests, and binary heaps."""

from typing import Any

from planner.loop.compiled.jit import jit
from planner.loop.state.engine_state import NONE, PROMPT, WAITING, State


@jit
def append_running(s: State, i: int) -> None:
    """Put an admitted request behind all others, or, if requests keep their order, behind those queued before it."""
    if s.settings.keeps_order:
        before = s.engine.running_tail
        while before != NONE and s.requests[before].admission_order > s.requests[i].admission_order:
            before = s.requests[before].previous
        insert_running(s, i, int(before))
    else:
        insert_running(s, i, int(s.engine.running_tail))
        s.requests[i].admission_order = s.engine.num_admissions
    s.engine.num_admissions += 1


@jit
def move_running(s: State, i: int, to_front: bool) -> None:
    """Put a running request before or behind all others."""
    remove_running(s, i)
    if not to_front:
        append_running(s, i)
        return
    insert_running(s, i, NONE)
    s.engine.first_order -= 1
    s.requests[i].admission_order = s.engine.first_order


@jit
def insert_running(s: State, i: int, before: int) -> None:
    """Put a request in the running list behind another, or at its head for NONE."""
    request = s.requests[i]
    after = s.engine.running_head if before == NONE else s.requests[before].next
    request.previous = before
    request.next = after
    if before == NONE:
        s.engine.running_head = i
    else:
        s.requests[before].next = i
    if after == NONE:
        s.engine.running_tail = i
    else:
        s.requests[after].previous = i
    s.engine.num_running += 1


@jit
def remove_running(s: State, i: int) -> None:
    request = s.requests[i]
    if request.previous == NONE:
        s.engine.running_head = request.next
    else:
        s.requests[request.previous].next = request.next
    if request.next == NONE:
        s.engine.running_tail = request.previous
    else:
        s.requests[request.next].previous = request.previous
    s.engine.num_running -= 1


@jit
def append_waiting(s: State, i: int) -> None:
    """Queue an arrival, or a preempted request of a keyed policy."""
    request = s.requests[i]
    request.state = WAITING
    s.engine.num_waiting += 1
    if s.settings.is_keyed:
        s.engine.num_heaped = heap_push(s.waiting_heap, s.engine.num_heaped, s.ranks[i].admit, i)
        return
    if s.settings.displaces:
        s.ranks[i].entered = s.engine.num_entered
    if s.settings.keeps_order:
        request.admission_order = s.engine.num_entered
    s.engine.num_entered += 1
    insert_waiting(s, i, int(s.engine.waiting_tail))


@jit
def sort_waiting(s: State) -> None:
    """Order the waiting list by `Ranks.admit`; equals stay as they stand."""
    i = s.engine.waiting_head
    while i != NONE:
        following, before = s.requests[i].next, s.requests[i].previous
        if before != NONE and s.ranks[before].admit > s.ranks[i].admit:
            remove_listed(s, i)
            while before != NONE and s.ranks[before].admit > s.ranks[i].admit:
                before = s.requests[before].previous
            insert_waiting(s, i, int(before))
            s.engine.num_waiting += 1
        i = following


@jit
def insert_waiting(s: State, i: int, before: int) -> None:
    """Put a request in the waiting list behind another, or at its head for NONE."""
    request = s.requests[i]
    after = s.engine.waiting_head if before == NONE else s.requests[before].next
    request.previous = before
    request.next = after
    if before == NONE:
        s.engine.waiting_head = i
    else:
        s.requests[before].next = i
    if after == NONE:
        s.engine.waiting_tail = i
    else:
        s.requests[after].previous = i


@jit
def prepend_waiting(s: State, i: int) -> None:
    """Put a preempted request before all that wait, or, if requests keep their order, before those queued after it."""
    request = s.requests[i]
    request.state = WAITING
    s.engine.num_waiting += 1
    before, after = NONE, int(s.engine.waiting_head)
    while s.settings.keeps_order and after != NONE and s.requests[after].admission_order < request.admission_order:
        before, after = after, int(s.requests[after].next)
    insert_waiting(s, i, before)


@jit
def remove_listed(s: State, i: int) -> None:
    """Take a request out of the waiting list (not out of the heap)."""
    request = s.requests[i]
    if request.previous == NONE:
        s.engine.waiting_head = request.next
    else:
        s.requests[request.previous].next = request.next
    if request.next == NONE:
        s.engine.waiting_tail = request.previous
    else:
        s.requests[request.next].previous = request.previous
    s.engine.num_waiting -= 1


@jit
def first_waiting(s: State) -> int:
    """Return the request that is next to be admitted, or NONE. Cancelled ones are swept off the heap here."""
    if s.engine.waiting_head != NONE:
        return int(s.engine.waiting_head)
    while s.engine.num_heaped > 0:
        i = s.waiting_heap[0].request
        if s.requests[i].state == WAITING:
            return int(i)
        s.engine.num_heaped = heap_pop(s.waiting_heap, s.engine.num_heaped)
    return NONE


@jit
def remove_first_waiting(s: State, i: int) -> None:
    """Take out the request that `first_waiting` returned."""
    if s.engine.waiting_head == i:
        remove_listed(s, i)
    else:
        s.engine.num_heaped = heap_pop(s.waiting_heap, s.engine.num_heaped)
        s.engine.num_waiting -= 1


@jit
def remove_heaped(s: State, i: int) -> None:
    """Take a request out of the waiting heap."""
    s.engine.num_heaped = heap_without(s.waiting_heap, s.engine.num_heaped, i)
    s.engine.num_waiting -= 1


@jit
def append_prompt(s: State, i: int) -> None:
    """List a newly admitted request among the prompts in progress."""
    s.requests[i].state = PROMPT
    s.prompts[s.engine.num_prompts] = i
    s.engine.num_prompts += 1


@jit
def remove_prompt(s: State, i: int) -> None:
    """Take a request off the list of prompts in progress."""
    k = 0
    while s.prompts[k] != i:
        k += 1
    s.engine.num_prompts -= 1
    for j in range(k, s.engine.num_prompts):
        s.prompts[j] = s.prompts[j + 1]


@jit
def is_sooner(heap: Any, k: int, key: Any, request: int) -> bool:
    """Tell whether an entry comes before another: by its key, then as in the trace."""
    entry = heap[k]
    return bool(entry.key < key or (entry.key == key and entry.request < request))


@jit
def heap_push(heap: Any, size: int, key: Any, request: int) -> int:
    k = size
    while k > 0:
        parent = (k - 1) // 2
        if is_sooner(heap, parent, key, request + 1):
            break
        heap[k].key = heap[parent].key
        heap[k].request = heap[parent].request
        k = parent
    heap[k].key = key
    heap[k].request = request
    return size + 1


@jit
def heap_without(heap: Any, size: int, request: int) -> int:
    """Take all entries of a request out of a heap, and return how many are left."""
    left = 0
    for k in range(size):
        key, other = heap[k].key, heap[k].request
        if other != request:
            left = heap_push(heap, left, key, other)
    return left


@jit
def heap_pop(heap: Any, size: int) -> int:
    last = size - 1
    key = heap[last].key
    request = heap[last].request
    k = 0
    while True:
        child = 2 * k + 1
        if child >= last:
            break
        if child + 1 < last and is_sooner(heap, child + 1, heap[child].key, heap[child].request):
            child += 1
        if not is_sooner(heap, child, key, request):
            break
        heap[k].key = heap[child].key
        heap[k].request = heap[child].request
        k = child
    heap[k].key = key
    heap[k].request = request
    return last
