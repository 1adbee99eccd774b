"""Files of lines that start a program: Dockerfiles, and units of systemd, of Podman and of supervisord."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.launch.beginnings import split_words, stated
from planner.launch.described import Described
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import count_of, lacks_variables
from planner.launch.variables import put_in, read_variables, variables_used

BEGINNING = re.compile(r"(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\r?\n)*[ \t]*FROM[ \t]+\S")
INSTRUCTION = re.compile(r"\s*(FROM|ARG|ENV|RUN|CMD|ENTRYPOINT)\s+(.*)", re.IGNORECASE | re.DOTALL)
Stage = dict[str, Any]  # image, env, the texts of RUN; entrypoint and command, if it sets them
SECTION = re.compile(r"^\[(Service|Container|program:[^\]]+)\]\s*$", re.MULTILINE)
COMMANDS = {"Service": "ExecStart", "Container": "Exec", "program": "command"}
ENV_FILES = {"Service": "unit", "Container": "docker", "program": "docker"}  # Podman passes them on as --env-file
PREFIXES = "-@:+!|"  # of an ExecStart
PAIR = re.compile(r"""([A-Za-z_]\w*)=("(?:\\.|[^"])*"|'[^']*'|[^,]*)""")  # of supervisord's environment


def is_dockerfile(text: str) -> bool:
    """Tell whether a text is a Dockerfile: it begins with FROM, after arguments and comments.

    >>> is_dockerfile("# ours\\nARG TAG=v0.11.0\\nFROM vllm/vllm-openai:${TAG}\\n"), is_dockerfile("vllm serve m/m")
    (True, False)
    """
    return BEGINNING.match(text) is not None


def of_dockerfile(text: str, folder: Path | None, around: Described | None = None,
                  container: Mapping[str, Any] | None = None) -> Iterator[Described]:
    """Yield the engines that a container of a Dockerfile's last stage launches.

    Parameters
    ----------
    folder : with the scripts that it copies; None reads none.
    around : the facts around the container; None if the Dockerfile stands alone.
    container : that runs the image: its command, variables and resources go over the Dockerfile's.
    """
    container = container or {}
    if (stage := _last_stage(text)) is None:
        return
    command = container.get("command") or stage.get("command") or []
    whole = {**container, "image": stage["image"], "env": {**stage["env"], **container.get("env", {})}}
    around = replace(around or Described(place="the Dockerfile"), options=stated(stage["texts"]))
    yield from engines_of(whole, around, command=[*stage.get("entrypoint", ()), *command], folder=folder,
                          # A text that a shell runs is no argument of the image's own entry point.
                          has_entrypoint="entrypoint" in stage or command[:1] == ["/bin/sh"])


def _last_stage(text: str) -> Stage | None:
    """Return the last stage of a Dockerfile; one that begins with another has its settings."""
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    stage: Stage | None = None
    for name, rest in _instructions(text):
        values = arguments | (stage["env"] if stage is not None else {})
        if name == "FROM":
            words = [put_in(word, values, "dockerfile") for word in rest.split() if not word.startswith("--")]
            stage = {**stages.get(words[0].lower(), {"image": words[0], "env": {}, "texts": ()})}
            stages[words[2].lower() if len(words) > 2 else str(len(stages))] = stage
        elif name == "ARG":
            for word in split_words(rest):
                key, _, value = word.partition("=")
                arguments.setdefault(key, put_in(value, values, "dockerfile"))
        elif stage is not None:
            _add(stage, name, rest, values)
    return stage


def _add(stage: Stage, name: str, rest: str, values: Mapping[str, str]) -> None:
    """Add an instruction to a stage; an entry point takes the command of the base image away."""
    if name == "ENV":
        stage["env"] = {**stage["env"], **_variables(rest, values)}
    elif name == "RUN":
        stage["texts"] = (*stage["texts"], put_in(rest, values, "dockerfile"))
    elif name == "CMD":
        stage["command"] = _words(rest)
    else:
        stage["entrypoint"] = _words(rest)
        stage.pop("command", None)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile that say how its container starts, each with its text."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for whole in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if match := INSTRUCTION.fullmatch(whole):
            yield match[1].upper(), match[2].strip()


def _words(rest: str) -> list[str]:
    """Return the words of a command: a list in JSON, or a text that a shell runs."""
    try:
        words = json.loads(rest) if rest.startswith("[") else None
    except ValueError:
        words = None
    return [str(word) for word in words] if isinstance(words, list) else ["/bin/sh", "-c", rest]


def _variables(rest: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an ENV: NAME=value …, or NAME and one value."""
    words = split_words(rest)
    if words and "=" not in words[0]:
        return {words[0]: put_in(rest.partition(words[0])[2].strip(), values, "dockerfile")}
    pairs = (word.partition("=") for word in words)
    return {name: put_in(value, values, "dockerfile") for name, _, value in pairs}


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
        variables, missing = dict(_unit_variables(kind, keys)), list[str]()
        for name in (name.removeprefix("-") for name in keys.get("EnvironmentFile", [])):
            read = None if folder is None else read_variables(folder / name, ENV_FILES[kind])
            missing += [name] if read is None else []
            variables = variables | (read or {}) if kind == "Service" else (read or {}) | variables
        words = [put_in(word, variables, "unit") for word in split_words(command)]
        entry = [word for text in keys.get("Entrypoint", []) for word in split_words(text)]
        around = Described(place=f"section {title}", replicas=count_of(keys.get("numprocs", ["1"])[-1]),
                           variables=variables_used(command, variables, "unit"),
                           notes=lacks_variables(missing, "is not read"))
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


def _unit_variables(kind: str, keys: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a section: systemd's words NAME=value, supervisord's list of them."""
    for text in keys.get("Environment", []):
        for word in split_words(text):
            name, _, value = word.partition("=")
            yield name, value
    if kind == "program":
        for name, value in (PAIR.findall(",".join(keys.get("environment", [])))):
            yield name, value.strip("\"'")
