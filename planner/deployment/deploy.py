"""A scenario made concrete: profiles loaded, memory planned, step time folded, settings filled in."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpu_power import limited
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.deployment.conditions import Accepts, check_contexts, routes_of
from planner.deployment.context_length import asked_context, fitted_context, longest_context
from planner.deployment.engine_limits import full_graph_seqs, graph_sizes, limits_of, scenario_constants
from planner.deployment.kv_tiers import check_tiers, cpu_tier, remote_tier
from planner.deployment.memory import MemoryPlan, pages, plan_memory
from planner.deployment.pools import PoolSpec, Role, read_fleet
from planner.deployment.sliding_windows import WindowRules, window_settings
from planner.engines import ENGINES
from planner.engines.engine import EngineDefaults
from planner.errors import FleetError, PlannerError, UsageError
from planner.loop.state.engine_settings import EngineSettings, Tier
from planner.loop.state.terms import StepTime
from planner.model.batch_overlap import overlap_of
from planner.model.drafting import Draft, draft_of, draft_settings
from planner.model.layout import Layout
from planner.model.loaded_model import loaded_model
from planner.model.precision import kv_bytes_per_element, kv_cache_type
from planner.model.spread import check_heads, layout_of, node_link_of, stage_transfer_of
from planner.policies.by_name import load_policy
from planner.policies.policy import Policy
from planner.settings.default_router import routed
from planner.settings.deployment_options import FITTED_LENGTH, given_length
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, given_options
from planner.settings.tier_options import has_tiers
from planner.steptime.by_term import linear
from planner.steptime.collective_time import is_staged
from planner.steptime.engine_constants import EngineConstants
from planner.steptime.fused_norms import fuses_norms
from planner.steptime.lora import adapter_bytes, adapter_settings
from planner.steptime.prefill_workers import Slowdown, slowdown_of, slowed
from planner.steptime.roofline import roofline
from planner.steptime.step_context import StepContext
from planner.steptime.vision_time import image_settings
from planner.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A scenario made concrete for one trace."""

    scenario: Scenario
    architecture: Architecture | None
    gpu: Gpu | None
    layout: Layout
    memory: MemoryPlan | None
    settings: EngineSettings
    stack: StepContext | None  # the terms of the step time; None if it is a line
    step_time: StepTime
    policy: Policy
    draft: Draft | None  # how tokens are drafted
    given: frozenset[str] = frozenset()  # options that the user set to other values than their defaults
    pools: tuple["Pool", ...] = ()  # of a fleet with different replicas; other fields are then the first's

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
    scenario = deployment.scenario
    if role != "prefill" or deployment.stack is None:
        return deployment
    ratio, token_us = scenario.prefill_worker_ratio, scenario.prefill_worker_token_time
    bundled = slowdown_of(scenario.engine)
    return replace(deployment, step_time=slowed(deployment.step_time, Slowdown(
        ratio=bundled.ratio if ratio is None else ratio,
        s_per_token=bundled.s_per_token if token_us is None else token_us * 1e-6)))


