"""Which replica a request goes to: by turn, by chance, by session, or by the router's score of the replicas' loads."""

import math
from typing import Any

from planner.loop.compiled.generator import following
from planner.loop.compiled.jit import jit
from planner.loop.compiled.tournament import enter, leave
from planner.loop.memory.blocks import find_hit
from planner.loop.memory.radix import find_depth
from planner.loop.state.binding import bind_at
from planner.loop.state.engine_state import NONE
from planner.loop.state.fleet_state import FleetState
from planner.policies.router import ReplicaLoad


@jit
def choose(f: FleetState, i: int, score: Any) -> int:
    """Return the replica that request `i` goes to; of replicas that only decode, the one with the fewest requests."""
    fleet = f.fleet
    if fleet.num_prefill > 0 and (i >= fleet.num_requests or f.requests[i].input_tokens < fleet.local_prefill_below):
        return int(f.decode_tree[1])
    r = route_of(f, i)
    route, open_at = f.routes[r], r * fleet.num_replicas
    if fleet.is_sticky:
        home = f.home[f.session[i]]
        if home != NONE and f.replicas[home].is_open and f.on_route[open_at + home]:
            return int(home)
    if fleet.takes_turns:
        return next_in_turn(f, route)
    if fleet.num_choices == 1:
        return int(f.turns[route.first_turn + draw(f, route.num_turns)])
    if fleet.num_choices == 2 and route.num_open > 1:
        first = draw(f, route.num_open)
        second = (first + 1 + draw(f, route.num_open - 1)) % route.num_open
        return better(f, i, f.open[open_at + min(first, second)], f.open[open_at + max(first, second)], score)
    if route.num_open == 1:
        return int(f.open[open_at])
    if not asks_each(f):
        return int(f.load_tree[tree_at(f, r) + 1])
    best = int(f.open[open_at])
    for k in range(1, route.num_open):
        best = better(f, i, best, f.open[open_at + k], score)
    return best


@jit
def route_of(f: FleetState, i: int) -> int:
    """Return the route of request `i`: the replicas that may be sent it."""
    return 0 if f.fleet.num_routes == 1 else int(f.route_of[i])


@jit
def tree_at(f: FleetState, r: int) -> int:
    """Return the place in `load_tree` at which the tournament of a route's replicas begins."""
    return int(2 * f.fleet.tree_size * r)


@jit
def asks_each(f: FleetState) -> bool:
    """Tell whether a score depends on the replicas' state at the instant, or on the request."""
    fleet = f.fleet
    return bool(fleet.reads_engines or fleet.reads_caches or fleet.reads_adapters or fleet.reads_requests)


@jit
def count_adapter(f: FleetState, k: int, i: int, change: int) -> None:
    """Count a request of an adapter that goes to replica `k`, or leaves it."""
    s = bind_at(f.memories, k)
    if s.settings.max_loras > 0 and s.adapters[i] != NONE:
        f.adapter_requests[k * f.fleet.num_adapters + s.adapters[i]] += change


@jit
def decodes_only(f: FleetState, k: int) -> bool:
    """Tell whether replica `k` runs prompts only if their KV comes from another."""
    return bool(0 < f.fleet.num_prefill <= k)


@jit
def next_in_turn(f: FleetState, route: Any) -> int:
    """Return the replica of a route whose turn it is."""
    k = f.turns[route.first_turn + route.turn % route.num_turns]
    route.turn += 1
    return int(k)


@jit
def draw(f: FleetState, count: int) -> int:
    """Return a number below `count`."""
    f.fleet.random = following(f.fleet.random)
    return int(f.fleet.random % count)


@jit
def better(f: FleetState, i: int, a: int, b: int, score: Any) -> int:
    """Return the better of two replicas for request `i`: the least score by weight, then the longest since its last."""
    first, second = weighed(f, a, i, score), weighed(f, b, i, score)
    if first != second:
        return a if first < second else b
    return a if f.load[a].tie <= f.load[b].tie else b


@jit
def weighed(f: FleetState, k: int, i: int, score: Any) -> float:
    """Return the score of replica `k` for request `i`, over its weight; whose it is, is noted in case it fails."""
    f.fleet.scored_replica = k
    f.fleet.scored_request = i
    s = bind_at(f.memories, k)
    value = score(load_of(f, s, k, i, num_cached_tokens(f, s, i))) / f.replicas[k].weight
    f.fleet.scored_replica = NONE
    if math.isnan(value):
        f.fleet.has_bad_score = 1
    return float(value)


