"""The summary of a replay: throughput, latency percentiles, goodput, memory, cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.replays.fleet.shares import Share, busy_fraction, same, shares
from planner.replays.reasons import FAILED, REJECTED
from planner.replays.result_tables import ReplayResult
from planner.replays.scaling_record import describe_scaling
from planner.results.measured_window import Window, counted, duration_of
from planner.results.rejections import rejected_by_reason
from planner.results.saturation import NUMBER, saturation
from planner.results.tenant_results import describe_tenants
from planner.results.tier_totals import tier_totals
from planner.settings.judged import ATTAINMENT
from planner.settings.objectives import Objectives, judge, own_limits
from planner.settings.slo import METRICS, Slo, meets

PERCENTILES = (90, 95, 99)
HEADLINES = (  # key, its name, unit; fractions are shown in per cent
    ("completed", "requests completed", ""),
    ("saturated", "saturated", ""),
    ("request_throughput", "requests", "/s"),
    ("output_throughput", "output tokens", "/s"),
    ("median_ttft_ms", "TTFT, median", "ms"),
    ("p99_ttft_ms", "TTFT, p99", "ms"),
    ("p99_tpot_ms", "TPOT, p99", "ms"),
    ("p99_e2el_ms", "end to end, p99", "ms"),
    ("slo_attainment", "SLO attainment", "%"),
    ("request_goodput", "goodput, requests", "/s"),
    ("kv_cache_usage_peak", "KV cache, peak", "%"),
    ("gpu_busy_fraction", "GPU busy", "%"),
    ("cost_usd_per_million_output_tokens", "per million output tokens", "USD"),
    ("bottleneck", "bottleneck", ""),
)
NOT_PREDICTED = ("wall_s", "simulated_requests_per_s", "slo", "slo_attainment_by_metric")


def describe(values: NDArray[np.float64], name: str) -> dict[str, float | None]:
    """Return mean, median, standard deviation and percentiles in milliseconds, `None` each without values.

    Percentiles are linear between order statistics, as numpy's default.

    Parameters
    ----------
    values : in seconds, NaN if a request has none.
    """
    values = values[~np.isnan(values)]
    keys = ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))
    if len(values) == 0:
        return {f"{key}_{name}_ms": None for key in keys}
    mean, std = values.mean(), values.std()
    quantiles = np.percentile(values, (50, *PERCENTILES), overwrite_input=True)
    numbers = (mean, quantiles[0], std, *quantiles[1:])
    return {f"{key}_{name}_ms": float(number) * 1e3 for key, number in zip(keys, numbers, strict=True)}


def describe_weighted(values: NDArray[np.float64], counts: NDArray[np.int64], name: str) -> dict[str, float | None]:
    """Return the same for values that each stand for `counts` equal ones."""
    keys = ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))
    total = int(counts.sum())
    if total == 0:
        return {f"{key}_{name}_ms": None for key in keys}
    mean = float((values * counts).sum()) / total  # no @: its last bit depends on how many threads BLAS takes
    std = math.sqrt(float(((values - mean) ** 2 * counts).sum()) / total)
    bins = _bins(values)
    upto = np.cumsum(np.bincount(bins, counts))
    quantiles = [_quantile(values, counts, bins, upto, (total - 1) * p / 100) for p in (50, *PERCENTILES)]
    numbers = (mean, quantiles[0], std, *quantiles[1:])
    return {f"{key}_{name}_ms": number * 1e3 for key, number in zip(keys, numbers, strict=True)}


def _bins(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a bin for each value, in the order of the values: by their first bits, some 2¹⁶ of them."""
    bits = values.view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)  # of negative floats the bits fall
    least = int(ordered.min())
    shift = max((int(ordered.max()) - least).bit_length() - 16, 0)
    return (ordered >> shift) - (least >> shift)


def _quantile(values: NDArray[np.float64], counts: NDArray[np.int64], bins: NDArray[np.int64],
              upto: NDArray[Any], place: float) -> float:
    """Return the value at a fractional place among values repeated `counts` times; bins have counts of up to `upto`.

    Only the values of the two bins are sorted.
    """
    low, high = math.floor(place), math.ceil(place)
    first, last = (int(np.searchsorted(upto, k, side="right")) for k in (low, high))
    near = np.flatnonzero((bins >= first) & (bins <= last))
    near = near[np.argsort(values[near])]
    reached = np.cumsum(counts[near]) + (upto[first - 1] if first > 0 else 0)
    below, above = (values[near[np.searchsorted(reached, k, side="right")]] for k in (low, high))
    return float(below + (above - below) * (place - low))


