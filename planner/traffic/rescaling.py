"""The same traffic at another rate, and for longer: compressed, thinned, resampled, or a Poisson process."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.schema import PARENT_SEPARATOR
from planner.trace import Trace
from planner.trace.prefix import PrefixIds, intern_ids, take_rows
from planner.traffic.workload import at_request_rate

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MOST_REQUESTS = 400_000  # of a trace that goes on with itself


def rate_of(trace: Trace) -> float:
    """Return the mean request rate, gaps over span [1/s].

    Raises
    ------
    UsageError : the trace has one request, or all arrive at once.
    """
    span_s = float(trace.requests["arrival_s"][-1] - trace.requests["arrival_s"][0])
    if trace.num_requests < 2 or span_s <= 0:
        raise UsageError(f"{trace.source}: {trace.num_requests} requests over {span_s:g} s have no rate to change; "
                         f"must have two or more that arrive at different times")
    return (trace.num_requests - 1) / span_s


def _period_s(trace: Trace) -> float:
    """Return after how long a trace begins again where it follows itself: its span, and a mean gap [s]."""
    return float(trace.requests["arrival_s"][-1] - trace.requests["arrival_s"][0]) + 1 / rate_of(trace)


def compressed(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Compress recorded time: the shape of bursts stays, and so does the order of requests."""
    return at_request_rate(trace, rate_per_s)


