"""Whether an engine starts with a deployment, and the context limit with which it does: one place decides this."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.deployment.context_length import longest_fitting
from planner.deployment.deploy import Deployment, resolve
from planner.deployment.memory import MemoryPlan
from planner.engines import ENGINES
from planner.engines.compressed_groups import CompressedGroups
from planner.errors import CapacityError
from planner.settings.scenario import Scenario
from planner.traces import Trace

AS_LAUNCHED = "would not start as launched"
HELD_BACK = 0.1  # of the KV cache, for errors of the memory model, if the requests leave room for it
ROUND_TOKENS = 1024  # a lowered limit is a multiple of it, unless a request of the trace is longer
MOST_TRIES = 4  # limits that are tried: a lower limit can change the layout of the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A reason for which an engine does not start.

    Parameters
    ----------
    reason : a sentence.
    remedy : the options that the user can change.
    longest : the longest context limit with which the engine starts; None if no limit helps [tokens].
    """

    reason: str
    remedy: str
    longest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Startable:
    """A scenario with which its engine starts.

    Parameters
    ----------
    scenario : with a lower `max_model_len` if the engine would not start without it.
    deployment : of the scenario, for the trace.
    lowered : a sentence on the lower limit; None if the scenario is as it was.
    """

    scenario: Scenario
    deployment: Deployment
    lowered: str | None = None


def refusals(deployment: Deployment) -> list[Refusal]:
    """Return the reasons for which the engine of a deployment, or of a pool of its fleet, does not start.

    Memory that does not hold the weights, the states or one KV block is an error before: `plan_memory` raises it.
    """
    if deployment.pools:
        return [replace(refusal, reason=f"pool {pool.name}: {refusal.reason}")
                for pool in deployment.pools for refusal in refusals(pool.deployment)]
    if deployment.architecture is None:
        return []
    checks = (_whole_context(deployment), _whole_prompts(deployment), _decodes(deployment))
    return [refusal for refusal in checks if refusal is not None]


def would_not_start(deployment: Deployment) -> str | None:
    """Return in a sentence why the engine of a deployment does not start, with the remedy; None if it starts."""
    reasons = refusals(deployment)
    return _sentence(reasons) if reasons else None


def startable(scenario: Scenario, trace: Trace) -> Startable:
    """Return a scenario with which its engine starts: with a lower context limit, if that helps.

    A limit that the user gave stays. A lower limit must hold the longest request of the trace that the model can serve.

    Raises
    ------
    CapacityError : the engine would not start, and no limit that holds the requests helps.
    PlannerError : as `resolve`.
    """
    deployment = resolve(scenario, trace)
    first = refusals(deployment)
    if not first:
        return Startable(scenario=scenario, deployment=deployment)
    if scenario.max_model_len is not None or deployment.pools:
        raise CapacityError(_sentence(first))
    return _lowered(scenario, trace, deployment.settings.max_model_len, first)


