"""The source of a report: saved replays, or the answer of another command, told apart by the file's keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from planner.errors import PlannerError, UsageError
from planner.files.keys import fromdict
from planner.files.nested import parse_json
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.sweep_answer import SweepAnswer
from planner.planning.sweeping import describe_file
from planner.results.saved import SavedResult, load_result
from planner.results.summary_answer import Summary

T = TypeVar("T")
KINDS: Mapping[str, tuple[type[Any], tuple[str, ...]]] = {  # name and type of an answer, and the keys that tell it
    "capacity": (CapacityAnswer, ("probes", "bracket")),
    "fleet": (SizeAnswer, ("alternatives", "fewest_gpus", "num_replicas")),
    "sweep": (SweepAnswer, ("axes", "pareto", "front")),
    "check": (CheckAnswer, ("checks", "met", "targets")),
}
SUMMARY_KEYS = ("completed", "deployment", "policy", "workload")  # tell a summary
WRITERS = ("a folder of planner replay --save or compare --save, the --json of replay, compare, capacity, size, sweep "
           "or check, or a sweep's .parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The summaries of replays side by side, without their requests and steps."""

    results: Sequence[SavedResult]


Answer = Comparison | CapacityAnswer | SizeAnswer | SweepAnswer | CheckAnswer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedAnswer:
    """An answer that a command wrote with `--json`.

    Parameters
    ----------
    name : of the file.
    answer : its contents.
    table : all configurations of a sweep; None if their file is missing, and for other kinds.
    """

    name: str
    answer: Answer
    table: pl.DataFrame | None = None

    @property
    def kind(self) -> str:
        """The name of the answer's kind, in `KINDS`, or "comparison"."""
        return next((kind for kind, (answer_type, _) in KINDS.items() if isinstance(self.answer, answer_type)),
                    "comparison")


Source = Sequence[SavedResult] | SavedAnswer  # saved replays, or one answer


def load_sources(paths: Sequence[Path]) -> list[SavedResult] | SavedAnswer:
    """Read the subject of a report: any number of saved replays, or one answer.

    A folder whose subfolders are saved replays, as `planner compare --save` writes it, stands for all of them.

    Raises
    ------
    UsageError : there is nothing, or an answer beside something else.
    PlannerError : a file cannot be read, or is nothing that a report can be of.
    """
    folders = [folder for path in paths for folder in _results_in(path)]
    if len(folders) >= len(paths) and all(folder.is_dir() for folder in folders):
        return [load_result(folder) for folder in folders]
    if len(paths) > 1:
        file = next(path for path in paths if not path.is_dir())
        raise UsageError(f"{file}: an answer needs a report of its own; only saved replays share one")
    return load_answer(paths[0])


def load_answer(path: Path) -> SavedAnswer:
    """Read an answer that a command wrote with `--json`, or a sweep's Parquet file.

    Raises
    ------
    PlannerError : the file cannot be read, or is nothing that a report can be of.
    """
    if path.suffix == ".parquet":
        answer, table = describe_file(path)
        return SavedAnswer(name=path.name, answer=answer, table=table)
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlannerError(f"cannot read {path}: {error}; give {WRITERS}") from error
    return answer_of(found, path.name, path.parent)


def answer_of(found: Any, name: str, folder: Path | None = None) -> SavedAnswer:
    """Return values as the answer that their keys say they are.

    Parameters
    ----------
    found : as read from JSON.
    name : of the answer.
    folder : in which a sweep's table is looked for; None not to look.

    Raises
    ------
    PlannerError : they are no answer that a report can be of.
    """
    rows = found if isinstance(found, list) else [found]
    if rows and all(_has(row, SUMMARY_KEYS) for row in rows):
        return SavedAnswer(name=name, answer=Comparison(results=[SavedResult(
            name=str(row.get("name", name)), summary=_parsed(Summary, row, name, "comparison")) for row in rows]))
    for kind, (answer_type, keys) in KINDS.items():
        if _has(found, keys):
            answer: Answer = _parsed(answer_type, found, name, kind)
            return SavedAnswer(name=name, answer=answer, table=_table_beside(answer, folder))
    raise PlannerError(f"{name}: no report can be made of this file; give {WRITERS}")


def _parsed(answer_type: type[T], values: Any, name: str, kind: str) -> T:
    try:
        return fromdict(answer_type, values)
    except ValueError as error:
        raise damaged(name, kind, str(error)) from error


def damaged(name: str, kind: str, reason: str) -> PlannerError:
    """Return the error that an answer is not as its command writes it."""
    return PlannerError(f"{name}: looks like the answer of a {kind}, but was changed or is damaged ({reason}); write "
                        f"it again")


def _has(found: Any, keys: Sequence[str]) -> bool:
    return isinstance(found, dict) and all(key in found for key in keys)


def _results_in(path: Path) -> list[Path]:
    """Return the folders of saved replays that a path stands for; the path itself if it is no folder of such."""
    if path.is_dir() and not (path / "summary.json").exists():
        inside = sorted(each.parent for each in path.glob("*/summary.json"))
        return inside or [path]
    return [path]


def _table_beside(answer: Answer, folder: Path | None) -> pl.DataFrame | None:
    """Return all configurations of a sweep from the file that its JSON names, beside the JSON or at its path."""
    if not isinstance(answer, SweepAnswer) or folder is None:
        return None
    output = Path(answer.output)
    for path in (folder / output.name, output):
        if path.suffix == ".parquet" and path.is_file():
            return describe_file(path)[1]
    return None
