"""The report's tables as Markdown, for a pull request or a job summary."""

from collections.abc import Sequence

from planner.report.content import (
    Listing,
    Row,
    Table,
    comparison,
    describe,
    difference_text,
    full_summary,
    headline,
    reasons,
    report_title,
    settings,
    value_text,
)
from planner.report.escaping import escape, escape_cell
from planner.report.figures.style import labels
from planner.report.findings import findings
from planner.report.report_source import SavedAnswer
from planner.report.scaling_tables import scale_listings
from planner.results.saved import SavedResult


def to_markdown(results: Sequence[SavedResult]) -> str:
    """Return the report as Markdown: headline numbers, reasons, comparison, settings and the full summary."""
    names = labels(results)
    lines = [f"# {escape(report_title(results))}", ""]
    lines += [f"- {escape(name)}: {escape(describe(result))}" for name, result in zip(names, results, strict=True)]
    lines += [*_table(headline(results), names), "", "## Why", "", *(f"- {escape(text)}" for text in reasons(results))]
    lines += [line for listing in scale_listings(results) for line in _listing(listing)]
    found = [*comparison(results), *settings(results), full_summary(results)]
    return "\n".join([*lines, *(line for table in found for line in _table(table, names))]) + "\n"


def answer_markdown(answer: SavedAnswer) -> str:
    """Return the report of an answer as Markdown: its numbers, what they mean, what is behind them, and settings.

    Raises
    ------
    PlannerError : the answer is not as its command writes it.
    """
    parts = findings(answer)
    names = [name or "value" for name in parts.names]
    lines = [f"# {escape(parts.title)}", "", escape(parts.lead), *_table(parts.headline, names), ""]
    lines += ["## Why", "", *(f"- {escape(text)}" for text in parts.words)] if parts.words else []
    lines += [line for listing in parts.listings for line in _listing(listing)]
    lines += [line for group in parts.tables.values() for table in group for line in _table(table, names)]
    return "\n".join(lines) + "\n"


def _table(table: Table, names: Sequence[str]) -> list[str]:
    header = ["", *map(escape_cell, names)]
    lines = ["", f"## {table.title}", "", table_line(header), table_line(["---", *["---:"] * len(names)])]
    return lines + [table_line([_label(row, table), *_cells(row, table)]) for row in table.rows]


def rows_under_names(listing: Listing) -> list[str]:
    """Return the lines of a listing without its title: words to the left of their columns, numbers to the right."""
    rules = ["---" if listing.is_words(place) else "---:" for place in range(len(listing.columns))]
    rows = [table_line([escape_cell(value_text(value)) for value in row]) for row in listing.rows]
    return [table_line([escape_cell(name) for name in listing.columns]), table_line(rules), *rows]


def _listing(listing: Listing) -> list[str]:
    return ["", f"## {escape(listing.title)}", "", *rows_under_names(listing)]


def _label(row: Row, table: Table) -> str:
    label = escape_cell(row.label)
    return f"**{label}** (differs)" if table.marks and row.differs else label


def _cells(row: Row, table: Table) -> list[str]:
    cells = []
    for place, value in enumerate(row.values):
        difference = difference_text(value, row.values[0]) if table.compares and place > 0 else ""
        cells.append(escape_cell(value_text(value, row.unit)) + (f" ({difference})" if difference else ""))
    return cells


def table_line(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
