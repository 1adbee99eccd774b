"""Results of each tenant: counts, latencies, throughput, and its objectives."""

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.files.keys import asdict
from planner.loop.state import engine_state as st
from planner.replays.reasons import FAILED, REJECTED
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import LIMIT, judge, objectives_text
from planner.settings.slo import DEADLINE, METRICS
from planner.traces.shaping.tenants import tenant_names

LATENCIES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2e_s"}


def describe_tenants(result: ReplayResult, good: NDArray[np.bool_] | None,
                     duration_s: float) -> dict[str, dict[str, Any]] | None:
    """Return each tenant's figures by the summary's names; None if the trace has no tenants.

    Parameters
    ----------
    good : whether each request meets its own limits, shape [num_requests]; None if requests have none.
    duration_s : of the replay [s].
    """
    if "tenant" not in result.trace.requests.columns:
        return None
    table = _by_tenant(result, good, duration_s)
    by_tenant = {row.pop("tenant"): row for row in table.to_dicts()}
    for name, objectives in _objectives(result).items():
        by_tenant[name] |= objectives
    return by_tenant


def _by_tenant(result: ReplayResult, good: NDArray[np.bool_] | None, duration_s: float) -> pl.DataFrame:
    """Return one row a tenant, the tenants with the most requests first."""
    requests = result.records.requests
    state = np.asarray(requests.state)
    done = state == st.COMPLETED
    columns = {"tenant": tenant_names(result.trace), "state": state, "done": done,
               "output_tokens": np.asarray(requests.num_output_tokens).astype(np.int64),
               "ttft_s": np.where(done, result.ttft_s, math.nan), "tpot_s": result.tpot_s, "e2e_s": result.e2e_s,
               "good": np.zeros(len(state), bool) if good is None else good}
    per_s = 1.0 / duration_s if duration_s > 0 else None
    latencies = [statistic.alias(f"{name}_{metric}_ms") for metric, column in LATENCIES.items()
                 for name, statistic in _statistics(column).items()]
    unknown = pl.lit(None, pl.Float64)
    return pl.DataFrame(columns).with_columns(pl.selectors.float().fill_nan(None)).group_by("tenant").agg(
        pl.len().alias("num_requests"),
        pl.col("done").sum().alias("completed"),
        pl.col("state").is_in(FAILED).sum().alias("failed"),
        pl.col("state").is_in(REJECTED).sum().alias("rejected"),
        (pl.col("state") < st.COMPLETED).sum().alias("unfinished"),
        (pl.col("done").sum() * per_s).alias("request_throughput"),
        (pl.col("output_tokens").sum() * per_s).alias("output_throughput"),
        (unknown if good is None else pl.col("good").sum() * per_s).alias("request_goodput"),
        (unknown if good is None else pl.col("good").mean()).alias("slo_attainment"),
        *latencies,
    ).sort("num_requests", "tenant", descending=[True, False])


def _statistics(column: str) -> dict[str, pl.Expr]:
    values = 1e3 * pl.col(column)
    return {"mean": values.mean(), "median": values.median(), "p99": values.quantile(0.99, "linear")}


def _objectives(result: ReplayResult) -> dict[str, dict[str, Any]]:
    """Return `slo` and `objectives` of each tenant that has its own, judged on its requests alone."""
    if result.tenants is None:
        return {}
    kept = (*METRICS, f"{DEADLINE}{LIMIT}")
    times_s = {name: values for name, values in result.times_s.items() if name in kept}
    rows_of = tenant_names(result.trace).to_frame().with_row_index().group_by("tenant").agg("index")
    judged = {}
    for name, rows in rows_of.iter_rows():
        objectives = result.tenants.of(name).objectives
        if objectives is not None:
            verdict = judge(objectives, {key: values[rows] for key, values in times_s.items()})
            judged[name] = {"slo": objectives_text(objectives), "objectives": [asdict(one) for one in verdict.judged]}
    return judged
