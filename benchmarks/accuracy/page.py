"""The sections as one HTML page that works offline, and as Markdown."""

import json
from collections.abc import Sequence
from html import escape

from benchmarks.accuracy.section import Section, Verdict, percent
from planner.report import escaping, markdown, page
from planner.report.content import Listing

TITLE = "Accuracy: predictions against measurements"
COLUMNS = ("figure", "value", "target", "verdict", "others")
MARKS = {True: "met", False: "missed", None: ""}
LONG = 12  # rows from which the page folds a table
LONGEST = 48  # rows to which a table is in the Markdown too


def to_html(sections: Sequence[Section]) -> str:
    """Return the report as one page that holds all it needs."""
    figures = {name: json.loads(figure.to_json()) for s in sections for name, figure in s.figures.items()}
    parts = [f'<h2>{escape(s.title)}</h2><p>{escape(s.lead)}</p>{page.rows_under_names(_verdicts(s))}'
             f'<div class="figures">{"".join(page.place(name, figures[name]) for name in s.figures)}</div>'
             f'{"".join(map(_table, s.tables))}<ul>{"".join(f"<li>{escape(note)}</li>" for note in s.notes)}</ul>'
             for s in sections]
    return page.document(TITLE, lead=f"<p>{escape(summary(sections))}</p>", body="\n".join(parts), figures=figures)


def to_markdown(sections: Sequence[Section]) -> str:
    """Return verdicts, notes and all but the longest tables, which the page has."""
    lines = [f"# {TITLE}", "", summary(sections)]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.lead, "", *markdown.rows_under_names(_verdicts(section))]
        for table in section.tables:
            if len(table.rows) <= LONGEST:
                lines += ["", f"**{escaping.escape(table.title)}**", "", *markdown.rows_under_names(table)]
        lines += ["", *(f"- {escaping.escape(note)}" for note in section.notes)]
    return "\n".join(lines) + "\n"


def summary(sections: Sequence[Section]) -> str:
    """Return how many targets are met."""
    judged = [v.is_met for s in sections for v in s.verdicts if v.is_met is not None]
    return f"{sum(judged)} of {len(judged)} targets are met."


def _verdicts(section: Section) -> Listing:
    """Return the verdicts without the columns that none of them fills."""
    rows = [_cells(v) for v in section.verdicts]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows)]
    return Listing(title="", columns=[COLUMNS[place] for place in kept],
                   rows=[[row[place] for place in kept] for row in rows])


def _cells(verdict: Verdict) -> list[str]:
    sign = "≥" if verdict.at_least else "≤"
    target = "" if verdict.limit is None else f"{sign} {percent(verdict.limit)}"
    return [verdict.name, percent(verdict.value), target, MARKS[verdict.is_met], verdict.peers]


def _table(table: Listing) -> str:
    rows = page.rows_under_names(table)
    if len(table.rows) > LONG:
        return f"<details><summary>{escape(table.title)} ({len(table.rows)} rows)</summary>{rows}</details>"
    return f"<h3>{escape(table.title)}</h3>{rows}"
