"""A replay's result as a folder: summary.json, requests.parquet and steps.parquet."""

import json
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import OutputError, PlannerError
from planner.files.keys import asdict, fromdict
from planner.files.nested import parse_json
from planner.files.table_file import DAMAGE
from planner.files.writing import write_text
from planner.replays.result_tables import ReplayResult, write_table
from planner.results.summary_answer import Summary

SUMMARY = "summary.json"
FILES = ("requests.parquet", "steps.parquet", SUMMARY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedResult:
    """A result as it was saved, with the tables of `ReplayResult`."""

    name: str
    summary: Summary
    requests: pl.DataFrame = field(default_factory=pl.DataFrame)
    steps: pl.DataFrame = field(default_factory=pl.DataFrame)


def save_result(result: ReplayResult, summary: Summary, folder: Path) -> str | None:
    """Write a result's folder, the summary last, so that a folder with a summary is whole.

    Returns
    -------
    str or None
        A note if the result replaces that of another trace.

    Raises
    ------
    OutputError : the folder or a file in it cannot be written.
    """
    replaced = _summary(folder).get("trace_sha256", summary.trace_sha256)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SUMMARY).unlink(missing_ok=True)  # of an earlier result, whose tables are replaced now
    except OSError as error:
        raise OutputError(f"cannot create {folder}: {error.strerror or error}") from error
    write_table(result.requests_table(), folder / "requests.parquet")
    write_table(result.steps_table(), folder / "steps.parquet")
    write_text(folder / SUMMARY, to_json(summary))
    return None if replaced == summary.trace_sha256 else (
        f"--save {folder}: the replaced result was of a trace with other content")


def load_result(folder: Path) -> SavedResult:
    """Read a result's folder.

    Raises
    ------
    PlannerError : a file is missing or not as `save_result` writes it.
    """
    try:
        summary = fromdict(Summary, parse_json((folder / SUMMARY).read_text(encoding="utf-8")))
        requests = pl.read_parquet(folder / "requests.parquet")
        steps = pl.read_parquet(folder / "steps.parquet")
    except (ValueError, *DAMAGE) as error:
        raise PlannerError(f"cannot read the result {folder}: {error}; write one with planner replay --save") from error
    return SavedResult(name=folder.name, summary=summary, requests=requests, steps=steps)


def saved_command(folder: Path) -> str | None:
    """Return the `planner replay` command of a result's folder; None if its summary names none."""
    command = _summary(folder).get("replay_command")
    return command if isinstance(command, str) else None


def _summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a result's folder; an empty one if there is none that can be read."""
    try:
        summary = parse_json((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def to_json(value: Any) -> str:
    """Return JSON without NaN or infinity, which are no JSON; of a command's answer its keys."""
    return json.dumps(value, indent=2, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) else str(value)
