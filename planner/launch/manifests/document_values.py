"""Values in deployment files: words, counts, variables, GPUs and options, in the forms that files write them."""

import json
import re
from collections.abc import Mapping
from typing import Any

COUNTED = re.compile(r"^gpus?$|/(?:gpu(?:\.shared)?|gaudi|mig-.+)$")  # resources that are GPUs


def scaled(least: Any, most: Any, replicas: int | None = None) -> tuple[int, tuple[str, ...]]:
    """Return the replicas that are predicted, and a note if replicas come and go.

    Parameters
    ----------
    most : replicas; 0 is no upper bound, and None as many as at least.
    replicas : that the file states; None predicts the least number.
    """
    predicted = max(count_of(least) if replicas is None else replicas, 1)
    if most is None or str(most) == str(least):
        return predicted, ()
    bounds = f"{least} replicas, without an upper bound" if str(most) == "0" else f"{least} to {most} replicas"
    return predicted, (f"scales from {bounds}; {predicted} are predicted, and --autoscale replays a scaler",)


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
    """Return a count, as files write it; `otherwise` if the value is none."""
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
