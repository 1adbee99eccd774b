"""How hard the hardware worked and what it cost: MFU, MBU, GPU-hours, money, energy, and which limit binds."""

from typing import Any

import numpy as np

from planner.deployment import Deployment
from planner.limits import LEAST_SHARE
from planner.results import ReplayResult
from planner.roofs import model_flops, peak


def utilization(deployment: Deployment, result: ReplayResult, duration_s: float, output_tokens: int) -> dict[str, Any]:
    """Return the hardware's part of the summary; `None` where no GPU or model is named.

    Parameters
    ----------
    duration_s : from the first arrival to the last departure [s].
    output_tokens : tokens generated in that time.
    """
    gpu, engine = deployment.gpu, result.records.engine
    mean_replicas = result.mean_replicas(duration_s)
    num_gpus = deployment.layout.num_gpus * mean_replicas
    mfu, mbu = _mfu(deployment, result), None
    busy_s = float(engine.busy_s)
    if gpu is not None and busy_s > 0 and float(engine.total_hbm_bytes) > 0:
        mbu = float(engine.total_hbm_bytes) / (busy_s * gpu.hbm_bandwidth_bytes_per_s)
    gpu_hours = num_gpus * duration_s / 3600
    cost_usd = None if gpu is None else gpu_hours * gpu.price_usd_per_hour
    busy_fraction = min(busy_s / mean_replicas / duration_s, 1.0) if duration_s > 0 else 0.0
    return {
        "mfu": mfu,
        "mbu": mbu,
        "gpu_hours": gpu_hours,
        "cost_usd": cost_usd,
        "cost_usd_per_million_output_tokens": cost_usd / output_tokens * 1e6 if cost_usd is not None and output_tokens
        else None,
        # Idle draw, and the rest of the power limit while busy: errs upward, decodes draw less than the limit.
        "energy_kwh": None if gpu is None else gpu_hours * (
            gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * busy_fraction) / 1e3,
        "bottleneck": bottleneck(result, busy_fraction, mfu, mbu),
    }


def _mfu(deployment: Deployment, result: ReplayResult) -> float | None:
    """Return arithmetic over the dense peak while busy; see `roofs.model_flops`."""
    engine, flops_per_s = result.records.engine, peak(deployment)
    if deployment.architecture is None or flops_per_s is None or float(engine.busy_s) <= 0:
        return None
    flops = model_flops(
        deployment.architecture, prompt_tokens=int(engine.total_prompt_tokens), decodes=int(engine.total_decode_tokens),
        pairs=int(engine.total_prompt_pairs), window_pairs=int(engine.total_window_pairs),
        context=int(engine.total_context_tokens), sampled=int(engine.total_sampled))
    return float(flops / (float(engine.busy_s) * flops_per_s))


def bottleneck(result: ReplayResult, busy_fraction: float, mfu: float | None, mbu: float | None) -> str:
    """Name the limit that binds: max_num_seqs, kv_cache, token_budget, compute, memory_bandwidth, or arrivals for none.

    A limit of the queue binds where requests wait for a fair share of their time. It is told from what was reached at
    least once; `planner.limits` tells it from every step.
    """
    engine, settings, requests = result.records.engine, result.records.settings, result.records.requests
    blocks = int(settings.num_gpu_blocks)
    waited_s = float(np.nansum(result.queue_s) + requests.preempted_s.sum())
    if waited_s >= LEAST_SHARE * float(np.nansum(requests.finished_s - requests.arrival_s)):
        if int(engine.max_running) >= int(settings.max_num_seqs):
            return "max_num_seqs"
        if int(engine.num_preemptions) > 0 or int(engine.peak_blocks) > 0.95 * blocks:
            return "kv_cache"
        return "token_budget"
    if busy_fraction < 0.95:
        return "arrivals"
    return "compute" if (mfu or 0.0) >= (mbu or 0.0) else "memory_bandwidth"
