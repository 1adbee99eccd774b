"""Parts of a deployment: profiles, limits, memory plan, terms of the step time, settings of the loop."""

from dataclasses import dataclass, fields, replace
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpu_power import limited
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.deployment.context_length import asked_context, fitted_context, longest_context
from planner.deployment.engine_limits import full_graph_seqs, graph_sizes, limits_of, scenario_constants
from planner.deployment.kv_tiers import cpu_tier, remote_tier
from planner.deployment.memory import MemoryPlan, pages, plan_memory
from planner.deployment.resolved_options import Resolved
from planner.deployment.sliding_windows import WindowRules, window_settings
from planner.engines import ENGINES
from planner.engines.engine import Engine, EngineDefaults
from planner.errors import UsageError
from planner.loop.state.engine_settings import EngineSettings, Tier
from planner.model.batch_overlap import overlap_of
from planner.model.drafting import Draft, draft_of, draft_settings
from planner.model.layout import Layout
from planner.model.loaded_model import loaded_model
from planner.model.node_link import NodeLink
from planner.model.precision import kv_bytes_per_element, kv_cache_type, weight_format
from planner.model.spread import check_heads, layout_of, node_link_of, stage_transfer_of
from planner.policies.by_name import load_policy
from planner.policies.policy import Policy
from planner.settings.deployment_options import FITTED_LENGTH
from planner.settings.scenario import OPTION_DEFAULTS, Scenario
from planner.steptime.collective_time import is_staged
from planner.steptime.engine_constants import EngineConstants
from planner.steptime.first_use import first_use_of
from planner.steptime.fused_norms import fuses_norms
from planner.steptime.lora import adapter_bytes, adapter_settings
from planner.steptime.step_context import StepContext
from planner.steptime.vision_time import image_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a deployment that do not depend on its memory."""

    scenario: Scenario
    engine: Engine
    architecture: Architecture | None
    gpu: Gpu | None
    before: dict[str, Any]  # values of the release for options that the scenario leaves to the engine
    limits: EngineDefaults  # the scenario's, or the engine's
    kv_cache_dtype: str
    kv_bytes: float  # of an element of the KV cache [bytes]
    policy: Policy
    layout: Layout
    node_link: NodeLink | None
    draft: Draft | None

    @property
    def tokens_per_decode(self) -> int:
        """Tokens of a decode in a step, drafted ones too [1]."""
        return 1 + self.scenario.num_speculative_tokens


def parts_of(scenario: Scenario, layout: Layout | None) -> Parts:
    """Load the profiles of a scenario, and apply the defaults of its engine and release."""
    engine, architecture = ENGINES[scenario.engine], loaded_model(scenario)
    gpu = limited(load_gpu(scenario.gpu), scenario.power_limit) if scenario.gpu else None
    before = engine.options_before(scenario.engine_version, scenario)
    limits = limits_of(scenario, gpu, architecture, before)
    kv_cache_dtype = kv_cache_type(architecture, before.get("kv_cache_dtype", scenario.kv_cache_dtype), engine.name,
                                   gpu, scenario.engine_version)
    policy = load_policy(limits.policy)
    if architecture is not None and architecture.pooling is not None:
        policy = replace(policy, fills_context=True, seats="batch" if engine.defaults.composes_ahead else policy.seats)
    _check_named(scenario, architecture, gpu)
    layout = layout or layout_of(scenario, architecture, gpu)
    node_link = node_link_of(scenario, gpu, layout)
    if architecture is not None:
        check_heads(architecture, layout, engine)
    return Parts(scenario=scenario, engine=engine, architecture=architecture, gpu=gpu, before=before, limits=limits,
                  kv_cache_dtype=kv_cache_dtype, policy=policy, layout=layout, node_link=node_link,
                  kv_bytes=kv_bytes_per_element(kv_cache_dtype, architecture, engine.name, gpu),
                  draft=draft_of(scenario, architecture))


def _check_named(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None) -> None:
    """Raise UsageError if the model or the GPU is missing, and the step time or the KV cache depends on it."""
    missing = [name for name, value in (("--model", architecture), ("--gpu", gpu)) if value is None]
    if missing and not (scenario.step_time != "roofline" and scenario.num_gpu_blocks):
        raise UsageError(f"{' and '.join(missing)} missing; give both, or --step-time linear:… with --num-gpu-blocks")


def blocks_of(parts: Parts) -> tuple[int, int]:
    """Return the size of a KV block, over all GPUs that share contexts [tokens], and the blocks of a state [1]."""
    if parts.architecture is None:
        return parts.scenario.block_size, 0
    block_size, state_blocks = pages(parts.architecture, parts.engine.name, parts.scenario.block_size, parts.kv_bytes,
                                     parts.layout.tensor_parallel_size, parts.draft)
    return block_size * parts.layout.cache_parts, state_blocks


def resolved_options(parts: Parts, memory: MemoryPlan | None, block_size: int) -> Resolved:
    """Return the options in force, once the memory is planned."""
    limits, scenario = parts.limits, parts.scenario
    if memory is not None:
        block_size = memory.block_size
        limits = replace(limits, max_num_seqs=min(limits.max_num_seqs, memory.max_num_seqs))  # 0 stays: no limit
    options: dict[str, Any] = {"fuse_allreduce_rms": scenario.fuse_allreduce_rms, "fp32_matmul": scenario.fp32_matmul}
    names = {f.name for f in fields(EngineDefaults)} | {"kv_cache_dtype"}  # of the limits, or resolved already
    options |= {name: value for name, value in parts.before.items() if name not in names}
    return Resolved(limits=limits, kv_cache_dtype=parts.kv_cache_dtype, block_size=block_size, **options)


def step_context(parts: Parts, resolved: Resolved, constants: EngineConstants | None) -> StepContext | None:
    """Return the terms of the step time; None if it is a line."""
    scenario, limits, architecture, gpu = parts.scenario, resolved.limits, parts.architecture, parts.gpu
    if scenario.step_time != "roofline":
        return None
    assert architecture is not None
    assert gpu is not None
    return StepContext(
        arch=architecture, gpu=gpu, layout=parts.layout, quantization=scenario.quantization,
        kv_bytes_per_element=parts.kv_bytes, engine=scenario.engine,
        constants=constants or scenario_constants(scenario), is_overlapped=limits.async_scheduling,
        node_link=parts.node_link, uses_nccl=not scenario.custom_all_reduce,
        fuses_norms=fuses_norms(resolved.fuse_allreduce_rms, scenario.engine, architecture, gpu, parts.layout),
        lora_rank=scenario.max_lora_rank if scenario.max_loras else 0, is_staged=is_staged(scenario.pcie_p2p, gpu),
        fp8_gemm_backend=scenario.fp8_gemm_backend, moe_backend=scenario.moe_backend, draft=parts.draft,
        fp32_matmul=resolved.fp32_matmul, engine_version=scenario.engine_version,
        dispatch_tokens=dispatch_tokens(scenario, parts.layout),
        overlap=overlap_of(scenario, parts.layout, parts.tokens_per_decode, limits),
        **graph_sizes(scenario, gpu, limits.max_num_seqs, limits.max_num_batched_tokens))


def dispatch_tokens(scenario: Scenario, layout: Layout) -> int:
    """Return the tokens of a rank in the exchange's buffer, if experts' kernels start for all its rows; else 0 [1].

    Raises
    ------
    UsageError : the exchange has no such buffer.
    """
    tokens = ENGINES[scenario.engine].kernels.buffered_tokens.get(layout.exchange, 0)
    if scenario.dispatch_tokens_per_rank is not None and not tokens:
        raise UsageError(f"dispatch_tokens_per_rank = {scenario.dispatch_tokens_per_rank}: only tokens that MoRI sends "
                         f"pass through a buffer of this size; give --all2all-backend mori too, or leave it out")
    return scenario.dispatch_tokens_per_rank or tokens


def context_limit(parts: Parts, resolved: Resolved, memory: MemoryPlan | None, longest_request: int,
             state_blocks: int) -> int:
    """Return the context limit, fitted to the KV cache if the engine is told so [tokens]."""
    scenario = parts.scenario
    longest = longest_context(scenario, parts.policy, parts.architecture, longest_request)
    if scenario.max_model_len != FITTED_LENGTH:
        return longest
    return fitted_context(longest, engine=scenario.engine, version=scenario.engine_version,
                          num_gpu_blocks=_num_gpu_blocks(scenario, memory), block_size=resolved.block_size,
                          state_blocks=state_blocks, windows=None if memory is None else memory.windows,
                          compressed=None if memory is None else memory.compressed)


def planned_memory(parts: Parts, block_size: int) -> MemoryPlan | None:
    """Return the memory of a GPU; None without a model or GPU, or if the number of KV blocks is an option."""
    scenario, limits, architecture, gpu = parts.scenario, parts.limits, parts.architecture, parts.gpu
    if architecture is None or gpu is None or scenario.num_gpu_blocks is not None:
        return None
    longest = asked_context(scenario, architecture)
    return plan_memory(
        architecture, gpu, parts.layout,
        engine=scenario.engine,
        quantization=scenario.quantization,
        kv_bytes_per_element=parts.kv_bytes,
        gpu_memory_utilization=limits.gpu_memory_utilization,
        kv_cache_memory_bytes=scenario.kv_cache_memory_bytes,
        max_num_batched_tokens=limits.max_num_batched_tokens or longest,
        max_num_seqs=limits.max_num_seqs or 256,
        block_size=block_size,
        draft=parts.draft, moe_backend=scenario.moe_backend,
        graph_seqs=full_graph_seqs(scenario, gpu, limits.max_num_seqs, limits.max_num_batched_tokens),
        adapters_bytes=0.0 if not scenario.max_loras else scenario.max_loras * adapter_bytes(
            architecture, scenario.max_lora_rank, parts.layout.tensor_parallel_size),
        states_per_seq=parts.engine.memory.states_per_sequence(scenario.enable_prefix_caching,
                                                               limits.async_scheduling),
        state_memory_ratio=scenario.mamba_full_memory_ratio,
        window_rules=WindowRules(
            version=scenario.engine_version, longest=longest,
            max_num_batched_tokens=limits.max_num_batched_tokens or longest,
            num_batches=max(2 if limits.async_scheduling else 1, parts.layout.pipeline_parallel_size),
            pool_ratio=scenario.swa_full_tokens_ratio, keeps_all=scenario.disable_hybrid_kv_cache_manager),
    )


def _num_gpu_blocks(scenario: Scenario, memory: MemoryPlan | None) -> int:
    if scenario.num_gpu_blocks is not None:
        return scenario.num_gpu_blocks
    assert memory is not None
    return memory.num_gpu_blocks


def engine_settings(parts: Parts, resolved: Resolved, memory: MemoryPlan | None, stack: StepContext | None,
              **made: Any) -> EngineSettings:
    """Copy the options by name, and add values of the model, the engine or the trace, of which some are `made`."""
    scenario, architecture, gpu, kv_bytes = parts.scenario, parts.architecture, parts.gpu, parts.kv_bytes
    options = {f.name: getattr(scenario, f.name) for f in fields(EngineSettings) if f.name in OPTION_DEFAULTS}
    options |= {name: value for name, value in resolved.values().items() if name in options}
    num_gpu_blocks, block_size = _num_gpu_blocks(scenario, memory), resolved.block_size
    tier = cpu_tier(scenario, architecture, gpu, kv_bytes, num_gpu_blocks, block_size)
    num_cpu_blocks, swap_s_per_token = _swap(parts, block_size, tier)
    stage_transfer = stage_transfer_of(architecture, gpu, parts.layout, parts.node_link)
    made |= {
        "num_gpu_blocks": num_gpu_blocks, "num_cpu_blocks": num_cpu_blocks, "swap_s_per_token": swap_s_per_token,
        "cpu_tier": tier, "remote_tier": remote_tier(scenario, architecture, kv_bytes, block_size),
        "first_use_s": _first_use_s(parts),
        "seed": scenario.seed or 0, "attention_dp_size": parts.layout.data_parallel_size,
        "attention_dp_timeout_iters": parts.layout.attention_dp_timeout_iters,
        "stage_transfer_s_per_token": stage_transfer[0], "stage_transfer_latency_s": stage_transfer[1],
        **parts.engine.rules(scenario.engine_version), **image_settings(stack),
        **window_settings(None if memory is None else memory.windows),
        **({"async_scheduling": parts.engine.defaults.composes_ahead}
           if architecture is not None and architecture.pooling else {}),
        **draft_settings(parts.draft, parts.engine.scheduler.hashes_next_token, parts.layout.data_parallel_size),
        **adapter_settings(scenario, architecture, gpu)}
    return EngineSettings(**(options | made))


def _first_use_s(parts: Parts) -> float:
    """Return the first use of kernels by a cold replica, the user's or the measured one; 0 if it starts warm [s]."""
    scenario = parts.scenario
    if not scenario.cold or scenario.first_use_s is not None:
        return (scenario.first_use_s or 0.0) if scenario.cold else 0.0
    if parts.architecture is None or parts.gpu is None:
        raise UsageError("--cold: the first use of kernels is known by --model and --gpu; give both, or --first-use-s")
    return first_use_of(scenario.engine, scenario.engine_version, parts.gpu.name,
                        weight_format(parts.architecture, scenario.quantization)).first_use_s


def _swap(parts: Parts, block_size: int, tier: Tier | None) -> tuple[int, float]:
    """Return the host's KV blocks, and the time of a token's KV on the host link [s]."""
    scenario = parts.scenario
    if tier is not None:
        return tier.num_blocks, tier.s_per_block / block_size
    if scenario.preemption != "swap":
        return 0, 0.0
    if parts.architecture is None or parts.gpu is None:
        return scenario.num_cpu_blocks or 2**40 // block_size, 0.0
    per_token = kv_bytes_per_token_per_gpu(parts.architecture, parts.kv_bytes, scenario.tensor_parallel_size,
                                           scenario.pipeline_parallel_size)
    num_blocks = int(scenario.swap_space * 2**30 // (per_token * block_size))
    return scenario.num_cpu_blocks or num_blocks, per_token / parts.gpu.host_bandwidth_bytes_per_s
