"""A scenario made concrete: profiles loaded, memory planned, step time folded, settings filled in."""

import math
from dataclasses import dataclass, fields
from typing import Any

from planner.architecture import Architecture, kv_bytes_per_token_per_gpu
from planner.catalog import Gpu, load_gpu, load_model
from planner.errors import UnknownNameError, UsageError
from planner.loading import load_policy
from planner.memory import KV_BYTES_PER_ELEMENT, MemoryPlan, plan_memory
from planner.policy import Policy
from planner.roofline import Efficiency, Layout, roofline
from planner.scenario import Scenario
from planner.settings import EngineSettings
from planner.steptime import linear
from planner.trace import Trace
from planner.workload import at_request_rate, limit, scale_rate, slice_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A scenario made concrete for one trace."""

    scenario: Scenario
    architecture: Architecture | None
    gpu: Gpu | None
    layout: Layout
    memory: MemoryPlan | None
    settings: EngineSettings
    step_time: Any
    policy: Policy


def shape_load(scenario: Scenario, trace: Trace) -> Trace:
    """Cut and scale a trace: window, number of requests, then rate."""
    if scenario.start_at > 0 or scenario.duration is not None:
        kept_s = math.inf if scenario.duration is None else scenario.duration
        trace = slice_time(trace, scenario.start_at, kept_s)
    if scenario.limit is not None:
        trace = limit(trace, scenario.limit)
    if scenario.rate_scale is not None and scenario.request_rate is not None:
        raise UsageError("--rate-scale and --request-rate exclude each other; give one of them")
    if scenario.rate_scale is not None:
        trace = scale_rate(trace, scenario.rate_scale)
    if scenario.request_rate is not None:
        trace = at_request_rate(trace, scenario.request_rate)
    return trace


def resolve(scenario: Scenario, trace: Trace) -> Deployment:
    """Make a scenario concrete for a trace.

    Raises
    ------
    UsageError : options are missing or contradict each other.
    UnknownNameError, CatalogError, CapacityError, PolicyError : as their makers say.
    """
    caching = scenario.enable_prefix_caching
    if caching is None:
        caching = trace.prefix is not None or "cached_tokens" in trace.requests.columns
    longest: Any = (trace.requests["input_tokens"] + trace.requests["output_tokens"]).max()
    return deploy(scenario, enable_prefix_caching=caching, longest_request=int(longest))


def deploy(scenario: Scenario, *, enable_prefix_caching: bool = False, longest_request: int = 1) -> Deployment:
    """Make a scenario concrete: load its profiles, plan its memory, fold its step time.

    Parameters
    ----------
    enable_prefix_caching : whether prefixes are reused.
    longest_request : prompt and output of the longest request, the context limit where neither option nor model
        gives one [tokens].
    """
    policy = load_policy(scenario.policy)
    architecture = load_model(scenario.model) if scenario.model else None
    gpu = load_gpu(scenario.gpu) if scenario.gpu else None
    is_linear = scenario.step_time != "roofline"
    missing = [name for name, value in (("--model", architecture), ("--gpu", gpu)) if value is None]
    if missing and not (is_linear and scenario.num_gpu_blocks):
        raise UsageError(
            f"{' and '.join(missing)} missing; give both, or --step-time linear:… together with --num-gpu-blocks"
        )
    layout = Layout(
        tensor_parallel_size=scenario.tensor_parallel_size, pipeline_parallel_size=scenario.pipeline_parallel_size
    )
    kv_bytes = _kv_bytes_per_element(scenario.kv_cache_dtype)
    memory = None
    if architecture is not None and gpu is not None and scenario.num_gpu_blocks is None:
        memory = _plan_memory(scenario, architecture, gpu, kv_bytes)
    if is_linear:
        step_time = linear(scenario.step_time)
    else:
        assert architecture is not None
        assert gpu is not None
        step_time = roofline(architecture, gpu, layout, scenario.quantization, kv_bytes, Efficiency())
    max_model_len = scenario.max_model_len
    if max_model_len is None:
        max_model_len = longest_request if architecture is None else architecture.max_model_len
    settings = _settings(scenario, architecture, gpu, memory, kv_bytes, enable_prefix_caching, max_model_len)
    return Deployment(scenario=scenario, architecture=architecture, gpu=gpu, layout=layout, memory=memory,
                      step_time=step_time, policy=policy, settings=settings)


def _kv_bytes_per_element(name: str) -> float:
    if name.lower() not in KV_BYTES_PER_ELEMENT:
        raise UnknownNameError("KV cache type", name, KV_BYTES_PER_ELEMENT)
    return KV_BYTES_PER_ELEMENT[name.lower()]


def _plan_memory(scenario: Scenario, architecture: Architecture, gpu: Gpu, kv_bytes: float) -> MemoryPlan:
    longest = scenario.max_model_len or architecture.max_model_len
    return plan_memory(
        architecture,
        gpu,
        quantization=scenario.quantization,
        kv_bytes_per_element=kv_bytes,
        tensor_parallel_size=scenario.tensor_parallel_size,
        pipeline_parallel_size=scenario.pipeline_parallel_size,
        expert_parallel=False,
        gpu_memory_utilization=scenario.gpu_memory_utilization,
        max_num_batched_tokens=scenario.max_num_batched_tokens or longest,
        max_num_seqs=scenario.max_num_seqs or 256,
        block_size=scenario.block_size,
    )


def _settings(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None, memory: MemoryPlan | None,
              kv_bytes: float, enable_prefix_caching: bool, max_model_len: int) -> EngineSettings:
    """Fill in what the scenario leaves to the model, the engine or the trace."""
    num_gpu_blocks = scenario.num_gpu_blocks
    if num_gpu_blocks is None:
        assert memory is not None
        num_gpu_blocks = memory.num_gpu_blocks
    num_cpu_blocks, swap_s_per_token = _swap(scenario, architecture, gpu, kv_bytes)
    is_async = scenario.async_scheduling
    return EngineSettings(
        num_gpu_blocks=num_gpu_blocks,
        block_size=scenario.block_size,
        max_model_len=max_model_len,
        max_num_seqs=scenario.max_num_seqs,
        max_num_batched_tokens=scenario.max_num_batched_tokens,
        long_prefill_token_threshold=scenario.long_prefill_token_threshold,
        enable_chunked_prefill=scenario.enable_chunked_prefill,
        enable_prefix_caching=enable_prefix_caching,
        watermark=scenario.watermark,
        preemption=scenario.preemption,
        victim=scenario.victim,
        admission=scenario.admission,
        max_decode_only_steps=scenario.max_decode_only_steps,
        max_wait_s=scenario.max_wait_s,
        scheduler_reserve_full_isl=scenario.scheduler_reserve_full_isl,
        async_scheduling=scenario.engine == "vllm" if is_async is None else is_async,
        pipeline_parallel_size=scenario.pipeline_parallel_size,
        stage_transfer_s_per_token=_stage_transfer(architecture, gpu),
        num_cpu_blocks=num_cpu_blocks,
        swap_s_per_token=swap_s_per_token,
        max_concurrency=scenario.max_concurrency,
        priority_ageing_per_s=scenario.priority_ageing,
    )


def _swap(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None,
          kv_bytes: float) -> tuple[int, float]:
    """Return the host's KV blocks, and what a token's KV takes over the host link [s]."""
    if scenario.preemption != "swap":
        return 0, 0.0
    if architecture is None or gpu is None:
        return scenario.num_cpu_blocks or 2**40 // scenario.block_size, 0.0
    per_token = kv_bytes_per_token_per_gpu(
        architecture, kv_bytes, scenario.tensor_parallel_size, scenario.pipeline_parallel_size
    )
    num_blocks = int(scenario.swap_space * 2**30 // (per_token * scenario.block_size))
    return scenario.num_cpu_blocks or num_blocks, per_token / gpu.host_bandwidth_bytes_per_s


def _stage_transfer(architecture: Architecture | None, gpu: Gpu | None) -> float:
    """Return what one token's hidden state takes from one pipeline stage to the next [s]."""
    if architecture is None or gpu is None:
        return 0.0
    return 2.0 * architecture.hidden_size / gpu.scale_up_bandwidth_bytes_per_s


