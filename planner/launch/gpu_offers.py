"""GPUs that a platform is asked for, as texts NAME:COUNT: of SkyPilot, dstack and Modal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from planner.launch.described import NamedGpu
from planner.launch.named_gpus import named_gpu

# The A100 and V100 of SkyPilot and Modal; with more memory these name A100-80GB and V100-32GB.
SMALLEST = {"a100": "a100-sxm-40gb", "v100": "v100-sxm-16gb"}
NUMBER = re.compile(r"(\d+)(?:\.\.\d*|\+)?")  # of GPUs; of a range the least
MEMORY = re.compile(r"(\d+)[gt]b(?:\.\.(?:\d+[gt]b)?|\+)?", re.IGNORECASE)  # of a GPU; of a range the least
ANY = ("nvidia", "amd", "google", "intel", "tenstorrent", "any", "gpu")  # vendors, and words for all GPUs


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of a node that a task accepts.

    Parameters
    ----------
    count : of them [1]; None if the task leaves it open.
    names : of one of them; any of these will do.
    """

    count: int | None
    names: tuple[NamedGpu, ...] = ()


def offer_of(text: str, names: Mapping[str, str] = MappingProxyType({})) -> Offer:
    """Return the GPUs of a text: vendor, names, memory and count between colons, of which each may be missing.

    Parameters
    ----------
    names : as of `named_gpu`.

    >>> offer_of("L40S:4").count, [named.gpu for named in offer_of("A100,H100:80GB:2").names]
    (4, ['a100-sxm', 'h100-sxm'])
    """
    parts = [part.strip() for part in text.split(":") if part.strip() and part.strip().lower() not in ANY]
    count = next((int(match[1]) for part in reversed(parts) if (match := NUMBER.fullmatch(part))),
                 None if "$" in text else 1)
    memory = next((f"-{match[1]}gb" for part in parts if (match := MEMORY.fullmatch(part))), "")
    named = next((part.split(",") for part in parts if not NUMBER.fullmatch(part) and not MEMORY.fullmatch(part)), [])
    return Offer(count, tuple(_with_memory(name.strip(), memory, text, names) for name in named))


def _with_memory(name: str, memory: str, text: str, names: Mapping[str, str]) -> NamedGpu:
    """Return a GPU by its name and its memory, if there is one of the name with that memory."""
    sized = named_gpu(f"{name}{memory}", names)
    return replace(named_gpu(name, names) if sized.gpu is None else sized, text=text)


def texts_of(value: Any) -> list[str]:
    """Return GPUs as texts NAME:COUNT: of one text, a list, a set, a table by name, or dstack's table.

    YAML reads `{H100:8}` as a table with the key H100:8 and no value.

    >>> texts_of({"L40S:2": None, "H100": 1}), texts_of({"name": ["A100", "H100"], "memory": "80GB", "count": 2})
    (['L40S:2', 'H100:1'], ['A100,H100:80GB:2'])
    """
    if isinstance(value, Mapping) and {"name", "count", "memory", "vendor"} & {*map(str, value)}:
        names = value.get("name", value.get("vendor"))
        names = ",".join(map(str, names)) if isinstance(names, list) else names
        parts = (names, value.get("memory"), value.get("count"))
        return [":".join(str(part) for part in parts if part is not None)]
    if isinstance(value, Mapping):
        return [str(name) if count is None else f"{name}:{count}" for name, count in value.items()]
    return [str(each) for each in value] if isinstance(value, list | set | tuple) else [str(value)]
