"""Sessions again and again: copies of a trace's sessions after one another, each with contents of its own."""

import dataclasses

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.schema import PARENT_SEPARATOR
from planner.traces.prefix_ids import PrefixIds, take_rows
from planner.traces.shaping.session_start import session_numbers
from planner.traces.table import Trace

COPY = "@"  # before the number of a copy, in the names of its requests and sessions


def recycled(trace: Trace, copies: int) -> Trace:
    """Return a trace whose sessions come again once all of them have begun, as a benchmark with `--recycle` has them.

    A copy has names and prefix ids of its own: it finds nothing in the cache that the sessions before it left there.
    Its requests arrive when the last session of the copy before it has begun, since a seat is all that they wait for.

    Parameters
    ----------
    copies : 1 for the trace as it is.
    """
    if copies == 1:
        return trace
    first = trace.requests.with_columns(pl.col("request_id").cast(pl.String))
    begin_s = first.select(pl.col("arrival_s").min().over(pl.coalesce("session_id", "request_id"))).max().item()
    tables = [first, *(_copy(first, k, float(begin_s)) for k in range(1, copies))]
    table = pl.concat(tables).with_row_index("row").sort("arrival_s", maintain_order=True)
    prefix = None if trace.prefix is None else take_rows(_repeated(trace.prefix, copies),
                                                             table["row"].to_numpy().astype(np.int64))
    return dataclasses.replace(trace, requests=table.drop("row"), prefix=prefix)


def only_sessions(trace: Trace, kept: NDArray[np.bool_]) -> Trace:
    """Return the requests of some sessions, by `session_numbers`."""
    return trace.take(np.flatnonzero(kept[session_numbers(trace)]))


def _copy(table: pl.DataFrame, number: int, begin_s: float) -> pl.DataFrame:
    """Return the requests of a copy: later by the time that sessions take to begin, under other names."""
    mark = f"{COPY}{number}"
    renamed = [(pl.col(name) + mark).alias(name) for name in ("request_id", "session_id") if name in table.columns]
    if "parent_id" in table.columns:
        parents = pl.col("parent_id").str.replace_all(PARENT_SEPARATOR, mark + PARENT_SEPARATOR, literal=True)
        renamed.append(pl.when(pl.col("parent_id") != "").then(parents + mark).alias("parent_id"))
    return table.with_columns(pl.col("arrival_s") + number * begin_s, *renamed)


def _repeated(prefix: PrefixIds, copies: int) -> PrefixIds:
    num_ids = int(prefix.values.max(initial=-1)) + 1
    counts = np.tile(np.diff(prefix.offsets), copies)
    return PrefixIds(values=np.concatenate([prefix.values + k * num_ids for k in range(copies)]),
                     offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
                     block_tokens=prefix.block_tokens)

