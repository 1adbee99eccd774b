"""A report as files: the HTML page, and the Markdown beside it."""

import re
from html import escape, unescape
from pathlib import Path

from planner.errors import PlannerError, UsageError
from planner.files.writing import write_text
from planner.report.markdown import to_markdown
from planner.report.page import to_html
from planner.report.report_source import SavedAnswer, Source
from planner.results.saved import SavedResult
from planner.steptime.by_term import TERMS

REQUEST_COLUMNS = ("arrival_s", "finished_at_s", "first_scheduled_at_s", "replica", "status", "ttft_s", "tpot_s",
                   "e2e_s", "frontend_s", "queue_s", "prefill_s", "decode_s", "interference_s", "transfer_s",
                   "preempted_s", "recompute_s")
STEP_COLUMNS = ("start_s", "duration_s", "num_prompt_tokens", "num_decodes", "num_sampled", "num_running",
                "num_waiting", "num_used_blocks", "stopped_by", "compute_s", "memory_s", "replica", *TERMS)


HEAD_CHARS = 100_000  # of a page, in which the command of a report is
COMMAND = re.compile(r'<meta name="planner-command" content="([^"]*)">')


def write_report(source: Source, output: Path, command: str | None = None) -> list[Path]:
    """Write the report of one replay, of several side by side, or of an answer, and return the files written.

    Parameters
    ----------
    source : as `load_sources` returns it; of replays at least one, and differences are to the first.
    output : the HTML file; the Markdown goes beside it, with the ending .md.
    command : the page keeps it for `report_command`; None for none.

    Raises
    ------
    UsageError : there is no result, or the ending of `output` is not .html.
    PlannerError : a result lacks a column that the figures need; the answer is not as its command writes it.
    OutputError : a file cannot be written.
    """
    check_report_path(output)
    if not isinstance(source, SavedAnswer):
        if not source:
            raise UsageError("a report needs at least one result; write one with planner replay --save")
        for result in source:
            _check_columns(result)
    page, text = to_html(source), to_markdown(source)
    if command is not None:
        page = page.replace("</title>", f'</title>\n<meta name="planner-command" content="{escape(command)}">', 1)
    write_text(output, page)
    write_text(beside(output), text)
    return [output, beside(output)]


def beside(output: Path) -> Path:
    """Return the path of the Markdown that is written beside a report's HTML."""
    return output.with_suffix(".md")


def report_command(output: Path) -> str | None:
    """Return the command that a report's HTML file names; None if it names none."""
    try:
        with output.open(encoding="utf-8") as file:
            head = COMMAND.search(file.read(HEAD_CHARS))
    except (OSError, ValueError):
        return None
    return None if head is None else unescape(head[1])


def check_report_path(output: Path) -> None:
    """Raise UsageError if a report cannot be written by that name."""
    if output.suffix not in (".html", ".htm"):
        raise UsageError(f"cannot write {output}: the ending must be .html; the Markdown is written beside it")


def _check_columns(result: SavedResult) -> None:
    for table, known, needed in (("requests", result.requests.columns, REQUEST_COLUMNS),
                                 ("steps", result.steps.columns, STEP_COLUMNS)):
        missing = [name for name in needed if name not in known]
        if missing:
            raise PlannerError(f"result {result.name!r}: its {table} lack {', '.join(missing)}; "
                               f"write it again with planner replay --save")
