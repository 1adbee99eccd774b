"""Results of each pool of a fleet: its requests, the load of its GPUs, and their cost."""

from typing import Any

import numpy as np

from planner.deployment.conditions import described
from planner.files.keys import asdict
from planner.replays.fleet.shares import Share, busy_fraction, shares
from planner.replays.result_tables import ReplayResult
from planner.results.utilization import hardware, tier_totals


def describe_pools(result: ReplayResult, duration_s: float) -> tuple[dict[str, Any], ...]:
    """Return a row of numbers for each pool, for the summary.

    Costs and GPU-hours of all pools add up to the fleet's. Of a pool that prefills alone `mean_tpot_ms` is None, of one
    that decodes alone `mean_ttft_ms`; both of `num_requests` count a request that one prefills and another decodes.

    Parameters
    ----------
    duration_s : from the first arrival to the last departure [s].
    """
    return tuple(_row(result, part, duration_s) for part in shares(result, duration_s))


def _row(result: ReplayResult, part: Share, duration_s: float) -> dict[str, Any]:
    pool, replica, engine = part.pool, part.pool.deployment, part.engine
    blocks, tiers = int(part.settings.num_gpu_blocks), tier_totals([part])
    taken = _of(result, part)
    queried = int(engine.num_queried_tokens)
    has_hits = (part.settings.enable_prefix_caching or part.settings.caches_in_tree) and queried > 0
    return {
        "name": pool.name, "role": pool.role, "weight": pool.weight,
        "accepts": described(pool.accepts),
        "gpu": replica.gpu.name if replica.gpu else None, "engine": replica.scenario.engine,
        "tensor_parallel_size": replica.layout.tensor_parallel_size,
        "pipeline_parallel_size": replica.layout.pipeline_parallel_size,
        "data_parallel_size": replica.layout.data_parallel_size,
        "policy": replica.policy.name, "block_size": replica.settings.block_size,
        "num_replicas": pool.num_replicas, "first_replica": part.first_replica, "num_gpus": pool.num_gpus,
        "replicas_mean": None if pool.autoscale is None else part.mean_replicas,
        "num_requests": int(taken.sum()),
        "mean_ttft_ms": None if pool.role == "decode" else _mean_ms(result.ttft_s[taken]),
        "mean_tpot_ms": None if pool.role == "prefill" else _mean_ms(result.tpot_s[taken]),
        "num_steps": int(engine.num_steps), "num_preemptions": int(engine.num_preemptions),
        "prefix_cache_hit_rate": int(engine.num_hit_tokens) / queried if has_hits else None,
        "gpu_hit_rate": tiers.gpu_hit_rate, "cpu_hit_rate": tiers.cpu_hit_rate,
        "remote_hit_rate": tiers.remote_hit_rate,
        "num_gpu_blocks": blocks, "kv_cache_usage_peak": int(engine.peak_blocks) / blocks,
        "max_running": int(engine.max_running), "max_waiting": int(engine.max_waiting),
        "gpu_busy_fraction": busy_fraction([part], duration_s), **asdict(hardware([part], duration_s)),
    }


def _of(result: ReplayResult, part: Share) -> Any:
    """Return which requests a pool had, shape [num_requests]; a decode pool had the requests that it decoded."""
    replica = np.zeros(len(result.records.requests), np.int32) if result.replica is None else result.replica
    if result.handover is not None and part.pool.role == "decode":
        replica = result.handover["decode_replica"]
    return (replica >= part.first_replica) & (replica < part.first_replica + part.pool.num_replicas)


def _mean_ms(values_s: Any) -> float | None:
    values_s = values_s[~np.isnan(values_s)]
    return float(values_s.mean()) * 1e3 if len(values_s) else None
