"""The routes of a fleet's requests in its memory: the replicas that each request may go to, and its limits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.conditions import Routes
from planner.deployment.deploy import Pool
from planner.deployment.pools import turns
from planner.loop.state import engine_state as st
from planner.loop.state import fleet_state as fs
from planner.replays.request_columns import Limits, strictest

Replicas = NDArray[np.int64]


def routed_replicas(pools: Sequence[Pool], routes: Routes | None) -> list[Replicas]:
    """Return the replicas of each route, by number; one route of all that prefill if there are no routes."""
    routed = [pool for pool in pools if pool.role != "decode"]
    ends = np.cumsum([pool.num_replicas for pool in routed])
    parts = [np.arange(end - pool.num_replicas, end) for pool, end in zip(routed, ends, strict=True)]
    return [np.concatenate([parts[k] for k in numbers])
            for numbers in ((range(len(routed)),) if routes is None else routes.pools)]


def cycle_of(replicas: Replicas, weights: Sequence[int]) -> Replicas:
    """Return the replicas of a route in the order of their turns.

    Parameters
    ----------
    weights : of all replicas of the fleet.
    """
    cycle: Replicas = replicas[turns([weights[k] for k in replicas])]
    return cycle


def routes_memory(routed: Sequence[Replicas], weights: Sequence[int], routes: Routes | None) -> dict[str, Any]:
    """Return the fields of the fleet's memory that say which replicas a request may go to; all replicas are open.

    Parameters
    ----------
    routed : the replicas of each route.
    weights : of all replicas of the fleet.
    """
    cycles = [cycle_of(replicas, weights) for replicas in routed]
    records: Any = st.records(len(routed), fs.ROUTE)
    on_route, opened = (np.zeros((len(routed), len(weights)), np.int64) for _ in range(2))
    for r, replicas in enumerate(routed):
        on_route[r, replicas] = 1
        opened[r, :len(replicas)] = replicas
    records.num_open = [len(replicas) for replicas in routed]
    records.num_turns = records.num_cycle = [len(cycle) for cycle in cycles]
    records.first_turn = np.cumsum(records.num_cycle) - records.num_cycle
    cycle = np.concatenate(cycles)
    return {"routes": records, "on_route": on_route.reshape(-1), "open": opened.reshape(-1), "cycle": cycle,
            "turns": cycle.copy(), "route_of": np.empty(0, np.int64) if routes is None else routes.of_request}


def may_be_sent(memory: fs.FleetState, replica: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some requests a replica may be sent, by the router or to decode them."""
    if 0 < memory.fleet.num_prefill <= replica:
        return np.ones(len(rows), bool)
    routes = memory.route_of[rows] if memory.fleet.num_routes > 1 else np.zeros(len(rows), np.int64)
    is_open: NDArray[np.bool_] = np.asarray(memory.on_route)[routes * len(memory.replicas) + replica] > 0
    return is_open


def limits_by_route(limits: Sequence[Limits], routes: Routes | None) -> tuple[list[Limits], NDArray[np.int64] | None]:
    """Return how long the requests of each route may be, and the route of each request; None with one route.

    Parameters
    ----------
    limits : of the pools.
    """
    if routes is None:
        return [strictest(limits)], None
    return ([strictest([limits[k] for k in pools]) for pools in routes.pools],
            None if routes.is_one else routes.of_request)


def enter_all(tree: NDArray[np.int64], contenders: NDArray[np.int64]) -> None:
    """Let contenders enter a tournament, with equal keys: the first of each match wins."""
    half = len(tree) // 2
    tree[half + contenders] = contenders
    for node in range(half - 1, 0, -1):
        tree[node] = tree[2 * node] if tree[2 * node] != st.NONE else tree[2 * node + 1]