def resolve(scenario: Scenario, trace: Trace) -> Deployment:
    """Make a scenario concrete for a trace, with the pools of its fleet's file.

    Raises
    ------
    UsageError : options are missing or contradict each other.
    FleetError : the fleet's file cannot be read, or something in it is wrong.
    UnknownNameError, CatalogError, CapacityError, PolicyError : as their makers say.
    """
    scenario = routed(scenario)
    if scenario.fleet is None:
        return _resolve(scenario, trace)
    return resolve_pools(scenario, read_fleet(Path(scenario.fleet), scenario), trace, scenario.fleet)


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
            autoscale = None if of_pool.autoscale is None else read_autoscale(Path(of_pool.autoscale))
        except PlannerError as error:
            raise FleetError(f"{where}: pool {spec.name!r}: {error}") from error
        pools.append(Pool(name=spec.name, role=spec.role, weight=spec.weight, deployment=deployment,
                          num_replicas=spec.num_replicas if autoscale is None else autoscale.rules.maximum,
                          autoscale=autoscale, notes=spec.notes, accepts=spec.accepts))
    pools = _with_one_context(pools)
    _check_pools(where, pools, trace)
    return replace(pools[0].deployment, scenario=scenario, pools=tuple(pools))


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
                 ("kv_cache_dtype", lambda part: part.scenario.kv_cache_dtype, "KV is sent without conversion"),
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
    architecture = loaded_model(scenario)
    gpu = limited(load_gpu(scenario.gpu), scenario.power_limit) if scenario.gpu else None
    asked = frozenset(given_options(scenario)) - ({"max_model_len"} if given_length(scenario) is None else set())
    scenario = replace(scenario, **ENGINES[scenario.engine].options_before(scenario.engine_version, scenario))
    limits = limits_of(scenario, gpu, architecture)
    kv_cache_dtype = kv_cache_type(architecture, scenario.kv_cache_dtype, scenario.engine, gpu,
                                   scenario.engine_version)
    scenario = replace(scenario, **asdict(limits), kv_cache_dtype=kv_cache_dtype)
    policy = load_policy(limits.policy)
    is_linear = scenario.step_time != "roofline"
    missing = [name for name, value in (("--model", architecture), ("--gpu", gpu)) if value is None]
    if missing and not (is_linear and scenario.num_gpu_blocks):
        raise UsageError(f"{' and '.join(missing)} missing; give both, or --step-time linear:… with --num-gpu-blocks")
    layout = layout or layout_of(scenario, architecture)
    node_link = node_link_of(scenario, gpu, layout)
    if architecture is not None:
        check_heads(architecture, layout, ENGINES[scenario.engine])
    kv_bytes = kv_bytes_per_element(scenario.kv_cache_dtype, architecture, scenario.engine, gpu)
    draft = draft_of(scenario, architecture)
    memory, state_blocks = None, 0
    if architecture is not None:
        block_size, state_blocks = pages(architecture, scenario.engine, scenario.block_size, kv_bytes,
                                         layout.tensor_parallel_size, draft)
        scenario = replace(scenario, block_size=block_size * layout.cache_parts)
    if architecture is not None and gpu is not None and scenario.num_gpu_blocks is None:
        memory = _plan_memory(scenario, limits, architecture, gpu, layout, kv_bytes, draft)
        limits = replace(limits, max_num_seqs=min(limits.max_num_seqs, memory.max_num_seqs))  # 0 stays: no limit
        scenario = replace(scenario, block_size=memory.block_size, max_num_seqs=limits.max_num_seqs)
    stack = None
    if not is_linear:
        assert architecture is not None
        assert gpu is not None
        stack = StepContext(
            arch=architecture, gpu=gpu, layout=layout, quantization=scenario.quantization,
            kv_bytes_per_element=kv_bytes, engine=scenario.engine, constants=constants or scenario_constants(scenario),
            is_overlapped=limits.async_scheduling, node_link=node_link, uses_nccl=not scenario.custom_all_reduce,
            fuses_norms=fuses_norms(scenario.fuse_allreduce_rms, scenario.engine, architecture, gpu, layout),
            lora_rank=scenario.max_lora_rank if scenario.max_loras else 0, is_staged=is_staged(scenario.pcie_p2p, gpu),
            fp8_gemm_backend=scenario.fp8_gemm_backend, moe_backend=scenario.moe_backend, draft=draft,
            fp32_matmul=scenario.fp32_matmul, is_older=ENGINES[scenario.engine].is_older(scenario.engine_version),
            overlap=overlap_of(scenario, layout, 1 + scenario.num_speculative_tokens), **graph_sizes(scenario, gpu))
    step_time = (linear(scenario.step_time, 1 + scenario.num_speculative_tokens) if stack is None
                 else roofline(stack))
    stage_transfer = stage_transfer_of(architecture, gpu, layout, node_link)
    settings = _settings(
        scenario, architecture, gpu, kv_bytes,
        num_gpu_blocks=_num_gpu_blocks(scenario, memory),
        max_model_len=_context(scenario, policy, architecture, longest_request, memory, state_blocks),
        enable_prefix_caching=enable_prefix_caching, state_blocks=state_blocks,
        **ENGINES[scenario.engine].rules(scenario.engine_version),
        **window_settings(None if memory is None else memory.windows), attention_dp_size=layout.data_parallel_size,
        attention_dp_timeout_iters=layout.attention_dp_timeout_iters,
        stage_transfer_s_per_token=stage_transfer[0], stage_transfer_latency_s=stage_transfer[1],
        **image_settings(stack),
        **draft_settings(draft, ENGINES[scenario.engine].scheduler.hashes_next_token, layout.data_parallel_size))
    return Deployment(scenario=scenario, architecture=architecture, gpu=gpu, layout=layout, memory=memory,
                      stack=stack, step_time=step_time, policy=policy, settings=settings, draft=draft, given=asked)


