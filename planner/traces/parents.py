"""Parents of requests: the ones that `parent_id` names, and the turn before in a session with think times."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.schema import PARENT_SEPARATOR

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows of parents, rows of their children


def named_parents(requests: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each parent that a request names: `row` of the request, and `parent`, an id without blanks.

    Parameters
    ----------
    requests : with a column `parent_id`, several separated by ";"; null or empty without a parent.

    >>> named_parents(pl.DataFrame({"parent_id": [None, "a", "a; b"]})).rows()
    [(1, 'a'), (2, 'a'), (2, 'b')]
    """
    named = requests.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), pl.col("parent_id").alias("parent"))
    named = named.filter(pl.col("parent").is_not_null() & (pl.col("parent") != ""))
    return named.with_columns(pl.col("parent").str.split(PARENT_SEPARATOR)).explode("parent").with_columns(
        pl.col("parent").str.strip_chars())


def parent_rows(requests: pl.DataFrame) -> pl.DataFrame:
    """Return `named_parents` once each, with `parent_row`: the parent's row, null if it is not in the table."""
    names = requests["request_id"].cast(pl.String)
    ids = pl.DataFrame({"parent": names, "parent_row": np.arange(len(names))})
    named = named_parents(requests).join(ids, on="parent", how="left", maintain_order="left")
    return named.unique(["row", "parent"], maintain_order=True)


def session_pairs(requests: pl.DataFrame) -> list[Pairs]:
    """Return each turn that has a think time with the turn before it, if no `parent_id` names another."""
    if not {"session_id", "think_time_s"} <= set(requests.columns):
        return []
    turns = requests.with_row_index("child").filter(pl.col("session_id").is_not_null())
    turns = turns.with_columns(pl.col("child").shift(1).over("session_id").alias("parent"))
    waits = pl.col("parent").is_not_null() & pl.col("think_time_s").is_not_null()
    if "parent_id" in turns.columns:
        waits &= pl.col("parent_id").is_null() | (pl.col("parent_id") == "")
    turns = turns.filter(waits)
    if turns.is_empty():
        return []
    return [(turns["parent"].to_numpy().astype(np.int64), turns["child"].to_numpy().astype(np.int64))]


def joined_parents(named: pl.DataFrame, num_requests: int) -> pl.Series:
    """Return the column `parent_id` of the parents that requests name, null without a parent.

    Parameters
    ----------
    named : as of `named_parents`, or some of its rows.

    >>> joined_parents(pl.DataFrame({"row": [1, 1], "parent": ["a", "b"]}), 2).to_list()
    [None, 'a;b']
    """
    together = named.group_by("row", maintain_order=True).agg(pl.col("parent").str.join(PARENT_SEPARATOR))
    rows = pl.DataFrame({"row": pl.int_range(num_requests, dtype=pl.Int64, eager=True)})
    return rows.join(together, on="row", how="left", maintain_order="left")["parent"].rename("parent_id")
