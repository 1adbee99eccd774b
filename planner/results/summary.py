"""The summary of a replay: throughput, latency percentiles, goodput, memory, cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.replays.attempts import COUNTED, Attempts
from planner.replays.fleet.shares import Share, busy_fraction, same, shares
from planner.replays.reasons import FAILED, REJECTED
from planner.replays.result_tables import ReplayResult
from planner.replays.scaling_record import ReplicaSpan, ScaleEvent, Scaling, counts_over_time
from planner.results.measured_window import Window, counted, duration_of
from planner.results.rejections import rejected_by_reason
from planner.results.saturation import NUMBER, saturation
from planner.results.summary_answer import AttemptTotals, EngineTotals, Figures, Latency, ScalingTotals
from planner.results.tenant_results import describe_tenants
from planner.results.utilization import tier_totals
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
NO_LATENCY = Latency()
NOT_PREDICTED = ("wall_s", "simulated_requests_per_s", "slo", "slo_attainment_by_metric")


def describe(values: NDArray[np.float64]) -> Latency:
    """Return mean, median, standard deviation and percentiles in milliseconds, `None` each without values.

    Percentiles are linear between order statistics, as numpy's default.

    Parameters
    ----------
    values : in seconds, NaN if a request has none.
    """
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return NO_LATENCY
    return _in_ms(values.mean(), values.std(), *np.percentile(values, (50, *PERCENTILES), overwrite_input=True))


def describe_weighted(values: NDArray[np.float64], counts: NDArray[np.int64]) -> Latency:
    """Return the same for values that each stand for `counts` equal ones."""
    total = int(counts.sum())
    if total == 0:
        return NO_LATENCY
    mean = float((values * counts).sum()) / total  # no @: its last bit depends on how many threads BLAS takes
    std = math.sqrt(float(((values - mean) ** 2 * counts).sum()) / total)
    bins = _bins(values)
    upto = np.cumsum(np.bincount(bins, counts))
    return _in_ms(mean, std, *(_quantile(values, counts, bins, upto, (total - 1) * p / 100)
                               for p in (50, *PERCENTILES)))


def _in_ms(mean: float, std: float, *quantiles: float) -> Latency:
    median, p90, p95, p99 = (1e3 * float(value) for value in quantiles)
    return Latency(mean=1e3 * float(mean), std=1e3 * float(std), median=median, p90=p90, p95=p95, p99=p99)


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
              has_gaps: bool = True) -> Figures:
    """Return the figures of one replay.

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
    objectives, times_s = objectives or Objectives(), result.times_s
    verdict = judge(objectives, times_s)
    by_metric = {one.name: one.value for one in verdict.judged if one.unit == "1" and one.name != ATTAINMENT}
    good = meets(objectives.slo, *(times_s[metric] for metric in METRICS), own_s=own_limits(objectives, times_s)
                 ) if by_metric else None
    return Figures(
        completed=int(done.sum()), failed=int(np.isin(state, FAILED).sum()),
        rejected=int(np.isin(state, REJECTED).sum()), rejected_by_reason=rejected_by_reason(result),
        unfinished=int((state < st.COMPLETED).sum()), num_cancelled=int((state == st.CANCELLED).sum()),
        num_truncated=int((done & (r.num_output_tokens < result.trace.requests["output_tokens"].to_numpy())).sum()),
        duration=duration_s, total_input_tokens=inputs, total_output_tokens=outputs,
        num_computed_prompt_tokens=int(engine.total_prompt_tokens),
        request_throughput=_rate(int(done.sum()), duration_s),
        output_throughput=None if pooling else _rate(outputs, duration_s),
        total_token_throughput=_rate(inputs + outputs, duration_s),
        saturation=saturation(whole),
        request_goodput=None if good is None else _rate(int(good.sum()), duration_s),
        slo_attainment=None if good is None else verdict.attainment, slo_attainment_by_metric=by_metric or None,
        objectives=verdict.judged, tenants=describe_tenants(result, good, duration_s),
        ttft=describe(np.where(done & (pooling is None), result.ttft_s, math.nan)),
        tpot=describe(result.tpot_s),
        itl=_gaps(result, window) if has_gaps else None,
        e2el=describe(result.e2e_s),
        queue=describe(np.where(done, result.queue_s, math.nan)),
        engine=_engine_totals(whole, whole_s),
        scaling=None if whole.scaling is None else describe_scaling(whole.scaling, whole_s),
        tiers=tier_totals(shares(whole, whole_s)),
        load=describe(np.where(done & result.has_tiers, result.load_s, math.nan)),
        attempts=None if result.attempts is None else attempt_totals(result.attempts))


