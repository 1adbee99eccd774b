"""A target format: its name, its columns, and how a trace becomes its text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from planner.schema import TRACE_COLUMNS
from planner.traces import Trace

ALL_COLUMNS = tuple(column.name for column in TRACE_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One format to write.

    Parameters
    ----------
    name : the name that ``--to`` takes.
    meaning : one line for the help text.
    suffix : ending of a file by which the format is known if no name is given; "" for none.
    columns : of the trace that it can hold.
    holds_ids : whether it can hold prefix ids.
    write : turns a trace into the files' bytes, by the ending added to the path's name: "" for the file itself.
    check : raises UsageError if the format would change this trace's meaning.
    notes : facts that a user needs to read the file as it is meant.
    """

    name: str
    meaning: str
    suffix: str
    columns: tuple[str, ...]
    holds_ids: bool
    write: Callable[[Trace], Mapping[str, bytes]]
    check: Callable[[Trace], None]
    notes: Callable[[Trace], list[str]]


def nothing(trace: Trace) -> None:
    """Find nothing against a trace."""


def no_notes(trace: Trace) -> list[str]:
    """Have nothing to add."""
    return []


def id_lists(trace: Trace) -> pl.Series:
    """Return the prefix ids as a list a request, without ids beyond the prompt."""
    assert trace.prefix is not None
    tokens = trace.requests["input_tokens"].to_numpy()
    used = np.minimum(np.diff(trace.prefix.offsets), -(-tokens // trace.prefix.block_tokens))
    row = np.repeat(np.arange(len(used)), np.diff(trace.prefix.offsets))
    place = np.arange(len(row)) - np.repeat(trace.prefix.offsets[:-1], np.diff(trace.prefix.offsets))
    ids = pl.DataFrame({"row": row, "id": trace.prefix.values}).filter(pl.Series(place < used[row]))
    lists = ids.group_by("row", maintain_order=True).agg("id")
    every = pl.DataFrame({"row": np.arange(len(used))}).join(lists, on="row", how="left", maintain_order="left")
    return every["id"].fill_null(pl.Series([[]], dtype=pl.List(pl.Int64))).alias("hash_ids")


def csv_bytes(table: pl.DataFrame) -> bytes:
    """Return a table as CSV."""
    return table.write_csv().encode()


def jsonl_bytes(table: pl.DataFrame) -> bytes:
    """Return a table as JSON lines, without keys that have no value in a row."""
    return table.write_ndjson().encode()


def milliseconds(seconds: pl.Series) -> pl.Series:
    """Return milliseconds that the reader's division turns into the seconds again, as whole numbers if all are.

    If the product does not, a whole number or a neighbour among the floating-point numbers may; a few numbers have
    none, and come back with another last bit.
    """
    product = seconds * 1000.0
    whole = product
    values = product.to_numpy()
    for candidate in (np.nextafter(values, -np.inf), np.nextafter(values, np.inf), np.rint(values)):
        tried = pl.Series(seconds.name, candidate)
        whole = tried.zip_with(pl.Series(candidate / 1000) == seconds, whole)
    return whole.cast(pl.Int64) if bool((whole == whole.floor()).all()) else whole