def goodput(slo: Slo, ttft_s: NDArray[np.float64], tpot_s: NDArray[np.float64], e2e_s: NDArray[np.float64],
            duration_s: float) -> float:
    """Return the rate of requests that meet every objective [requests/s].

    Four requests in ten seconds, two of them good:

    >>> slo = Slo(ttft_s=0.3, tpot_s=0.03)
    >>> ttft_s, tpot_s = np.array([0.12, 0.45, 0.18, 0.19]), np.array([0.025, 0.022, 0.042, 0.027])
    >>> goodput(slo, ttft_s, tpot_s, ttft_s + tpot_s, 10.0)
    0.2
    """
    return float(meets(slo, ttft_s, tpot_s, e2e_s).sum() / duration_s)


def summarize(whole: ReplayResult, objectives: Objectives | None, window: Window | None = None, *,
              has_gaps: bool = True) -> dict[str, Any]:
    """Return the numbers of one replay by the names of the summary.

    Rates are over the time from the first arrival to the last departure, in which queues fill and empty too. Requests
    that were rejected, failed or cancelled miss every objective. `mfu` and `mbu` are over the time in which the GPU was
    busy.

    Parameters
    ----------
    window : when requests must be sent to count, and the time for rates; None for all. Figures of the engines, and the
        verdict on saturation, cover the whole replay all the same. An engine's sums over gaps between tokens are
        not known by request, so ITL has a mean alone.
    has_gaps : whether ITL is among the numbers; of a long replay it takes longer than all others.
    """
    result = whole if window is None else counted(whole, window)
    r, engine = result.records.requests, result.records.engine
    state = np.asarray(r.state)
    done = state == st.COMPLETED
    whole_s = whole.duration_s
    duration_s = whole_s if window is None else duration_of(result, window)
    pooling = whole.deployment.pooling
    outputs = 0 if pooling else int(r.num_output_tokens.sum())
    inputs = int(r.input_tokens[done].sum())
    summary: dict[str, Any] = {
        "completed": int(done.sum()),
        "failed": int(np.isin(state, FAILED).sum()),
        "rejected": int(np.isin(state, REJECTED).sum()),
        "rejected_by_reason": rejected_by_reason(result),
        "unfinished": int((state < st.COMPLETED).sum()),
        "num_cancelled": int((state == st.CANCELLED).sum()),
        "num_truncated": int((done & (r.num_output_tokens < result.trace.requests["output_tokens"].to_numpy())).sum()),
        "duration": duration_s,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "num_computed_prompt_tokens": int(engine.total_prompt_tokens),
        "request_throughput": _rate(int(done.sum()), duration_s),
        "output_throughput": None if pooling else _rate(outputs, duration_s),
        "total_token_throughput": _rate(inputs + outputs, duration_s),
        **saturation(whole),
        **_objectives(result, objectives or Objectives(), duration_s),
        **describe(np.where(done & (pooling is None), result.ttft_s, math.nan), "ttft"),
        **describe(result.tpot_s, "tpot"),
        **(_gaps(result, window) if has_gaps else {}),
        **describe(result.e2e_s, "e2el"),
        **describe(np.where(done, result.queue_s, math.nan), "queue"),
        **_engine_totals(whole, whole_s),
        **describe_scaling(whole.scaling, whole_s),
        **tier_totals(shares(whole, whole_s)),
        **describe(np.where(done & result.has_tiers, result.load_s, math.nan), "load"),
    }
    if result.attempts is not None:
        summary |= result.attempts.summary()
    return summary


def _gaps(result: ReplayResult, window: Window | None) -> dict[str, float | None]:
    """Return the statistics of ITL; in a window its mean, which follows from the requests' first and last tokens."""
    gaps, r = result.records.gaps, result.records.requests
    if window is None:
        return describe_weighted(gaps.values_s, gaps.counts, "itl")
    none = describe_weighted(np.empty(0), np.empty(0, np.int64), "itl")
    done = (r.state == st.COMPLETED) & (r.num_output_tokens > 1)
    count = int((r.num_output_tokens[done] - 1).sum())
    total_s = float((r.finished_s[done] - r.first_token_s[done]).sum())
    return none | {"mean_itl_ms": 1e3 * total_s / count if count else None}


