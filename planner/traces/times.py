"""Measured times of requests: TPOT and end-to-end latency follow from each other and TTFT."""

import polars as pl

TIMES = ("ttft_s", "tpot_s", "e2e_s")


def fill_times(table: pl.DataFrame) -> pl.DataFrame:
    """Fill in the measured times that follow from others; a table without any stays as it is.

    TPOT is the time between first and last token over the tokens after the first, so a single token has none.

    >>> fill_times(pl.DataFrame({"output_tokens": [5], "ttft_s": [1.0], "e2e_s": [3.0]}))["tpot_s"][0]
    0.5
    """
    known = [name for name in TIMES if name in table.columns]
    if not known:
        return table
    table = table.with_columns(pl.lit(None, pl.Float64).alias(name) for name in TIMES if name not in known)
    gaps = pl.col("output_tokens") - 1
    after = pl.when(gaps > 0).then(gaps)
    table = table.with_columns(pl.col("tpot_s").fill_null((pl.col("e2e_s") - pl.col("ttft_s")) / after))
    decode = pl.when(gaps > 0).then(gaps * pl.col("tpot_s")).otherwise(0.0)
    return table.with_columns(pl.col("e2e_s").fill_null(pl.col("ttft_s") + decode))
