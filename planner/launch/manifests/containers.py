"""A container of a deployment file: its command with variables put in, its GPUs and its image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.engines import ENGINES
from planner.launch.beginnings import find_launch, launched, shell_script_of
from planner.launch.described import Described, NamedGpu
from planner.launch.manifests.bases import SCRIPTS, missing_sources
from planner.launch.manifests.document_values import environment_of, gpus_of, text_of, words_of
from planner.launch.manifests.node_labels import of_resources
from planner.launch.scripts.named_script import of_named_script
from planner.launch.scripts.shell_script import described, script_launches
from planner.launch.variables import put_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The surroundings of a container: its place in the file, replicas, role, nodes of a replica, and their GPUs."""

    place: str
    replicas: int = 1
    role: str = "both"
    nodes: int = 1
    gpu_names: tuple[NamedGpu, ...] = ()


def engines_of(container: Mapping[str, Any], around: Around, *, command: Sequence[str] | None = None,
               variables: Mapping[str, str] | None = None, has_entrypoint: bool | None = None,
               folder: Path | None = None) -> Iterator[Described]:
    """Yield the engines that a container launches, by its command or a script; none if it launches something else.

    Parameters
    ----------
    command : in place of the container's own command and arguments.
    variables : that its platform sets; its environment has others.
    has_entrypoint : whether the words begin with a program, and not with arguments of the image's own; None if the
        container's `command` does so.
    folder : of the file, with the scripts that a command names; None reads none.
    """
    environment = {**(variables or {}), **environment_of(container.get("env"))}
    image, resources = text_of(container.get("image")), container.get("resources")
    own = [*words_of(container.get("command")), *words_of(container.get("args"))]
    words = [put_in(word, environment, "kubernetes") for word in (own if command is None else command)]
    launches = list(_launches(words, image, environment, around.place,
                              bool(container.get("command")) if has_entrypoint is None else has_entrypoint))
    launches = launches or list(of_named_script(words, folder, environment, around.place, container.get(SCRIPTS)))
    gpus = gpus_of(resources)
    for launch in launches:
        own_around = _with_ranks(around, launch.words)
        if own_around is not None:
            known = ENGINES[launched(launch.words).engine].dialect.known_variables
            yield replace(launch, image=launch.image or image, replicas=own_around.replicas, role=around.role,
                          variables={name: value for name, value in launch.variables.items()
                                     if name in known or name not in (variables or {})},
                          notes=(*_notes(container), *launch.notes),
                          gpus=None if gpus is None else gpus * own_around.nodes,
                          gpu_names=of_resources(around.gpu_names, resources) or launch.gpu_names)


def _launches(words: Sequence[str], image: str | None, environment: Mapping[str, str], place: str, has_entrypoint: bool
              ) -> Iterator[Described]:
    """Yield the engines that the words of a container launch: a shell's script, a command, or the image's own."""
    if (script := shell_script_of(words)) is not None:
        yield from (described(launch, f"line {launch.line} of {place}", environment, keeps_others=True)
                    for launch in script_launches(script[0], environment, script[1]))
    elif find_launch(words) is not None:
        yield Described(words=words, place=place, variables=environment)
    elif image is not None and not has_entrypoint and find_launch([image, *words]) is not None:
        yield Described(words=[image, *words], place=place, variables=environment)


def _notes(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which variables of a container its file does not have."""
    missing = missing_sources(container)
    return (f"takes variables from {', '.join(missing)}, which the file does not have; variables that change the "
            f"engine are then missing",) if missing else ()


def _with_ranks(around: Around, words: Sequence[str]) -> Around | None:
    """Return the surroundings of a launch if pods are the ranks of one engine (`--nnodes`); None for a later rank."""
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