def numbers(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the predictions of a summary: its numbers, without the time that the replay itself took.

    The verdict on saturation is a number too, 0 for no, 1 for yes, and 0.5 if the replay cannot tell.

    >>> numbers({"completed": 3, "mean_tpot_ms": None, "wall_s": 0.2, "bottleneck": "arrivals"})
    {'completed': 3, 'mean_tpot_ms': None}
    """
    numbered = {**summary, "saturated": NUMBER[summary["saturated"]]} if "saturated" in summary else summary
    return {name: value for name, value in numbered.items()
            if (value is None or type(value) in (int, float)) and name not in NOT_PREDICTED}


def _rate(count: int, duration_s: float) -> float | None:
    return count / duration_s if duration_s > 0 else None


def _objectives(result: ReplayResult, objectives: Objectives, duration_s: float) -> dict[str, Any]:
    """Return the outcome of the objectives; goodput and attainment count requests' own limits, None without any."""
    figures: dict[str, Any] = {"request_goodput": None, "slo_attainment": None, "slo_attainment_by_metric": None}
    times_s = result.times_s
    verdict = judge(objectives, times_s)
    shares = {one.name: one.value for one in verdict.judged if one.unit == "1" and one.name != ATTAINMENT}
    good = None
    if shares:
        good = meets(objectives.slo, *(times_s[metric] for metric in METRICS), own_s=own_limits(objectives, times_s))
        figures = {"request_goodput": _rate(int(good.sum()), duration_s), "slo_attainment": verdict.attainment,
                   "slo_attainment_by_metric": shares}
    return {**figures, "objectives": [asdict(one) for one in verdict.judged],
            **describe_tenants(result, good, duration_s)}


def _engine_totals(result: ReplayResult, duration_s: float) -> dict[str, Any]:
    engine, parts = result.records.engine, shares(result, duration_s)
    queried, blocks = int(engine.num_queried_tokens), [int(part.settings.num_gpu_blocks) for part in parts]
    knows_hits = int(engine.num_hit_tokens) > 0 or any(
        bool(part.settings.enable_prefix_caching or part.settings.caches_in_tree) for part in parts)
    if all(part.pool.deployment.memory is not None and part.pool.deployment.memory.kv_bytes_per_token == 0
           for part in parts):  # encoders keep no KV; their blocks are no limit
        blocks = []
    room_block_s = sum(float(part.engine.busy_s) * count for part, count in zip(parts, blocks, strict=False))
    return {
        "num_steps": int(engine.num_steps),
        "num_preemptions": int(engine.num_preemptions),
        "num_recomputed_tokens": int(engine.num_recomputed_tokens),
        "num_swapped_tokens": int(engine.num_swapped_tokens),
        "prefix_cache_hit_rate": int(engine.num_hit_tokens) / queried if knows_hits and queried else None,
        "mean_acceptance_length": _acceptance_length(engine) if any(
            int(part.settings.num_speculative_tokens) for part in parts) else None,
        "num_adapter_loads": int(engine.total_adapter_loads) if any(
            int(part.settings.max_loras) for part in parts) else None,
        "kv_cache_usage_mean": float(engine.kv_block_s) / room_block_s if room_block_s > 0 else None,
        "kv_cache_usage_peak": max((int(part.engine.peak_blocks) / count for part, count in zip(
            parts, blocks, strict=False)), default=None),
        "num_gpu_blocks": same(blocks) if blocks else None,
        "max_running": int(engine.max_running),
        "max_waiting": int(engine.max_waiting),
        "gpu_busy_fraction": busy_fraction(parts, duration_s) if duration_s > 0 else None,
        "replica_imbalance": _imbalance(result),
        "rank_wait_fraction": _rank_wait(parts),
    }


def _acceptance_length(engine: Any) -> float | None:
    """Return the tokens that a decode emits a step, by vLLM's name; tokens beyond an output's end do not count."""
    steps = int(engine.total_decode_tokens - engine.total_accepted_tokens)
    return int(engine.total_decode_tokens) / steps if steps else None


def _rank_wait(parts: Sequence[Share]) -> float | None:
    """Return the share of their steps' time that ranks of data-parallel attention waited; None without ranks.

    A rank waits for a step's time beyond its own, and with a dummy batch for all of it.
    """
    ranked = [part.engine for part in parts if part.pool.deployment.layout.data_parallel_size > 1]
    busy_s = sum(float(engine.busy_s) for engine in ranked)
    return sum(float(engine.total_wait_s) for engine in ranked) / busy_s if busy_s > 0 else None


def _imbalance(result: ReplayResult) -> float | None:
    """Return the tokens of the requests of the replica that has most, over the mean of all; None of one alone.

    If replicas come and go there is no such number either.
    """
    if result.replica is None or (result.scaling is not None and result.scaling.events):
        return None
    r = result.records.requests
    sent = result.replica >= 0  # others were turned away before
    tokens = np.bincount(result.replica[sent], (r.input_tokens + r.num_output_tokens)[sent], result.num_replicas)
    return float(tokens.max() / tokens.mean()) if sent.any() else None