def describe_deployment(deployment: Deployment) -> dict[str, Any]:
    """Return the resolved deployment as plain values, for the summary."""
    scenario, settings, memory = deployment.scenario, deployment.settings, deployment.memory
    return {
        "model": deployment.architecture.name if deployment.architecture else None,
        "gpu": deployment.gpu.name if deployment.gpu else None,
        "num_gpus": deployment.layout.num_gpus,
        **{f.name: getattr(scenario, f.name) for f in fields(Scenario)
           if f.metadata["panel"] in ("Deployment", "Step time") and f.name not in ("model", "gpu")},
        **{name: getattr(settings, name) for name in ("max_model_len", "num_gpu_blocks", "num_cpu_blocks",
                                                      "enable_prefix_caching", "async_scheduling")},
        "memory": None if memory is None else {
            name: getattr(memory, name) for name in memory.__slots__ if name != "block_size"
        },
    }


def describe_policy(deployment: Deployment) -> dict[str, Any]:
    """Return the policy and its settings as plain values, for the summary."""
    scenario = deployment.scenario
    chosen = {f.name: getattr(scenario, f.name) for f in fields(Scenario) if f.metadata["panel"] == "Scheduling"}
    return {**chosen, "name": deployment.policy.name, "reserve": deployment.policy.reserve}
