"""Whether a replay's tables agree with each other: Little's law, and the conservation of work."""

from typing import Any

import numpy as np
import polars as pl

from planner.results.limits import makespan_s
from planner.results.phases import optional_s, reached_s


def little(requests: pl.DataFrame, steps: pl.DataFrame) -> dict[str, Any]:
    """Return Little's law, L = λ·W, for running and for waiting requests.

    L is the mean over steps, from the engine's own counts less the requests that have ended; λ·W is from the requests'
    instants. Running requests agree to rounding; requests that wait for their KV count as neither. A request that comes
    during a step is counted as waiting from the next one on, so the waiting ones may be fewer by half a step's
    arrivals. If batches overlap in a pipeline, steps have no mean of their own.

    Returns
    -------
    dict
        `arrival_rate_rps`, and for `running` and `waiting` `mean` (L), `rate_times_time` (λ·W) and `difference`.
    """
    span_s = makespan_s(requests)
    ran = requests.filter(pl.col("first_scheduled_at_s").is_not_null())
    coming_s = optional_s(ran, "handover_s") + optional_s(ran, "load_s")
    run_s = float((ran["finished_at_s"] - ran["first_scheduled_at_s"] - ran["preempted_s"] - coming_s).sum())
    wait_s = float((ran["queue_s"] + ran["preempted_s"]).sum())
    counts = {"running": steps["num_running"] - steps["num_ended"], "waiting": steps["num_waiting"]}
    counted_s = {name: float((steps["duration_s"] * count).sum()) for name, count in counts.items()}
    law: dict[str, Any] = {"arrival_rate_rps": requests.height / span_s if span_s > 0 else None}
    for name, total_s in (("running", run_s), ("waiting", wait_s)):
        mean, product = (value / span_s if span_s > 0 else 0.0 for value in (counted_s[name], total_s))
        law[name] = {"mean": mean, "rate_times_time": product, "difference": mean - product}
    return law


def work(requests: pl.DataFrame, steps: pl.DataFrame) -> dict[str, float]:
    """Return whether all work was done once, and no engine was idle while a request waited.

    Returns
    -------
    dict
        `prompt_tokens` of the steps, and `prompt_tokens_owed`: of requests that ran to their end, prompts less cached
        tokens, recomputed tokens, and one token if a decoder begins with another's; `output_tokens` emitted
        by steps and by requests; `idle_while_waiting_s`, and `idle_s` in all, between the first and the last step.
    """
    done = requests.filter(pl.col("status") == "completed")
    moved = done.filter(pl.col("decode_replica") != pl.col("replica")).height if "decode_replica" in done.columns else 0
    idle = [_idle_s(requests.filter(replica=replica), steps.filter(replica=replica))
            for replica in steps["replica"].unique()]
    return {
        "prompt_tokens": int(steps["num_prompt_tokens"].sum()),
        "prompt_tokens_owed": int((done["input_tokens"] - done["num_cached_tokens"] +
                                   done["num_recomputed_tokens"]).sum()) + moved,
        "output_tokens": int(steps["num_sampled"].sum()),
        "output_tokens_emitted": int(requests["output_tokens"].sum()),
        "idle_s": float(sum(part[0] for part in idle)),
        "idle_while_waiting_s": float(sum(part[1] for part in idle)),
    }


def _idle_s(requests: pl.DataFrame, steps: pl.DataFrame) -> tuple[float, float]:
    """Return the time between one engine's steps, and that in which a request had reached its queue [s]."""
    start_s, duration_s = steps["start_s"].to_numpy(), steps["duration_s"].to_numpy()
    begin_s, end_s = (start_s + duration_s)[:-1], start_s[1:]
    begin_s = np.maximum.accumulate(begin_s) if len(begin_s) else begin_s  # of a pipeline's batches several run at once
    gaps = end_s - begin_s > 1e-9 * np.maximum(end_s, 1.0)
    begin_s, end_s = begin_s[gaps], end_s[gaps]
    came_s = np.sort(reached_s(requests).to_numpy())
    left_s = np.sort(requests.select(pl.coalesce("first_scheduled_at_s", "finished_at_s")).to_series().to_numpy())
    waiting = np.searchsorted(came_s, begin_s, side="right") - np.searchsorted(left_s, begin_s, side="right")
    next_s = np.append(came_s, np.inf)[np.searchsorted(came_s, begin_s, side="right")]
    idle_s = np.where(waiting > 0, end_s - begin_s, np.maximum(end_s - next_s, 0.0))
    return float((end_s - begin_s).sum()), float(idle_s.sum())
