"""An engine's package: container images, Python classes, programs beside its server, and its benchmark client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Names under which an engine is installed and started.

    Parameters
    ----------
    names : pattern of the package's name, as `pip install` and names of images have it; "" for none.
    aliases : other names than name and title in other tools' files, in small letters.
    image : container image with {} for the release, for written deployments; None if none is published.
    role_flags, dynamo_roles : flags of an engine that prefills and of one that decodes, of its own server and of
        NVIDIA Dynamo's; empty if there are none, or if Dynamo's flags differ from the server's.
    classes : Python classes that start an engine, with the package, and the options that each sets.
    class_backends : if arguments of these classes are keys of the engine's file: its backend, by a part of the class's
        name. The first part counts.
    others : patterns of programs that are not the server, and their kinds.
    bench_backend : of `vllm bench serve`, for this server; "" for its default.
    """

    names: str = ""
    aliases: tuple[str, ...] = ()
    image: str | None = None
    role_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dynamo_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    class_backends: Mapping[str, str] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()
    bench_backend: str = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An engine's benchmark client.

    Parameters
    ----------
    keys : of its results, by which they are known; empty if it writes the keys of vLLM's client alone.
    draws_below : whether random lengths are at most the stated length; else they are around it.
    """

    keys: tuple[str, ...] = ()
    draws_below: bool = False


BENCHMARK, CLIENT = "a benchmark, not a server", "a client, not a server"  # kinds of programs
