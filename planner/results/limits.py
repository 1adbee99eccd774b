"""Which limit binds: the limit that keeps waiting requests out of the steps, and the bound of the steps themselves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

QUEUE_LIMITS = ("max_num_seqs", "token_budget", "kv_cache", "max_loras", "policy")
STEP_BOUNDS = ("compute", "memory_bandwidth", "communication", "host", "other_ranks")
BESIDE_ROOFS = STEP_BOUNDS[2:]  # known only if steps are recorded
LEAST_SHARE = 0.05  # of requests' time: a limit of the queue that costs less does not bind
LEAST_BUSY = 0.5  # of the makespan: engines that rest for longer are bound by arrivals alone
BURSTY = 1.5  # times the mean rate: faster arrivals while others wait are a burst


def limits(requests: pl.DataFrame, steps: pl.DataFrame, num_replicas: float) -> dict[str, Any]:
    """Return the limit that binds, with the numbers that show it.

    Parameters
    ----------
    requests, steps : as `ReplayResult.requests_table` and `steps_table`.
    num_replicas : engines that shared the load, in the mean [1].

    Returns
    -------
    dict
        `queue`: by limit, `time_s` of steps whose queue it stopped, `request_s` that requests waited for it, and
        `share` of all requests' time. `steps`: by bound, `time_s` of steps that it bounds most, and `share` of the busy
        time. `roofs`: the time of all arithmetic and of all HBM traffic at peak rates, and its `share` of the busy
        time. `busy_share` and `waiting_share` of the makespan; `burst`, the rate of arrivals while requests wait over
        their mean rate; `is_in_bursts`, if requests wait in bursts only; `bottleneck`, by `bottleneck`; and `binding`,
        the bottleneck, or the host, links or other ranks if they bound most of the busy time.
    """
    latency_s = float((requests["finished_at_s"] - requests["arrival_s"]).sum())
    span_s = makespan_s(requests)
    stopped = {row["stopped_by"]: row for row in steps.filter(pl.col("stopped_by").is_not_null()).group_by(
        "stopped_by").agg(time_s=pl.col("duration_s").sum(),
                          request_s=(pl.col("duration_s") * pl.col("num_waiting")).sum()).to_dicts()}
    queue = {}
    for name in QUEUE_LIMITS:
        time_s, request_s = (float(stopped.get(name, {}).get(key, 0.0)) for key in ("time_s", "request_s"))
        queue[name] = {"time_s": time_s, "request_s": request_s,
                       "share": request_s / latency_s if latency_s > 0 else 0.0}
    busy_s = float(steps["duration_s"].sum())
    bound = step_bounds(steps)
    bounds = {name: float(steps["duration_s"].filter(bound == name).sum()) for name in STEP_BOUNDS}
    roofs = {"compute": float(steps["compute_s"].sum()), "memory_bandwidth": float(steps["memory_s"].sum())}
    by_limit: dict[str, Any] = {
        "queue": queue,
        **{key: {name: {"time_s": time_s, "share": time_s / busy_s if busy_s > 0 else 0.0}
                 for name, time_s in times.items()} for key, times in (("steps", bounds), ("roofs", roofs))},
        "busy_share": min(busy_s / (span_s * num_replicas), 1.0) if span_s > 0 else 0.0,
        "waiting_share": sum(stopped_by["time_s"] for stopped_by in queue.values()) / (span_s * num_replicas)
        if span_s > 0 else 0.0,
        "burst": _burst(requests, steps, span_s),
    }
    bound_by = bottleneck({name: row["share"] for name, row in queue.items()}, by_limit["busy_share"], **roofs)
    longest = max(bounds, key=lambda name: bounds[name])
    is_beside = bound_by in roofs and longest in BESIDE_ROOFS
    return by_limit | {
        "is_in_bursts": (bound_by in queue and by_limit["waiting_share"] < 0.5
                         and (by_limit["burst"] or 0.0) >= BURSTY),
        "bottleneck": bound_by, "binding": longest if is_beside else bound_by}


def bottleneck(queue: Mapping[str, float], busy: float, compute: float, memory_bandwidth: float) -> str:
    """Name the limit that binds a replay, from totals alone: the same with and without recorded steps.

    It is the queue's limit that costs requests most of their time, else `arrivals` if engines rest for most of the
    time, else the nearer of the two roofs, `compute` or `memory_bandwidth`.

    Parameters
    ----------
    queue : by limit, the share of requests' time that they waited for it.
    busy : share of the time in which engines run steps.
    compute, memory_bandwidth : time of all arithmetic and of all HBM traffic at peak rates [s]; both 0 if the step time
        is a line.

    >>> bottleneck({"max_num_seqs": 0.3, "kv_cache": 0.01}, 0.99, 5.0, 4.0), bottleneck({}, 0.99, 5.0, 4.0)
    ('max_num_seqs', 'compute')
    """
    worst = max(queue, key=lambda name: queue[name], default=None)
    if worst is not None and queue[worst] >= LEAST_SHARE:
        return worst
    if busy < LEAST_BUSY or compute == memory_bandwidth == 0.0:
        return "arrivals"
    return "compute" if compute >= memory_bandwidth else "memory_bandwidth"


def step_bounds(steps: pl.DataFrame) -> pl.Series:
    """Return the bound of each step: the host, links or other ranks if they take most of it, or the nearer roof.

    A step's time without `overhead_s`, `collectives_s` and `rank_wait_s` is the kernels'; of these the roof is nearer
    whose `compute_s` or `memory_s` is longer. If neither is known, as with a step time that is a line, it is null.
    """
    if "rank_wait_s" not in steps.columns:  # of a result that an earlier release has written
        steps = steps.with_columns(rank_wait_s=pl.lit(0.0))
    kernels = pl.col("duration_s") - pl.col("overhead_s") - pl.col("collectives_s") - pl.col("rank_wait_s")
    most = pl.max_horizontal(kernels, "overhead_s", "collectives_s", "rank_wait_s")
    roof = pl.when(pl.col("compute_s") >= pl.col("memory_s")).then(pl.lit("compute")).otherwise(
        pl.lit("memory_bandwidth"))
    bound = (pl.when(pl.col("compute_s").is_null()).then(None)
             .when(pl.col("overhead_s") == most).then(pl.lit("host"))
             .when(pl.col("collectives_s") == most).then(pl.lit("communication"))
             .when(pl.col("rank_wait_s") == most).then(pl.lit("other_ranks")).otherwise(roof))
    return steps.select(bound.alias("bound"))["bound"]


def makespan_s(requests: pl.DataFrame) -> float:
    """Return the time from the first arrival to the last departure [s]."""
    first, last = requests["arrival_s"].min(), requests["finished_at_s"].max()
    return 0.0 if first is None or last is None else float(last - first)  # type: ignore[operator, arg-type]


def _burst(requests: pl.DataFrame, steps: pl.DataFrame, span_s: float) -> float | None:
    """Return how much faster requests come during steps in which others wait; None if none waits."""
    waiting = steps.filter(pl.col("num_waiting") > 0)
    waiting_s = float(waiting["duration_s"].sum())
    if waiting_s <= 0 or span_s <= 0:
        return None
    came = 0
    for replica in waiting["replica"].unique():
        theirs = waiting.filter(replica=replica).sort("start_s")
        start_s = theirs["start_s"].to_numpy()
        arrival_s = requests.filter(replica=replica)["arrival_s"].to_numpy()
        place = np.searchsorted(start_s, arrival_s, side="right") - 1
        end_s = start_s + theirs["duration_s"].to_numpy()
        came += int(((place >= 0) & (arrival_s < end_s[np.maximum(place, 0)])).sum())
    per_replica = requests.height / span_s / requests["replica"].n_unique()
    return came / waiting_s / per_replica
