"""A replay's result as a folder: summary.json, requests.parquet and steps.parquet."""

import json
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import OutputError, PlannerError
from planner.files.keys import asdict
from planner.files.nested import parse_json
from planner.files.table_file import DAMAGE
from planner.files.writing import write_text
from planner.replays.result_tables import ReplayResult, write_table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedResult:
    """A result as it was saved; the tables are those of `ReplayResult`."""

    name: str
    summary: dict[str, Any]
    requests: pl.DataFrame
    steps: pl.DataFrame

    @classmethod
    def of_summary(cls, name: str, summary: dict[str, Any]) -> "SavedResult":
        """Return a result without tables of requests and steps."""
        return cls(name=name, summary=summary, requests=pl.DataFrame(), steps=pl.DataFrame())


def save_result(result: ReplayResult, summary: dict[str, Any], folder: Path) -> None:
    """Write a result's folder, the summary last, so that a folder with a summary is whole.

    Raises
    ------
    OutputError : the folder or a file in it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create {folder}: {error.strerror or error}") from error
    write_table(result.requests_table(), folder / "requests.parquet")
    write_table(result.steps_table(), folder / "steps.parquet")
    write_text(folder / "summary.json", to_json(summary))


def load_result(folder: Path) -> SavedResult:
    """Read a result's folder.

    Raises
    ------
    PlannerError : a file is missing or is not what `save_result` writes.
    """
    try:
        summary = parse_json((folder / "summary.json").read_text(encoding="utf-8"))
        requests = pl.read_parquet(folder / "requests.parquet")
        steps = pl.read_parquet(folder / "steps.parquet")
    except (ValueError, *DAMAGE) as error:
        raise PlannerError(f"cannot read the result {folder}: {error}; write one with planner replay --save") from error
    return SavedResult(name=folder.name, summary=summary, requests=requests, steps=steps)


def to_json(value: Any) -> str:
    """Return JSON without NaN or infinity, which are no JSON; of a command's answer its keys."""
    return json.dumps(value, indent=2, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) else str(value)
