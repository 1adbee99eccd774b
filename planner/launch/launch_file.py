"""A launch that stands in a file: a script, a Makefile, a notebook, a deployment file, or a server's log."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import UsageError
from planner.launch.beginnings import split_words
from planner.launch.chosen_engine import TEXT, chosen
from planner.launch.described import Described
from planner.launch.logged_arguments import Logged, read_log
from planner.launch.manifests.command_files import is_dockerfile, is_unit_file, of_dockerfile, of_unit_file
from planner.launch.manifests.manifest_kinds import manifest_engines, read_manifest
from planner.launch.scripts.python_script import python_launches
from planner.launch.scripts.shell_script import applied_manifests, script_launches
from planner.launch.take_flags import REMEDY
from planner.traces.source import text_lines

# A file with variables and a shell before it, and the number of an engine behind it: NVLINK=1 bash start.sh#2.
NAMED = re.compile(r"((?:[A-Za-z_]\w*=\S*\s+)*)(?:(?:\S*/)?(?:ba|da|z)?sh\s+)?(.+?)(?:#(\d+))?", re.DOTALL)
SUFFIXES = (".yaml", ".yml", ".json", ".sh", ".log", ".txt")  # of files that launch an engine
ASSIGNED = re.compile(r"(?:export\s+)?(\w+)\s*(\?=|::?=|=)\s*(.*)")
USED = re.compile(r"\$[({](\w+)[)}]")
MAGICS = ("%%bash", "%%sh", "%%script")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a launch command names: `NVLINK=1 start.sh#2` is its second engine, with a variable that is set.

    Parameters
    ----------
    path : of the file.
    number : of the engine, among the file's engines that differ; None if none is asked for [1].
    variables : of the script's environment.
    """

    path: Path
    number: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def file_of(command: str) -> NamedFile | None:
    """Return the file that a launch command names; None if it names no file."""
    files: list[tuple[str, str | None, str]] = [(command, None, "")]
    if match := NAMED.fullmatch(command.strip()):
        files.append((match[2], match[3], match[1]))
    for text, number, assigned in files:
        try:
            if not ((path := Path(text)).is_file() or path.is_fifo()):
                continue
        except (OSError, ValueError):  # too long for a path, or no path at all
            return None
        pairs = (word.partition("=") for word in assigned.split())
        return NamedFile(path, None if number is None else int(number), {
            name: value.strip("\"'") for name, _, value in pairs})
    return None


def check_no_path(command: str) -> None:
    """Raise UsageError if a text is a folder, a file that does not exist, or several files."""
    words = re.split(r"[\s,]+", command.strip())
    try:
        if len(words) > 1 and all(Path(word).is_file() for word in words):
            raise UsageError(f"--from-command {command.strip()}: names {len(words)} files, and one deployment is "
                             f"predicted; {REMEDY}")
        path = Path(command)
        if path.is_dir():
            files = sorted(each.name for each in path.iterdir() if each.is_file() and each.suffix in SUFFIXES)
            some = f", as {', '.join(files[:3])}" if files else ""
            raise UsageError(f"--from-command {command}: is a folder; give one of its files{some}")
    except (OSError, ValueError):  # too long for a path, or no path at all
        return
    if len(words) == 1 and (path.suffix in SUFFIXES or "/" in command):
        raise UsageError(f"--from-command {command}: there is no such file; give a file that launches an engine, or "
                         f"the command itself in quotes")


def read_text(command: str, role: str = "both", gpu: str | None = None) -> Described:
    """Read a launch out of a text: a command, or the lines of a script.

    Parameters
    ----------
    role, gpu : as of `read_file`.

    Raises
    ------
    UsageError : it is a script that launches several different engines.
    """
    is_script = any(mark in command.replace("\\\n", "").strip() for mark in ("\n", ";", "$((", " #"))
    launches = _of_text(command) if is_script else []
    if launches:
        return chosen(TEXT, launches, role, gpu)
    return Described(words=split_words(command), place="the command")


