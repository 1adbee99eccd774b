"""Files of docker compose: services whose command serves, with the variables that compose puts in."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.launch.beginnings import bare_words
from planner.launch.described import Described
from planner.launch.manifests.bases import FILES
from planner.launch.manifests.command_files import of_dockerfile
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import at, count_of, environment_of, lacks_variables, text_of, words_of
from planner.launch.variables import put_in, read_variables, variables_used

MOST_EXTENDED = 8  # services, each of which extends the next


def of_compose(document: Mapping[str, Any], folder: Path) -> Iterator[Described]:
    """Yield the engines of a compose file; `.env` beside it has values of variables."""
    values = read_variables(folder / ".env", "compose") or {}
    bases = {str(base.get("service") if isinstance(base, Mapping) else base)
             for each in document["services"].values() if isinstance(each, Mapping) and (base := each.get("extends"))}
    for name, given in document["services"].items():
        if not isinstance(given, Mapping) or (name in bases and not {"command", "entrypoint"} & given.keys()):
            continue
        service = _extended(given, document["services"], folder)
        command = [word for key in ("entrypoint", "command") for word in _words(service.get(key), values)]
        files, missing = _env_files(service, folder)
        environment = files | {key: put_in(value, values, "compose")
                               for key, value in environment_of(service.get("environment")).items()}
        image = put_in(text_of(service.get("image")) or "", values, "compose") or None
        mounts, texts = _mounts(service, document.get("configs"), values, folder)
        container = {"image": image, "env": environment, "resources": {"limits": _gpus(service)}, "command": command,
                     FILES: texts}
        around = Described(place=f"service {name}", notes=lacks_variables(missing, "is not there"),
                           variables=variables_used(str([service.get("entrypoint"), service.get("command")]),
                                                    environment, "compose"),
                           mounts=mounts, replicas=count_of(at(service, "deploy.replicas|scale")))
        engines = list(engines_of(container, around, has_entrypoint="entrypoint" in service, folder=folder))
        yield from engines or _built(service.get("build"), folder, around, container)


def _extended(service: Mapping[str, Any], services: Mapping[str, Any], folder: Path, depth: int = 0
              ) -> Mapping[str, Any]:
    """Return a service with the keys of the one that it extends, which may be in another file."""
    given = service.get("extends")
    if given is None or depth >= MOST_EXTENDED:
        return service
    given = {"service": given} if isinstance(given, str) else given
    if "file" in given:
        path = folder / str(given["file"])
        document = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        services, folder = (document or {}).get("services") or {}, path.parent
    base = services.get(str(given.get("service")))
    if not isinstance(base, Mapping):
        return service
    whole = _extended(base, services, folder, depth + 1)
    environment = {**environment_of(whole.get("environment")), **environment_of(service.get("environment"))}
    return {**whole, **service, "environment": environment}


def _env_files(service: Mapping[str, Any], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables of a service's files, and the files that are not there."""
    given = service.get("env_file") or []
    named = [each.get("path") if isinstance(each, Mapping) else each for each in (
        given if isinstance(given, list) else [given])]
    files = {str(name): read_variables(folder / str(name), "compose") for name in named}
    whole = {name: value for variables in files.values() for name, value in (variables or {}).items()}
    return whole, [name for name, variables in files.items() if variables is None]


def _built(build: Any, folder: Path, around: Described, container: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a service whose image is built here, from its Dockerfile."""
    build = {"context": build} if isinstance(build, str) else build or {}
    context = folder / str(build.get("context", "."))
    path = context / str(build.get("dockerfile", "Dockerfile"))
    if build and path.is_file():
        yield from of_dockerfile(path.read_text(encoding="utf-8"), context, around, container)


def _mounts(service: Mapping[str, Any], configs: Any, values: Mapping[str, str], folder: Path
            ) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the files and folders that a service mounts, and the texts of its configs, by path in the container."""
    mounts, texts = dict[str, Path](), dict[str, str]()
    for volume in service.get("volumes") or ():
        source, _, target = (volume.get("source"), "", volume.get("target")) if isinstance(volume, Mapping) else (
            put_in(str(volume), values, "compose").partition(":"))
        mounts |= {str(target).partition(":")[0]: folder / str(source)} if source and target else {}
    for config in service.get("configs") or ():
        name = str(config.get("source") if isinstance(config, Mapping) else config)
        path = str(at(config, "target") or f"/{name}")
        if (file := at(configs, f"{name}.file")) is not None:
            mounts[path] = folder / str(file)
        elif (content := at(configs, f"{name}.content")) is not None:
            texts[path] = put_in(str(content), values, "compose")
    return mounts, texts


def _words(value: Any, values: Mapping[str, str]) -> list[str]:
    """Return the words of a command with variables put in, before a text is split."""
    if isinstance(value, str):
        return bare_words(put_in(value, values, "compose"))
    return [put_in(word, values, "compose") for word in words_of(value)]


def _gpus(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that a service reserves, as a container's limits."""
    devices = at(service, "deploy.resources.reservations.devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, Mapping) and "gpu" in str(device.get("capabilities")):
            ids = device.get("device_ids")
            return {"gpu": len(ids) if isinstance(ids, list) else device.get("count")}
    return {}
