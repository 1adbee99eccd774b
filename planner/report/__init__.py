"""A report of saved results: one HTML file that works offline, and its tables as Markdown beside it."""

from collections.abc import Sequence
from pathlib import Path

from planner.errors import PlannerError, UsageError
from planner.files import write_text
from planner.report.markdown import to_markdown
from planner.report.page import to_html
from planner.saved import SavedResult
from planner.steptime import TERMS

__all__ = ["to_html", "to_markdown", "write_report"]

REQUEST_COLUMNS = ("arrival_s", "finished_at_s", "first_scheduled_at_s", "replica", "status", "ttft_s", "tpot_s",
                   "e2e_s", "frontend_s", "queue_s", "prefill_s", "decode_s", "interference_s", "transfer_s",
                   "preempted_s", "recompute_s")
STEP_COLUMNS = ("start_s", "duration_s", "num_prompt_tokens", "num_decodes", "num_sampled", "num_running",
                "num_waiting", "num_used_blocks", "stopped_by", "compute_s", "memory_s", "replica", *TERMS)


def write_report(results: Sequence[SavedResult], output: Path) -> list[Path]:
    """Write the report of one result, or of several side by side, and return the files written.

    Parameters
    ----------
    results : at least one; differences are to the first.
    output : the HTML file; the Markdown goes beside it, with the ending .md.

    Raises
    ------
    UsageError : there is no result, or the ending of `output` is not .html.
    PlannerError : a result lacks a column that the figures need.
    OutputError : a file cannot be written.
    """
    if not results:
        raise UsageError("a report needs at least one result; write one with planner replay --save")
    if output.suffix not in (".html", ".htm"):
        raise UsageError(f"cannot write {output}: the ending must be .html; the Markdown is written beside it")
    for result in results:
        _check_columns(result)
    page, text = to_html(results), to_markdown(results)
    beside = output.with_suffix(".md")
    write_text(output, page)
    write_text(beside, text)
    return [output, beside]


def _check_columns(result: SavedResult) -> None:
    for table, known, needed in (("requests", result.requests.columns, REQUEST_COLUMNS),
                                 ("steps", result.steps.columns, STEP_COLUMNS)):
        missing = [name for name in needed if name not in known]
        if missing:
            raise PlannerError(f"result {result.name!r}: its {table} lack {', '.join(missing)}; "
                               f"write it again with planner replay --save")
