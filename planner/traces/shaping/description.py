"""The description of a trace: rates, burstiness, lengths, shape over time, prefixes, sessions, tenants, oddities."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import spearmanr

from planner.errors import UsageError
from planner.files.counts import does_text
from planner.traces import Trace
from planner.traces.shaping.anomalies import find_anomalies
from planner.traces.shaping.burstiness import dispersions, gap_cv, peaks
from planner.traces.shaping.description_answer import Description
from planner.traces.shaping.earliest_sends import at_earliest_sends
from planner.traces.shaping.sharing import Sharing, sharing

Floats = NDArray[np.float64]

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99, 99.9)
SHAPE_BINS = 24
DAY_S = 86_400.0
MOST_TENANTS = 20
CACHE_SIZES = 12  # of the hit rate's curve, each twice the one before
WORKING_SETS = (0.5, 0.9, 0.99)  # of the hits of a cache without limits
MOST_RANKED = 1_000_000  # requests that the correlation of lengths is taken over


def describe(trace: Trace, *, cache_tokens: float | None = None) -> Description:
    """Describe a trace.

    Parameters
    ----------
    cache_tokens : size of a cache whose hit rate is added; None for the curve alone [tokens].

    Raises
    ------
    UsageError : `cache_tokens` is not above 0.
    """
    if cache_tokens is not None and not cache_tokens > 0:
        raise UsageError(f"cache size = {cache_tokens:g} tokens; must be above 0")
    trace, num_moved = at_earliest_sends(trace)
    table = trace.requests
    arrival_s = table["arrival_s"].to_numpy()
    shared = None if trace.prefix is None else sharing(trace.prefix, table["input_tokens"].to_numpy())
    return Description(
        source=trace.source, format=trace.format, num_requests=trace.num_requests,
        span_s=(trace.account.span_s if trace.num_requests == trace.account.rows_kept and not num_moved else
                float(np.ptp(arrival_s))),
        rates=_rates(table, arrival_s),
        burstiness={"gap_cv": gap_cv(arrival_s), "dispersion": _by_window(dispersions(arrival_s)),
                    "peak_over_mean": _by_window(peaks(arrival_s))},
        lengths=_lengths(table), shape=describe_shape(arrival_s),
        sharing=None if shared is None else describe_sharing(shared, cache_tokens),
        sessions=_sessions(table) if "session_id" in table.columns else None,
        tenants=tuple(_tenants(table)) if "tenant" in table.columns else None,
        anomalies=find_anomalies(trace), assumption=_assumption(table, num_moved))


def _assumption(table: pl.DataFrame, num_moved: int) -> str | None:
    """Return how the times of requests that wait for others were found; None if all are in the file."""
    if not num_moved:
        return None
    taken = "their measured time" if "e2e_s" in table.columns else "no time for their answers"
    return (f"{does_text(num_moved, 'request', 'wait')} for others: each is sent after the requests before it, "
            f"with {taken}, and its delay, also if the file has an earlier time; sessions interleave accordingly")


def _by_window(values: dict[float, float]) -> dict[str, float]:
    return {f"{window_s:g}s": value for window_s, value in values.items()}


def _rates(table: pl.DataFrame, arrival_s: Floats) -> dict[str, float | None]:
    """Return mean rates: of requests the gaps over the span, of tokens all but the last request's."""
    span_s = float(arrival_s[-1] - arrival_s[0])
    if span_s <= 0:
        return {"requests_per_s": None, "input_tokens_per_s": None, "output_tokens_per_s": None}
    head = table.head(table.height - 1)
    return {"requests_per_s": head.height / span_s,
            **{f"{name}_per_s": float(head[name].sum()) / span_s or None for name in ("input_tokens", "output_tokens")}}


