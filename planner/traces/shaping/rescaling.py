"""The same traffic at another rate, and for longer: compressed, thinned, resampled, or a Poisson process."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.files.counts import count_text, figure_text
from planner.schema import MAX_SECONDS
from planner.traces import Trace
from planner.traces.parents import joined_parents, named_parents
from planner.traces.prefix_ids import SPREAD, PrefixIds, intern_ids, take_rows
from planner.traces.shaping.window_and_rate import at_request_rate

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MOST_REQUESTS = 400_000  # of a trace that goes on with itself, or has copies on top
MOST_COPIES = 10_000  # of a trace, on top of each other
MOST_SHIFT_S = 3600.0  # of a copy against the trace [s]
NUM_BINS = 10_080  # of a trace, to find its busiest part: a minute of a week
NEAR_WINDOWS = 4  # places by which a window that is drawn anew may be off


def rate_of(trace: Trace) -> float:
    """Return the mean request rate, gaps over span [1/s].

    Raises
    ------
    UsageError : the trace has one request, or all arrive at once.
    """
    span_s = float(trace.requests["arrival_s"][-1] - trace.requests["arrival_s"][0])
    if trace.num_requests < 2 or span_s <= 0:
        raise UsageError(f"{trace.source}: {count_text(trace.num_requests, 'request')} over {span_s:g} s: no rate "
                         f"to change; must have two or more that arrive at different times")
    return (trace.num_requests - 1) / span_s


def _period_s(trace: Trace) -> float:
    """Return after how long a trace begins again if it follows itself: its span, and a mean gap [s]."""
    return float(trace.requests["arrival_s"][-1] - trace.requests["arrival_s"][0]) + 1 / rate_of(trace)


def compressed(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Compress recorded time: the same users in a hurry. The order of requests stays, and bursts get shorter."""
    return at_request_rate(trace, rate_per_s)


