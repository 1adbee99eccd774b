"""Parents that requests name in `parent_id`, one row each."""

import polars as pl

from planner.schema import PARENT_SEPARATOR


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
