"""Dockerfiles: the entry point and command of the last stage, with its base image, arguments and variables."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.launch.beginnings import split_words, stated
from planner.launch.described import Described
from planner.launch.manifests.containers import Around, engines_of
from planner.launch.variables import put_in

BEGINNING = re.compile(r"(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\r?\n)*[ \t]*FROM[ \t]+\S")
INSTRUCTION = re.compile(r"\s*(FROM|ARG|ENV|RUN|CMD|ENTRYPOINT)\s+(.*)", re.IGNORECASE | re.DOTALL)
PLACE = "the Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of a Dockerfile, as a container of its image.

    Parameters
    ----------
    image : that it begins with.
    variables : of its environment.
    entrypoint, command : words; None if it sets none.
    texts : of the commands that build it.
    """

    image: str
    variables: Mapping[str, str] = field(default_factory=dict)
    entrypoint: list[str] | None = None
    command: list[str] | None = None
    texts: tuple[str, ...] = ()


def is_dockerfile(text: str) -> bool:
    """Tell whether a text is a Dockerfile: it begins with FROM, after arguments and comments.

    >>> is_dockerfile("# ours\\nARG TAG=v0.11.0\\nFROM vllm/vllm-openai:${TAG}\\n"), is_dockerfile("vllm serve m/m")
    (True, False)
    """
    return BEGINNING.match(text) is not None


def of_dockerfile(text: str, folder: Path | None, command: Sequence[str] = (),
                  variables: Mapping[str, str] | None = None) -> Iterator[Described]:
    """Yield the engines that a container of a Dockerfile's last stage launches.

    Parameters
    ----------
    folder : with the scripts that it copies; None reads none.
    command : in place of the Dockerfile's own.
    variables : replace the Dockerfile's variables of the same name.
    """
    stage = _last_stage(text)
    if stage is None:
        return
    stage = replace(stage, variables={**stage.variables, **(variables or {})},
                    command=list(command) if command else stage.command)
    words = [*(stage.entrypoint or ()), *(stage.command or ())]
    container = {"image": stage.image, "env": dict(stage.variables)}
    has_entrypoint = stage.entrypoint is not None or _is_shell(stage.command)
    options = stated(stage.texts)
    yield from (replace(each, options={**options, **each.options}) for each in engines_of(
        container, Around(place=PLACE), command=words, has_entrypoint=has_entrypoint, folder=folder))


def _is_shell(command: list[str] | None) -> bool:
    """Tell whether a command is a text that a shell runs, which an image's own entry point takes as arguments."""
    return command is not None and command[:1] == ["/bin/sh"]


def _last_stage(text: str) -> Stage | None:
    """Return the last stage of a Dockerfile; one that begins with another has its settings."""
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    stage: Stage | None = None
    for name, rest in _instructions(text):
        values = arguments | dict(stage.variables if stage is not None else {})
        if name == "FROM":
            words = [put_in(word, values, "dockerfile") for word in rest.split() if not word.startswith("--")]
            stage = stages.get(words[0].lower(), Stage(image=words[0]))
            label = words[2].lower() if len(words) > 2 else str(len(stages))
        elif name == "ARG":
            for word in split_words(rest):
                key, _, value = word.partition("=")
                arguments.setdefault(key, put_in(value, values, "dockerfile"))
            continue
        elif stage is not None:
            stage = _with(stage, name, rest, values)
        if stage is not None:
            stages[label] = stage
    return stage


def _with(stage: Stage, name: str, rest: str, values: Mapping[str, str]) -> Stage:
    """Return a stage with an instruction; an entry point takes the command of the base image away."""
    if name == "ENV":
        return replace(stage, variables={**stage.variables, **_variables(rest, values)})
    if name == "RUN":
        return replace(stage, texts=(*stage.texts, put_in(rest, values, "dockerfile")))
    if name == "CMD":
        return replace(stage, command=_words(rest))
    return replace(stage, entrypoint=_words(rest), command=None)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile that say how its container starts, each with its text."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = ""
    for line in lines:
        whole += line.rstrip().removesuffix("\\") + (" " if line.rstrip().endswith("\\") else "")
        if not line.rstrip().endswith("\\"):
            if match := INSTRUCTION.fullmatch(whole):
                yield match[1].upper(), match[2].strip()
            whole = ""


def _words(rest: str) -> list[str]:
    """Return the words of a command: a list in JSON, or a text that a shell runs."""
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            words = None
        if isinstance(words, list):
            return [str(word) for word in words]
    return ["/bin/sh", "-c", rest]


def _variables(rest: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an ENV: NAME=value …, or NAME and one value."""
    words = split_words(rest)
    if words and "=" not in words[0]:
        return {words[0]: put_in(rest.partition(words[0])[2].strip(), values, "dockerfile")}
    pairs = (word.partition("=") for word in words)
    return {name: put_in(value, values, "dockerfile") for name, _, value in pairs}
