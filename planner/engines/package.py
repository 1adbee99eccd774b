"""An engine's package: images, Python classes, programs beside its server, its benchmark client and its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Names under which an engine is installed and started."""

    names: str = ""  # pattern of the package's name, as `pip install` and names of images have it; "" for none
    aliases: tuple[str, ...] = ()  # other names than name and title in other tools' files, in small letters
    # Container image with {} for the release, for written deployments; None if none is published.
    image: str | None = None
    # Flags of a server that prefills, and of one that decodes; empty if there are none.
    role_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The same of NVIDIA Dynamo's workers; empty if Dynamo's other flags differ from the server's.
    dynamo_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    charts: tuple[str, ...] = ()  # kinds of written deployments that have the engine's command, not the arguments
    # Python classes that start an engine, with the package, and the options that each sets.
    classes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # If arguments of these classes are keys of the engine's file: its backend, by a part of the class's name. The first
    # part counts.
    class_backends: Mapping[str, str] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()  # patterns of programs that are not the server, and their kinds
    has_flat_errors: bool = False  # whether the body of an HTTP error has no field `error`
    bench_backend: str = "openai"  # backend of `vllm bench serve` for this server; "" for its default


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An engine's benchmark client."""

    # Of its results, by which they are known; empty if it writes the keys of vLLM's client alone.
    keys: tuple[str, ...] = ()
    draws_below: bool = False  # whether random lengths are at most the stated length; else they are around it


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Series of a server's /metrics, without the prefix and the colon or underscore before each name."""

    prefix: str
    # Histograms by their content: "ttft", "tpot", "itl", "e2el", "input" and "output"; the first that exists counts.
    histograms: Mapping[str, tuple[str, ...]]
    totals: Mapping[str, str]  # counters of prompt tokens ("input") and of generated tokens ("output")
    running: str  # gauge of running requests
    cache: tuple[str, str]  # counters of prompt tokens that the prefix cache had, and of all that were looked up
    requests: str = ""  # counter of finished requests; "" without one
    waiting: str = ""  # gauge of waiting requests; "" without one
    runs_waiting: bool = False  # whether waiting requests are part of the running ones
    kv_use: tuple[str, ...] = ()  # gauges of the used share of the KV cache; the first that exists counts
    info: str = ""  # gauge with settings of the server as its labels; "" without one
    info_options: tuple[str, ...] = ()  # its labels that are options of the same name
    separator: str = ":"  # between the prefix and each name
    model: str = "model_name"  # label with the model's name


BENCHMARK, CLIENT = "a benchmark, not a server", "a client, not a server"  # kinds of programs
