"""Checks of a command's outputs before its work: each can be written, and replaces no input and no other output."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from planner.errors import OutputError, UsageError
from planner.files.writing import is_replaced, why_no_folder, why_unwritable
from planner.results.saved import FILES, saved_command


def check_outputs(outputs: Mapping[str, Path | None], source: str | Path | None = None,
                  folder: Path | None = None) -> None:
    """Refuse outputs that cannot be written, before anything is computed.

    Parameters
    ----------
    outputs : files, by option.
    source : the file that the command reads, which no output may replace.
    folder : folder of --save, which is created if it does not exist.

    Raises
    ------
    UsageError : the folder of a file is missing; an output is the source, or the file of another option.
    OutputError : a path cannot be written.
    """
    paths = {option: path for option, path in outputs.items() if path is not None and str(path) != "-"}
    for option, path in paths.items():
        if not os.path.exists(path.parent):
            raise UsageError(f"{option} {path}: cannot be written: the folder {path.parent} does not exist; create it "
                             f"first")
        if source is not None and _is_same(path, source):
            raise UsageError(f"{option} {path}: is the input of the command; give another name")
        if (reason := why_unwritable(path)) is not None:
            raise _unwritable(option, path, reason)
    if folder is not None and (reason := why_no_folder(folder)) is not None:
        raise _unwritable("--save", folder, reason)
    files = [(option, path) for option, path in paths.items() if is_replaced(path)]
    files += [("--save", folder / name) for name in FILES] if folder is not None else []
    for (first, path), (option, other) in itertools.combinations(files, 2):
        if path.resolve() == other.resolve():
            raise UsageError(f"{option} {other}: is the file of {first} too; give each its own")


def keep_other_result(folder: Path, command: str) -> None:
    """Refuse to replace the result of another command in a folder of --save.

    Parameters
    ----------
    command : the `planner replay` command of the new result.

    Raises
    ------
    UsageError : the folder has a result of another command, or other files.
    """
    if files := [name for name in FILES if (folder / name).exists()]:
        _keep_other("--save", folder, files[-1], saved_command(folder), command)


def keep_other_report(output: Path, command: str) -> None:
    """Refuse to replace the report of other inputs, or a file that is no report.

    Raises
    ------
    UsageError : the HTML file or the Markdown beside it belongs to another command, or is no report.
    """
    from planner.report.written import beside, report_command

    if files := [path.name for path in (output, beside(output)) if is_replaced(path) and path.exists()]:
        _keep_other("--output", output, files[0], report_command(output), command)


def _keep_other(option: str, path: Path, file: str, earlier: str | None, command: str) -> None:
    if earlier != command:
        whose = "of no known command" if earlier is None else f"of another command, {earlier}"
        raise UsageError(f"{option} {path}: {file} exists and is {whose}; give another path, or --overwrite")


def _unwritable(option: str, path: Path, reason: str) -> OutputError:
    return OutputError(f"{option} {path}: cannot be written: {reason}; give another path")


def _is_same(path: Path, source: str | Path) -> bool:
    """Tell whether two paths lead to one file; a source need not be a path."""
    try:
        return path.samefile(source)
    except (OSError, ValueError):
        return False
