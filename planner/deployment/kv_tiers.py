"""KV tiers of a deployment: their capacities and links, by its options, and their memory in the loop."""

import math
from typing import Any

import numpy as np

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.errors import UsageError
from planner.loop.state import engine_state as st
from planner.loop.state import entries
from planner.loop.state.engine_settings import EngineSettings, Tier
from planner.settings.scenario import Scenario
from planner.settings.tier_options import has_host_tier, has_tiers
from planner.traces import Trace

GIB = 2.0**30
GIGA = 1e9
WRITE_POLICY = {"write_through": st.WRITE_THROUGH, "write_through_selective": st.WRITE_SELECTIVE,
                "write_back": st.WRITE_BACK}


def cpu_tier(scenario: Scenario, arch: Architecture | None, gpu: Gpu | None, kv_bytes: float, num_gpu_blocks: int,
             block_size: int) -> Tier | None:
    """Return the tier in host memory, or None without one.

    Its size counts all GPUs of an engine together, as vLLM's `kv_offloading_size`. Each GPU moves its own share of
    a block over its own host link, so a block takes bytes per GPU / bandwidth: 16 tokens of Llama-3.1-70B on four
    GPUs, 1.25 MiB each, 20 µs over 64 GB/s.

    Parameters
    ----------
    kv_bytes : of an element of the KV cache [bytes].
    block_size : over all GPUs that share contexts [tokens].
    num_gpu_blocks : of an engine, of which `kv_offloading_ratio` is a multiple [1].

    Raises
    ------
    UsageError : the model, or the link's bandwidth, is not known, or no block fits.
    """
    if not has_host_tier(scenario):
        if scenario.kv_offloading_bandwidth is not None:
            raise UsageError(f"--kv-offloading-bandwidth {scenario.kv_offloading_bandwidth:g}: there is no tier in "
                             f"host memory; give --kv-offloading-size")
        return None
    option, asked = (("--kv-offloading-size", scenario.kv_offloading_size) if scenario.kv_offloading_ratio is None
                     else ("--kv-offloading-ratio", scenario.kv_offloading_ratio))
    assert asked is not None
    arch = _known(arch, option, asked)
    bandwidth = scenario.kv_offloading_bandwidth
    if bandwidth is None:
        if gpu is None:
            raise UsageError(f"{option} {asked:g}: the host link's bandwidth is unknown; give --gpu or "
                             f"--kv-offloading-bandwidth")
        bandwidth = gpu.host_bandwidth_bytes_per_s / GIGA
    ranks, stages = scenario.tensor_parallel_size, scenario.pipeline_parallel_size
    gpu_bytes = block_size * kv_bytes_per_token_per_gpu(arch, kv_bytes, ranks, stages)
    block_bytes = gpu_bytes * ranks * stages
    size = asked if scenario.kv_offloading_ratio is None else asked * num_gpu_blocks * block_bytes / GIB
    return _tier(option, size, block_bytes, gpu_bytes / (bandwidth * GIGA), 0.0)


def remote_tier(scenario: Scenario, arch: Architecture | None, kv_bytes: float, block_size: int) -> Tier | None:
    """Return the remote tier that all replicas share, or None without one; raises as `cpu_tier`.

    A replica has one link to it, over which the KV of all its GPUs goes: 16 tokens of Llama-3.1-70B, 5 MiB, 0.1 ms
    over 50 GB/s.
    """
    size = scenario.kv_remote_size
    if size is None:
        return None
    arch = _known(arch, "--kv-remote-size", size)
    block_bytes = block_size * kv_bytes_per_token_per_gpu(arch, kv_bytes, 1, 1)
    return _tier("--kv-remote-size", size, block_bytes, block_bytes / (scenario.kv_remote_bandwidth * GIGA),
                 scenario.kv_remote_latency)


def check_tiers(scenario: Scenario, trace: Trace) -> None:
    """Refuse tiers if a trace has the hits at its recording, and not the content that prompts share."""
    if has_tiers(scenario) and trace.prefix is None and "cached_tokens" in trace.requests.columns:
        raise UsageError(f"{trace.source}: has cached_tokens (hits of the measured cache) without hash_ids, so the "
                         f"content of KV tiers is unknown; give a trace with hash_ids, or leave out cached_tokens")


def _known(arch: Architecture | None, option: str, size: float) -> Architecture:
    if arch is None:
        raise UsageError(f"{option} {size:g}: the number of blocks depends on the model; give --model")
    return arch


def _tier(option: str, size: float, block_bytes: float, s_per_block: float, latency_s: float) -> Tier:
    """Return a tier of `size` GiB."""
    if size * GIB < block_bytes:
        raise UsageError(f"{option} {size:g}: a KV block takes {block_bytes / GIB:.3g} GiB; give at least that")
    blocks = math.inf if math.isinf(size) else size * GIB // block_bytes
    return Tier(num_blocks=int(min(blocks, 2.0**40)), block_bytes=block_bytes, s_per_block=s_per_block,
                latency_s=latency_s)


def tier_memory(settings: EngineSettings, num_requests: int, num_contents: int) -> dict[str, Any]:
    """Return the fields of the loop's memory that tiers have; a row of each without tiers.

    Parameters
    ----------
    num_contents : distinct contents of blocks, more than which no tier ever holds.
    """
    is_tiered = settings.cpu_tier is not None or settings.remote_tier is not None
    links = st.records(2, entries.LINK)
    for link, tier in zip(links, (settings.cpu_tier, settings.remote_tier), strict=True):
        if tier is not None:
            link.s_per_block, link.latency_s = tier.s_per_block, tier.latency_s
    cpu, remote = (_tier_memory(tier, num_contents) for tier in (settings.cpu_tier, settings.remote_tier))
    return {
        "links": links,
        "cpu": cpu[0], "cpu_blocks": cpu[1], "cpu_places": cpu[2],
        "remote": remote[0], "remote_blocks": remote[1], "remote_places": remote[2],
        "filled": st.records(settings.num_gpu_blocks if is_tiered else 1, entries.FILLED),
        "fetches": st.records(num_requests if is_tiered else 1, entries.FETCH),
    }


def _tier_memory(tier: Tier | None, num_contents: int) -> tuple[Any, Any, Any]:
    """Return an empty tier's record, its blocks, and the places of contents."""
    count = 0 if tier is None else min(tier.num_blocks, num_contents + 1)
    record, blocks = st.records(1, entries.TIER), st.records(max(count, 1), entries.TIER_BLOCK)
    places = st.records(num_contents + 1 if count else 1, entries.PLACE)
    record.capacity = count
    empty(record[0], blocks, places)
    return record, blocks, places


def forget_cpu_tier(state: st.State) -> None:
    """Empty the host memory of an engine that has no requests, as when it is started anew."""
    empty(state.cpu[0], state.cpu_blocks, state.cpu_places)
    state.filled[:] = np.zeros(len(state.filled), entries.FILLED)
    state.engine.first_filled = st.NONE


def empty(tier: Any, blocks: Any, places: Any) -> None:
    """Let a tier hold nothing, all its places free in the order of their numbers."""
    tier.used = tier.free = 0
    tier.oldest = tier.newest = st.NONE
    blocks.next = np.arange(1, len(blocks) + 1)
    blocks.next[-1] = st.NONE
    places.block = st.NONE
