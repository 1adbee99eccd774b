"""Templates of Go in charts and presets, with the values that the same file has."""

import re
from collections.abc import Mapping
from typing import Any

VALUE = re.compile(r"\{\{-?\s*(?:(\w+)\s+)?((?:\.\w+)+)(?:\s+(\S+?))?\s*(?:\|[^}]*)?-?\}\}")
CHOICE = re.compile(r"\{\{-?\s*if\s+((?:\.\w+)+)\s*-?\}\}(.*?)(?:\{\{-?\s*else\s*-?\}\}(.*?))?\{\{-?\s*end\s*-?\}\}",
                    re.DOTALL)


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