def _lowered(scenario: Scenario, trace: Trace, asked: int, first: Sequence[Refusal]) -> Startable:
    """Return a scenario with a lower context limit than `asked`, with which its engine starts; as of `startable`."""
    lengths = trace.requests["input_tokens"] + trace.requests["output_tokens"]
    needed, left = int(lengths.clip(upper_bound=asked).to_numpy().max()), first
    for _ in range(MOST_TRIES):
        holds = min(0 if part.longest is None else part.longest for part in left)
        if holds == 0:
            break
        limit = max(int((1 - HELD_BACK) * holds) // ROUND_TOKENS * ROUND_TOKENS, min(needed, holds))
        longer = int((lengths > limit).sum())
        if limit < needed:
            raise CapacityError(f"{AS_LAUNCHED}: {first[0].reason}, and the longest request of {trace.source} has "
                                f"{needed:,}; with --max-model-len {limit} it starts, and rejects or cuts {longer:,} "
                                f"of {trace.num_requests:,} requests")
        lowered = replace(scenario, max_model_len=limit)
        deployment = resolve(lowered, trace)
        left = refusals(deployment)
        if not left:
            served = f"no request is longer than {needed:,} tokens" if longer == 0 else (
                f"{longer:,} of {trace.num_requests:,} requests are longer than the model's context")
            return Startable(scenario=lowered, deployment=deployment, lowered=(
                f"--max-model-len {limit} lowers the context limit so that the engine starts: {first[0].reason}; "
                f"{served}"))
    raise CapacityError(_sentence(left))


def _sentence(parts: Sequence[Refusal]) -> str:
    return f"{AS_LAUNCHED}: " + "; ".join(f"{part.reason}; {part.remedy}" for part in parts)


def _whole_context(deployment: Deployment) -> Refusal | None:
    """Refuse a KV cache that does not hold one request of the longest context.

    Source: `_check_enough_kv_cache_memory` in vllm/v1/core/kv_cache_utils.py.
    """
    settings, memory, scenario = deployment.settings, deployment.memory, deployment.scenario
    engine = ENGINES[scenario.engine]
    if not engine.memory.needs_whole_context:
        return None
    if memory is not None and memory.compressed is not None:
        return _compressed_context(deployment, memory, memory.compressed)
    holds = longest_fitting(
        settings.max_model_len, engine=scenario.engine, version=scenario.engine_version,
        num_gpu_blocks=settings.num_gpu_blocks, block_size=settings.block_size, state_blocks=settings.state_blocks,
        windows=None if memory is None else memory.windows)
    if holds >= settings.max_model_len:
        return None
    return Refusal(reason=f"{engine.title}'s KV cache holds {holds:,} tokens, less than "
                          f"max_model_len = {settings.max_model_len:,}",
                   remedy="lower --max-model-len, or raise --gpu-memory-utilization or --tensor-parallel-size",
                   longest=holds)


def _compressed_context(deployment: Deployment, memory: MemoryPlan, groups: CompressedGroups) -> Refusal | None:
    """Refuse a KV cache that does not hold the windows and compressor rows of one request of the longest context."""
    settings, engine = deployment.settings, ENGINES[deployment.scenario.engine]
    is_given = settings.num_gpu_blocks != memory.num_gpu_blocks
    available = settings.num_gpu_blocks * groups.block_bytes if is_given else memory.kv_bytes
    needed, length = groups.needed_bytes(settings.max_model_len), settings.max_model_len
    if needed <= available:
        return None
    longest = groups.longest(available, length)
    return Refusal(reason=f"{engine.title}'s max_model_len = {length:,} needs {needed / 2**30:.2f} GiB of KV cache, "
                          f"and {available / 2**30:.2f} GiB are available",
                   remedy=f"lower --max-model-len to {longest:,}, lower --max-num-batched-tokens, or raise "
                          f"--gpu-memory-utilization or --tensor-parallel-size",
                   longest=longest)


def _whole_prompts(deployment: Deployment) -> Refusal | None:
    """Refuse steps that do not hold the longest prompt, if prompts are not cut.

    Source: `SchedulerConfig.verify_max_model_len` in vllm/config/scheduler.py.
    """
    settings, engine = deployment.settings, ENGINES[deployment.scenario.engine]
    is_limited = engine.scheduler.whole_prompts and deployment.policy.budget == "step"
    if not is_limited or settings.enable_chunked_prefill or not (
            0 < settings.max_num_batched_tokens < settings.max_model_len):
        return None
    return Refusal(reason=f"{engine.title} is without chunked prefill, and max_num_batched_tokens = "
                          f"{settings.max_num_batched_tokens:,} is less than max_model_len = "
                          f"{settings.max_model_len:,}",
                   remedy="raise --max-num-batched-tokens, or lower --max-model-len",
                   longest=settings.max_num_batched_tokens)


def _decodes(deployment: Deployment) -> Refusal | None:
    """Refuse steps with fewer tokens than sequences. Source: as of `_whole_prompts`."""
    settings, engine = deployment.settings, ENGINES[deployment.scenario.engine]
    is_limited = engine.scheduler.whole_prompts and deployment.policy.budget == "step"
    if not is_limited or not 0 < settings.max_num_batched_tokens < settings.max_num_seqs:
        return None
    return Refusal(reason=f"{engine.title}'s max_num_batched_tokens = {settings.max_num_batched_tokens:,} is less than "
                          f"max_num_seqs = {settings.max_num_seqs:,}",
                   remedy="raise --max-num-batched-tokens, or lower --max-num-seqs")
