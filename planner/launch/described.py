"""An engine as a file describes it: its command, with the replicas, GPUs and image around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """A GPU as a file names it.

    Parameters
    ----------
    text : of the file.
    gpu : the catalog's name; None if the catalog does not have it.
    problem : why the GPU has no prediction, if it is known: it is no GPU, or a slice of an unknown one.
    is_shared : whether pods share the GPU by time slices.
    """

    text: str
    gpu: str | None = None
    problem: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An engine that a file launches; without words, the facts that a file states around the command of one.

    Parameters
    ----------
    place : its name in the file, as in "container llm of Deployment chat".
    words : of its command line, from the words that launch it on.
    variables : of its environment.
    image : of its container; None if the file has none.
    replicas : engines of this kind [1].
    gpus : that each replica requests; None if the file does not say it [1].
    nodes : over which each replica runs [1].
    role : in a fleet: prefill, decode, or both.
    files : texts of files that its command names, by name, if the file has them.
    mounts : files and folders of this machine, by their path in the container.
    notes : further facts for a user, about the place.
    options : of `Scenario` that the file says beside the command, by name.
    gpu_names : GPUs that the file names, one of which the engine runs on; none if it names none.
    alternatives : the same engine with other numbers of GPUs, of which the file's platform takes one.
    """

    place: str
    words: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    replicas: int = 1
    gpus: int | None = None
    nodes: int = 1
    role: str = "both"
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    gpu_names: tuple[NamedGpu, ...] = ()
    alternatives: "tuple[Described, ...]" = ()
