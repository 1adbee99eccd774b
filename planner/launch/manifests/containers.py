"""A container of a deployment file: its command with variables put in, its GPUs and its image."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.engines import ENGINES
from planner.launch.beginnings import OF_A_SHELL, find_launch, launched
from planner.launch.described import Described, NamedGpu
from planner.launch.manifests.bases import missing_sources
from planner.launch.manifests.node_labels import of_resources
from planner.launch.scripts.shell_script import ScriptLaunch, script_launches
from planner.launch.variables import put_in

COUNTED = re.compile(r"^gpus?$|/(?:gpu(?:\.shared)?|gaudi|mig-.+)$")  # resources that are GPUs
SHELLS = ("sh", "bash", "ash", "dash", "zsh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What surrounds a container: its place in the file, replicas, role, nodes of a replica, and their GPUs."""

    place: str
    replicas: int = 1
    role: str = "both"
    nodes: int = 1
    gpu_names: tuple[NamedGpu, ...] = ()


def engines_of(container: Mapping[str, Any], around: Around, *, command: Sequence[str] | None = None,
               variables: Mapping[str, str] | None = None, has_entrypoint: bool | None = None) -> Iterator[Described]:
    """Yield the engines that a container launches; none where it launches something else.

    Parameters
    ----------
    command : in place of the container's own command and arguments.
    variables : that its platform sets, besides those of its environment.
    has_entrypoint : whether the words begin with a program, and not with arguments of the image's own; None if the
        container's `command` does so.
    """
    environment = {**(variables or {}), **environment_of(container.get("env"))}
    image = text_of(container.get("image"))
    own = [*words_of(container.get("command")), *words_of(container.get("args"))]
    words = [put_in(word, environment, "kubernetes") for word in (own if command is None else command)]
    launches: list[ScriptLaunch] = []
    if (script := shell_script_of(words)) is not None:
        launches = list(script_launches(script[0], environment, script[1]))
    elif find_launch(words) is not None:
        launches = [ScriptLaunch(0, tuple(words), {})]
    elif image is not None and not (bool(container.get("command")) if has_entrypoint is None else has_entrypoint) and (
            find_launch([image, *words]) is not None):
        launches = [ScriptLaunch(0, (image, *words), {})]
    gpus = gpus_of(container.get("resources"))
    for launch in launches:
        own_around = _with_ranks(around, launch.words)
        if own_around is not None:
            known = ENGINES[launched(launch.words).engine].dialect.known_variables
            place = around.place if script is None else f"line {launch.line} of {around.place}"
            yield Described(words=launch.words, place=place, files=launch.files, image=image,
                            variables={name: value for name, value in {**environment, **launch.variables}.items()
                                       if name in known or name not in (launch.used | {*(variables or {})})},
                            replicas=own_around.replicas, role=around.role, notes=(*_notes(container), *launch.notes),
                            gpus=None if gpus is None else gpus * own_around.nodes,
                            gpu_names=of_resources(around.gpu_names, container.get("resources")))


def _notes(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which variables of a container its file does not have."""
    missing = missing_sources(container)
    return (f"takes variables from {', '.join(missing)}, which the file does not have; variables that change the "
            f"engine are then missing",) if missing else ()


def _with_ranks(around: Around, words: Sequence[str]) -> Around | None:
    """Return what surrounds a launch if pods are the ranks of one engine (`--nnodes`); None for a later rank alone."""
    counts = [_number_after(name, words) for name in ("--nnodes", "--node-rank")]
    nodes, rank = counts[0] or 1, counts[1] or 0
    if nodes > 1 and rank > 0:
        return None
    if around.nodes > 1 or around.replicas % nodes:
        return around
    return replace(around, nodes=nodes, replicas=around.replicas // nodes)


def _number_after(name: str, words: Sequence[str]) -> int | None:
    """Return the whole number that a flag has; None if it has none, or a variable."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        flag, _, value = word.partition("=")
        text = value if flag == name and value else after if word == name else ""
        if text.isdigit():
            return int(text)
    return None


def scaling(least: Any, most: Any, predicted: int) -> tuple[str, ...]:
    """Say that replicas come and go; 0 at most is no upper bound, and None is as many as at least."""
    if most is None or str(most) == str(least):
        return ()
    bounds = f"{least} replicas, without an upper bound" if str(most) == "0" else f"{least} to {most} replicas"
    return (f"scales from {bounds}; {predicted} are predicted, and --autoscale replays a scaler",)


def title(document: Mapping[str, Any]) -> str:
    """Return the kind and the name of a document."""
    return f"{document['kind']} {(document.get('metadata') or {}).get('name', '')}".strip()


def environment_of(entries: Any) -> dict[str, str]:
    """Return variables with their values, of a list of names and values, of texts NAME=value, or of a mapping."""
    if isinstance(entries, Mapping):
        return {str(name): str(value) for name, value in entries.items() if value is not None}
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("value") is not None:
            found[str(entry.get("name"))] = str(entry["value"])
        elif isinstance(entry, str) and "=" in entry:
            name, _, value = entry.partition("=")
            found[name] = value
    return found


def gpus_of(resources: Any) -> int | None:
    """Return the GPUs that a container requests, None if it does not say."""
    for kind in ("limits", "requests"):
        part = resources.get(kind) if isinstance(resources, Mapping) else None
        for name, count in part.items() if isinstance(part, Mapping) else ():
            if COUNTED.search(str(name)) and str(count).isdigit():
                return int(count)
    return None


def words_of(value: Any) -> list[str]:
    """Return a list of words as texts; of another value none."""
    return [str(word) for word in value] if isinstance(value, list) else []


def text_of(value: Any) -> str | None:
    """Return a value as text; None is none."""
    return None if value is None else str(value)


def count_of(value: Any, otherwise: int = 1) -> int:
    """Return a count, as files write it; what is none is `otherwise`."""
    return int(value) if str(value).isdigit() else otherwise


def flags_of(options: Mapping[str, Any]) -> list[str]:
    """Return options by name as the words of a command line: texts, switches, and tables as JSON."""
    words = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        elif isinstance(value, dict | list):
            words.append(f"{flag}={json.dumps(value)}")
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


def shell_script_of(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the script that a shell runs, and its arguments behind its name; None if the words are no shell's."""
    if not words or words[0].rpartition("/")[2] not in SHELLS:
        return None
    place = next((number for number, word in enumerate(words) if number and OF_A_SHELL.fullmatch(word)), None)
    rest = [] if place is None else words[place + 1:]
    rest = rest[1:] if rest[:1] == ["--"] else rest  # the end of the shell's options
    return (rest[0], rest[2:]) if rest else None
