"""Files of sections with a command: systemd's services, Podman's containers, and supervisord's programs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.launch.beginnings import split_words
from planner.launch.described import Described
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import count_of
from planner.launch.variables import put_in

SECTION = re.compile(r"^\[(Service|Container|program:[^\]]+)\]\s*$", re.MULTILINE)
COMMANDS = {"Service": "ExecStart", "Container": "Exec", "program": "command"}
PREFIXES = "-@:+!|"  # of an ExecStart
PAIR = re.compile(r"""([A-Za-z_]\w*)=("(?:\\.|[^"])*"|'[^']*'|[^,]*)""")  # of supervisord's environment


def is_unit_file(text: str) -> bool:
    """Tell whether a text has a section of systemd, Podman or supervisord with a command."""
    return SECTION.search(text) is not None


def of_unit_file(text: str, folder: Path | None) -> Iterator[Described]:
    """Yield the engines of a unit file; `folder` has the scripts that it may run."""
    for title, keys in _sections(text):
        kind = title.partition(":")[0]
        command = " ".join(keys.get(COMMANDS.get(kind, ""), [])[-1:])
        command = command.lstrip(PREFIXES) if kind == "Service" else command
        if kind not in COMMANDS or not (command or "Image" in keys):
            continue
        variables = dict(_variables(kind, keys))
        words = [put_in(word, variables, "unit") for word in split_words(command)]
        files = ", ".join(keys.get("EnvironmentFile", []))
        notes = (f"takes variables from {files}, which is not read; variables that change the engine are then missing",
                 ) if files else ()
        entry = [word for text in keys.get("Entrypoint", []) for word in split_words(text)]
        around = Described(place=f"section {title}", replicas=count_of(keys.get("numprocs", ["1"])[-1]), notes=notes)
        yield from engines_of({"image": keys.get("Image", [None])[-1], "env": variables}, around,
                              command=[*entry, *words], has_entrypoint=bool(entry), folder=folder)


def _sections(text: str) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield the sections of a file, each with its keys and all values of a key."""
    title, keys = "", dict[str, list[str]]()
    for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        if line.strip().startswith(("#", ";")):
            continue
        if opened := re.fullmatch(r"\s*\[(.+)\]\s*", line):
            yield title, keys
            title, keys = opened[1], {}
        elif "=" in line:
            name, _, value = line.partition("=")
            keys.setdefault(name.strip(), []).append(value.strip())
    yield title, keys


def _variables(kind: str, keys: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a section: systemd's words NAME=value, supervisord's list of them."""
    for text in keys.get("Environment", []):
        for word in split_words(text):
            name, _, value = word.partition("=")
            yield name, value
    if kind == "program":
        for name, value in (PAIR.findall(",".join(keys.get("environment", [])))):
            yield name, value.strip("\"'")
