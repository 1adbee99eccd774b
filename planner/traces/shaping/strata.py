"""A long time's traffic in a short replay: the rates of equal shares of its requests, one after the other."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.traces import Trace
from planner.traces.prefix_ids import PrefixIds, intern_ids
from planner.traces.shaping.rate_series import RateSeries
from planner.traces.shaping.rescaling import at_rate, num_requests_at, own_sessions, repeated

Floats = NDArray[np.float64]


def strata_of(series: RateSeries, count: int) -> Floats:
    """Return the rates that stand for a series, each for an equal share of its requests, from low to high [1/s].

    The requests are put in the order of the rate that they come at and cut into as many parts. A part's rate is the
    mean over its requests, so a part of requests in a hurry has their rate and not that of the hour.

    Parameters
    ----------
    count : parts [1].
    """
    order = np.argsort(series.rate_rps, kind="stable")
    rates = series.rate_rps[order]
    until = np.concatenate(([0.0], np.cumsum(rates * series.duration_s[order])))  # requests up to each window
    cuts = np.linspace(0.0, until[-1], count + 1)
    weighted = np.concatenate(([0.0], np.cumsum(rates * np.diff(until))))  # of the rates, by requests
    means: Floats = np.diff(np.interp(cuts, until, weighted)) / (until[-1] / count)
    return means


def at_rates(trace: Trace, rates_rps: Sequence[float], counts: Sequence[int], scaling: str, seed: int) -> Trace:
    """Return a trace's traffic at one rate after the other.

    Each part is a stretch of the trace at its rate, from a place that is drawn, with sessions and contents of its own.
    Rates that rise slowly leave each part the queues and caches of one like it.

    Parameters
    ----------
    rates_rps : in their order [1/s].
    counts : requests of each part [1].
    scaling : a name of `rescaling.SCALINGS`.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for k, (rate, count) in enumerate(zip(rates_rps, counts, strict=True)):
        times = -(-count // num_requests_at(trace, rate, scaling))
        part = at_rate(repeated(trace, times), rate, scaling, seed + k)
        first = int(rng.integers(0, max(part.num_requests - count, 0) + 1))
        parts.append(part.take(np.arange(first, min(first + count, part.num_requests))))
    return _one_after_another(parts, rates_rps)


def _one_after_another(parts: Sequence[Trace], rates_rps: Sequence[float]) -> Trace:
    """Return traces of one kind as one trace, with a mean gap of the part before between them."""
    tables, begin_s = [], 0.0
    for k, (part, rate) in enumerate(zip(parts, rates_rps, strict=True)):
        arrivals_s = part.requests["arrival_s"] - part.requests["arrival_s"][0] + begin_s
        suffix = pl.repeat(f"@{k + 1}", part.num_requests, eager=True)
        table = part.requests.with_columns(arrivals_s.alias("arrival_s"), pl.col("request_id").cast(pl.String) + suffix)
        tables.append(own_sessions(table, suffix))
        begin_s = float(arrivals_s[-1]) + 1.0 / rate
    first = parts[0].prefix
    return dataclasses.replace(parts[0], requests=pl.concat(tables), prefix=None if first is None else _own_contents(
        [part.prefix for part in parts if part.prefix is not None], first.block_tokens))


def _own_contents(prefixes: Sequence[PrefixIds], block_tokens: int) -> PrefixIds:
    counts = [int(prefix.values.max(initial=-1)) + 1 for prefix in prefixes]
    shifts = itertools.accumulate(counts, initial=0)
    values = [pl.Series(prefix.values + shift) for prefix, shift in zip(prefixes, shifts, strict=False)]
    return intern_ids(values, np.concatenate([np.diff(prefix.offsets) for prefix in prefixes]), block_tokens)
