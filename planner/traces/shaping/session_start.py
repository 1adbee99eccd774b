"""Sessions that are under way when a replay starts: the first requests of each of them are left out."""

import dataclasses
import math
import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.traces.table import Trace


def check_sessions(trace: Trace, most: int) -> None:
    """Raise UsageError if `--max-sessions` is below 1, or the trace has no sessions.

    Parameters
    ----------
    most : sessions that may be open at once [1].
    """
    if most < 1:
        raise UsageError(f"--max-sessions {most}; must be at least 1")
    if "session_id" not in trace.requests.columns:
        raise UsageError(f"--max-sessions {most}: {trace.source} has no session_id, so no request belongs to a "
                         f"session; use --max-concurrency to limit requests in flight")


def session_numbers(trace: Trace) -> NDArray[np.int64]:
    """Return the number of each request's session, in the order of their first arrivals, shape [num_requests].

    A request without a session is a session of its own.
    """
    if "session_id" not in trace.requests.columns:
        return np.arange(trace.num_requests)
    row, session = pl.col("row"), pl.col("session_id")
    first = pl.when(session.is_null()).then(row).otherwise(row.min().over("session_id"))
    table = trace.requests.with_row_index("row").select(number=first.rank("dense").cast(pl.Int64) - 1)
    return table["number"].to_numpy().copy()  # the loop takes no memory that may not be written


def parse_fractions(text: str) -> tuple[float, float]:
    """Return the range of `--session-start-fraction`.

    >>> parse_fractions("0,0.7")
    (0.0, 0.7)

    Raises
    ------
    UsageError : it is not two numbers in [0, 1], the smaller one first.
    """
    match = re.fullmatch(r"\s*([\d.]+)\s*,\s*([\d.]+)\s*", text)
    try:
        low, high = (float(part) for part in match.groups()) if match else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if not 0 <= low <= high <= 1:
        raise UsageError(f"--session-start-fraction {text}: must be LOW,HIGH with 0 <= LOW <= HIGH <= 1, as in 0,0.7")
    return low, high


def under_way(trace: Trace, num_sessions: int, fractions: tuple[float, float], seed: int) -> Trace:
    """Let the first sessions start in their middle, as a benchmark with `--advance-min` and `--advance-max` does.

    Each of them leaves out its first requests: a share drawn between the two fractions, and never the last request. The
    first request left comes when the session's first one would have come. It has the whole conversation so far as its
    prompt, of which nothing is cached yet.

    Parameters
    ----------
    num_sessions : sessions that are open at the start; the others begin with their first request [1].
    fractions : the least and the greatest share of a session's requests [1].
    seed : of the draws.
    """
    rng = np.random.default_rng(seed)
    table = trace.requests.with_row_index("row")
    sizes = (table.filter(pl.col("session_id").is_not_null()).group_by("session_id", maintain_order=True)
             .agg(num=pl.len(), begin_s=pl.col("arrival_s").min()).head(num_sessions))
    draws = rng.uniform(*fractions, sizes.height)
    sizes = sizes.with_columns(skipped=(pl.Series(draws) * pl.col("num")).floor().clip(upper_bound=pl.col("num") - 1))
    placed = table.join(sizes, on="session_id", how="left", maintain_order="left").with_columns(
        place=pl.int_range(pl.len()).over("session_id"))
    kept = placed.filter(pl.col("skipped").is_null() | (pl.col("place") >= pl.col("skipped")))
    early_s = (pl.col("arrival_s").min().over("session_id") - pl.col("begin_s")).fill_null(0.0)
    kept = kept.with_columns(arrival_s=pl.col("arrival_s") - early_s).sort("arrival_s", maintain_order=True)
    rows = kept["row"].to_numpy().astype(np.int64)
    return dataclasses.replace(trace.take(rows), requests=kept.select(trace.requests.columns))
