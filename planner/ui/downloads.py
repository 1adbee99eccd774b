"""Downloads of a page: tables that a spreadsheet reads as text, an answer's files, its command."""

import polars as pl
import streamlit as st

from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.sweep_answer import SweepAnswer
from planner.report.cells import replay_lines
from planner.report.page import to_html
from planner.report.report_source import SavedAnswer
from planner.results.saved import to_json

FORMULA = r"^[=+\-@\t\r]"  # how text begins that a spreadsheet would compute


def harmless(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table in which no text is a formula to a spreadsheet: an apostrophe goes before one."""
    texts = pl.col(pl.String)
    return table.with_columns(pl.when(texts.str.contains(FORMULA)).then("'" + texts).otherwise(texts).name.keep())


def table_csv(table: pl.DataFrame) -> str:
    """Return a table as CSV in which no text is a formula."""
    return harmless(table).write_csv()


def _replay_command(answer: CapacityAnswer | SizeAnswer | SweepAnswer) -> str | None:
    """Return the command that replays an answer; of a sweep the first configuration on its front."""
    if isinstance(answer, SweepAnswer):
        return answer.front[0].get("replay_command") if answer.front else None
    if isinstance(answer, SizeAnswer):
        return None if answer.cheapest is None else answer.cheapest.replay_command
    return answer.replay_command


def answer_downloads(name: str, answer: CapacityAnswer | SizeAnswer | SweepAnswer, command: str,
                     table: pl.DataFrame | None = None) -> None:
    """Offer an answer as JSON and as a report, and the command that finds the same.

    Parameters
    ----------
    name : of the files, without an ending.
    command : that finds the same.
    table : of a sweep's configurations.
    """
    st.subheader("Downloads and command", anchor=False)
    st.code("\n".join([command, *replay_lines(_replay_command(answer))]), language=None, wrap_lines=True)
    left, right = st.columns(2)
    left.download_button("Answer, JSON", to_json(answer), f"{name}.json", "application/json", width="stretch",
                         on_click="ignore")
    right.download_button("Report, HTML", lambda: to_html(SavedAnswer(name=name, answer=answer, table=table)),
                          f"{name}.html", "text/html", width="stretch", on_click="ignore")
