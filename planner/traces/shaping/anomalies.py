"""Oddities of a trace: coarse clocks, capped lengths, repeated rows, and arrivals that a closed loop shaped."""

import itertools
from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.files.counts import share_text
from planner.traces import Trace
from planner.traces.shaping.burstiness import gap_cv, share_together, tick_of

Floats = NDArray[np.float64]
Odd = dict[str, str | float]

CAP_AT, CAP_NEARBY = 0.995, 0.9  # of the longest: lengths that may be a cap, and lengths to compare with
CAP_FEWEST, CAP_TIMES = 5, 5.0  # requests there, and their multiple of a nearby length's requests
COMMON_FROM = 0.02  # share of requests with one length
REPEATED_FROM = 0.01  # share of requests that agree with another in arrival and lengths
REGULAR_BELOW = 0.5  # coefficient of variation of the gaps; a Poisson process has 1
FOLLOWS_FROM = 0.5  # share of requests that are sent as another ends
FOLLOWS_WITHIN = 0.01  # of the mean latency
IDLE_GAPS = 50.0  # mean gaps without an arrival
IDLE_FROM_S = 60.0


def find_anomalies(trace: Trace) -> tuple[Odd, ...]:
    """Return the oddities, each with `kind`, `text` for people, and its numbers."""
    table, arrival_s = trace.requests, trace.requests["arrival_s"].to_numpy()
    found = [_clock(arrival_s), _idle(arrival_s), _loop(table, arrival_s)]
    if trace.account.rows_kept <= trace.account.rows_read:  # else of means or counts: equal lengths are the table's
        lengths = (("input_tokens", "prompts"), ("output_tokens", "outputs"))
        found += [_lengths(table[name], what) for name, what in lengths if (table[name] > 0).any()]
        found += [_limits(table), _repeated(table)]
    return tuple(itertools.chain(*found))


def _odd(kind: str, text: str, **numbers: float) -> Odd:
    return {"kind": kind, "text": text, **numbers}


def _clock(arrival_s: Floats) -> Iterator[Odd]:
    tick_s = tick_of(arrival_s)
    if tick_s:
        share = share_together(arrival_s)
        yield _odd("quantised clock", f"arrivals have a clock resolution of {tick_s:g} s: {share_text(share)} have the "
                   f"same time as the arrival before. The variation of gaps is meaningless; use windows longer than "
                   f"the resolution", tick_s=tick_s, share=share)


def _idle(arrival_s: Floats) -> Iterator[Odd]:
    gaps = np.diff(arrival_s)
    idle = gaps[(gaps > IDLE_GAPS * gaps.mean()) & (gaps >= IDLE_FROM_S)] if len(gaps) else gaps
    if len(idle):
        yield _odd("idle stretches", f"{len(idle):,} stretches without an arrival, {idle.sum():,.0f} s in total, the "
                   f"longest {idle.max():,.0f} s: the log has gaps, or traffic is bursty", count=len(idle),
                   longest_s=float(idle.max()), total_s=float(idle.sum()))


def _loop(table: pl.DataFrame, arrival_s: Floats) -> Iterator[Odd]:
    """Tell arrivals that are no users': all at once, at regular times, or each as another request ends."""
    if len(arrival_s) > 1 and arrival_s[-1] == arrival_s[0]:
        limit = "--max-sessions" if "session_id" in table.columns else "--max-concurrency"
        yield _odd("no arrivals", f"all {len(arrival_s):,} requests arrive at once: arrival times are missing, or a "
                   f"benchmark sent them; replay with {limit}, or add arrival times")
        return
    variation = gap_cv(arrival_s)
    if variation is not None and len(arrival_s) >= 30 and variation < REGULAR_BELOW:
        yield _odd("regular arrivals", f"the gaps vary by {variation:.2f} of their mean (users: about 1 or more): a "
                   f"load generator sent them at regular times", gap_cv=variation)
    if "e2e_s" in table.columns and len(arrival_s) >= 30:
        known = table.filter(pl.col("e2e_s").is_not_null())
        ends_s = np.sort((known["arrival_s"] + known["e2e_s"]).to_numpy())
        share, chance = _follows(arrival_s, ends_s, FOLLOWS_WITHIN * float(known["e2e_s"].to_numpy().mean() or 0.0))
        if share >= FOLLOWS_FROM and share > 2 * chance:
            yield _odd("closed loop", f"{share_text(share)} of the requests are sent as another ends (by chance "
                       f"{share_text(chance)}): a client limited the requests in flight, and a slower deployment would "
                       f"have received fewer; replay with --max-concurrency", share=share, by_chance=chance)


