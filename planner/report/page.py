"""The report as one HTML page: figures that answer to the mouse, tables, and nothing loaded from anywhere."""

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from planner.catalog.catalog_files import data_dir
from planner.report.content import Line, Listing, Table, difference_text, value_text
from planner.report.figures import template
from planner.report.figures.style import PAPER, clean
from planner.report.findings import findings
from planner.report.report_source import Source


def to_html(source: Source) -> str:
    """Return a report as one page that holds all it needs; text from traces, answers and file names is escaped.

    Raises
    ------
    PlannerError : an answer is not as its command writes it.
    """
    found = findings(source)
    figures = {name: json.loads(figure.to_json()) for name, figure in found.figures.items()}
    parts = [
        _numbers_first(found.headline, found.names),
        f"<h2>Why</h2>{''.join(f'<p>{escape(clean(text))}</p>' for text in found.words)}" if found.words else "",
        _section("Compared with the first", found.compared, found.names),
        f'<h2>Figures</h2><div class="figures">{"".join(place(*item) for item in figures.items())}</div>',
        *(f"<h2>{escape(listing.title)}</h2>{rows_under_names(listing)}" for listing in found.listings),
        *(_section(title, group, found.names) for title, group in found.tables.items()),
        "" if found.summary is None else f"<details><summary>{escape(found.summary.title)}</summary>"
                                         f"{_table([replace(found.summary, title='')], found.names)}</details>",
    ]
    leads = (f"<p>{f'<b>{escape(name)}</b>: ' if len(found.names) > 1 else ''}{escape(clean(text))}</p>"
             for name, text in zip(found.names, found.leads, strict=True))
    return document(escape(clean(found.title)), lead="".join(leads), body="\n".join(filter(None, parts)),
                    figures=figures)


def document(title: str, *, lead: str, body: str, figures: Mapping[str, Any]) -> str:
    """Return a page that holds all it needs, and whose policy allows no script but its own.

    Parameters
    ----------
    title, lead, body : HTML, escaped by the caller; the body has the `place` of each figure.
    figures : plotly's JSON by name, after `place` took the titles out.
    """
    (plotly, plotly_hash), drawing = _plotly(), _template("page.js")
    colors = {f"{theme}_{part}": color for theme, values in PAPER.items()
              for part, color in zip(("paper", "ink", "line"), values, strict=True)}
    return Template(_template("page.html")).substitute(
        hashes=f"'sha256-{plotly_hash}' 'sha256-{_hash(drawing)}'",
        title=title,
        style=Template(_template("page.css")).substitute(colors),
        lead=lead,
        body=body,
        figures=_data(figures),
        plotly=plotly,
        drawing=drawing,
    )


@functools.cache
def _plotly() -> tuple[str, str]:
    """Return plotly's script as base 64 of gzip, 2.0 MB for 4.8, which page.js unpacks; and the script's hash."""
    script = get_plotlyjs()
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode(), _hash(script)


def _template(name: str) -> str:
    """Return a part of the page, as it is in reports/template."""
    return (data_dir("reports") / "template" / name).read_text(encoding="utf-8")


def _numbers_first(table: Table, names: Sequence[str]) -> str:
    """Return cards for one result, and a table for several."""
    if len(names) > 1:
        return _section(table.title, [table], names)
    return f'<h2>{table.title}</h2><div class="cards">{"".join(map(_card, table.rows))}</div>'


def _card(row: Line) -> str:
    value = _value(row.values[0], row.unit).replace("_", " ")  # so that it may wrap
    return f'<div class="card"><b>{value}</b><span>{escape(row.label)}</span></div>'


def _section(title: str, tables: Sequence[Table], names: Sequence[str]) -> str:
    if not tables:
        return ""
    if len(names) > 1:
        shown = _table([replace(table, title="") if table.title == title else table for table in tables], names)
    else:
        shown = f'<div class="columns">{"".join(_table([table], names) for table in tables)}</div>'
    return f"<h2>{escape(title)}</h2>{shown}"


def _table(tables: Sequence[Table], names: Sequence[str]) -> str:
    """Return tables below each other as one, so that the columns of several results line up."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    head = f"<thead><tr><td></td>{columns}</tr></thead>" if len(names) > 1 else ""
    groups = "".join(_group(table, len(names) + 1) for table in tables)
    return f'<div class="scroll"><table>{head}{groups}</table></div>'


def _group(table: Table, num_columns: int) -> str:
    cells = f'<th colspan="{num_columns}" scope="rowgroup">{escape(table.title)}</th>'
    title = f'<tr class="group">{cells}</tr>' if table.title else ""
    return f"<tbody>{title}{''.join(_row(row, table) for row in table.rows)}</tbody>"


def rows_under_names(listing: Listing) -> str:
    """Return a listing without its title: words to the left of their columns, numbers to the right."""
    kinds = ["words" if listing.is_words(place) else "" for place in range(len(listing.columns))]
    head = "".join(f'<th scope="col"{_classes(kind)}>{escape(clean(name))}</th>'
                   for name, kind in zip(listing.columns, kinds, strict=True))
    rows = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>" for row in listing.rows)
    table = f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _row(row: Line, table: Table) -> str:
    is_marked = table.marks and row.differs
    cells = [f"<td{_classes(_width(value))}>{_value(value, row.unit)}{_difference(row, place, table)}</td>"
             for place, value in enumerate(row.values)]
    label = f"{'≠ ' if is_marked else ''}{escape(row.label)}"
    return f'<tr{_classes("differs" if is_marked else "")}><th scope="row">{label}</th>{"".join(cells)}</tr>'


def _cell(value: Any, kind: str) -> str:
    return f"<td{_classes(_width(value), kind)}>{_value(value, '')}</td>"


def _classes(*names: str) -> str:
    found = " ".join(filter(None, names))
    return f' class="{found}"' if found else ""


def _width(value: Any) -> str:
    return "long" if isinstance(value, str) and len(value) > 30 else ""


def _difference(row: Line, place: int, table: Table) -> str:
    text = difference_text(row.values[place], row.values[0]) if table.compares and place > 0 else ""
    return f" <small>({text})</small>" if text else ""


def _value(value: Any, unit: str) -> str:
    """Return a value as shown; a number carries all its digits, to copy or to see on hover."""
    text = escape(value_text(value, unit))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text
    return f'<data value="{value!r}" title="{value!r}">{text}</data>'


def place(name: str, figure: dict[str, Any]) -> str:
    """Return a figure's place with its title as text, which wraps on a narrow screen, and take the title out."""
    layout = figure["layout"]
    title = layout.pop("title")
    del layout["template"]
    layout["margin"] = {"l": 10, "r": 10, "t": 30, "b": 10}
    layout["height"] -= 55
    return (f'<figure><figcaption><h3>{title["text"]}</h3><p class="note">{title["subtitle"]["text"]}</p></figcaption>'
            f'<div id="{name}" role="img" aria-label="{title["text"]}"></div>'
            f"<noscript>The figure needs JavaScript; the numbers are in the tables.</noscript></figure>")


def _data(figures: Mapping[str, Any]) -> str:
    """Return the figures as JSON that cannot end its script element."""
    templates = {"light": template("light").to_plotly_json(), "dark": template("dark").to_plotly_json()}
    text = json.dumps({"figures": figures, "templates": templates}, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    """Return the hash by which the page's policy allows this script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
