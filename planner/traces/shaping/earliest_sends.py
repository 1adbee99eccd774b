"""When requests that wait for others are sent at the earliest, before any replay."""

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.traces import Trace
from planner.traces.parents import parent_rows, session_pairs
from planner.traces.turns import SLACK_S

Floats = NDArray[np.float64]


def at_earliest_sends(trace: Trace) -> tuple[Trace, int]:
    """Return a trace whose requests arrive when they are sent at the earliest, in that order, and how many moved.

    A request that waits for others is sent after their measured time (none if the trace has no times) and its think
    time, and not before its own arrival. So turns of several sessions interleave as their pauses say.
    """
    table = trace.requests
    known = parent_rows(table).drop_nulls("parent_row").select("parent_row", "row").to_numpy().T \
        if "parent_id" in table.columns else np.empty((2, 0), np.int64)
    parents, children = (np.concatenate(side) for side in zip(known, *session_pairs(table), strict=True))
    sent_s = _sent_s(table, parents.astype(np.int64), children.astype(np.int64))
    moved = int((sent_s > table["arrival_s"].to_numpy()).sum())
    if not moved:
        return trace, 0
    order = np.argsort(sent_s, kind="stable")
    return replace(trace, requests=table.with_columns(arrival_s=pl.Series(sent_s))).take(order), moved


def _sent_s(table: pl.DataFrame, parents: NDArray[np.int64], children: NDArray[np.int64]) -> Floats:
    """Return the earliest sends [s]; requests that wait for each other in a circle keep their arrivals."""
    sent_s: Floats = table["arrival_s"].to_numpy().astype(np.float64, copy=True)
    taken_s, think_s = (table[name].fill_null(0.0).to_numpy() if name in table.columns else np.zeros(table.height)
                        for name in ("e2e_s", "think_time_s"))
    order = np.argsort(parents, kind="stable")
    parents, children = parents[order], children[order]
    first = np.searchsorted(parents, np.arange(table.height + 1))
    left = np.bincount(children, minlength=table.height)
    ready_s = sent_s.copy()
    free = np.flatnonzero(left == 0)
    while len(free):
        late = ready_s[free] > sent_s[free] + SLACK_S
        sent_s[free[late]] = ready_s[free[late]]
        counts = first[free + 1] - first[free]
        places = np.repeat(first[free] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        theirs = children[places]
        np.maximum.at(ready_s, theirs, np.repeat(sent_s[free] + taken_s[free], counts) + think_s[theirs])
        np.subtract.at(left, theirs, 1)
        theirs = np.unique(theirs)
        free = theirs[left[theirs] == 0]
    return sent_s
