"""Columns of tables as a page shows them: their names in words with a unit, and numbers of three digits or more."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import streamlit as st

from planner.report.column_words import column_words


def worded(names: Iterable[str], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configuration of a table whose columns have their names in words.

    Parameters
    ----------
    own : labels or configurations of columns that differ.
    """
    return {name: st.column_config.Column(column_words(name)) for name in names} | dict(own or {})


def rounded(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose numbers have three digits, or all of those before the point.

    >>> rounded(pl.DataFrame({"a": [91357.2007, 264.1341, 0.70031]}))["a"].to_list()
    [91357.0, 264.0, 0.7]
    """
    number = pl.col(pl.Float64)
    return table.with_columns(pl.when(number.abs() >= 100).then(number.round(0)).otherwise(
        number.round_sig_figs(3)).name.keep())
