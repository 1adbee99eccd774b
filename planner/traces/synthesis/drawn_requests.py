"""Drawn requests as a table."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def request_table(arrival_s: Floats, input_tokens: Ints, output_tokens: Ints,
                  more: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Build the request table, rounded to microseconds as a log would be; rows are sorted already."""
    return pl.DataFrame({
        "arrival_s": arrival_s.round(6),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "request_id": pl.Series(np.arange(len(arrival_s))).cast(pl.UInt32),
        **more,
    })
