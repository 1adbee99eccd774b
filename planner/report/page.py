"""The report as one HTML page: figures that answer to the mouse, tables, and nothing loaded from anywhere."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from planner.figures import all_figures, template
from planner.figures.style import PAPER, clean, labels
from planner.report.content import (
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
from planner.report.findings import Listing, findings
from planner.report.source import SavedAnswer
from planner.saved import SavedResult

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src $hashes; \
style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header><h1>$title</h1>$lead</header>
<main>
$body
</main>
<script type="application/json" id="figures">$figures</script>
<script>$plotly</script>
<script>$drawing</script>
</body>
</html>
""")

STYLE = Template("""
:root { --paper: $light_paper; --ink: $light_ink; --line: $light_line; --soft: #59636e; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --paper: $dark_paper; --ink: $dark_ink; --line: $dark_line; --soft: #9198a1; --card: #151b23; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; } header p { margin: .25rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .6rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .75rem; }
.card b { display: block; font-size: 1.2rem; overflow-wrap: normal; } .card span, .note { color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 1.25rem; }
figure { margin: 0; min-width: 0; border: 1px solid var(--line); border-radius: 8px; padding: .75rem; }
figure:last-child:nth-child(odd) { grid-column: 1 / -1; }
.note { font-size: .85rem; margin: .1rem 0 .4rem; }
.scroll { overflow-x: auto; margin-bottom: 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; overflow-wrap: normal; }
.group th { font-weight: 600; padding-top: .9rem; } thead + tbody .group:first-child th { padding-top: .4rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem .25rem 0; vertical-align: top; }
th { text-align: left; font-weight: 400; } thead th { font-weight: 600; max-width: 16rem; }
thead th, td { text-align: right; } td { white-space: nowrap; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 12rem; max-width: 24rem; }
tbody th[scope="row"], thead td { position: sticky; left: 0; background: var(--paper); max-width: 45vw; }
.listing thead th { overflow-wrap: anywhere; min-width: 6rem; }
tbody th { overflow-wrap: anywhere; min-width: 8.5rem; }
td small { color: var(--soft); white-space: nowrap; } .differs th { font-weight: 600; }
details { border-top: 1px solid var(--line); } summary { cursor: pointer; padding: .5rem 0; font-weight: 600; }
.columns { columns: 2 480px; column-gap: 2.5rem; } .columns .scroll { break-inside: avoid; }
@media print { figure, .card { break-inside: avoid; } }
""")

DRAWING = """
const { figures, templates } = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");
const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                 modeBarButtonsToRemove: ["select2d", "lasso2d"] };
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    const layout = { ...figure.layout, template: dark.matches ? templates.dark : templates.light,
                     dragmode: touch.matches ? false : "zoom" };
    Plotly.react(document.getElementById(name), structuredClone(figure.data), structuredClone(layout), config);
  }
}
dark.addEventListener("change", draw);
draw();
"""


def to_html(results: Sequence[SavedResult]) -> str:
    """Return the report as one page that holds all it needs; text from traces and file names is escaped."""
    names = labels(results)
    figures = {name: json.loads(figure.to_json()) for name, figure in all_figures(results).items()}
    untitled = replace(full_summary(results), title="")
    parts = [
        _numbers_first(headline(results), names),
        f"<h2>Why</h2>{''.join(f'<p>{escape(text)}</p>' for text in reasons(results))}",
        _section("Compared with the first", comparison(results), names),
        f'<h2>Figures</h2><div class="figures">{"".join(place(*item) for item in figures.items())}</div>',
        _section("What was replayed", settings(results), names),
        f"<details><summary>Full summary</summary>{_table([untitled], names)}</details>",
    ]
    leads = [f"<p>{_lead(name, result, len(results))}</p>" for name, result in zip(names, results, strict=True)]
    return document(escape(report_title(results)), lead="".join(leads), body="\n".join(parts), figures=figures)


def answer_html(answer: SavedAnswer) -> str:
    """Return the report of an answer as one page that holds all it needs; text of the answer is escaped.

    Raises
    ------
    PlannerError : the answer is not as its command writes it.
    """
    found = findings(answer)
    figures = {name: json.loads(figure.to_json()) for name, figure in found.figures.items()}
    parts = [
        _numbers_first(found.headline, found.names),
        f"<h2>Why</h2>{''.join(f'<p>{escape(clean(text))}</p>' for text in found.words)}" if found.words else "",
        f'<h2>Figures</h2><div class="figures">{"".join(place(*item) for item in figures.items())}</div>',
        *(f"<h2>{escape(listing.title)}</h2>{_listing(listing)}" for listing in found.listings),
        *(_section(title, group, found.names) for title, group in found.tables.items()),
    ]
    return document(escape(clean(found.title)), lead=f"<p>{escape(clean(found.lead))}</p>",
                    body="\n".join(part for part in parts if part), figures=figures)


def document(title: str, *, lead: str, body: str, figures: Mapping[str, Any]) -> str:
    """Return a page that holds all it needs, and whose policy allows no script but its own.

    Parameters
    ----------
    title, lead, body : HTML, escaped by the caller; the body has the `place` of each figure.
    figures : plotly's JSON by name, after `place` took the titles out.
    """
    plotly = get_plotlyjs()
    return PAGE.substitute(
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in (plotly, DRAWING)),
        title=title,
        style=STYLE.substitute({f"{theme}_{part}": color for theme, colors in PAPER.items()
                                for part, color in zip(("paper", "ink", "line"), colors, strict=True)}),
        lead=lead,
        body=body,
        figures=_data(figures),
        plotly=plotly,
        drawing=DRAWING,
    )


def _lead(name: str, result: SavedResult, num_results: int) -> str:
    named = f"<b>{escape(name)}</b>: " if num_results > 1 else ""
    return named + escape(describe(result))


def _numbers_first(table: Table, names: Sequence[str]) -> str:
    """Return cards for one result, and a table for several."""
    if len(names) > 1:
        return _section(table.title, [table], names)
    return f'<h2>{table.title}</h2><div class="cards">{"".join(map(_card, table.rows))}</div>'


def _card(row: Row) -> str:
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


def _listing(listing: Listing) -> str:
    """Return rows under the names of their columns."""
    head = "".join(f'<th scope="col">{escape(clean(name))}</th>' for name in listing.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listing.rows)
    table = f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _row(row: Row, table: Table) -> str:
    is_marked = table.marks and row.differs
    cells = [f"<td{_width(value)}>{_value(value, row.unit)}{_difference(row, place, table)}</td>"
             for place, value in enumerate(row.values)]
    label = f"{'≠ ' if is_marked else ''}{escape(row.label)}"
    return f'<tr{" class=differs" if is_marked else ""}><th scope="row">{label}</th>{"".join(cells)}</tr>'


def _cell(value: Any) -> str:
    return f"<td{_width(value)}>{_value(value, '')}</td>"


def _width(value: Any) -> str:
    return ' class="long"' if isinstance(value, str) and len(value) > 30 else ""


def _difference(row: Row, place: int, table: Table) -> str:
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
    """Return what lets the page's policy allow this script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
