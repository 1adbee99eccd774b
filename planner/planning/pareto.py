"""Which way a metric is better, and the configurations that no other beats in all metrics at once."""

import numpy as np
from numpy.typing import NDArray

LESS_IS_BETTER = ("_ms", "cost_usd", "cost_usd_per_million_output_tokens", "cost_usd_per_session",
                  "cost_usd_per_million_input_tokens", "cost_usd_per_thousand_results", "gpu_hours", "energy_kwh",
                  "num_gpus", "failed", "rejected", "unfinished", "num_preemptions", "num_recomputed_tokens",
                  "num_swapped_tokens", "num_retries", "max_attempts", "num_wasted_output_tokens",
                  "num_wasted_computed_tokens", "wasted_work", "saturated")
MORE_IS_BETTER = ("_throughput", "goodput", "attainment", "completed", "mfu", "mbu", "hit_rate", "capacity_rps",
                  "capacity_rps_per_gpu", "capacity_concurrency", "capacity_sessions")


def is_less_better(metric: str) -> bool | None:
    """Return whether a smaller value of a summary's metric is better; None if its name does not say.

    >>> is_less_better("p99_ttft_ms"), is_less_better("request_goodput"), is_less_better("num_steps")
    (True, False, None)
    """
    if metric.endswith(MORE_IS_BETTER):
        return False
    return True if metric.endswith(LESS_IS_BETTER) else None


def pareto_front(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows no other row beats: as good in every column and better in one.

    Equal rows stand or fall together; a row with NaN is not on the front.

    Parameters
    ----------
    costs : smaller is better, shape [num_rows, num_metrics].
    """
    valid = ~np.isnan(costs).any(axis=1)
    in_front = np.zeros(len(costs), bool)
    rows = np.flatnonzero(valid)
    rows = rows[np.lexsort(costs[rows].T[::-1])]  # a row that beats another comes before it
    kept = np.empty((0, costs.shape[1]))
    for row in rows:
        beaten = (kept <= costs[row]).all(axis=1) & (kept < costs[row]).any(axis=1)
        if not beaten.any():
            in_front[row] = True
            kept = np.vstack([kept, costs[row]])
    return in_front