def thinned(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Leave users out, or add copies of them: the traffic of fewer or more users of the same kind.

    A user is a session, with all that waits for each other; a request without one is a user by itself. Users that are
    left are drawn, and keep their times. For a rate above the trace's, copies of all users come on top, each copy as a
    whole moved by up to `MOST_SHIFT_S`, around the trace's end: a day keeps its hours, and two copies' bursts come
    apart. Of the last copy as many users are drawn as the rate needs. With the same seed, all requests at one rate are
    among the requests at every higher rate.

    If the copies have more requests than `MOST_REQUESTS`, and more than the trace, only the `busiest_part` is kept.
    """
    growth = rate_per_s / rate_of(trace)
    if growth > MOST_COPIES:
        raise UsageError(f"{trace.source}: {rate_per_s:.4g} requests/s are {figure_text(growth)} times its rate; "
                         f"copies of its users give at most {MOST_COPIES:,} times (--scaling compress or poisson give "
                         f"any rate)")
    offsets, period = _since_first(trace), _period_s(trace)
    from_s, until_s = busiest_part(trace, rate_per_s) or (0.0, period)
    parts = []
    for copy in range(math.ceil(growth)):
        rng = np.random.default_rng((seed, copy))
        shift_s = rng.uniform(0.0, min(period, MOST_SHIFT_S)) if copy else 0.0
        drawn = None if growth - copy >= 1 else _drawn(_users(trace), growth - copy, rng)
        # Past the end of the trace the rest of a session begins anew at its start.
        for part, late_s in enumerate((shift_s, shift_s - period, shift_s + period)):
            first, end = np.searchsorted(offsets, (from_s - late_s, until_s - late_s))
            rows = np.arange(first, end) if drawn is None else drawn[(first <= drawn) & (drawn < end)]
            parts.append((rows, offsets[rows] + late_s, np.full(len(rows), 2 * copy + (part > 0))))
    return _arranged(trace, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def busiest_part(trace: Trace, rate_per_s: float) -> tuple[float, float] | None:
    """Return the part of a trace that its thinned traffic keeps: begin and end [s]; None if it keeps the whole trace.

    The part has about `MOST_REQUESTS` at this rate. Of all such parts it has the most work, each request counted by
    its share of all prompt tokens plus its share of all output tokens. The trace is taken as a cycle, so a part may go
    on past its end: a log that begins at another hour has the same part.
    """
    most_share = max(MOST_REQUESTS, trace.num_requests) / (rate_per_s * _period_s(trace))
    if most_share >= 1:
        return None
    period = _period_s(trace)
    place = np.minimum((_since_first(trace) / period * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    copies_s = min(period, MOST_SHIFT_S) if rate_per_s > rate_of(trace) else 0.0
    tokens = (trace.requests["input_tokens"].to_numpy(), trace.requests["output_tokens"].to_numpy())
    work = np.sum([_smoothed(np.bincount(place, counts, NUM_BINS) / max(counts.sum(), 1), copies_s / period)
                   for counts in tokens], axis=0)
    requests = _smoothed(np.bincount(place, minlength=NUM_BINS) / trace.num_requests, copies_s / period)
    low, high = 1, NUM_BINS
    while high - low > 1:
        middle = (low + high) // 2
        first = int(_sums_of(work, middle).argmax())
        low, high = (middle, high) if _sums_of(requests, middle)[first] <= most_share else (low, middle)
    first = int(_sums_of(work, low).argmax())
    return first / NUM_BINS * period, (first + low) / NUM_BINS * period


def part_words(trace: Trace, rate_per_s: float, scaling: str) -> str | None:
    """Return which part of a trace is replayed at a rate, and why; None if the whole trace is."""
    part = busiest_part(trace, rate_per_s) if scaling == "thin" else None
    if part is None:
        return None
    (first_s, last_s), period = part, _period_s(trace)
    return (f"of {rate_per_s * period:,.0f} requests the busiest {(last_s - first_s) / 3600:.3g} h are replayed, from "
            f"{first_s / 3600:.3g} h after the start of {trace.source}")


def _smoothed(shares: Floats, span: float) -> Floats:
    """Return the share of each bin of a cycle in copies that begin at any time within a span.

    Parameters
    ----------
    shares : of the whole, in bins of equal length, shape [num_bins].
    span : share of the cycle [1].
    """
    count = max(round(span * len(shares)), 1)
    return np.roll(_sums_of(shares, count), count - 1) / count


def _sums_of(shares: Floats, count: int) -> Floats:
    """Return the sum of `count` bins of a cycle from each bin on, shape [num_bins].

    >>> _sums_of(np.array([1.0, 2.0, 4.0]), 2).tolist()
    [3.0, 6.0, 5.0]
    """
    before = np.concatenate(([0.0], np.cumsum(np.concatenate((shares, shares)))))
    return np.asarray(before[count:count + len(shares)] - before[:len(shares)])


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
    "thin": thinned, "compress": compressed, "resample": resampled, "poisson": poisson}


def repeated(trace: Trace, times: int) -> Trace:
    """Return a trace that goes on with itself, a mean gap between the copies, each with content of its own."""
    if times == 1:
        return trace
    copy = np.repeat(np.arange(times), trace.num_requests)
    return _arranged(trace, np.tile(np.arange(trace.num_requests), times),
                     np.tile(_since_first(trace), times) + copy * _period_s(trace))


def num_requests_at(trace: Trace, rate_per_s: float, scaling: str) -> int:
    """Return about how many requests a trace has at another rate: thinning keeps its time, the others its requests."""
    if scaling != "thin":
        return trace.num_requests
    return math.ceil(min(rate_per_s * _period_s(trace), max(MOST_REQUESTS, trace.num_requests)))


def rates_of(trace: Trace, scaling: str) -> tuple[float, float]:
    """Return the lowest and the highest rate that a way of scaling makes [1/s].

    Thinning must leave two requests. The other ways draw the trace out, to half of `MAX_SECONDS` at most.
    """
    if scaling != "thin":
        return 2.0 * trace.num_requests / MAX_SECONDS, math.inf
    return 2.5 * rate_of(trace) / trace.num_requests, MOST_COPIES * rate_of(trace)


def at_rate(trace: Trace, rate_per_s: float, scaling: str, seed: int) -> Trace:
    """Return the trace's traffic at a rate by a way of scaling.

    Raises
    ------
    UsageError : there is no such way; the rate is not above 0, or too low for two requests to be left.
    """
    if scaling not in SCALINGS:
        raise UsageError(f"--scaling {scaling}: must be one of {', '.join(SCALINGS)}")
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"request rate = {rate_per_s}; must be finite and > 0 requests per second "
                         f"(--max-concurrency takes users at once in place of a rate)")
    return SCALINGS[scaling](trace, rate_per_s, seed)


def lasting(trace: Trace, rate_per_s: float, duration_s: float, scaling: str = "compress", seed: int = 0) -> Trace:
    """Return the trace's traffic at a rate for at least `duration_s`, or as long as MOST_REQUESTS last."""
    return at_rate(repeated(trace, copies_lasting(trace, rate_per_s, duration_s, scaling)), rate_per_s, scaling, seed)


def copies_lasting(trace: Trace, rate_per_s: float, duration_s: float, scaling: str) -> int:
    """Return the copies of a trace that last `duration_s` at a rate, or as long as MOST_REQUESTS last."""
    asked = min(rate_per_s * duration_s, MOST_REQUESTS)
    return max(math.ceil(asked / num_requests_at(trace, rate_per_s, scaling)), 1)


def windows(trace: Trace, count: int, seed: int) -> Trace:
    """Return as many windows of time as a trace is cut into, drawn with replacement: a local block bootstrap.

    Each window is drawn from windows at most `NEAR_WINDOWS` before or after it, in a cycle, so that a day keeps its
    hours (Paparoditis and Politis 2002, "Local block bootstrap", Comptes Rendus Mathématique 335).

    Parameters
    ----------
    count : windows of equal length.
    """
    offsets = _since_first(trace)
    period = _period_s(trace) / count
    place = np.minimum((offsets / period).astype(np.int64), count - 1)
    near = min(NEAR_WINDOWS, count - 1)
    drawn = (np.arange(count) + np.random.default_rng(seed).integers(-near, near + 1, count)) % count
    pieces = [np.flatnonzero(place == window) for window in drawn]
    rows = np.concatenate(pieces)
    shift = np.repeat((np.arange(count) - drawn) * period, [len(piece) for piece in pieces])
    return _arranged(trace, rows, offsets[rows] + shift)


def _since_first(trace: Trace) -> Floats:
    """Return when each request comes, counted from the first [s]."""
    arrivals = trace.requests["arrival_s"].to_numpy()
    return np.asarray(arrivals - arrivals[0], np.float64)


def _users(trace: Trace) -> Rows:
    """Return a number for each request's user: of its session, and of all that waits for each other."""
    n, columns = trace.num_requests, trace.requests.columns
    if not {"session_id", "parent_id"} & set(columns):
        return np.arange(n)
    from scipy.sparse import coo_array  # not at start: it takes longer to load than all of polars
    from scipy.sparse.csgraph import connected_components

    table = trace.requests.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    pairs = [pl.DataFrame({"row": [], "other": []}, schema={"row": pl.Int64, "other": pl.Int64})]
    if "session_id" in columns:
        before = pl.col("row").shift(1).over("session_id").alias("other")
        pairs.append(table.filter(pl.col("session_id").is_not_null()).select("row", before).drop_nulls())
    if "parent_id" in columns:
        ids = table.select(pl.col("request_id").cast(pl.String).alias("parent"), pl.col("row").alias("other"))
        pairs.append(named_parents(table).join(ids, on="parent").select("row", "other"))
    one, other = pl.concat(pairs).to_numpy().T
    links = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(n, n))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)