def _lengths(table: pl.DataFrame) -> dict[str, Any]:
    inputs, outputs = (table[name].to_numpy() for name in ("input_tokens", "output_tokens"))
    step = max(1, len(inputs) // MOST_RANKED)
    varied = len(inputs) > 2 and np.ptp(inputs) > 0 and np.ptp(outputs) > 0
    rank = float(spearmanr(inputs[::step], outputs[::step]).statistic) if varied else None
    return {"input_tokens": _distribution(inputs), "output_tokens": _distribution(outputs) if outputs.any() else None,
            "rank_correlation": None if rank is None or np.isnan(rank) else rank}


def _distribution(values: Any) -> dict[str, float]:
    points = np.percentile(values, PERCENTILES)
    return {"mean": float(values.mean()), "std": float(values.std()), "min": float(values.min()),
            **{f"p{level:g}": float(point) for level, point in zip(PERCENTILES, points, strict=True)},
            "max": float(values.max())}


def describe_shape(arrival_s: Floats) -> dict[str, Any]:
    """Return the rate over time: by hour of the trace's day if it has a day or more, else in equal parts.

    Returns
    -------
    dict
        `period` ("day" or "record"), `start_s` and `requests_per_s` of each part, `peak_over_mean`. Hours are counted
        from the first arrival, since formats do not keep the time of day; whole days alone are averaged.
    """
    since = arrival_s - arrival_s[0]
    span_s = float(since[-1])
    if span_s <= 0:
        return {"period": "record", "start_s": [], "requests_per_s": [], "peak_over_mean": None}
    days = int(span_s / DAY_S)
    kept = since[: np.searchsorted(since, days * DAY_S)] % DAY_S if days else since
    counts, edges = np.histogram(kept, SHAPE_BINS, (0.0, DAY_S if days else span_s))
    rates = counts / (np.diff(edges) * max(days, 1))
    return {"period": "day" if days else "record", "start_s": edges[:-1].tolist(), "requests_per_s": rates.tolist(),
            "peak_over_mean": float(rates.max() / rates.mean())}


def describe_sharing(shares: Sharing, cache_tokens: float | None = None) -> dict[str, Any]:
    """Return hit rates of caches of several sizes, and the sizes that have a share of all hits."""
    largest = shares.cache_tokens(1.0)
    sizes = [largest / 2**k for k in range(CACHE_SIZES - 1, -1, -1) if largest / 2**k >= shares.block_tokens]
    asked = {} if cache_tokens is None else {"cache_tokens": cache_tokens, "hit_rate": shares.hit_rate(cache_tokens)}
    return {"block_tokens": shares.block_tokens, "num_blocks": shares.num_blocks,
            "requests_with_a_hit": float(np.mean(shares.shared_blocks > 0)),
            "infinite_hit_rate": shares.infinite_hit_rate,
            "working_set_tokens": {f"{share:.0%}": shares.cache_tokens(share) for share in WORKING_SETS},
            "curve": [{"cache_tokens": int(size), "hit_rate": shares.hit_rate(size)} for size in sizes], **asked}


def _sessions(table: pl.DataFrame) -> dict[str, Any]:
    """Return how many turns sessions have, how long they pause between the starts of turns, and how prompts grow."""
    known = table.filter(pl.col("session_id").is_not_null())
    turns = known.group_by("session_id").len()["len"].to_numpy()
    over = known.select(gap=pl.col("arrival_s").diff().over("session_id"),
                        growth=pl.col("input_tokens").diff().over("session_id")).drop_nulls()
    return {"num_sessions": len(turns), "requests_in_sessions": known.height / table.height,
            "turns": _distribution(turns) if len(turns) else None,
            "turn_gap_s": _distribution(over["gap"].to_numpy()) if over.height else None,
            "prompt_growth_tokens": _distribution(over["growth"].to_numpy()) if over.height else None}


def _tenants(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the largest tenants by requests, and the others as one."""
    named = table.with_columns(pl.col("tenant").fill_null(""))
    largest = named["tenant"].value_counts(sort=True).head(MOST_TENANTS)["tenant"].to_list()
    rows = [_tenant(name, named.filter(pl.col("tenant") == name), table.height) for name in largest]
    rest = named.filter(~pl.col("tenant").is_in(largest))
    return [*rows, _tenant(None, rest, table.height)] if rest.height else rows


def _tenant(name: str | None, rows: pl.DataFrame, total: int) -> dict[str, Any]:
    return {"tenant": name, "num_requests": rows.height, "share": rows.height / total,
            "gap_cv": gap_cv(rows["arrival_s"].to_numpy()),
            **{f"{column}_p{level}": float(np.percentile(rows[column].to_numpy(), level))
               for column in ("input_tokens", "output_tokens") for level in (50, 99)}}
