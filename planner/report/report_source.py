"""The source of a report: saved replays, or the answer of another command, told apart by the file's keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import PlannerError, UsageError
from planner.files.nested import parse_json
from planner.planning.sweeping import describe_file
from planner.results.saved import SavedResult, load_result

KINDS = {  # kind, and the keys that tell it
    "comparison": ("completed", "deployment", "policy", "workload"),
    "capacity": ("capacity_rps", "probes", "bracket"),
    "fleet": ("alternatives", "fewest_gpus", "num_replicas"),
    "sweep": ("axes", "pareto", "front"),
    "check": ("checks", "met", "targets"),
}
WRITERS = ("a folder of planner replay --save or compare --save, the --json of replay, compare, capacity, size, sweep "
           "or check, or a sweep's .parquet")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedAnswer:
    """What a command wrote with `--json`.

    Parameters
    ----------
    kind : of `KINDS`.
    name : of the file.
    values : the JSON; of a comparison the summaries under "summaries".
    table : all configurations of a sweep; None where they are not there, and for other kinds.
    """

    kind: str
    name: str
    values: dict[str, Any]
    table: pl.DataFrame | None = None


def load_sources(paths: Sequence[Path]) -> list[SavedResult] | SavedAnswer:
    """Read what a report is to be of: any number of saved replays, or one answer.

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
    """Read what a command wrote with `--json`, or a sweep's Parquet file.

    Raises
    ------
    PlannerError : the file cannot be read, or is nothing that a report can be of.
    """
    if path.suffix == ".parquet":
        values, table = describe_file(path)
        return SavedAnswer(kind="sweep", name=path.name, values=values, table=table)
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
    kinds = [_kind(row) for row in rows]
    if rows and set(kinds) == {"comparison"}:
        return SavedAnswer(kind="comparison", name=name, values={"summaries": rows})
    if len(rows) != 1 or kinds[0] is None or isinstance(found, list):
        raise PlannerError(f"{name}: no report can be made of this file; give {WRITERS}")
    return SavedAnswer(kind=kinds[0], name=name, values=found, table=_table_beside(found, kinds[0], folder))


def _kind(found: Any) -> str | None:
    if not isinstance(found, dict):
        return None
    return next((kind for kind, keys in KINDS.items() if all(key in found for key in keys)), None)


def _results_in(path: Path) -> list[Path]:
    """Return the folders of saved replays that a path stands for; the path itself where it is no folder of such."""
    if path.is_dir() and not (path / "summary.json").exists():
        inside = sorted(each.parent for each in path.glob("*/summary.json"))
        return inside or [path]
    return [path]


def _table_beside(found: dict[str, Any], kind: str, folder: Path | None) -> pl.DataFrame | None:
    """Return all configurations of a sweep from the file that its JSON names, beside the JSON or where it was run."""
    if kind != "sweep" or folder is None:
        return None
    output = Path(str(found.get("output", "")))
    for path in (folder / output.name, output):
        if path.suffix == ".parquet" and path.is_file():
            return describe_file(path)[1]
    return None