def _drawn(users: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Return the requests of users drawn until they have the share; a smaller share's requests are among them.

    Parameters
    ----------
    users : the user of each request, counted from 0, shape [num_requests].
    share : of all requests [1].
    """
    place = rng.permutation(int(users.max()) + 1)[users]  # of each request's user, in the order of the draw
    before = np.cumsum(np.bincount(place))  # requests of all users up to each
    num_users = int(np.searchsorted(before, round(share * len(users)), side="right"))
    return np.flatnonzero(place < num_users)


def _arranged(trace: Trace, rows: Rows, arrivals_s: Floats, copy: Rows | None = None) -> Trace:
    """Return the given rows at the given times, in order of arrival; a row's second copy has other prefix ids.

    Parameters
    ----------
    copy : number of each row's copy, so that a session's requests stay together; None to count copies in time.
    """
    if len(rows) < 2:
        raise UsageError(f"{trace.source}: at that rate {len(rows)} of its requests are left; must be 2 or more "
                         f"(give a longer trace or a higher rate; --scaling compress or poisson keep all requests)")
    order = np.argsort(arrivals_s, kind="stable")
    rows, arrivals_s = rows[order], arrivals_s[order]
    copy = _copy_numbers(rows) if copy is None else copy[order]
    suffix = _suffixes(copy)
    table = trace.requests[rows].with_columns(pl.Series("arrival_s", arrivals_s - arrivals_s[0]),
                                              pl.col("request_id").cast(pl.String) + suffix)
    table = own_sessions(table, suffix)
    return replace(trace, requests=table, zero_at_s=None,
                               prefix=None if trace.prefix is None else _own_content(trace.prefix, rows, copy))


def _suffixes(copy: Rows) -> pl.Series:
    """Return the endings of the names of copies.

    >>> _suffixes(np.array([0, 1])).to_list()
    ['', '#2']
    """
    names = pl.Series("suffix", ["", *(f"#{number}" for number in range(2, int(copy.max(initial=0)) + 2))])
    return names.gather(copy)


def own_sessions(table: pl.DataFrame, suffix: pl.Series) -> pl.DataFrame:
    """Let copies of a session be sessions of their own; parents that are left out are waited for no more."""
    if "session_id" in table.columns:
        table = table.with_columns(pl.col("session_id") + suffix)
    if "parent_id" not in table.columns:
        return table
    named = named_parents(table)
    kept = named.with_columns(pl.col("parent") + suffix.gather(named["row"]))
    kept = kept.filter(pl.col("parent").is_in(table["request_id"].implode()))
    return table.with_columns(joined_parents(kept, table.height))


def _copy_numbers(rows: Rows) -> Rows:
    """Return how often each row came before, in order.

    >>> _copy_numbers(np.array([3, 1, 3, 3])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    within = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = within
    return numbers


def _own_content(prefix: PrefixIds, rows: Rows, copy: Rows) -> PrefixIds:
    """Return the ids of some rows; another copy of a row has other ids."""
    taken = take_rows(prefix, rows)
    num_ids = int(prefix.values.max(initial=-1)) + 1
    taken = replace(taken, values=taken.values + np.repeat(copy, np.diff(taken.offsets)) * num_ids)
    if num_ids * (int(copy.max(initial=0)) + 1) <= SPREAD * len(taken.values):  # small enough to index tables with
        return taken
    return intern_ids([pl.Series(taken.values)], np.diff(taken.offsets), prefix.block_tokens)
