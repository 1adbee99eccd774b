"""A workload model of counted traffic: its rates, its lengths by their histograms, and its prefix hits."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.stats import gamma

from planner.errors import TraceError, UsageError
from planner.measured.counted_traffic import SIDES, CountedLengths, CountedTraffic
from planner.schema import MAX_TOKENS
from planner.traces.synthesis.arrival_processes import Process
from planner.traces.synthesis.quantiles import QuantileCurve
from planner.traces.synthesis.traffic_model import Epoch, Model, RequestKind, Tenant, to_toml

Floats = NDArray[np.float64]

FEWEST = 300  # requests that one law of lengths describes
BLOCK_TOKENS = 64  # tokens of a prefix id
REUSED_WITHIN_S = (1.0, 60.0)  # time since the request with the same prefix, evenly between
NUM_INSIDE = 9  # parts of a bucket
AT_AN_EDGE = 1e-5  # of a bucket, that is next to an edge [1]
STEEPEST = 60.0  # logarithm of the exponent within buckets
BURSTY = 3.0  # variation of gaps of bursty traffic, as agents and batches of users have it [1]
LAST_BUCKET = 2.0  # its end over its begin, if it has none


def model_of_traffic(traffic: CountedTraffic, *, gap_cv: float, correlation: float, seed: int) -> Model:
    """Return a model of a server's traffic, from which traces are drawn.

    Each window has its rate. Windows with FEWEST requests together share their laws of lengths and their share of
    prefix hits.

    Parameters
    ----------
    gap_cv : variation of the gaps between arrivals in a window: 0 is even, 1 Poisson, more is bursty [1].
    correlation : of the normal scores of prompts and outputs, from -1 to 1 [1].

    Raises
    ------
    TraceError, UsageError : lengths are missing or impossible, or a parameter is out of range.
    """
    if not -1 <= correlation <= 1:
        raise UsageError(f"--length-correlation {correlation:g}; must be from -1 to 1")
    if not 0 <= gap_cv <= 20:
        raise UsageError(f"--gap-cv {gap_cv:g}; must be from 0 (even) to 20; 1 is a Poisson process")
    for side, word in SIDES.items():
        if side not in traffic.lengths:
            raise TraceError(f"{traffic.source}: has no lengths of {word}; give a scrape of /metrics with histograms "
                             f"of lengths by --lengths")
        mean = traffic.lengths[side].mean
        if not 1 <= mean <= MAX_TOKENS:
            raise TraceError(f"{traffic.source}: {word} have {mean:g} tokens on average; must be 1 to {MAX_TOKENS}")
    epochs = tuple(Epoch(start_s=float(traffic.edges_s[windows.start] - traffic.edges_s[0]),
                         kinds=(_kind(traffic, windows, correlation),)) for windows in _parts(traffic.requests))
    has_hits = any(kind.kind == "popular" for epoch in epochs for kind in epoch.kinds)
    window_s = traffic.window_s
    arrivals = Process(process="series", rate_per_s=float(traffic.requests.sum() / window_s.sum()),
                       window_s=tuple(window_s.tolist()), gaps=_gaps(gap_cv),
                       window_rates_per_s=tuple((traffic.requests / window_s).tolist()))
    longest = max(kind.variables["new_tokens"].values[-1] + BLOCK_TOKENS * kind.variables["shared_blocks"].values[-1]
                  if kind.kind == "popular" else kind.variables["new_tokens"].values[-1]
                  for epoch in epochs for kind in epoch.kinds)
    model = Model(name="prometheus", meaning=f"Traffic of {traffic.model or traffic.engine or 'a server'} by metrics",
                  source=traffic.source, seed=seed, duration_s=float(window_s.sum()),
                  block_tokens=BLOCK_TOKENS if has_hits else 0, has_sessions=False, has_tenants=False,
                  maximum_input_tokens=math.ceil(longest),
                  tenants=(Tenant(name="all", arrivals=arrivals, epochs=epochs),))
    return replace(model, sha256=hashlib.sha256(to_toml(model).encode()).hexdigest())


def variants(traffic: CountedTraffic, *, gap_cv: float, correlation: float, seed: int) -> Iterator[tuple[str, Model]]:
    """Yield other models that have the same counters and histograms, and the assumption of each."""
    def changed(change: CountedTraffic = traffic, gap_cv: float = gap_cv, correlation: float = correlation) -> Model:
        return model_of_traffic(change, gap_cv=gap_cv, correlation=correlation, seed=seed)

    yield "even arrivals in each window", changed(gap_cv=0.0)
    yield f"bursts in each window, variation of gaps {BURSTY:g}", changed(gap_cv=BURSTY)
    yield "longest prompts with longest outputs", changed(correlation=1.0)
    yield "longest prompts with shortest outputs", changed(correlation=-1.0)
    if traffic.cached is not None and traffic.cached[:, 0].any():
        yield "no prefix hits", changed(replace(traffic, cached=None))
    constant = {side: _exponential(lengths) for side, lengths in traffic.lengths.items() if not len(lengths.edges)}
    if constant:
        yield f"exponential lengths of {' and '.join(SIDES[side] for side in constant)}", changed(
            replace(traffic, lengths={**traffic.lengths, **constant}))


def _exponential(lengths: CountedLengths) -> CountedLengths:
    """Return lengths of the same means, exponentially distributed."""
    edges = lengths.mean * np.geomspace(0.02, 10.0, 28)
    shares = np.diff(1.0 - np.exp(-edges / lengths.mean), prepend=0.0)
    return replace(lengths, edges=edges, counts=lengths.num[:, None] * (shares / shares.sum()))


def _parts(requests: Floats) -> Iterator[slice]:
    """Yield windows that follow each other and have FEWEST requests or more together; the last has the rest, too."""
    upto = np.cumsum(requests)
    begin, counted = 0, 0.0
    for end in range(1, len(requests) + 1):
        is_last = end == len(requests)
        if is_last or (upto[end - 1] - counted >= FEWEST and upto[-1] - upto[end - 1] >= FEWEST):
            yield slice(begin, end)
            begin, counted = end, upto[end - 1]


def _kind(traffic: CountedTraffic, windows: slice, correlation: float) -> RequestKind:
    """Return the kind of request of some windows: alone, or with a prefix of earlier ones if the cache had hits."""
    prompt, output = (law_of(traffic.lengths[side], windows) for side in SIDES)
    hits, queries = (0.0, 0.0) if traffic.cached is None else traffic.cached[windows].sum(axis=0)
    share = min(hits / queries, 1.0) if queries > 0 else 0.0
    if share == 0:
        return RequestKind(kind="alone", share=1.0, variables={"new_tokens": prompt, "output_tokens": output},
                           correlation=((1.0, correlation), (correlation, 1.0)))
    return RequestKind(kind="popular", share=1.0, variables={
        "new_tokens": prompt.scaled(1.0 - share), "output_tokens": output,
        "shared_blocks": prompt.scaled(share / BLOCK_TOKENS),
        "lag_s": QuantileCurve(at=(0.0, 1.0), values=REUSED_WITHIN_S),
    }, correlation=((1.0, correlation, 1.0, 0.0), (correlation, 1.0, correlation, 0.0),
                    (1.0, correlation, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)))


def law_of(lengths: CountedLengths, windows: slice) -> QuantileCurve:
    """Return the law of lengths of some windows: a smooth one through the buckets, with the mean of the sums.

    The distribution function is monotone and cubic in the logarithm of the length; then the values of every bucket are
    moved towards one of its edges by the same power, so that the mean is met.
    """
    part = lengths.over(windows)
    if not part.num[0] > 0 or (len(part.edges) and not part.counts.sum() > 0):  # nothing finished then
        part = lengths.over(slice(None))
    mean = part.mean
    if not len(part.edges):
        return QuantileCurve(at=(0.0, 1.0), values=(mean, mean))
    shares = part.counts[0] / part.counts[0].sum()
    low = np.append(0.0, part.edges[:-1])
    high = _upper(part.edges, low, shares, mean)
    upto = np.minimum(np.append(0.0, np.cumsum(shares)), 1.0)
    filled = np.flatnonzero(shares > 0)
    curve = PchipInterpolator(np.log1p(np.append(low, high[-1])), upto)
    at, starts, widths, inside = (np.concatenate(column) for column in zip(*(
        _points(curve, low[k], high[k], upto[k], upto[k + 1]) for k in filled), strict=True))
    weights = np.diff(at)

    def excess(power: float) -> float:
        values = starts + widths * inside ** math.exp(power)
        return float((weights * (values[1:] + values[:-1]) / 2).sum() - mean)

    power = (STEEPEST if excess(STEEPEST) > 0 else -STEEPEST if excess(-STEEPEST) < 0 else
             brentq(excess, -STEEPEST, STEEPEST))
    values = np.maximum.accumulate(np.clip(starts + widths * inside ** math.exp(power), 1.0, MAX_TOKENS))
    return QuantileCurve(at=tuple(at.tolist()), values=tuple(values.tolist()))


def _upper(edges: Floats, low: Floats, shares: Floats, mean: float) -> Floats:
    """Return the ends of buckets; one without an end has it as far above the mean of its values as its begin below."""
    ends = np.where(np.isinf(edges), LAST_BUCKET * np.maximum(low, 1.0), edges)
    if np.isinf(edges[-1]) and shares[-1] > 0:
        above = (mean - (shares * (low + ends) / 2)[:-1].sum()) / shares[-1]
        ends[-1] = max(ends[-1], min(2 * above - low[-1], MAX_TOKENS))
    return ends


def _points(curve: PchipInterpolator, low: float, high: float, below: float, upto: float,
            ) -> tuple[Floats, Floats, Floats, Floats]:
    """Return points of a bucket: their probabilities, its begin and width, and their places in it [1]."""
    steps = np.linspace(0.0, 1.0, NUM_INSIDE + 1)
    steps[1], steps[-2] = AT_AN_EDGE, 1.0 - AT_AN_EDGE  # so that nearly all values may be at one edge
    lengths = np.expm1(math.log1p(low) + (math.log1p(high) - math.log1p(low)) * steps)
    at = np.clip(np.maximum.accumulate(curve(np.log1p(lengths))), below, upto)
    at[0], at[-1] = below, upto
    same = np.ones(len(at))
    place = np.clip((lengths - low) / (high - low), 0.0, 1.0)
    return at, low * same, (high - low) * same, place


def _gaps(gap_cv: float) -> QuantileCurve | None:
    """Return the law of gaps, in mean gaps; None for a Poisson process."""
    if gap_cv == 1:
        return None
    if gap_cv == 0:
        return QuantileCurve(at=(0.0, 1.0), values=(1.0, 1.0))
    at = np.concatenate((np.linspace(0.0, 0.9, 19), 1.0 - np.geomspace(0.08, 1e-4, 24), [1.0]))
    values = gamma.ppf(np.minimum(at, 1.0 - 2e-5), 1.0 / gap_cv**2, scale=gap_cv**2)
    return QuantileCurve(at=tuple(at.tolist()), values=tuple(np.maximum.accumulate(values).tolist()))
