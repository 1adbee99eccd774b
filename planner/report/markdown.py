"""The report's tables as Markdown, for a pull request or a job summary."""

from collections.abc import Sequence

from planner.report.content import Line, Listing, Table, difference_text, value_text
from planner.report.escaping import escape, escape_cell
from planner.report.findings import findings
from planner.report.report_source import Source


def to_markdown(source: Source) -> str:
    """Return a report as Markdown: headline numbers, reasons, comparison, evidence, settings, summary.

    Raises
    ------
    PlannerError : an answer is not as its command writes it.
    """
    found = findings(source)
    names = [name or "value" for name in found.names]
    leads = [f"- {escape(name)}: {escape(text)}" if name else escape(text)
             for name, text in zip(found.names, found.leads, strict=True)]
    lines = [f"# {escape(found.title)}", "", *leads, *_table(found.headline, names)]
    lines += ["", "## Why", "", *(f"- {escape(text)}" for text in found.words)] if found.words else []
    lines += [line for table in found.compared for line in _table(table, names)]
    lines += [line for listing in found.listings for line in _listing(listing)]
    tables = [*(table for group in found.tables.values() for table in group), *filter(None, [found.summary])]
    return "\n".join([*lines, *(line for table in tables for line in _table(table, names))]) + "\n"


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


def _label(row: Line, table: Table) -> str:
    label = escape_cell(row.label)
    return f"**{label}** (differs)" if table.marks and row.differs else label


def _cells(row: Line, table: Table) -> list[str]:
    cells = []
    for place, value in enumerate(row.values):
        difference = difference_text(value, row.values[0]) if table.compares and place > 0 else ""
        cells.append(escape_cell(value_text(value, row.unit)) + (f" ({difference})" if difference else ""))
    return cells


def table_line(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
