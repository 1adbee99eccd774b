"""Configurations of a sweep in the order of a choice: first those within the targets, the cheapest on top."""

import polars as pl

COST = "cost_usd_per_million_output_tokens"
KEEPS, CHEAPEST = "keeps_targets", "is_cheapest"


def by_choice(table: pl.DataFrame, attainment: float | None) -> pl.DataFrame:
    """Return a sweep's table sorted, with whether a configuration keeps the targets, and whether it is the cheapest.

    Configurations within the targets come first, then the front, then the others, each by cost; the ones that could not
    be replayed are last.

    >>> rows = pl.DataFrame({"status": ["done", "done", "too large"], "misses": ["", "", ""],
    ...     "is_pareto": [False, True, False], COST: [2.0, 1.0, None], "slo_attainment": [1.0, 0.5, None]})
    >>> by_choice(rows, 0.99).select(COST, KEEPS, CHEAPEST).rows()
    [(2.0, True, True), (1.0, False, False), (None, False, False)]

    Parameters
    ----------
    table : as `sweeping.sweep`.
    attainment : share of requests that must be within their own limits; None if no share is asked for [1].
    """
    keeps = (pl.col("status") == "done") & (pl.col("misses") == "")
    if attainment is not None and "slo_attainment" in table.columns:
        keeps &= pl.col("slo_attainment").fill_null(0.0) >= attainment
    cost = pl.col(COST) if COST in table.columns else pl.lit(None, pl.Float64)
    found = table.with_columns(keeps.alias(KEEPS)).sort(
        pl.col(KEEPS).not_(), pl.col("status") != "done", pl.col("is_pareto").not_(), maintain_order=True)
    least = found.select(cost.filter(pl.col(KEEPS)).min()).item()
    is_cheapest = (pl.col(KEEPS) & (cost == pl.lit(least, pl.Float64))).fill_null(value=False)
    found = found.with_columns(is_cheapest.alias(CHEAPEST))
    return found.sort(pl.col(CHEAPEST).not_(), pl.col(KEEPS).not_(), pl.col("status") != "done", cost,
                      nulls_last=True, maintain_order=True)
