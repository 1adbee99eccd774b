"""An engine's limits in a deployment: the scenario's, or the engine's defaults for it."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import data_dir
from planner.catalog.gpus import Gpu
from planner.catalog.pooling import RESULTS
from planner.deployment.context_length import asked_context
from planner.engines import ENGINES
from planner.engines.engine import Engine, EngineDefaults, Size
from planner.errors import UsageError
from planner.model.drafting import draft_method
from planner.settings.deployment_options import SIZES, given_length
from planner.settings.scenario import Scenario, attention_ranks
from planner.steptime.engine_constants import EngineConstants, constants_of, load_engine, read_constants, read_table


def limits_of(scenario: Scenario, gpu: Gpu | None, architecture: Architecture | None,
              before: Mapping[str, Any] | None = None) -> EngineDefaults:
    """Return the scenario's limits and switches, the engine's if it gives none.

    Parameters
    ----------
    before : values of the engine's release for options that the scenario leaves to it (`Engine.options_before`).

    Raises
    ------
    UsageError : the engine does not run the deployment, or its default leaves no memory, since its steps reserve all.
    """
    engine, size = ENGINES[scenario.engine], size_of(scenario, gpu)
    defaults = engine.defaults.sized(engine.defaults.options, size)
    most = engine.defaults.compressed_max_num_seqs
    if most is not None and architecture is not None and architecture.keeps_recent_entries:
        defaults = replace(defaults, max_num_seqs=max(most // size.num_ranks, 1))
    if architecture is not None and (reason := engine.defaults.refusal(scenario, architecture, gpu, size.num_gpus)):
        raise UsageError(reason)
    if architecture is not None and architecture.pooling is not None:
        defaults = _of_pooling(engine, defaults, scenario, architecture)
    options = {f.name: (before or {}).get(f.name, getattr(scenario, f.name)) for f in fields(EngineDefaults)}
    limits = replace(defaults, **{name: value for name, value in options.items() if value is not None})
    if engine.scheduler.whole_prompts == "fitted" and scenario.max_num_batched_tokens is None:
        limits = _for_whole_prompts(limits, scenario, architecture)
    if limits.gpu_memory_utilization <= 0 and scenario.gpu_memory_utilization is None:
        raise UsageError(f"max_num_batched_tokens = {limits.max_num_batched_tokens:,}: {engine.title} reserves memory "
                         f"for each token of a step, and its default share for weights and KV cache is then "
                         f"{limits.gpu_memory_utilization:g}; give --gpu-memory-utilization, or a lower "
                         f"--max-num-batched-tokens")
    return replace(limits, policy=engine.scheduler.policies.get(limits.policy, limits.policy))


def _of_pooling(engine: Engine, defaults: EngineDefaults, scenario: Scenario, arch: Architecture) -> EngineDefaults:
    """Return the engine's defaults with a pooling model.

    Raises
    ------
    UsageError : the engine's pooling is not modelled, or an option needs a model that generates text.
    """
    makes = f"{arch.name} returns one {RESULTS[arch.pooling or 'embed']} a prompt and generates no tokens"
    if engine.defaults.pooling is None:
        raise UsageError(f"{makes}: {engine.title}'s pooling is not modelled; give --engine vllm or sglang")
    for name in ("num_speculative_tokens", "prefill_replicas"):
        if getattr(scenario, name):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: {makes}; leave it out")
    for name in ("enable_chunked_prefill", "enable_prefix_caching"):
        if getattr(scenario, name) and arch.needs_whole_prompts:
            raise UsageError(f"--{name.replace('_', '-')}: {arch.name} needs each prompt whole in one step, because "
                             f"its attention or its pooling sees all tokens; leave it out")
    return engine.defaults.pooling(defaults, arch)


def _for_whole_prompts(limits: EngineDefaults, scenario: Scenario, architecture: Architecture | None
                       ) -> EngineDefaults:
    """Return vLLM's limits if its steps have their default size: the longest prompt fits if prompts are not cut.

    Source: `_set_default_max_num_seqs_and_batched_tokens_args` in vllm/engine/arg_utils.py.
    """
    longest = asked_context(scenario, architecture) if architecture else given_length(scenario) or 0
    if longest == 0:
        return limits
    tokens = limits.max_num_batched_tokens if limits.enable_chunked_prefill else max(
        limits.max_num_batched_tokens, longest)
    if limits.max_num_seqs > 0:
        tokens = min(tokens, limits.max_num_seqs * longest)
    seqs = min(limits.max_num_seqs, tokens) if scenario.max_num_seqs is None else limits.max_num_seqs
    return replace(limits, max_num_batched_tokens=tokens, max_num_seqs=seqs)


def size_of(scenario: Scenario, gpu: Gpu | None) -> Size:
    """Return the parts of a scenario that an engine's defaults depend on."""
    ranks = attention_ranks(scenario)
    return Size(gpu=None if gpu is None else gpu.name,
                gpu_capacity_bytes=None if gpu is None else gpu.hbm_capacity_bytes,
                version=scenario.engine_version, performance_mode=scenario.performance_mode,
                usage_context=scenario.usage_context,
                num_ranks=ranks, num_stages=scenario.pipeline_parallel_size,
                num_gpus=ranks * math.prod(getattr(scenario, name) for name in SIZES),
                chunk_tokens=scenario.max_num_batched_tokens,
                draft_method=draft_method(scenario) if scenario.num_speculative_tokens else None,
                exchange=scenario.all2all_backend if scenario.expert_parallel and ranks > 1 else None)