def _context(scenario: Scenario, policy: Policy, architecture: Architecture | None, longest_request: int,
             memory: MemoryPlan | None, state_blocks: int) -> int:
    """Return the context limit, fitted to the KV cache if the engine is told so [tokens]."""
    longest = longest_context(scenario, policy, architecture, longest_request)
    if scenario.max_model_len != FITTED_LENGTH:
        return longest
    return fitted_context(longest, engine=scenario.engine, version=scenario.engine_version,
                          num_gpu_blocks=_num_gpu_blocks(scenario, memory), block_size=scenario.block_size,
                          state_blocks=state_blocks, windows=None if memory is None else memory.windows,
                          compressed=None if memory is None else memory.compressed)


def with_constants(deployment: Deployment, constants: EngineConstants) -> Deployment:
    """Return a deployment whose step time has other constants; it must not be a line."""
    assert deployment.stack is not None
    stack = replace(deployment.stack, constants=constants)
    return replace(deployment, stack=stack, step_time=roofline(stack))


def _plan_memory(scenario: Scenario, limits: EngineDefaults, architecture: Architecture, gpu: Gpu, layout: Layout,
                 kv_bytes: float, draft: Draft | None) -> MemoryPlan:
    longest = asked_context(scenario, architecture)
    return plan_memory(
        architecture, gpu, layout,
        engine=scenario.engine,
        quantization=scenario.quantization,
        kv_bytes_per_element=kv_bytes,
        gpu_memory_utilization=limits.gpu_memory_utilization,
        kv_cache_memory_bytes=scenario.kv_cache_memory_bytes,
        max_num_batched_tokens=limits.max_num_batched_tokens or longest,
        max_num_seqs=limits.max_num_seqs or 256,
        block_size=scenario.block_size,
        draft=draft, moe_backend=scenario.moe_backend, graph_seqs=full_graph_seqs(scenario, gpu),
        adapters_bytes=0.0 if not scenario.max_loras else scenario.max_loras * adapter_bytes(
            architecture, scenario.max_lora_rank, layout.tensor_parallel_size),
        states_per_seq=ENGINES[scenario.engine].memory.states_per_sequence(scenario.enable_prefix_caching,
                                                                     limits.async_scheduling),
        state_memory_ratio=scenario.mamba_full_memory_ratio,
        window_rules=WindowRules(
            version=scenario.engine_version, longest=longest,
            max_num_batched_tokens=limits.max_num_batched_tokens or longest,
            num_batches=max(2 if limits.async_scheduling else 1, layout.pipeline_parallel_size),
            pool_ratio=scenario.swa_full_tokens_ratio, keeps_all=scenario.disable_hybrid_kv_cache_manager),
    )


def _num_gpu_blocks(scenario: Scenario, memory: MemoryPlan | None) -> int:
    if scenario.num_gpu_blocks is not None:
        return scenario.num_gpu_blocks
    assert memory is not None
    return memory.num_gpu_blocks


def _settings(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None, kv_bytes: float,
              **made: Any) -> EngineSettings:
    """Copy the scenario's options by name, and add values `made` of the model, the engine or the trace."""
    options = {f.name: getattr(scenario, f.name) for f in fields(EngineSettings) if f.name in OPTION_DEFAULTS}
    tier = cpu_tier(scenario, architecture, gpu, kv_bytes, made["num_gpu_blocks"])
    num_cpu_blocks, swap_s_per_token = _swap(scenario, architecture, gpu, kv_bytes, tier)
    made |= {"num_cpu_blocks": num_cpu_blocks, "swap_s_per_token": swap_s_per_token, "cpu_tier": tier,
             "remote_tier": remote_tier(scenario, architecture, kv_bytes), "seed": scenario.seed or 0}
    return EngineSettings(**(options | made | adapter_settings(scenario, architecture, gpu)))


def _swap(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None,
          kv_bytes: float, tier: Tier | None) -> tuple[int, float]:
    """Return the host's KV blocks, and the time of a token's KV on the host link [s]."""
    if tier is not None:
        return tier.num_blocks, tier.s_per_block / scenario.block_size
    if scenario.preemption != "swap":
        return 0, 0.0
    if architecture is None or gpu is None:
        return scenario.num_cpu_blocks or 2**40 // scenario.block_size, 0.0
    per_token = kv_bytes_per_token_per_gpu(architecture, kv_bytes, scenario.tensor_parallel_size,
                                           scenario.pipeline_parallel_size)
    num_blocks = int(scenario.swap_space * 2**30 // (per_token * scenario.block_size))
    return scenario.num_cpu_blocks or num_blocks, per_token / gpu.host_bandwidth_bytes_per_s