def _follows(arrival_s: Floats, ends_s: Floats, within_s: float) -> tuple[float, float]:
    """Return the share of arrivals just after an end, and the share to expect by chance."""
    if not len(ends_s):
        return 0.0, 0.0
    before = np.searchsorted(ends_s, arrival_s, side="right") - 1
    after = arrival_s - ends_s[np.maximum(before, 0)]
    share = float(np.mean((before >= 0) & (after <= within_s)))
    rate = len(ends_s) / max(float(arrival_s[-1] - arrival_s[0]), 1e-9)
    return share, float(1.0 - np.exp(-rate * within_s))


def _lengths(tokens: pl.Series, what: str) -> Iterator[Odd]:
    """Tell lengths that too many requests have in common."""
    total = tokens.len()
    rows = tokens.value_counts(sort=True, name="requests").rows()
    if len(rows) == 1 and total > 1:
        yield _odd(f"constant {what}", f"all {what} have {rows[0][0]:,} tokens: a benchmark, not users",
                   tokens=rows[0][0])
        return
    cap, at_cap = _cap(tokens)
    if at_cap:
        yield _odd(f"capped {what}", f"{at_cap:,} {what} ({share_text(at_cap / total)}) have {cap:,} tokens, and "
                   f"almost none have more: a limit cut them, and their natural lengths are unknown",
                   tokens=cap, share=at_cap / total)
    common = [(value, count) for value, count in rows[:3] if count >= COMMON_FROM * total and value != cap]
    if total >= 200 and common:
        listed = ", ".join(f"{value:,} ({share_text(count / total)})" for value, count in common)
        yield _odd(f"common {what}", f"many {what} have the same length: {listed} tokens: a template, or one client",
                   tokens=common[0][0], share=common[0][1] / total)


def _cap(tokens: pl.Series) -> tuple[int, int]:
    """Return the length that stands out among the longest ones, and how many have it; (0, 0) without one."""
    values = tokens.to_numpy()
    top = values.max()
    lengths, counts = np.unique(values[values >= CAP_AT * top], return_counts=True)
    nearby = np.count_nonzero((values >= CAP_NEARBY * top) & (values < CAP_AT * top))
    density = nearby / ((CAP_AT - CAP_NEARBY) * top)  # requests a token, below
    most = int(counts.max())
    stands_out = most >= CAP_FEWEST and most >= CAP_TIMES * max(density, 1.0)
    return (int(lengths[counts.argmax()]), most) if stands_out else (0, 0)


def _limits(table: pl.DataFrame) -> Iterator[Odd]:
    if "max_output_tokens" not in table.columns:
        return
    known = table.filter(pl.col("max_output_tokens").is_not_null())
    reached = known.filter(pl.col("output_tokens") >= pl.col("max_output_tokens")).height
    if known.height and reached >= REPEATED_FROM * known.height:
        share = reached / known.height
        yield _odd("outputs at the client's limit", f"{reached:,} outputs ({share_text(share)}) are as long as the "
                   f"client's limit allowed: max_tokens or ignore_eos set them, so they are not natural lengths",
                   share=share)


def _repeated(table: pl.DataFrame) -> Iterator[Odd]:
    """Tell rows that come again with the same arrival and lengths; on a coarse clock short requests may do so."""
    again = (table["arrival_s"].diff() == 0).fill_null(False)
    alike = table.select("arrival_s", "input_tokens", "output_tokens").filter(
        again | again.shift(-1, fill_value=False))  # few, if the clock is fine
    repeated = alike.height - alike.n_unique() if alike.height else 0
    if repeated >= max(REPEATED_FROM * table.height, 2):
        yield _odd("repeated rows", f"{repeated:,} rows ({share_text(repeated / table.height)}) have the same arrival "
                   f"and lengths as another row: logged twice, or retried",
                   count=repeated, share=repeated / table.height)