@jit
def num_cached_tokens(f: FleetState, s: Any, i: int) -> int:
    """Return the tokens of a request's prompt that a replica's prefix cache has, 0 if the router does not look."""
    if i == NONE or not f.fleet.reads_caches:
        return 0
    limit = (f.requests[i].input_tokens - 1) // s.settings.block_size
    if s.settings.caches_in_tree:
        return int(find_depth(s, i, limit) * s.settings.block_size)
    if not s.settings.enable_prefix_caching:
        return 0
    hits, _, _ = find_hit(s, i, limit)
    return int(hits * s.settings.block_size)


@jit
def load_of(f: FleetState, s: Any, k: int, i: int, cached_tokens: int) -> ReplicaLoad:
    """Return the router's knowledge of replica `k`, with memory `s`, as it places request `i`; NONE for no request."""
    replica = f.replicas[k]
    input_tokens = has_adapter = adapter_requests = free_adapters = 0
    if i != NONE and f.fleet.reads_adapters and s.settings.max_loras > 0:
        a = s.adapters[i]
        free_adapters = s.settings.max_loras - s.engine.num_adapters
        has_adapter = 1 if a == NONE else int(s.adapter_states[a].is_on_gpu)
        if a != NONE:
            adapter_requests = f.adapter_requests[k * f.fleet.num_adapters + a]
    if i != NONE:
        input_tokens = f.requests[i].input_tokens
    return ReplicaLoad(
        int(replica.known_requests),
        int(replica.known_tokens),
        int(replica.known_running),
        int(replica.known_waiting),
        replica.known_blocks / s.settings.num_gpu_blocks,
        int(replica.num_unreported),
        int(cached_tokens),
        int(input_tokens),
        int(s.settings.block_size),
        int(has_adapter),
        int(adapter_requests),
        int(free_adapters),
    )


@jit
def rate(f: FleetState, k: int, score: Any) -> None:
    """Enter replica `k` in all tournaments with the score of its load by weight, unless scores depend on requests."""
    fleet = f.fleet
    if not f.replicas[k].is_open:
        return
    if decodes_only(f, k):
        requests = f.replicas[k].num_requests / f.replicas[k].weight
        enter(f.load, f.decode_tree, 0, fleet.tree_size, k, requests, f.load[k].tie)
        return
    if fleet.takes_turns or fleet.num_choices > 0 or asks_each(f):
        return
    key = weighed(f, k, NONE, score)
    for r in range(fleet.num_routes):
        if f.on_route[r * fleet.num_replicas + k]:
            enter(f.load, f.load_tree, tree_at(f, r), fleet.tree_size, k, key, f.load[k].tie)


@jit
def arrange(f: FleetState, score: Any) -> None:
    """Let the router choose among the replicas that are open now."""
    fleet = f.fleet
    fleet.is_rearranged = 0
    for k in range(fleet.num_replicas):
        replica = f.replicas[k]
        replica.is_open = replica.num_closures == 0
        if replica.is_open:
            rate(f, k, score)
        elif decodes_only(f, k):
            leave(f.load, f.decode_tree, 0, fleet.tree_size, k)
    fleet.num_closed_routes = 0
    for r in range(fleet.num_routes):
        arrange_route(f, r)
        fleet.num_closed_routes += f.routes[r].num_open == 0


@jit
def arrange_route(f: FleetState, r: int) -> None:
    """List the open replicas of a route, and their turns."""
    fleet, route = f.fleet, f.routes[r]
    route.num_open = 0
    route.num_turns = 0
    for k in range(fleet.num_replicas):
        place = r * fleet.num_replicas + k
        if f.on_route[place] and f.replicas[k].is_open:
            f.open[r * fleet.num_replicas + route.num_open] = k
            route.num_open += 1
        elif f.on_route[place]:
            leave(f.load, f.load_tree, tree_at(f, r), fleet.tree_size, k)
    for place in range(route.first_turn, route.first_turn + route.num_cycle):
        if f.replicas[f.cycle[place]].is_open:
            f.turns[route.first_turn + route.num_turns] = f.cycle[place]
            route.num_turns += 1