def read_file(file: NamedFile, role: str = "both", gpu: str | None = None) -> Logged | Described:
    """Read a launch out of a file: a server's arguments in its log, a deployment file, or the line of a script.

    Parameters
    ----------
    role : of the engine that is looked for, if a file has several.
    gpu : of the engine that is looked for, one or several separated by commas; None is any.

    Raises
    ------
    UsageError : it launches no engine, or several different ones; or variables are set for a file that is no script.
    """
    path, number = file.path, file.number
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        _refuse_variables(file)
        return chosen(str(path), read_manifest(path), role, gpu, number)
    lines: list[str] = []
    if (logged := read_log((line for _, line in text_lines(path)), lines)) is not None:
        _refuse_variables(file)
        return logged
    text = "\n".join([*(line.rstrip("\r\n") for line in lines), ""])
    if path.suffix == ".ipynb":
        text = _code_of(text)
    elif path.name.lower().startswith("makefile") or path.suffix == ".mk":
        text = _recipes_of(text)
    launches = _of_text(text, path.parent, str(path), file)
    if not launches:
        raise UsageError(f"--from-command {path}: launches no engine that is known; give a script with vllm serve, "
                         f"python -m sglang.launch_server or trtllm-serve in it, a deployment file (Kubernetes, "
                         f"compose, Helm values), or a server's log from its beginning")
    return chosen(str(path), launches, role, gpu, number)


def _refuse_variables(file: NamedFile) -> None:
    """Raise UsageError if variables are set for a file that is no script of a shell."""
    if file.variables:
        raise UsageError(f"--from-command: {' '.join(file.variables)} before {file.path}: only a script of a shell "
                         f"takes variables; set them in the file")


def _of_text(text: str, folder: Path | None = None, where: str = TEXT, file: NamedFile | None = None
             ) -> list[Described]:
    """Return the engines that a text launches: a Dockerfile, a unit of systemd, or a script of Python or a shell.

    Parameters
    ----------
    folder : of the file; None reads no file that the text names.
    where : the text is called so in messages.
    file : of the text; None if the text is pasted.
    """
    if manifests := list(applied_manifests(text)):
        found = [engine for each in manifests for engine in manifest_engines(each, folder or Path(), where)]
    elif is_dockerfile(text):
        found = list(of_dockerfile(text, folder))
    elif is_unit_file(text):
        found = list(of_unit_file(text, folder))
    else:
        found = python_launches(text, where)
    if found and file is not None:
        _refuse_variables(file)
    return found or [*script_launches(text, {} if file is None else file.variables)]


def _recipes_of(text: str) -> str:
    """Return the variables and recipes of a Makefile as a shell's script; a variable's first default holds.

    >>> _recipes_of("TP ?= 2\\nserve:\\n\\t@vllm serve m/m -tp $(TP) # $$HOME\\n").splitlines()
    ['TP=2', 'vllm serve m/m -tp ${TP} # $HOME']
    """
    lines, given = list[str](), set[str]()
    for line in text.splitlines():
        goes_on = bool(lines) and lines[-1].endswith("\\")
        if line.startswith("\t") or goes_on:
            command = USED.sub(r"${\1}", line).strip().replace("$$", "$")
            lines.append(command if goes_on else command.lstrip("@-+"))
        elif (match := ASSIGNED.fullmatch(line.strip())) and not (match[2] == "?=" and match[1] in given):
            given.add(match[1])
            lines.append(f"{match[1]}=" + USED.sub(r"${\1}", match[3]))
    return "\n".join(lines)


def _code_of(text: str) -> str:
    r"""Return the Python of a notebook; if its cells have lines of a shell that launch something, these.

    >>> _code_of('{"cells": [{"cell_type": "code", "source": ["%pip install vllm\\n", "import vllm"]}]}')
    'import vllm'
    """
    try:
        cells = json.loads(text).get("cells") or []
    except (ValueError, AttributeError, RecursionError):
        return ""
    sources = ["".join(cell.get("source") or ()) for cell in cells
               if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    shell = "\n".join(_shell(sources))
    python = "\n".join(line for source in sources if not source.startswith("%%") for line in source.splitlines()
                       if not line.lstrip().startswith(("!", "%")))
    return shell if "serve" in shell or "launch_server" in shell else python


def _shell(sources: list[str]) -> Iterator[str]:
    """Yield the lines of cells that a shell runs."""
    for source in sources:
        if source.startswith(MAGICS):
            yield source.partition("\n")[2]
            continue
        is_open = False
        for line in source.splitlines():
            if is_open or line.lstrip().startswith("!"):
                yield line.lstrip().removeprefix("!")
                is_open = line.rstrip().endswith("\\")
