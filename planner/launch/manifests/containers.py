"""A container of a deployment file: its command with variables put in, its GPUs and its image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from planner.engines import ENGINES
from planner.launch.beginnings import find_launch, launched, shell_script_of
from planner.launch.described import Described
from planner.launch.manifests.bases import FILES, missing_sources
from planner.launch.manifests.document_values import (
    count_of,
    environment_of,
    gpus_of,
    lacks_variables,
    options_of,
    text_of,
    words_of,
)
from planner.launch.manifests.node_labels import of_resources
from planner.launch.scripts.python_script import python_launches
from planner.launch.scripts.shell_script import script_launches
from planner.launch.variables import put_in, variables_used

SUFFIXES = (".sh", ".bash", ".py")  # of scripts


def engines_of(container: Mapping[str, Any], around: Described, *, command: Sequence[str] | None = None,
               has_entrypoint: bool | None = None, folder: Path | None = None) -> Iterator[Described]:
    """Yield the engines that a container launches, by its command or a script; none if it launches something else.

    Parameters
    ----------
    around : the facts around the container; its variables are the platform's, and the container's own go over them.
    command : in place of the container's own command and arguments.
    has_entrypoint : whether the words begin with a program, and not with arguments of the image's own; None if the
        container's `command` does so.
    folder : of the file, with the scripts that a command names; None reads none.
    """
    environment = {**around.variables, **environment_of(container.get("env"))}
    image, gpus = text_of(container.get("image")), gpus_of(container.get("resources"))
    own = [*words_of(container.get("command")), *words_of(container.get("args"))]
    words = [put_in(word, environment, "kubernetes") for word in (own if command is None else command)]
    has_program = bool(container.get("command")) if has_entrypoint is None else has_entrypoint
    launches = list(_launches(words, None if has_program else image, environment, around.place)) or list(
        _of_scripts(words, folder, environment, around.place, container.get(FILES) or {}))
    # Others stand apart from the words.
    used = {*around.variables, *variables_used(" ".join(own), environment, "kubernetes")}
    notes = lacks_variables(missing_sources(container), "the file does not have")
    for launch in launches:
        if (pods := _pods(around, launch.words)) is None:
            continue
        nodes, replicas = pods
        known = ENGINES[launched(launch.words).engine].dialect.known_variables
        yield replace(launch, image=image, replicas=replicas, role=around.role, nodes=nodes, mounts=around.mounts,
                      files={**(container.get(FILES) or {}), **launch.files},
                      variables={name: value for name, value in launch.variables.items()
                                 if name in known or name not in used},
                      notes=(*notes, *launch.notes, *around.notes), gpus=None if gpus is None else gpus * nodes,
                      options={**around.options, **launch.options},
                      gpu_names=of_resources(around.gpu_names, container.get("resources")) or launch.gpu_names)


def _launches(words: Sequence[str], image: str | None, environment: Mapping[str, str], place: str
              ) -> Iterator[Described]:
    """Yield the engines that the words of a container launch: a shell's script, a command, or the image's own."""
    if (script := shell_script_of(words)) is not None:
        yield from script_launches(script[0], environment, script[1], where=f" of {place}", keeps_others=True)
    elif find_launch(words) is not None:
        yield Described(words=words, place=place, variables=environment)
    elif image is not None and find_launch([image, *words]) is not None:
        yield Described(words=[image, *words], place=place, variables=environment)


def _of_scripts(words: Sequence[str], folder: Path | None, environment: Mapping[str, str], place: str,
                texts: Mapping[str, str]) -> Iterator[Described]:
    """Yield the engines of the scripts that a command runs, which are beside its file, or in it (`texts`, by name)."""
    named = [word for text in words for word in text.split() if word.endswith(SUFFIXES)]
    for name in (PurePosixPath(word).name for word in named):
        text = texts.get(name)
        if text is None and folder is not None and (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        if text is not None and name.endswith(".py"):
            yield from python_launches(text, name)
        elif text is not None:
            yield from script_launches(text, environment, where=f" of {name}, which {place} runs,")


def _pods(around: Described, words: Sequence[str]) -> tuple[int, int] | None:
    """Return the nodes and the replicas of an engine, whose pods may be its ranks (`--nnodes`); None of a later rank.
    """
    options, _ = options_of(words, ("--nnodes", "--node-rank"))
    nodes, rank = count_of(options["--nnodes"]) or 1, count_of(options["--node-rank"], 0)
    if nodes > 1 and rank > 0:
        return None
    if around.nodes > 1 or around.replicas % nodes:
        return around.nodes, around.replicas
    return nodes, around.replicas // nodes
