"""A trace's description as one HTML page: its figures, and all that the command line says of it."""

import json
from html import escape
from pathlib import Path

from planner.errors import UsageError
from planner.files.writing import write_text
from planner.report.figures.trace_figures import workload_figures
from planner.report.page import document, place
from planner.report.trace_tables import description_table
from planner.traces import Trace
from planner.traces.shaping.description_answer import Description


def write_description(trace: Trace, description: Description, path: Path) -> None:
    """Write the page of a trace.

    Raises
    ------
    UsageError : the ending of `path` is not .html.
    OutputError : the file cannot be written.
    """
    check_page_path(path)
    write_text(path, description_page(trace, description))


def check_page_path(path: Path) -> None:
    """Raise UsageError if the page of a trace cannot be written by that name."""
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"cannot write {path}: the ending must be .html")


def description_page(trace: Trace, description: Description) -> str:
    """Return the page of a trace; text from it is escaped."""
    figures = {name: json.loads(figure.to_json()) for name, figure in workload_figures(trace, description).items()}
    odd = "".join(f"<li><b>{escape(each['kind'])}</b>: {escape(each['text'])}</li>"
                  for each in description.anomalies)
    body = [f"<h2>Anomalies</h2><ul>{odd}</ul>" if odd else "",
            f'<div class="figures">{"".join(place(*item) for item in figures.items())}</div>',
            f'<h2>In numbers</h2><div class="scroll"><pre>{escape(str(description_table(description)))}</pre></div>']
    title = f"Workload: {trace.source}"
    return document(escape(title), lead=f"<p>{escape(str(trace.account))}</p>", body="\n".join(body), figures=figures)
