"""The sections as one HTML page that works offline, and as Markdown."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from benchmarks.accuracy.section import Section, Table, Verdict, percent
from planner.report import page
from planner.report.markdown import escape as plain

TITLE = "Accuracy: predictions against measurements"
MARKS = {True: "met", False: "missed", None: ""}
LONG = 12  # rows from which a table is folded
COLUMNS = ("figure", "value", "target", "", "others")


def to_html(sections: Sequence[Section]) -> str:
    """Return the report as one page that holds all it needs."""
    figures = {name: json.loads(figure.to_json()) for s in sections for name, figure in s.figures.items()}
    parts = [f'<h2>{escape(s.title)}</h2><p>{escape(s.lead)}</p>{_verdicts(s)}'
             f'<div class="figures">{"".join(page.place(name, figures[name]) for name in s.figures)}</div>'
             f'{"".join(map(_table, s.tables))}<ul>{"".join(f"<li>{escape(note)}</li>" for note in s.notes)}</ul>'
             for s in sections]
    return page.document(TITLE, lead=f"<p>{escape(summary(sections))}</p>", body="\n".join(parts), figures=figures)


def to_markdown(sections: Sequence[Section]) -> str:
    """Return verdicts, notes and short tables; long ones are in the page only."""
    lines = [f"# {TITLE}", "", summary(sections)]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.lead, ""]
        lines += _markdown_rows(COLUMNS, map(_cells, section.verdicts))
        for table in section.tables:
            if len(table.rows) <= 4 * LONG:
                lines += ["", f"**{plain(table.title)}**", "", *_markdown_rows(table.columns, table.rows)]
        lines += ["", *(f"- {plain(note)}" for note in section.notes)]
    return "\n".join(lines) + "\n"


def summary(sections: Sequence[Section]) -> str:
    """Return how many targets are met."""
    judged = [v.is_met for s in sections for v in s.verdicts if v.is_met is not None]
    return f"{sum(judged)} of {len(judged)} targets are met."


def _cells(verdict: Verdict) -> list[str]:
    sign = "≥" if verdict.at_least else "≤"
    target = "" if verdict.limit is None else f"{sign} {percent(verdict.limit)}"
    return [verdict.name, percent(verdict.value), target, MARKS[verdict.is_met], verdict.peers]


def _verdicts(section: Section) -> str:
    return _rows(COLUMNS, [_cells(v) for v in section.verdicts])


def _table(table: Table) -> str:
    rows = _rows(table.columns, table.rows)
    title = f"{escape(table.title)} ({len(table.rows)} rows)"
    if len(table.rows) > LONG:
        return f"<details><summary>{title}</summary>{rows}</details>"
    return f"<h3>{escape(table.title)}</h3>{rows}"


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _markdown_rows(columns: Sequence[str], rows: Any) -> list[str]:
    body = [f"| {' | '.join(plain(_text(cell)) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(map(str, columns))} |", f"|{'---|' * len(columns)}", *body]


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
