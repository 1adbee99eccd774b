"""Faults of recorded arrivals: absent, late against their schedule, or shaped by the measured system."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from planner.traces.reader import SENT

FEWEST = 20  # requests, below which nothing is said of a closed loop
SHARE = 0.9  # of the requests that must look like a closed loop's
PROMPT_FRAC = 0.05  # of the median latency, within which a closed loop's client sends the next


def arrival_notes(table: pl.DataFrame, arrivals: str) -> Iterator[str]:
    """Yield notes on a trace's arrivals.

    Parameters
    ----------
    table : requests sorted by arrival, `sent_at_s` if the file has it.
    arrivals : "recorded" or "absent".
    """
    if arrivals == "absent":
        yield ("the file has no arrival times: a replay needs --request-rate (Poisson arrivals) or --max-concurrency "
               "(a closed loop)")
        return
    if SENT in table.columns:
        late_ms = (table[SENT] - table["arrival_s"]).drop_nulls().to_numpy() * 1000
        if len(late_ms) and np.percentile(late_ms, 99) > 1:
            yield (f"arrivals are scheduled times. Requests were sent later, {np.median(late_ms):.3g} ms in the median "
                   f"and {np.percentile(late_ms, 99):.3g} ms at p99; measured times do not include this delay")
    concurrency = closed_loop_of(table)
    if concurrency is not None:
        yield (f"requests arrived as others ended, {concurrency} in flight: a closed loop, so arrivals depend on the "
               f"measured system; --max-concurrency {concurrency} replays a closed loop")


def closed_loop_of(table: pl.DataFrame) -> int | None:
    """Return how many requests a closed loop kept in flight; None if arrivals do not look like one's.

    In a closed loop almost every arrival follows shortly upon an end, and brings the number in flight back to the
    same.

    Parameters
    ----------
    table : sorted by arrival, with `e2e_s` if it was measured.
    """
    if "e2e_s" not in table.columns:
        return None
    known = table.filter(pl.col("e2e_s").is_not_null())
    sent = known[SENT].fill_null(known["arrival_s"]) if SENT in known.columns else known["arrival_s"]
    arrival_s, e2e_s = sent.sort().to_numpy(), known["e2e_s"].to_numpy()[sent.arg_sort().to_numpy()]
    n = len(known)
    if n < FEWEST or arrival_s[-1] <= arrival_s[0]:
        return None
    ends = np.sort(arrival_s + e2e_s)
    ended = np.searchsorted(ends, arrival_s, side="right")
    in_flight = np.arange(1, n + 1) - ended
    level = int(np.median(in_flight))
    later = ended > 0
    if level < 1 or level >= n / 2 or later.sum() < n / 2:
        return None
    since_s = (arrival_s - ends[np.maximum(ended - 1, 0)])[later]
    is_back = in_flight[later] == level
    is_prompt = since_s <= PROMPT_FRAC * np.median(e2e_s)
    return level if float((is_back & is_prompt).mean()) >= SHARE else None
