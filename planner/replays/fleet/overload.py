"""Requests under overload: time-outs, attempts after the first, the router's queue, quotas."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.loop.compiled.generator import seeded
from planner.loop.state import client_state as cs
from planner.loop.state import engine_state as st
from planner.loop.state.entries import FLOAT_HEAP
from planner.policies.policy import NO_LIMIT
from planner.replays.fleet.failures import Failure, read_failures
from planner.replays.request_columns import optional
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, names_in
from planner.traces import Trace
from planner.traces.shaping.tenants import Tenants, read_tenants, tenant_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """The rules of clients and the router's gateway; infinite without a limit.

    Parameters
    ----------
    request_timeout_s, ttft_timeout_s : after which a client ends an attempt [s].
    max_retries : attempts after the first.
    initial_backoff_s, backoff_multiplier, max_backoff_s, jitter : of the pauses between them.
    max_dispatched : requests at all replicas.
    is_fair : whether the tenant that was served least leaves the router's queue next, not the first request.
    max_queued : requests in that queue.
    queue_timeout_s : how long one may be in it [s].
    tenants : their quotas and weights; None without any.
    failures : of replicas.
    holds_unserved : requests that come while no replica is open wait at the gateway, until one has started; else they
        are turned away, if replicas may fail.
    seed : of the pauses.
    """

    request_timeout_s: float
    ttft_timeout_s: float
    max_retries: int
    initial_backoff_s: float
    backoff_multiplier: float
    max_backoff_s: float
    jitter: float
    max_dispatched: int
    is_fair: bool
    max_queued: int
    queue_timeout_s: float
    tenants: Tenants | None
    failures: tuple[Failure, ...]
    seed: int
    holds_unserved: bool = False


def overload_of(scenario: Scenario) -> Overload | None:
    """Return a scenario's rules for overload, None without any.

    Raises
    ------
    PlannerError : a file that it names is wrong.
    """
    is_set = any(getattr(scenario, name) != OPTION_DEFAULTS[name] for name in names_in("Overload"))
    return _overload(scenario) if is_set else None


def holding_requests(scenario: Scenario) -> Overload:
    """Return the same for a fleet that may have no replica at times: its gateway keeps requests until one serves."""
    return replace(overload_of(scenario) or _overload(scenario), holds_unserved=True)


def _overload(scenario: Scenario) -> Overload:
    return Overload(
        request_timeout_s=_or_inf(scenario.request_timeout),
        ttft_timeout_s=_or_inf(scenario.ttft_timeout),
        max_retries=scenario.max_retries,
        initial_backoff_s=scenario.retry_initial_backoff,
        backoff_multiplier=scenario.retry_backoff_multiplier,
        max_backoff_s=scenario.retry_max_backoff,
        jitter=scenario.retry_jitter_factor,
        max_dispatched=scenario.router_max_concurrent_requests or NO_LIMIT,
        is_fair=scenario.router_queue == "fair",
        max_queued=NO_LIMIT if scenario.router_queue_size is None else scenario.router_queue_size,
        queue_timeout_s=_or_inf(scenario.router_queue_timeout),
        tenants=None if scenario.tenants is None else read_tenants(Path(scenario.tenants)),
        failures=() if scenario.fail_replica is None else tuple(read_failures(scenario.fail_replica)),
        seed=scenario.seed or 0,
    )


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def gateway_memory(trace: Trace, overload: Overload | None) -> dict[str, Any]:
    """Return the fields of `FleetState` that clients and the gateway work on; one row each if they have no rules."""
    gateway = st.records(1, cs.GATEWAY)[0]
    gateway.failing = st.NONE
    if overload is None:
        return {"gateway": gateway, "clients": st.records(1, cs.CLIENT), "tenants": st.records(1, cs.TENANT),
                "wakes": st.records(1, FLOAT_HEAP), "attempts": st.records(1, cs.ATTEMPT_ROW)}
    n = trace.num_requests
    gateway.is_on = True
    for name in ("request_timeout_s", "ttft_timeout_s", "max_retries", "initial_backoff_s", "backoff_multiplier",
                 "max_backoff_s", "jitter", "max_dispatched", "is_fair", "max_queued", "queue_timeout_s"):
        setattr(gateway, name, getattr(overload, name))
    gateway.rejects_unserved = len(overload.failures) > 0 and not overload.holds_unserved
    gateway.random = seeded(overload.seed)
    gateway.most_wakes = 2 * n + 64
    gateway.most_attempt_rows = 2 * n + 1024
    clients = st.records(n, cs.CLIENT)
    clients.gives_up_s = optional(trace.requests, "cancel_after_s", math.inf)
    clients.next = clients.previous = st.NONE
    tenants, clients.tenant = tenant_records(trace, overload.tenants)
    gateway.num_tenants = len(tenants)
    return {"gateway": gateway, "clients": clients, "tenants": tenants,
            "wakes": st.records(int(gateway.most_wakes), FLOAT_HEAP),
            "attempts": st.records(int(gateway.most_attempt_rows), cs.ATTEMPT_ROW)}


def with_patience(state: st.State, overload: Overload, *, is_split: bool) -> st.State:
    """Return an engine's memory in which clients may hang up after an attempt's time-out, and come again.

    Parameters
    ----------
    is_split : some engines prefill and others decode: a failure takes requests out of engines that have not failed.
    """
    n = len(state.requests)
    settings = state.settings
    settings.has_ttft_timeout = overload.ttft_timeout_s < math.inf
    settings.is_retried = overload.max_retries > 0 or (is_split and len(overload.failures) > 0)
    settings.has_timeouts = min(overload.ttft_timeout_s, overload.request_timeout_s) < math.inf
    settings.may_cancel |= settings.has_timeouts
    if not settings.may_cancel:
        return state
    cancel_after_s = state.cancel_after_s if len(state.cancel_after_s) else np.full(n, math.inf)
    return state._replace(cancels=st.records(n + 1, FLOAT_HEAP), cancel_after_s=cancel_after_s,
                          first_token_within_s=np.full(n, math.inf))