def thinned(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Keep a random part of the requests, at their own times; for a rate above the trace's, add shifted copies first.

    Bursts stay as long as they were, and come apart in size: what more or fewer users of the same kind do.
    """
    own_rate = rate_of(trace)
    copies = max(int(np.ceil(rate_per_s / own_rate)), 1)
    rng = np.random.default_rng(seed)
    arrivals = trace.requests["arrival_s"].to_numpy()
    period = _period_s(trace)
    shifts = np.concatenate(([0.0], rng.uniform(0.0, period, copies - 1)))
    times = (arrivals[np.newaxis] - arrivals[0] + shifts[:, np.newaxis]) % period
    rows = np.broadcast_to(np.arange(trace.num_requests), times.shape)
    kept = rng.random(times.size) < rate_per_s / (copies * own_rate)
    return _arranged(trace, rows.reshape(-1)[kept], times.reshape(-1)[kept])


def resampled(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Draw requests from the trace with replacement, and gaps between arrivals apart from them, at the rate."""
    rng = np.random.default_rng(seed)
    gaps = np.diff(trace.requests["arrival_s"].to_numpy())
    drawn = rng.choice(gaps, trace.num_requests - 1)
    drawn *= (trace.num_requests - 1) / rate_per_s / max(drawn.sum(), 1e-300)
    return _arranged(trace, rng.integers(0, trace.num_requests, trace.num_requests),
                     np.concatenate(([0.0], np.cumsum(drawn))))


def poisson(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Give the requests, in their order, the arrivals of a Poisson process."""
    gaps = np.random.default_rng(seed).exponential(1.0, trace.num_requests - 1) / rate_per_s
    return _arranged(trace, np.arange(trace.num_requests), np.concatenate(([0.0], np.cumsum(gaps))))


SCALINGS: Mapping[str, Callable[[Trace, float, int], Trace]] = {
    "compress": compressed, "thin": thinned, "resample": resampled, "poisson": poisson}


def repeated(trace: Trace, times: int) -> Trace:
    """Return a trace that goes on with itself, a mean gap between the copies, each with content of its own."""
    if times == 1:
        return trace
    arrivals = trace.requests["arrival_s"].to_numpy()
    period = _period_s(trace)
    copy = np.repeat(np.arange(times), trace.num_requests)
    return _arranged(trace, np.tile(np.arange(trace.num_requests), times), np.tile(arrivals, times) + copy * period)


def lasting(trace: Trace, rate_per_s: float, duration_s: float) -> Trace:
    """Return the trace's traffic at a rate for so long at least, or as long as MOST_REQUESTS last."""
    times = int(np.ceil(min(rate_per_s * duration_s, MOST_REQUESTS) / trace.num_requests))
    return compressed(repeated(trace, max(times, 1)), rate_per_s, 0)


def windows(trace: Trace, count: int, seed: int) -> Trace:
    """Return as many windows of time as a trace is cut into, drawn with replacement: a block bootstrap of arrivals.

    Parameters
    ----------
    count : windows of equal length.
    """
    arrivals = trace.requests["arrival_s"].to_numpy()
    period = _period_s(trace) / count
    place = np.minimum(((arrivals - arrivals[0]) / period).astype(np.int64), count - 1)
    drawn = np.random.default_rng(seed).integers(0, count, count)
    pieces = [np.flatnonzero(place == window) for window in drawn]
    rows = np.concatenate(pieces)
    shift = np.repeat((np.arange(count) - drawn) * period, [len(piece) for piece in pieces])
    return _arranged(trace, rows, arrivals[rows] - arrivals[0] + shift)


def _arranged(trace: Trace, rows: Rows, arrivals_s: Floats) -> Trace:
    """Return the given rows at the given times, in order of arrival; a row's second copy has other prefix ids."""
    if len(rows) < 2:
        raise UsageError(f"{trace.source}: at that rate {len(rows)} of its requests are left; must be 2 or more")
    order = np.argsort(arrivals_s, kind="stable")
    rows, arrivals_s = rows[order], arrivals_s[order]
    copy = _copy_numbers(rows)
    ids = trace.requests["request_id"].gather(rows)
    names = [name if k == 0 else f"{name}#{k + 1}" for name, k in zip(ids.cast(pl.String).to_list(), copy.tolist(),
                                                                      strict=True)]
    table = trace.requests[rows].with_columns(pl.Series("arrival_s", arrivals_s - arrivals_s[0]),
                                              pl.Series("request_id", names))
    table = _own_sessions(table, copy)
    return dataclasses.replace(trace, requests=table,
                               prefix=None if trace.prefix is None else _own_content(trace.prefix, rows, copy))


def _own_sessions(table: pl.DataFrame, copy: Rows) -> pl.DataFrame:
    """Let copies of a session be sessions of their own; parents that are left out are waited for no more."""
    suffix = pl.Series([f"#{k + 1}" if k else "" for k in copy.tolist()], dtype=pl.String)
    if "session_id" in table.columns:
        table = table.with_columns(pl.col("session_id") + suffix)
    if "parent_id" not in table.columns:
        return table
    parents = pl.col("parent_id").str.split(PARENT_SEPARATOR).alias("parent")
    own = table.select(parents, suffix.alias("suffix")).with_row_index()
    own = own.explode("parent").with_columns(pl.col("parent").str.strip_chars() + pl.col("suffix"))
    own = own.filter(pl.col("parent").is_in(table["request_id"].implode()))
    together = pl.col("parent").str.join(PARENT_SEPARATOR).alias("parent_id")
    named = own.group_by("index", maintain_order=True).agg(together)
    return (table.drop("parent_id").with_row_index().join(named, on="index", how="left", maintain_order="left")
            .drop("index").select(table.columns))


def _copy_numbers(rows: Rows) -> Rows:
    """Return how often each row came before, in order.

    >>> _copy_numbers(np.array([3, 1, 3, 3])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    within = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    found = np.empty(len(rows), np.int64)
    found[order] = within
    return found


def _own_content(prefix: PrefixIds, rows: Rows, copy: Rows) -> PrefixIds:
    taken = take_rows(prefix, rows)
    shift = np.repeat(copy, np.diff(taken.offsets)) * (int(prefix.values.max(initial=-1)) + 1)
    return intern_ids([pl.Series(taken.values + shift)], np.diff(taken.offsets), prefix.block_tokens)