def graph_sizes(scenario: Scenario, gpu: Gpu | None, max_num_seqs: int, chunk_tokens: int | None) -> dict[str, int]:
    """Return the largest steps that run as CUDA graphs: of decodes alone, and with prompts, in tokens.

    The size counts tokens in some engines, of which a decode has as many as are checked, and sequences in others.

    Parameters
    ----------
    max_num_seqs : seats of the engine; 0 for no limit [1].
    chunk_tokens : its `max_num_batched_tokens`; None if unknown [tokens].
    """
    engine, tokens_per_decode = ENGINES[scenario.engine], 1 + scenario.num_speculative_tokens
    mode = scenario.cudagraph_mode or engine.defaults.cudagraph_mode
    size = scenario.max_cudagraph_capture_size
    if size is None:
        size = engine.graphs.capture_size(replace(size_of(scenario, gpu), chunk_tokens=chunk_tokens), max_num_seqs,
                                          tokens_per_decode)
    per_decode = tokens_per_decode if engine.graphs.counts_tokens else 1
    tokens = size if scenario.piecewise_cuda_graph_max_tokens is None else scenario.piecewise_cuda_graph_max_tokens
    return {"graph_seqs": 0 if mode == "none" else size // per_decode,
            "graph_tokens": tokens if mode in ("full_and_piecewise", "piecewise") else 0}


def full_graph_seqs(scenario: Scenario, gpu: Gpu | None, max_num_seqs: int, chunk_tokens: int | None) -> int:
    """Return the largest batch of decodes that runs as one full CUDA graph; 0 in a mode without such graphs [1]."""
    mode = scenario.cudagraph_mode or ENGINES[scenario.engine].defaults.cudagraph_mode
    return 0 if mode == "piecewise" else graph_sizes(scenario, gpu, max_num_seqs, chunk_tokens)["graph_seqs"]


def scenario_constants(scenario: Scenario) -> EngineConstants:
    """Return the engine's constants, replaced by the constants of the scenario's calibration."""
    if scenario.calibration is None:
        return load_engine(scenario.engine)
    fitted_to = read_table(Path(scenario.calibration), "source").get("engine", scenario.engine)
    if fitted_to != scenario.engine:
        raise UsageError(f"--calibration {scenario.calibration}: was fitted to {fitted_to}, and --engine is "
                         f"{scenario.engine}; calibrate on runs of {scenario.engine}")
    bundled = read_constants(data_dir("hardware_db") / "engines" / f"{scenario.engine}.toml")
    return constants_of(bundled | read_constants(Path(scenario.calibration)))
