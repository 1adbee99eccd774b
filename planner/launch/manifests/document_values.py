"""Values in deployment files: at paths, and as words, counts, variables, GPUs and options; and templates of Go."""

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COUNTED = re.compile(r"^gpus?$|/(?:gpu(?:\.shared)?|gaudi|mig-.+)$")  # resources that are GPUs
# Templates of Go in charts and presets.
VALUE = re.compile(r"\{\{-?\s*(?:(\w+)\s+)?((?:\.\w+)+)(?:\s+(\S+?))?\s*(?:\|[^}]*)?-?\}\}")
CHOICE = re.compile(r"\{\{-?\s*if\s+((?:\.\w+)+)\s*-?\}\}(.*?)(?:\{\{-?\s*else\s*-?\}\}(.*?))?\{\{-?\s*end\s*-?\}\}",
                    re.DOTALL)


def at(value: Any, paths: str) -> Any:
    """Return the first value that a document has at one of several paths; None if it has none, or empty ones.

    >>> at({"spec": {"roles": [], "jobs": [1]}}, "spec.roles|spec.jobs"), at({"size": 2}, "")
    ([1], {'size': 2})
    """
    for path in paths.split("|"):
        place = value
        for key in path.split(".") if path else ():
            place = place.get(key) if isinstance(place, Mapping) else None
        if place not in (None, {}, []):
            return place
    return None


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


def lacks_variables(names: Iterable[str], why: str) -> tuple[str, ...]:
    """Say that variables come from sources that are not read; no sources are no note."""
    listed = ", ".join(names)
    return (f"takes variables from {listed}, which {why}; variables that change the engine are then missing",
            ) if listed else ()


def title(document: Mapping[str, Any]) -> str:
    """Return the kind and the name of a document."""
    return f"{document['kind']} {at(document, 'metadata.name') or ''}".strip()


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


def options_of(words: Sequence[str], names: Sequence[str]) -> tuple[dict[str, str | None], list[str]]:
    """Return the values of options among words, None for one that is not there, and the other words.

    >>> options_of(["--nnodes=2", "--model_id", "m/m", "-tp", "4"], ["--nnodes", "--model-id", "--task"])
    ({'--nnodes': '2', '--model-id': 'm/m', '--task': None}, ['-tp', '4'])
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(name, f"--{name.removeprefix('--').replace('-', '_')}", dest=name, nargs="?")
    values, others = parser.parse_known_args(words)
    return vars(values), others


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


def rendered(value: Any, roots: Mapping[str, Any]) -> Any:
    """Return a value with the values that its templates name; templates of other values stay.

    Parameters
    ----------
    roots : tables by the first word of a template, as Values and Spec. Keys may begin with a small letter.

    >>> rendered("{{ if .Spec.A }}--a {{ .Spec.A }}{{ end }} --b {{ or .Spec.B 1 }}", {"Spec": {"a": 2}})
    '--a 2 --b 1'
    """
    if isinstance(value, Mapping):
        return {key: rendered(part, roots) for key, part in value.items()}
    if isinstance(value, list):
        return [rendered(part, roots) for part in value]
    if not isinstance(value, str) or "{{" not in value:
        return value
    return VALUE.sub(lambda match: _value(match, roots), CHOICE.sub(lambda match: _branch(match, roots), value))


def _branch(match: re.Match[str], roots: Mapping[str, Any]) -> str:
    return match[2] if _looked_up(match[1], roots) else match[3] or ""


def _value(match: re.Match[str], roots: Mapping[str, Any]) -> str:
    """Return the value of a template; `or` has another, and a function of a value that is missing gives nothing."""
    found = _looked_up(match[2], roots)
    if match[1] in (None, "or"):
        found = match[3] if found is None and match[1] else found
        return match[0] if found is None else str(found)
    return match[0] if found is not None or match[2].split(".")[1] not in roots else ""


def _looked_up(path: str, roots: Mapping[str, Any]) -> Any:
    found: Any = roots
    for key in path.split(".")[1:]:
        found = found.get(key, found.get(key[:1].lower() + key[1:])) if isinstance(found, Mapping) else None
    return found
