"""Variables and scripts that containers take from a ConfigMap in the same file."""

from collections.abc import Mapping, Sequence
from typing import Any

SCRIPTS = "planner.scripts"  # key that a container gets, with the scripts of the file's ConfigMaps by name


def with_config_maps(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return documents with the variables and scripts of the file's ConfigMaps put into their containers.

    `envFrom` and `configMapKeyRef` name the variables.
    """
    maps = {str(_name(document)): {str(key): str(value) for key, value in data.items()}
            for document in documents
            if document.get("kind") == "ConfigMap" and isinstance(data := document.get("data"), Mapping)}
    return [_put_in(document, maps) for document in documents] if maps else list(documents)


def _name(document: Mapping[str, Any]) -> Any:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def missing_sources(container: Mapping[str, Any]) -> list[str]:
    """Return the names of a container's sources of variables that its file does not have."""
    entries = container.get("envFrom")
    return [f"{kind} {reference.get('name')}" for entry in (entries if isinstance(entries, list) else ())
            for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef"))
            if isinstance(entry, Mapping) and isinstance(reference := entry.get(key), Mapping)]


def _put_in(part: Any, maps: Mapping[str, Mapping[str, str]]) -> Any:
    if isinstance(part, list):
        return [_put_in(item, maps) for item in part]
    if not isinstance(part, Mapping):
        return part
    whole = {key: _put_in(value, maps) for key, value in part.items()}
    if "image" in whole and ("command" in whole or "args" in whole):
        whole[SCRIPTS] = {key: text for data in maps.values() for key, text in data.items() if "." in key}
    entries, own = whole.get("envFrom"), whole.get("env")
    own = [_with_value(entry, maps) for entry in own] if isinstance(own, list) else []
    if isinstance(entries, list):
        taken, left = [], []
        for entry in entries:
            reference = entry.get("configMapRef") if isinstance(entry, Mapping) else None
            data = maps.get(str(reference.get("name"))) if isinstance(reference, Mapping) else None
            if data is None:
                left.append(entry)
            else:
                taken += [{"name": f"{entry.get('prefix', '')}{key}", "value": value} for key, value in data.items()]
        whole |= {"envFrom": left, "env": [*taken, *own]}  # a container's own variables go over these
    elif own:
        whole["env"] = own
    return whole


def _with_value(entry: Any, maps: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a variable with its value, if it is a key of one of the ConfigMaps."""
    source = entry.get("valueFrom") if isinstance(entry, Mapping) else None
    reference = source.get("configMapKeyRef") if isinstance(source, Mapping) else None
    if not isinstance(reference, Mapping):
        return entry
    value = maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
    return entry if value is None else {"name": entry.get("name"), "value": value}
