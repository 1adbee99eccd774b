"""Files of settings that a launch names: their texts, and their order with the flags of the command line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.releases import is_before
from planner.errors import UsageError
from planner.launch.beginnings import Beginning
from planner.launch.described import Described
from planner.launch.flag_names import flags_in, normal
from planner.launch.variables import read_variables

VOLUME = re.compile(r"(?:^|\s)(?:-v|--volume)[ =](?:(?:\$\{?PWD\}?|\$\(pwd\))/)?([^\s:]+):(/[^\s:]*)")  # of docker run
NEVER = "0"  # a release that none is before
ENV_FILE = re.compile(r"(?:^|\s)--env-file[ =](\S+)")  # of docker run
REMEDY = "give the path of the file here, or put its settings as flags"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Settings of one place: the command line, or a file.

    Parameters
    ----------
    place : its name in messages, with a preposition.
    settings : flags with their values, None for a switch.
    """

    place: str
    settings: Sequence[tuple[str, Any]]


def layers(beginning: Beginning, source: Described, folder: Path | None, reads_files: bool, release: str | None
           ) -> list[Layer]:
    """Return the settings of a command and of its files; a later layer goes over an earlier one.

    Parameters
    ----------
    folder : of the launch's own file, from which its paths may count; None if it is no file.
    release : of the engine, on which the order may depend; None is the newest.

    Raises
    ------
    UsageError : a file cannot be read, or has no keys.
    """
    dialect = ENGINES[beginning.engine].dialect
    given = list(flags_in(beginning.engine, beginning.arguments))
    line = Layer(place="on the command line", settings=[pair for pair in given if normal(pair[0]) not in dialect.files])
    below, above = list[Layer](), list[Layer]()
    for flag, value in given:
        if normal(flag) in dialect.files:
            until = dialect.files_first.get(normal(flag), NEVER)
            is_first = until is None or is_before(release, until, counts_candidates=True)
            settings = list(_from_file(flag, str(value), _paths(str(value), beginning, source, folder),
                                       source.files.get(str(value)), reads_files))
            (above if is_first else below).append(Layer(place=f"in {flag} {value}", settings=settings))
    return [*below, line, *above]


def contradictions(places: Sequence[str], values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note for each option to which a later layer gives another value than an earlier one.

    Parameters
    ----------
    places : of the layers.
    values : options by name, before the first layer and after each.
    """
    notes, last = [], dict[str, str]()
    for place, before, after in zip(places, values, values[1:], strict=False):
        for name, value in after.items():
            if before.get(name) != value:
                if name in last:
                    notes.append(f"{name} is {before[name]} {last[name]}, and {value} {place}; {value} holds")
                last[name] = place
    return notes


def variables_of_files(beginning: Beginning, folder: Path | None, reads_files: bool
                       ) -> tuple[dict[str, str], list[str]]:
    """Return the variables of files that `docker run --env-file` names, and the files that are not read."""
    whole, missing = dict[str, str](), list[str]()
    for name in ENV_FILE.findall(" ".join(beginning.before)):
        paths = [Path(name), (folder or Path()) / name] if reads_files else []
        read = next((found for path in paths if (found := read_variables(path, "docker")) is not None), None)
        whole |= read or {}
        missing += [name] if read is None else []
    return whole, missing


def _paths(name: str, beginning: Beginning, source: Described, folder: Path | None) -> Iterator[Path]:
    """Yield the paths at which a file of a command may be: its mounts, the path itself, and both from the folder."""
    mounts = {**source.mounts, **{target: Path(host) for host, target in VOLUME.findall(" ".join(beginning.before))}}
    hosts = [host / PurePosixPath(name).relative_to(target) for target, host in mounts.items()
             if PurePosixPath(name).is_relative_to(target)]
    for path in (*hosts, Path(name)):
        yield path
        yield (folder or Path()) / path


def _from_file(flag: str, name: str, paths: Iterator[Path], text: str | None, reads_files: bool
               ) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a YAML file, as flags.

    Parameters
    ----------
    text : of the file, if the launch has it itself.
    """
    if text is None and not reads_files:
        raise UsageError(f"--from-command: {flag} {name}: no file is read here; give its settings as flags")
    try:
        if text is None:
            text = next((path for path in paths if path.is_file()), Path(name)).read_text(encoding="utf-8")
        found = yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{flag} {name}: cannot be read: {error}; {REMEDY}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{flag} {name}: has no keys; {REMEDY}")
    yield from ((f"--{key}", value) for key, value in found.items())