def _gaps(result: ReplayResult, window: Window | None) -> Latency:
    """Return the statistics of ITL; in a window its mean, which follows from the requests' first and last tokens."""
    gaps, r = result.records.gaps, result.records.requests
    if window is None:
        return describe_weighted(gaps.values_s, gaps.counts)
    done = (r.state == st.COMPLETED) & (r.num_output_tokens > 1)
    count = int((r.num_output_tokens[done] - 1).sum())
    total_s = float((r.finished_s[done] - r.first_token_s[done]).sum())
    return replace(NO_LATENCY, mean=1e3 * total_s / count if count else None)


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


def _engine_totals(result: ReplayResult, duration_s: float) -> EngineTotals:
    engine, parts = result.records.engine, shares(result, duration_s)
    queried, blocks = int(engine.num_queried_tokens), [int(part.settings.num_gpu_blocks) for part in parts]
    knows_hits = int(engine.num_hit_tokens) > 0 or any(
        bool(part.settings.enable_prefix_caching or part.settings.caches_in_tree) for part in parts)
    if all(part.pool.deployment.memory is not None and part.pool.deployment.memory.kv_bytes_per_token == 0
           for part in parts):  # encoders keep no KV; their blocks are no limit
        blocks = []
    room_block_s = sum(float(part.engine.busy_s) * count for part, count in zip(parts, blocks, strict=False))
    return EngineTotals(
        num_steps=int(engine.num_steps),
        num_preemptions=int(engine.num_preemptions),
        num_recomputed_tokens=int(engine.num_recomputed_tokens),
        num_swapped_tokens=int(engine.num_swapped_tokens),
        prefix_cache_hit_rate=int(engine.num_hit_tokens) / queried if knows_hits and queried else None,
        mean_acceptance_length=_acceptance_length(engine) if any(
            int(part.settings.num_speculative_tokens) for part in parts) else None,
        num_adapter_loads=int(engine.total_adapter_loads) if any(
            int(part.settings.max_loras) for part in parts) else None,
        kv_cache_usage_mean=float(engine.kv_block_s) / room_block_s if room_block_s > 0 else None,
        kv_cache_usage_peak=max((int(part.engine.peak_blocks) / count for part, count in zip(
            parts, blocks, strict=False)), default=None),
        num_gpu_blocks=same(blocks) if blocks else None,
        max_running=int(engine.max_running),
        max_waiting=int(engine.max_waiting),
        gpu_busy_fraction=busy_fraction(parts, duration_s) if duration_s > 0 else None,
        replica_imbalance=_imbalance(result),
        rank_wait_fraction=_rank_wait(parts))


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


def describe_scaling(scaling: Scaling, duration_s: float) -> ScalingTotals:
    """Return an autoscaled fleet's part of the summary.

    `autoscale` has all events and all replicas' times, seconds on the trace's clock.
    """
    grown = sum(event.after > event.before for event in scaling.events)
    pools = [{"name": name, **_rules(pool), "replicas_mean": pool.mean_replicas(duration_s)}
             for name, pool in scaling.pools.items()]
    return ScalingTotals(
        replicas_mean=scaling.mean_replicas(duration_s), num_scale_ups=grown,
        num_scale_downs=len(scaling.events) - grown,
        replicas_peak=max((paid for _, paid, _ in counts_over_time(scaling.spans)), default=0),
        autoscale={**_rules(scaling), "events": [_plain(event) for event in scaling.events],
                   "replicas": [_plain(span) for span in scaling.spans], **({"pools": pools} if pools else {})})


def _rules(scaling: Scaling) -> dict[str, str | float | None]:
    return {name: getattr(scaling, name)
            for name in ("source", "minimum", "maximum", "initial", "startup_s", "num_evaluations")}


def _plain(row: ScaleEvent | ReplicaSpan) -> dict[str, str | float | None]:
    """Return a row as JSON takes it."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row._asdict().items() if name != "pool" or value is not None}


def attempt_totals(attempts: Attempts) -> AttemptTotals:
    """Return how many attempts there were, how they ended, and the cost of attempts without an answer."""
    rows = attempts.rows
    outcome = np.asarray(rows["outcome"])
    wasted = outcome != st.COMPLETED
    computed, lost = int(rows["num_computed_tokens"].sum()), int(rows["num_computed_tokens"][wasted].sum())
    return AttemptTotals(
        num_attempts=len(rows), num_retries=int(np.maximum(attempts.count - 1, 0).sum()),
        max_attempts=int(attempts.count.max(initial=0)),
        **{name: int((outcome == code).sum()) for code, name in COUNTED.items()},
        num_wasted_computed_tokens=lost, num_wasted_output_tokens=int(rows["num_output_tokens"][wasted].sum()),
        wasted_work=lost / computed if computed else None, router_max_queued=attempts.peak_queued)
