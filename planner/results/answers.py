"""Answers in Python: the keys of a command's JSON, its text, and a table for notebooks."""

import functools
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from planner.files.keys import asdict

ROWS_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An answer for a reader.

    Parameters
    ----------
    text : all of it, as the command prints it.
    headline : a line or a few that say the most.
    table : the rows behind it.
    """

    text: str
    headline: str
    table: pl.DataFrame


@functools.singledispatch
def shown(answer: Any) -> Shown:
    """Return an answer for a reader; `report/shown.py` registers a function for each kind of answer."""
    values = asdict(answer)
    return Shown(text=f"{type(answer).__name__} {values}", headline="",
                 table=pl.DataFrame({"key": list(values), "value": list(map(str, values.values()))}))


class Answer(Mapping[str, Any]):
    """The base of answers: a mapping of the keys of `--json`, and how notebooks show it."""

    __slots__ = ()

    @property
    def values_by_key(self) -> Mapping[str, Any]:
        """The values as JSON has them."""
        return asdict(self)

    def __getitem__(self, key: str) -> Any:
        return self.values_by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_key)

    def __len__(self) -> int:
        return len(self.values_by_key)

    def to_polars(self) -> pl.DataFrame:
        """Return the rows behind the answer."""
        return shown(self).table

    def __repr__(self) -> str:
        return shown(self).text

    def _repr_html_(self) -> str:
        presented = shown(self)
        return to_html(presented.headline, presented.table)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReplayAnswer(Answer):
    """The answer to a question on replays: the summaries or the explanation, and how they are shown."""

    values_by_key: Mapping[str, Any]
    presented: Shown


@shown.register
def _of_replays(answer: ReplayAnswer) -> Shown:
    return answer.presented


def to_html(headline: str, table: pl.DataFrame) -> str:
    """Return lines as paragraphs, then a table, as HTML for a notebook."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in headline.splitlines())
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_rows=ROWS_SHOWN,
                   tbl_cols=ROWS_SHOWN, fmt_str_lengths=200, float_precision=3, thousands_separator=","):
        rows = table._repr_html_()
    return lines + rows.replace("&quot;", "").replace(">null<", ">–<")  # as polars writes texts and missing values
