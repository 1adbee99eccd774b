"""The answers of `db show`: the profile of a GPU, and of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAnswer:
    """The profile of a GPU."""

    name: Annotated[str, Key("", "Name in the catalog")]
    kernels_of: Annotated[str, Key("", "GPU whose measured kernels are used; the name itself if it has its own")]
    collectives_of: Annotated[str, Key("", "GPU whose measured collectives are used")]
    values: Annotated[Mapping[str, Any], Key("", "Each number with its value, unit, source, date, note, and whether it "
                                             "is without sparsity")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureAnswer:
    """The profile of a model."""

    name: Annotated[str, Key("", "Name in the catalog")]
    profile: Annotated[Mapping[str, Any], Key("", "Aliases, variants, source, date and note")]
    num_parameters: Annotated[int, Key("1", "Parameters")]
    num_active_parameters: Annotated[int, Key("1", "Parameters that a token uses")]
    kv_bytes_per_token_bf16: Annotated[float, Key("B", "KV of a token in 16 bit")]
    architecture: Annotated[Mapping[str, Any], Key("", "Settings and layers as read")]
    memory: Annotated[Mapping[str, Any] | None, Key("B", "Memory of a GPU, part by part", only="with --gpu")] = None
    step_terms_s: Annotated[Mapping[str, Mapping[str, float]] | None, Key("s", "Step times by term, for steps of "
                                                                          "several sizes", only="with --gpu")] = None
