"""How requests' time divides: its phases, from the table of requests."""

from typing import Any

import polars as pl

PHASES = {  # by phase: its words
    "retry": "earlier attempts and retry pauses",
    "gateway": "router queue",
    "frontend": "API server",
    "queue": "engine queue",
    "load": "KV loads from host or remote store",
    "prefill": "prefill",
    "handover": "KV transfer from prefill to decode",
    "decode": "decode",
    "interference": "steps with other requests' prompts",
    "transfer": "KV transfers over the host link",
    "preemption": "waiting after preemption",
    "recompute": "recomputation after preemption",
}
SLOWEST = 0.01  # share of requests whose phases are told apart from all requests'


def request_phases(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each completed request by phase [s]; the phases of a request add up to its `e2e_s`.

    Interference and transfer are parts of decode if they are not known: without recorded steps, in a pipeline. There is
    a handover only if some replicas prefill and others decode, retries and a gateway only if clients try again or the
    router has a queue, and a load only with KV tiers.

    Parameters
    ----------
    requests : as `ReplayResult.requests_table`.
    """
    done = requests.filter(pl.col("status") == "completed")
    waits = pl.col("interference_s").fill_null(0.0), pl.col("transfer_s").fill_null(0.0)
    return done.select(
        "e2e_s",
        optional_s(done, "retry_s").alias("retry"),
        optional_s(done, "gateway_s").alias("gateway"),
        pl.col("frontend_s").alias("frontend"),
        pl.col("queue_s").alias("queue"),
        optional_s(done, "load_s").alias("load"),
        pl.col("prefill_s").alias("prefill"),
        optional_s(done, "handover_s").alias("handover"),
        (pl.col("decode_s") - waits[0] - waits[1]).alias("decode"),
        waits[0].alias("interference"),
        waits[1].alias("transfer"),
        pl.col("preempted_s").alias("preemption"),
        pl.col("recompute_s").alias("recompute"),
    )


def reached_s(requests: pl.DataFrame) -> pl.Series:
    """Return when each request reached the queue of its engine, in its last attempt [s]."""
    before_s = optional_s(requests, "retry_s") + optional_s(requests, "gateway_s")
    return requests["arrival_s"] + before_s + requests["frontend_s"]


def optional_s(requests: pl.DataFrame, name: str) -> pl.Series:
    """Return a column that only some replays have, as `handover_s` or `load_s` [s]; 0 without it."""
    if name not in requests.columns:
        return pl.repeat(0.0, requests.height, eager=True)
    return requests[name].fill_null(0.0)


def phases(requests: pl.DataFrame) -> dict[str, Any] | None:
    """Return the mean time of completed requests by phase, of all and of the slowest 1 %; None without any.

    Returns
    -------
    dict
        `all` and `slowest`, by end-to-end latency, each with `num_requests`, `mean_ms` and `share` by phase.
    """
    times = request_phases(requests)
    if times.is_empty():
        return None
    slowest = times.sort("e2e_s", descending=True).head(max(1, round(SLOWEST * times.height)))
    return {"all": _means(times), "slowest": _means(slowest)}


def _means(times: pl.DataFrame) -> dict[str, Any]:
    means_ms = {name: 1e3 * float(times[name].sum()) / times.height for name in PHASES}
    total_ms = sum(means_ms.values())
    return {"num_requests": times.height, "mean_ms": means_ms,
            "share": {name: value / total_ms if total_ms > 0 else 0.0 for name, value in means_ms.items()}}
