"""The memory of a fleet's loop: one record for the fleet, one per replica, and the dependencies among requests.

The replicas' own memories share the requests' records, since a request is at one replica at a time.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from planner.loop.compiled.tournament import CONTENDER
from planner.loop.state import client_state, entries
from planner.loop.state import engine_state as st

LEFT, WORKS = range(2)  # why a replica is due: a request has left it, or its next step may begin

FLEET = np.dtype(
    [
        ("now_s", "f8"),
        ("until_s", "f8"),  # nothing that happens then or later is looked at
        ("report_interval_s", "f8"),  # how often the router hears of its replicas; 0: it always knows
        ("next_report_s", "f8"),
        ("num_replicas", "i8"),
        ("num_routes", "i8"),  # requests of one route may go to the same replicas
        ("num_closed_routes", "i8"),  # of these, routes without an open replica
        ("num_planned", "i8"),  # requests without a parent: of these
        ("next_planned", "i8"),  # the next
        ("num_ready", "i8"),  # requests whose parents have all finished
        ("num_left", "i8"),  # requests not through
        ("num_in_flight", "i8"),  # requests sent and not through
        ("max_concurrency", "i8"),
        ("num_sessions", "i8"),  # of which a limited number is open at once; 0: there is no limit
        ("next_session", "i8"),  # that starts once another has ended
        ("num_sent", "i8"),
        ("random", "i8"),  # state of the generator
        ("num_choices", "i8"),
        ("tree_size", "i8"),
        ("num_adapters", "i8"),
        ("num_prefill", "i8"),  # replicas that prefill only, the first ones; 0 if all do both
        ("num_requests", "i8"),  # of the trace; the decode of request i is request num_requests + i
        ("num_releases", "i8"),
        ("pull_s_per_token", "f8"),  # of KV on a replica's link
        ("pull_s_per_request", "f8"),  # the same of recurrent states
        ("pull_latency_s", "f8"),
        ("layer_share", "f8"),  # of a transfer, that is left when the prompt is through, at least
        ("local_prefill_below", "i8"),  # shorter prompts are prefilled at their decode replica
        ("running", "i8"),  # the replica that ran last
        ("faulty", "i8"),  # the replica at which the loop stopped
        ("scored_replica", "i8"),  # of the score that is being computed, else NONE
        ("scored_request", "i8"),
        ("has_bad_score", "i1"),  # the router's score is not a number
        ("is_rearranged", "i1"),  # replicas were opened or closed since the loop ran last
        ("is_watched", "i1"),  # engines are looked at from outside when the loop pauses
        ("has_children", "i1"),  # some requests wait for others
        ("takes_turns", "i1"),
        ("is_sticky", "i1"),
        ("reads_engines", "i1"),
        ("reads_caches", "i1"),
        ("reads_adapters", "i1"),
        ("reads_requests", "i1"),
    ],
    align=True,
)

REPLICA = np.dtype(
    [
        ("link_free_s", "f8"),  # when the last transfer from it ends
        ("inbox_tail", "i8"),  # the last request sent to it
        ("num_sent", "i8"),  # requests, each attempt of them
        ("num_requests", "i8"),  # outstanding
        ("num_tokens", "i8"),  # prompt tokens of these
        ("known_requests", "i8"),  # the same as the router knows it
        ("known_tokens", "i8"),
        ("known_running", "i8"),
        ("known_waiting", "i8"),
        ("known_blocks", "i8"),  # in use
        ("num_unreported", "i8"),  # sent to it, and not in the last two
        ("num_closures", "i8"),  # reasons why it is sent nothing: it is open if there is none
        ("first_rank", "i8"),  # of the ranks of data-parallel attention that step together: the first,
        ("num_ranks", "i8"),  # and how many; a replica by itself is one rank
        ("is_open", "i8"),
        ("weight", "f8"),  # the share of the load that it is to have, against the others' [1]
    ],
    align=True,
)

ROUTE = np.dtype(
    [
        ("num_open", "i8"),  # replicas that may be sent its requests
        ("turn", "i8"),  # whose turn it is
        ("num_turns", "i8"),
        ("num_cycle", "i8"),
        ("first_turn", "i8"),  # place of its first turn in `cycle` and `turns`
    ],
    align=True,
)

PACE = np.dtype(  # how a rank's decodes run in a stretch of steps that all ranks take together
    [
        ("decodes", "i8"),  # 0: the rank rests
        ("gpu_s", "f8"),  # the terms of `stretch.decode_terms`, in a step of all ranks
        ("slope_s", "f8"),
        ("window_slope_s", "f8"),
        ("least_s", "f8"),
        ("extra_s", "f8"),
        ("own_gpu_s", "f8"),  # by itself
        ("own_least_s", "f8"),
        ("context", "i8"),
        ("total_context", "i8"),
        ("used", "i8"),  # blocks
        ("most_used", "i8"),
        ("block_s", "f8"),
        ("wait_s", "f8"),
    ],
    align=True,
)


class FleetState(NamedTuple):
    """All that the fleet's loop works on."""

    fleet: Annotated[Any, [FLEET]]
    memories: Annotated[Any, st.INTS]  # pointers to the fields of each replica's `State`; uncompiled, the states
    replicas: Annotated[Any, REPLICA]  # shape [num_replicas]
    due: Annotated[Any, CONTENDER]  # contenders: when each replica has to be looked at next, and why
    due_tree: Annotated[Any, st.INTS]
    load: Annotated[Any, CONTENDER]  # the router's score of each open replica, and when it was sent a request last
    load_tree: Annotated[Any, st.INTS]  # a tree for each route, one after another
    decode_tree: Annotated[Any, st.INTS]  # of decode-only replicas, by their requests
    paces: Annotated[Any, PACE]  # of the replicas, shape [num_replicas]; one row without ranks
    plans: Annotated[Any, st.INTS]  # of the replicas: pointers to their step plans; uncompiled, the functions
    routes: Annotated[Any, ROUTE]  # shape [num_routes]
    route_of: Annotated[Any, st.INTS]  # of each request, shape [num_requests]; empty with one route
    on_route: Annotated[Any, st.INTS]  # 1 if a replica may be sent requests of a route, [num_routes · num_replicas]
    open: Annotated[Any, st.INTS]  # of each route its open replicas in order, shape [num_routes · num_replicas]
    cycle: Annotated[Any, st.INTS]  # of each route its replicas in the order of their turns, by weight, num_cycle each
    turns: Annotated[Any, st.INTS]  # of these the open ones, num_turns each
    ready: Annotated[Any, entries.FLOAT_HEAP]  # heap of (instant, request)
    releases: Annotated[Any, entries.FLOAT_HEAP]  # heap of (instant, request whose blocks its replica may have back)
    planned: Annotated[Any, st.INTS]  # requests without a parent, in order of arrival
    requests: Annotated[Any, st.REQUEST]
    pulls: Annotated[Any, entries.PULL]
    cancel_after_s: Annotated[Any, st.FLOATS]
    first_token_within_s: Annotated[Any, st.FLOATS]
    phases: Annotated[Any, st.PHASES]
    gateway: Annotated[Any, [client_state.GATEWAY]]  # settings and state of the gateway
    clients: Annotated[Any, client_state.CLIENT]  # shape [num_requests]; one row if they only send
    tenants: Annotated[Any, client_state.TENANT]
    wakes: Annotated[Any, entries.FLOAT_HEAP]  # heap of (instant, request that is at no replica)
    attempts: Annotated[Any, client_state.ATTEMPT_ROW]  # rows waiting to be taken out
    replica_of: Annotated[Any, st.INTS]  # replica of each request, shape [num_requests]
    session: Annotated[Any, st.INTS]  # of each request, shape [num_requests]; empty if nothing reads it
    home: Annotated[Any, st.INTS]  # of each session, a replica
    adapter_requests: Annotated[Any, st.INTS]  # outstanding, by replica and LoRA adapter; empty if nothing reads it
    first_child: Annotated[Any, st.INTS]  # place of its first child in `children`, [num_requests + 1]; or empty
    children: Annotated[Any, st.INTS]
    num_parents: Annotated[Any, st.INTS]  # that have not finished, shape [num_requests]
    think_s: Annotated[Any, st.FLOATS]  # from the last parent's end to the request, shape [num_requests]
    session_of: Annotated[Any, st.INTS]  # of each request, in the order in which sessions start; empty without a limit
    session_left: Annotated[Any, st.INTS]  # requests of each session that are not through
    first_root: Annotated[Any, st.INTS]  # place of a session's first request in `roots`, [num_sessions + 1]
    roots: Annotated[Any, st.INTS]  # requests that wait for no other, by session


FLEET_TYPE = st.memory_type(FleetState)
