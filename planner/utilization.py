"""How hard the hardware worked and what it cost: MFU, MBU, GPU-hours, money, energy, and which limit binds."""

from typing import Any

from planner.architecture import attention_flops_per_pair, num_active_parameters
from planner.deployment import Deployment
from planner.precision import peak_flops_per_s, weight_format
from planner.results import ReplayResult


def utilization(deployment: Deployment, result: ReplayResult, duration_s: float, output_tokens: int) -> dict[str, Any]:
    """Return the hardware's part of the summary; `None` where no GPU or model is named.

    Parameters
    ----------
    duration_s : from the first arrival to the last departure [s].
    output_tokens : tokens generated in that time.
    """
    gpu, engine = deployment.gpu, result.records.engine
    num_gpus = deployment.layout.num_gpus * result.num_replicas
    mfu, mbu = _mfu(deployment, result), None
    busy_s = float(engine.busy_s)
    if gpu is not None and busy_s > 0 and float(engine.total_hbm_bytes) > 0:
        mbu = float(engine.total_hbm_bytes) / (busy_s * gpu.hbm_bandwidth_bytes_per_s)
    gpu_hours = num_gpus * duration_s / 3600
    cost_usd = None if gpu is None else gpu_hours * gpu.price_usd_per_hour
    busy_fraction = min(busy_s / result.num_replicas / duration_s, 1.0) if duration_s > 0 else 0.0
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
    """Return arithmetic over the dense peak while busy: 2 FLOP per active parameter and token, and attention.

    The LM head counts for sampled tokens only, a sliding or sparse layer up to its window (for decodes as
    `engine.timing` does); indexers and recurrent states are left out.
    """
    arch, gpu, engine = deployment.architecture, deployment.gpu, result.records.engine
    if arch is None or gpu is None or float(engine.busy_s) <= 0:
        return None
    decodes, context = int(engine.total_decode_tokens), int(engine.total_context_tokens)
    windowed = arch.num_attention_layers if arch.index_topk else arch.num_sliding_layers
    full, window = arch.num_attention_layers - windowed, arch.index_topk or arch.sliding_window
    attention = attention_flops_per_pair(arch, is_decode=False) * (
        full * int(engine.total_prompt_pairs) + windowed * int(engine.total_window_pairs)
    ) + attention_flops_per_pair(arch, is_decode=True) * (
        full * context + windowed * min(context, decodes * window)
    )
    head = arch.vocab_size * arch.hidden_size
    layers = (num_active_parameters(arch) - head) * (int(engine.total_prompt_tokens) + decodes)
    flops = 2.0 * (layers + head * int(engine.total_sampled)) + attention
    peak = peak_flops_per_s(gpu, weight_format(arch, deployment.scenario.quantization))
    return flops / (float(engine.busy_s) * peak * deployment.layout.num_gpus)


def bottleneck(result: ReplayResult, busy_fraction: float, mfu: float | None, mbu: float | None) -> str:
    """Name the limit that binds: arrivals (none does), max_num_seqs, kv_cache, compute or memory_bandwidth."""
    engine, settings = result.records.engine, result.records.settings
    blocks = int(settings.num_gpu_blocks)
    if int(engine.max_waiting) > 0 and int(engine.max_running) >= int(settings.max_num_seqs):
        return "max_num_seqs"
    if int(engine.num_preemptions) > 0 or (int(engine.max_waiting) > 0 and int(engine.peak_blocks) > 0.95 * blocks):
        return "kv_cache"
    if busy_fraction < 0.95:
        return "arrivals"
    return "compute" if (mfu or 0.0) >= (mbu or 0.0) else "memory_bandwidth"
