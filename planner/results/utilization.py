"""How hard the hardware worked and its cost: MFU, MBU, GPU-hours, money, energy, KV tiers, and the limit that binds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.roofs import model_flops, peak
from planner.loop.state import engine_state as st
from planner.replays.fleet.shares import Share, busy_fraction, shares
from planner.replays.result_tables import STOPPED_BY, ReplayResult
from planner.results.energy import mean_power_w
from planner.results.limits import bottleneck
from planner.results.summary_answer import Hardware, ResultCosts, TierTotals, Utilization


def utilization(result: ReplayResult, duration_s: float, output_tokens: int) -> Utilization:
    """Return the hardware's part of the summary; `None` if no GPU or model is named.

    Parameters
    ----------
    duration_s : from the first arrival to the last departure [s].
    output_tokens : tokens generated in that time.
    """
    parts = shares(result, duration_s)
    figures = hardware(parts, duration_s)
    cost_usd = figures.cost_usd
    per_token = cost_usd / output_tokens if cost_usd is not None and output_tokens else None
    sessions = result.trace.requests["session_id"].n_unique() if "session_id" in result.trace.requests.columns else 0
    return Utilization(
        hardware=figures, results=_cost_of_results(result, cost_usd) if result.deployment.pooling else None,
        cost_usd_per_million_output_tokens=None if per_token is None else per_token * 1e6,
        cost_usd_per_session=cost_usd / sessions if cost_usd is not None and sessions else None,
        bottleneck=_bottleneck(result, parts, busy_fraction(parts, duration_s)))


def _cost_of_results(result: ReplayResult, cost_usd: float | None) -> ResultCosts:
    done = result.records.requests.state == st.COMPLETED
    inputs = int(result.records.requests.input_tokens[done].sum())
    if cost_usd is None or not inputs:
        return ResultCosts(cost_usd_per_million_input_tokens=None, cost_usd_per_thousand_results=None)
    return ResultCosts(cost_usd_per_million_input_tokens=cost_usd / inputs * 1e6,
                       cost_usd_per_thousand_results=cost_usd / int(done.sum()) * 1e3)


def hardware(parts: Sequence[Share], duration_s: float) -> Hardware:
    """Return how hard the GPUs of some pools worked, and their cost; `None` if a pool names none."""
    powered = [(part, part.pool.deployment.gpu) for part in parts]
    cost_usd = energy_kwh = 0.0
    for part, gpu in powered:
        if gpu is not None:
            gpu_hours = part.num_gpus * duration_s / 3600
            cost_usd += gpu_hours * gpu.price_usd_per_hour
            energy_kwh += gpu_hours * mean_power_w(part, duration_s) / 1e3
    is_known = all(gpu is not None for _, gpu in powered)
    return Hardware(
        mfu=_mfu(parts), mbu=_mbu(parts), gpu_hours=sum(part.num_gpus for part in parts) * duration_s / 3600,
        cost_usd=cost_usd if is_known else None, energy_kwh=energy_kwh if is_known else None)


def _mbu(parts: Sequence[Share]) -> float | None:
    """Return HBM traffic over the bandwidth while busy, over all GPUs [1]."""
    traffic = room = 0.0
    for part in parts:
        gpu, layout = part.pool.deployment.gpu, part.pool.deployment.layout
        if gpu is None:
            return None
        traffic += float(part.engine.total_hbm_bytes) * layout.tensor_parallel_size  # of all stages, on one GPU of each
        room += float(part.engine.busy_s) * gpu.hbm_bandwidth_bytes_per_s * layout.gpus_per_rank
    return traffic / room if traffic > 0 else None


def _mfu(parts: Sequence[Share]) -> float | None:
    """Return arithmetic over the dense peak while busy; see `roofs.model_flops`."""
    flops = room = 0.0
    for part in parts:
        flops_per_s = peak(part.pool.deployment)
        if flops_per_s is None:
            return None
        flops += _flops(part)
        room += float(part.engine.busy_s) * flops_per_s
    return flops / room if room > 0 else None


def _flops(part: Share) -> float:
    engine, arch = part.engine, part.pool.deployment.architecture
    assert arch is not None  # callers have asked for its peak
    return float(model_flops(
        arch, prompt_tokens=int(engine.total_prompt_tokens),
        decodes=int(engine.total_decode_tokens + engine.total_dropped), pairs=int(engine.total_prompt_pairs),
        window_pairs=int(engine.total_window_pairs), context=int(engine.total_context_tokens),
        sampled=int(engine.total_sampled)))


def _bottleneck(result: ReplayResult, parts: Sequence[Share], busy: float) -> str:
    """Name the limit that binds, by `limits.bottleneck`; `roofs.step_roofs` gives a step's roofs."""
    requests = result.records.requests
    latency_s = float(np.nansum(requests.finished_s - requests.arrival_s))
    stopped_s: NDArray[np.float64] = np.sum([part.engine.total_stopped_s for part in parts], axis=0)
    queue = {name: float(stopped_s[stop]) / latency_s for stop, name in STOPPED_BY.items() if name} if latency_s else {}
    compute_s = memory_s = 0.0
    for part in parts:
        deployment = part.pool.deployment
        flops_per_s = peak(deployment)
        if deployment.gpu is not None and flops_per_s is not None and deployment.stack is not None:
            compute_s += _flops(part) * deployment.layout.pipeline_parallel_size / flops_per_s
            memory_s += float(part.engine.total_hbm_bytes) / deployment.gpu.hbm_bandwidth_bytes_per_s
    return bottleneck(queue, busy, compute_s, memory_s)


def tier_totals(parts: Sequence[Share]) -> TierTotals:
    """Return hits and traffic of some pools together; None for each tier that no pool has."""
    queried = sum(int(part.engine.num_queried_tokens) for part in parts)
    below = sum(int(part.links.num_hit_tokens.sum()) for part in parts)
    counts: dict[str, Any] = {}
    if any(part.settings.has_tiers for part in parts):
        counts["num_gpu_hit_tokens"] = sum(int(part.engine.num_hit_tokens) for part in parts) - below
    for row, name in enumerate(("cpu", "remote")):
        tiers = [(getattr(part.pool.deployment.settings, f"{name}_tier"), part.links[row]) for part in parts
                 if part.settings.has_tiers]
        there = [(tier.block_bytes, link) for tier, link in tiers if tier is not None]
        if there:
            counts[f"num_{name}_hit_tokens"] = sum(int(link.num_hit_tokens) for _, link in there)
            for way in ("read", "written"):
                counts[f"{name}_{way}_bytes"] = round(sum(
                    int(link[f"num_{way}_blocks"]) * block_bytes for block_bytes, link in there))
    return TierTotals(**counts, **{f"{name}_hit_rate": count / queried if count is not None and queried else None
                                   for name in ("gpu", "cpu", "remote")
                                   for count in [counts.get(f"num_{name}_hit_tokens")]})
