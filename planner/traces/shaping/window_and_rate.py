"""Reshaping a trace: the part that is replayed, and its rate. Compose in the order window, limit, rate."""

import dataclasses
import math

import polars as pl

from planner.errors import UsageError
from planner.schema import MAX_SECONDS
from planner.traces.prefix_ids import slice_rows
from planner.traces.table import Trace


def slice_time(trace: Trace, start_at_s: float, duration_s: float) -> Trace:
    """Keep the requests that arrive in [start_at_s, start_at_s + duration_s), and count arrivals from `start_at_s`.

    Parameters
    ----------
    trace : requests sorted by arrival.
    start_at_s : beginning of the window on the trace's clock [s].
    duration_s : length of the window, inf for the rest of the trace [s].

    Returns
    -------
    Trace
        `request_id` as before; a `parent_id` may name a request that was cut off.

    Raises
    ------
    UsageError : the window is not one, or holds no request.
    """
    if not (math.isfinite(start_at_s) and start_at_s >= 0):
        raise UsageError(f"start_at_s = {start_at_s}; must be finite and >= 0 (0 is the trace's start)")
    if not duration_s > 0:
        raise UsageError(f"duration_s = {duration_s}; must be > 0 (inf for the rest of the trace)")
    arrival_s = trace.requests["arrival_s"]
    first, last = (int(arrival_s.search_sorted(at_s, side="left")) for at_s in (start_at_s, start_at_s + duration_s))
    if first == last:
        raise UsageError(
            f"no request arrives in [{start_at_s:g}, {start_at_s + duration_s:g}) s of {trace.source}; "
            f"its arrivals span {arrival_s[0]:.6g} to {arrival_s[-1]:.6g} s (choose a window within)"
        )
    part = _rows(trace, first, last - first)
    shifted = _with_arrivals(part, part.requests["arrival_s"] - start_at_s)
    zero_at_s = None if trace.zero_at_s is None else trace.zero_at_s + start_at_s
    return dataclasses.replace(shifted, zero_at_s=zero_at_s)


def limit(trace: Trace, num_requests: int) -> Trace:
    """Keep the first `num_requests` by arrival; a trace that has fewer stays whole.

    Raises
    ------
    UsageError : `num_requests` is below 1.
    """
    if num_requests < 1:
        raise UsageError(f"limit = {num_requests}; must be >= 1 (leave it out to keep all requests)")
    return _rows(trace, 0, min(num_requests, trace.num_requests))


def scale_rate(trace: Trace, factor: float) -> Trace:
    """Compress time: every arrival is divided by `factor`, so that requests come `factor` times as fast.

    Think times, deadlines, `cancel_after_s` and measured latencies stay: they are the users' and the engine's own.

    Parameters
    ----------
    factor : above 1 is faster, below 1 slower [1].

    Raises
    ------
    UsageError : `factor` is not finite and above 0, or makes the trace longer than a trace may be.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise UsageError(f"rate scale = {factor}; must be finite and > 0 (1 keeps the trace's own rate)")
    arrival_s = trace.requests["arrival_s"]
    last_at_s = arrival_s[-1] / factor
    if last_at_s > MAX_SECONDS:
        raise UsageError(
            f"rate scale = {factor} moves the last arrival to {last_at_s:.4g} s; must be <= {MAX_SECONDS:.0f} s "
            "(raise the scale)"
        )
    return _with_arrivals(trace, arrival_s / factor)


def at_request_rate(trace: Trace, rate_per_s: float) -> Trace:
    """Compress or stretch time so that the mean request rate is `rate_per_s`.

    The mean rate of n requests is (n - 1) / (last arrival - first arrival): n requests have n - 1 gaps, whose mean
    becomes 1 / `rate_per_s`. The shape of bursts stays.

    Parameters
    ----------
    rate_per_s : requests per second; inf lets all arrive at 0 [1/s].

    Raises
    ------
    UsageError : the rate is not above 0, or the trace has no rate since all its requests arrive at once.
    """
    if not rate_per_s > 0:
        raise UsageError(f"request rate = {rate_per_s}; must be > 0 requests per second (inf sends all at once)")
    arrival_s = trace.requests["arrival_s"]
    if math.isinf(rate_per_s):
        return _with_arrivals(trace, arrival_s * 0.0)
    span_s = arrival_s[-1] - arrival_s[0]
    if span_s <= 0:
        raise UsageError(
            f"request rate = {rate_per_s}: all {trace.num_requests} requests of {trace.source} arrive at "
            f"{arrival_s[0]:.6g} s, so there is no rate to change; must span more than 0 s (use inf, or another trace)"
        )
    return scale_rate(trace, rate_per_s * span_s / (trace.num_requests - 1))


def _rows(trace: Trace, first: int, count: int) -> Trace:
    prefix = None if trace.prefix is None else slice_rows(trace.prefix, first, count)
    return dataclasses.replace(trace, requests=trace.requests.slice(first, count), prefix=prefix)


def _with_arrivals(trace: Trace, arrival_s: pl.Series) -> Trace:
    return dataclasses.replace(trace, requests=trace.requests.with_columns(arrival_s.alias("arrival_s")),
                               zero_at_s=None)
