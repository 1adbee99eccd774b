"""Answers for a notebook: an answer's numbers as a mapping, its text, and a table."""

import html
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

ROWS_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answer:
    """The numbers that a command's `--json` has, by their keys; printed as the command prints them.

    Parameters
    ----------
    values_by_key : the answer's values.
    text : all of it, for the terminal.
    headline : a line or a few that say the most.
    table : the rows behind it.
    """

    values_by_key: Mapping[str, Any]
    text: str
    headline: str
    table: pl.DataFrame

    def __getitem__(self, key: str) -> Any:
        return self.values_by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_key)

    def keys(self) -> KeysView[str]:
        """The keys, with which `**answer` works too."""
        return self.values_by_key.keys()

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return to_html(self.headline, self.table)


def to_html(headline: str, table: pl.DataFrame) -> str:
    """Return lines as paragraphs, then a table, as HTML for a notebook."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in headline.splitlines())
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_rows=ROWS_SHOWN,
                   tbl_cols=ROWS_SHOWN, fmt_str_lengths=200, float_precision=3, thousands_separator=","):
        shown = table._repr_html_()
    return lines + shown.replace("&quot;", "").replace(">null<", ">–<")  # as polars writes texts and missing values
