"""A scenario made concrete: profiles loaded, memory planned, step time folded, settings filled in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.pooling import Pooling
from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.deployment.conditions import Accepts, check_contexts, routes_of
from planner.deployment.kv_tiers import check_tiers
from planner.deployment.memory import MemoryPlan
from planner.deployment.parts import (
    blocks_of,
    context_limit,
    engine_settings,
    parts_of,
    planned_memory,
    resolved_options,
    step_context,
)
from planner.deployment.pools import PoolSpec, Role, read_fleet
from planner.deployment.resolved_options import Resolved
from planner.errors import FleetError, PlannerError
from planner.loop.state.engine_settings import EngineSettings
from planner.loop.state.terms import StepTime
from planner.model.drafting import Draft
from planner.model.layout import Layout
from planner.policies.by_name import load_router
from planner.policies.policy import Policy
from planner.policies.router import Router
from planner.settings.default_router import routed, router_of
from planner.settings.deployment_options import given_length
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, given_options
from planner.settings.tier_options import has_tiers
from planner.steptime.by_term import linear
from planner.steptime.engine_constants import EngineConstants
from planner.steptime.prefill_workers import Slowdown, slowdown_of, slowed
from planner.steptime.roofline import roofline
from planner.steptime.step_context import StepContext
from planner.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A scenario made concrete for one trace."""

    scenario: Scenario  # the user's values
    resolved: Resolved  # values in force of options that the scenario leaves to the engine, the model or the memory
    architecture: Architecture | None
    gpu: Gpu | None
    layout: Layout
    memory: MemoryPlan | None
    settings: EngineSettings
    stack: StepContext | None  # the terms of the step time; None if it is a line
    step_time: StepTime
    policy: Policy
    draft: Draft | None  # how tokens are drafted
    router: Router  # of its requests, if it is a fleet
    autoscale: Autoscale | None  # by which its replicas come and go if all are equal; None if they stay
    slowdown: Slowdown | None  # of steps on a replica that only prefills; None if the step time is a line
    given: frozenset[str] = frozenset()  # options that the user set to other values than their defaults
    pools: tuple["Pool", ...] = ()  # of a fleet with different replicas; other fields are then the first's

    def options(self) -> dict[str, Any]:
        """Return all options in force by name; of a fleet with different replicas, the scenario's."""
        options = {name: getattr(self.scenario, name) for name in OPTION_DEFAULTS}
        return options if self.pools else options | self.resolved.values()

    @property
    def pooling(self) -> Pooling | None:
        """The result of a pooling model, of which each request has one; None if the model generates tokens."""
        return None if self.architecture is None else self.architecture.pooling

    @property
    def num_gpus(self) -> int:
        """GPUs of all replicas that the scenario, or its fleet's file, asks for."""
        if self.pools:
            return sum(pool.num_gpus for pool in self.pools)
        return self.layout.gpus_per_rank * self.scenario.data_parallel_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal replicas of a fleet.

    Parameters
    ----------
    name : how tables call it.
    role : "both", or "prefill" or "decode" alone.
    weight : the share of the load that the router gives each replica, against the others' [1].
    num_replicas : at least 1; ranks of data-parallel attention count each.
    deployment : of each replica.
    autoscale : by which its replicas come and go, at most `num_replicas` of them; None if they stay.
    notes : on how it was read.
    accepts : conditions of the requests that the router may send it; empty for all requests.
    """

    name: str
    role: Role
    weight: int
    num_replicas: int
    deployment: Deployment
    autoscale: Autoscale | None = None
    notes: tuple[str, ...] = ()
    accepts: Accepts = ()

    @property
    def num_gpus(self) -> int:
        """GPUs of its replicas."""
        return self.deployment.layout.gpus_per_rank * self.num_replicas

    @property
    def num_groups(self) -> int:
        """Replicas that are launched as one: the ranks of data-parallel attention that step together, or a replica."""
        return self.num_replicas // self.deployment.layout.data_parallel_size


def pools_of(deployment: Deployment, num_replicas: int) -> tuple[Pool, ...]:
    """Return the pools of a fleet, prefill pools before decode pools; equal replicas are one of each role.

    Parameters
    ----------
    num_replicas : of a fleet of equal ones, ranks of data-parallel attention each by itself [1].
    """
    if deployment.pools:
        return deployment.pools
    prefill = deployment.scenario.prefill_replicas
    counts: dict[Role, int] = {"prefill": prefill, "decode": num_replicas - prefill} if prefill else {
        "both": num_replicas}
    return tuple(Pool(name=role, role=role, weight=1, num_replicas=count, deployment=in_role(deployment, role))
                 for role, count in counts.items())


def in_role(deployment: Deployment, role: Role) -> Deployment:
    """Return a deployment in a role. A step takes longer on a replica that only prefills.

    A step time that the user has measured stays as it is.
    """
    if role != "prefill" or deployment.slowdown is None:
        return deployment
    return replace(deployment, step_time=slowed(deployment.step_time, deployment.slowdown))


def with_router(deployment: Deployment, router: str) -> Deployment:
    """Return a deployment behind another router."""
    return replace(deployment, scenario=replace(deployment.scenario, router=router), router=load_router(router))


def resolve(scenario: Scenario, trace: Trace) -> Deployment:
    """Make a scenario concrete for a trace, with the pools of its fleet's file.

    Raises
    ------
    UsageError : options are missing or contradict each other.
    FleetError : the fleet's file cannot be read, or something in it is wrong.
    UnknownNameError, CatalogError, CapacityError, PolicyError, AutoscaleError : as their makers say.
    """
    scenario = routed(scenario)
    if scenario.fleet is None:
        return _resolve(scenario, trace)
    return resolve_pools(scenario, read_fleet(scenario.fleet, scenario), trace, scenario.fleet)


def resolve_pools(scenario: Scenario, specs: Sequence[PoolSpec], trace: Trace, where: str) -> Deployment:
    """Make pools concrete for a trace.

    Parameters
    ----------
    scenario : of all of them: its load and router.
    specs : of the pools, prefill pools before decode pools.
    where : file of the pools, for the errors.

    Raises
    ------
    FleetError : a pool is impossible, or does not fit the others.
    """
    pools = []
    for spec in specs:
        of_pool = spec.scenario
        try:
            deployment = in_role(_resolve(of_pool, trace), spec.role)
            autoscale = deployment.autoscale
        except PlannerError as error:
            raise FleetError(f"{where}: pool {spec.name!r}: {error}") from error
        pools.append(Pool(name=spec.name, role=spec.role, weight=spec.weight, deployment=deployment,
                          num_replicas=spec.num_replicas if autoscale is None else autoscale.rules.maximum,
                          autoscale=autoscale, notes=spec.notes, accepts=spec.accepts))
    pools = _with_one_context(pools)
    _check_pools(where, pools, trace)
    return replace(pools[0].deployment, scenario=scenario, router=load_router(router_of(scenario)), autoscale=None,
                   pools=tuple(pools))


def _with_one_context(pools: Sequence[Pool]) -> list[Pool]:
    """Give pools without a model and without the option the largest context limit among them."""
    if any(pool.deployment.architecture or pool.deployment.scenario.max_model_len is not None for pool in pools):
        return list(pools)
    longest = max(pool.deployment.settings.max_model_len for pool in pools)
    return [replace(pool, deployment=replace(pool.deployment, settings=replace(
        pool.deployment.settings, max_model_len=longest))) for pool in pools]


def _check_pools(path: str, pools: Sequence[Pool], trace: Trace) -> None:
    """Raise FleetError if a request that one pool takes could not be taken, or continued, by another."""
    first = pools[0]
    same: list[tuple[str, Callable[[Deployment], Any], str]] = [
        ("model", lambda part: part.architecture and part.architecture.profile_name, "a router serves one model"),
    ]
    if first.role != "both":
        same += [("max_model_len", lambda part: part.settings.max_model_len, "a request is prefilled and decoded"),
                 ("kv_cache_dtype", lambda part: part.resolved.kv_cache_dtype, "KV is sent without conversion"),
                 ("engine", lambda part: part.scenario.engine, "engines send KV only to the same engine")]
    for pool in pools[1:]:
        for name, value_of, why in same:
            one, other = value_of(first.deployment), value_of(pool.deployment)
            if one != other:
                raise FleetError(f"{path}: {name} is {one} in pool {first.name!r} and {other} in pool {pool.name!r}; "
                                 f"must be the same: {why}")
    if first.role == "both":
        names = [pool.name for pool in pools]
        check_contexts(path, names, [pool.deployment.settings.max_model_len for pool in pools],
                       routes_of([pool.accepts for pool in pools], names, trace, path))


def _resolve(scenario: Scenario, trace: Trace) -> Deployment:
    caching = scenario.enable_prefix_caching
    if caching is None:
        caching = trace.prefix is not None or "cached_tokens" in trace.requests.columns or has_tiers(scenario)
    check_tiers(scenario, trace)
    longest: Any = (trace.requests["input_tokens"] + trace.requests["output_tokens"]).max()
    return deploy(scenario, enable_prefix_caching=caching, longest_request=int(longest))


def deploy(scenario: Scenario, *, enable_prefix_caching: bool = False, longest_request: int = 1,
           layout: Layout | None = None, constants: EngineConstants | None = None) -> Deployment:
    """Make a scenario concrete: load its profiles, plan its memory, fold its step time.

    Parameters
    ----------
    enable_prefix_caching : whether prefixes are reused.
    longest_request : prompt and output of the longest request, the context limit if neither option nor model
        gives one [tokens].
    layout : in place of the scenario's, if the caller knows it better: data-parallel attention.
    constants : in place of the engine's, or of the scenario's calibration.
    """
    parts = parts_of(scenario, layout)
    arch = parts.architecture
    if arch is not None and (arch.needs_whole_prompts or not parts.engine.memory.caches(arch)):
        enable_prefix_caching = False
    block_size, state_blocks = blocks_of(parts)
    memory = planned_memory(parts, block_size)
    resolved = resolved_options(parts, memory, block_size)
    stack = step_context(parts, resolved, constants)
    step_time = linear(scenario.step_time, parts.tokens_per_decode) if stack is None else roofline(stack)
    settings = engine_settings(parts, resolved, memory, stack, state_blocks=state_blocks,
                         max_model_len=context_limit(parts, resolved, memory, longest_request, state_blocks),
                         enable_prefix_caching=enable_prefix_caching)
    return Deployment(scenario=scenario, resolved=resolved, architecture=parts.architecture, gpu=parts.gpu,
                      layout=parts.layout, memory=memory, stack=stack, step_time=step_time, policy=parts.policy,
                      settings=settings, draft=parts.draft, router=load_router(router_of(scenario)),
                      autoscale=None if scenario.autoscale is None else read_autoscale(Path(scenario.autoscale)),
                      slowdown=None if stack is None else _slowdown(scenario), given=_asked(scenario))


def _slowdown(scenario: Scenario) -> Slowdown:
    """Return how much longer a step takes on a replica that only prefills: the engine's values, or the user's."""
    ratio, token_us = scenario.prefill_worker_ratio, scenario.prefill_worker_token_time
    bundled = slowdown_of(scenario.engine)
    return Slowdown(ratio=bundled.ratio if ratio is None else ratio,
                    s_per_token=bundled.s_per_token if token_us is None else token_us * 1e-6)


def _asked(scenario: Scenario) -> frozenset[str]:
    """Return the options that the user set; a context that the engine fits to its memory is not one."""
    return frozenset(given_options(scenario)) - ({"max_model_len"} if given_length(scenario) is None else set())


def with_constants(deployment: Deployment, constants: EngineConstants) -> Deployment:
    """Return a deployment whose step time has other constants; it must not be a line."""
    assert deployment.stack is not None
    stack = replace(deployment.stack, constants=constants)
    return replace(deployment, stack=stack, step_time=roofline(stack))
