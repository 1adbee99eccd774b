"""Files of docker compose: services whose command serves, with the variables that compose puts in."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.launch.beginnings import bare_words
from planner.launch.described import Described
from planner.launch.manifests.containers import Around, count_of, engines_of, environment_of, text_of, words_of

# Of a variable, as compose puts it in: $NAME, ${NAME}, ${NAME:-default}; two dollars are one.
USED = re.compile(r"\$\$|\$\{(\w+)(?::?[-?+=]([^{}]*))?\}|\$(\w+)")


def is_compose(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has compose's services."""
    services = document.get("services")
    return isinstance(services, Mapping) and "kind" not in document and any(
        isinstance(service, Mapping) and ("image" in service or "command" in service or "build" in service)
        for service in services.values())


def of_compose(document: Mapping[str, Any], folder: Path) -> Iterator[Described]:
    """Yield the engines of a compose file; `.env` beside it has values of variables."""
    values = _dotenv(folder / ".env")
    for name, service in document["services"].items():
        if not isinstance(service, Mapping):
            continue
        command = [_put_in(word, values) for key in ("entrypoint", "command") for word in _words(service.get(key))]
        container = {"image": _put_in(text_of(service.get("image")) or "", values) or None,
                     "env": {key: _put_in(value, values)
                             for key, value in environment_of(service.get("environment")).items()},
                     "resources": {"limits": _gpus(service)}}
        deploy = service.get("deploy") or {}
        around = Around(place=f"service {name}", replicas=count_of(deploy.get("replicas", service.get("scale"))))
        yield from engines_of(container, around, command=command)


def _words(value: Any) -> list[str]:
    return bare_words(value) if isinstance(value, str) else words_of(value)


def _put_in(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the variables that have a value or a default; others stay."""
    def value(match: re.Match[str]) -> str:
        braced, default, plain = match.groups()
        if match[0] == "$$":
            return "$"
        return values.get(braced or plain, match[0] if default is None else default)

    return USED.sub(value, text)


def _dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a file of lines NAME=value; none if there is no file."""
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines()
             if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().removeprefix("export "): value.strip().strip("\"'") for name, _, value in pairs}


def _gpus(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that a service reserves, as a container's limits."""
    resources = (service.get("deploy") or {}).get("resources") or {}
    devices = (resources.get("reservations") or {}).get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, Mapping) and "gpu" in str(device.get("capabilities")):
            ids = device.get("device_ids")
            return {"gpu": len(ids) if isinstance(ids, list) else device.get("count")}
    return {}
