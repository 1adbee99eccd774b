"""Documents that others of the same file build on: KServe's configurations, OME's runtimes, and ConfigMaps."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.launch.beginnings import find_launch
from planner.launch.manifests.document_values import at

Document = Mapping[str, Any]
MOUNTED = "/mnt/models"  # the folder at which KServe puts the model
OF_MODEL = ("runtime", "modelFormat", "storageUri", "storage", "args")  # keys of a model that are not its container's
OF_RUNTIME = (("engineConfig", "engine"), ("decoderConfig", "decoder"))  # OME's keys of a runtime and of a service
FILES = "planner.files"  # key that a container gets: texts of ConfigMaps, by name, and by path if they are mounted


def with_bases(documents: Sequence[Document]) -> list[Document]:
    """Return documents with the settings of the bases that they name, without the bases."""
    bases = {name: document for document in documents if (name := _name(document))
             and str(document.get("kind")).endswith(("LLMInferenceServiceConfig", "ServingRuntime"))}
    used: set[str] = set()
    whole = [_on_bases(document, bases, used) for document in documents]
    return [document for document in whole if not (_name(document) in used and document is bases[_name(document)])]


def _name(document: Document) -> str:
    return str(at(document, "metadata.name") or "")


def _on_bases(document: Document, bases: Mapping[str, Document], used: set[str]) -> Document:
    """Return a service on its bases in their order, and list these as used; references to others stay."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return document
    name = str(at(spec, "runtime.name"))
    if document.get("kind") == "InferenceService" and name in bases:
        used.add(name)
        base = bases[name].get("spec") or {}
        parts = {over: merged(base[key], spec.get(over)) for key, over in OF_RUNTIME if key in base}
        rest = {key: value for key, value in base.items() if key not in dict(OF_RUNTIME)}
        return {**document, "spec": {**rest, **spec, **parts}}
    if isinstance(predictor := spec.get("predictor"), Mapping):
        return {**document, "spec": {**spec, "predictor": _on_runtime(predictor, bases, used)}}
    names = [str(each.get("name")) if isinstance(each, Mapping) else str(each) for each in spec.get("baseRefs") or ()]
    whole: Any = {}
    for name in (name for name in names if name in bases):
        used.add(name)
        whole = merged(whole, bases[name].get("spec"))
    left = [name for name in names if name not in bases]
    return {**document, "spec": {**merged(whole, spec), "baseRefs": left}} if names else document


def _on_runtime(predictor: Mapping[str, Any], bases: Mapping[str, Document], used: set[str]) -> Mapping[str, Any]:
    """Return KServe's predictor as the pod of its runtime, whose arguments go before the model's, if that is in a file.

    Source: `MergeRuntimeContainers` in pkg/controller/v1beta1/inferenceservice/utils.
    """
    model = predictor.get("model")
    name = str(at(model, "runtime"))
    spec = bases[name].get("spec") or {} if name in bases else {}
    first, *others = spec.get("containers") or [{}]
    words = [str(first.get("image")), *(first.get("command") or ()), *(first.get("args") or ())]
    if not isinstance(model, Mapping) or find_launch([str(word) for word in words if word != "--"]) is None:
        return predictor
    used.add(name)
    arguments = [*(first.get("args") or ()), *(model.get("args") or ())]
    source = hub_name(model.get("storageUri"))
    texts = [str(word) if source is None else str(word).replace(MOUNTED, source) for word in arguments]
    container = merged(first, {key: value for key, value in model.items() if key not in OF_MODEL}) | {"args": texts}
    pod = {key: value for key, value in predictor.items() if key != "model"}
    return {**spec, **pod, "containers": [container, *others]}


def hub_name(uri: Any) -> str | None:
    """Return the Hugging Face name of a model's address; another address as it is."""
    return None if uri is None else str(uri).removeprefix("hf://").partition(":")[0] if str(uri).startswith(
        "hf://") else str(uri)


def merged(base: Any, over: Any) -> Any:
    """Return a value over another, as Kubernetes merges them: tables by key, lists of named items by name.

    >>> merged({"a": 1, "containers": [{"name": "main", "image": "i"}]}, {"containers": [{"name": "main", "args": []}]})
    {'a': 1, 'containers': [{'name': 'main', 'image': 'i', 'args': []}]}
    """
    if over is None:
        return base
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}
    if all(isinstance(each, list) and each and all(isinstance(item, Mapping) and "name" in item for item in each)
           for each in (base, over)):
        items = {item["name"]: item for item in base}
        return [*{**items, **{item["name"]: merged(items.get(item["name"]), item) for item in over}}.values()]
    return over


def with_config_maps(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return documents with the variables and files of the file's ConfigMaps put into their containers.

    `envFrom` and `configMapKeyRef` name the variables, and `volumeMounts` the paths of files.
    """
    maps = {str(_name(document)): {str(key): str(value) for key, value in data.items()}
            for document in documents
            if document.get("kind") == "ConfigMap" and isinstance(data := document.get("data"), Mapping)}
    return [_put_in(document, maps) for document in documents] if maps else list(documents)


def missing_sources(container: Mapping[str, Any]) -> list[str]:
    """Return the names of a container's sources of variables that its file does not have."""
    entries = container.get("envFrom")
    return [f"{kind} {at(reference, 'name')}" for entry in (entries if isinstance(entries, list) else ())
            for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef"))
            if (reference := at(entry, key)) is not None]


def _put_in(part: Any, maps: Mapping[str, Mapping[str, str]], volumes: Any = None) -> Any:
    if isinstance(part, list):
        return [_put_in(item, maps, volumes) for item in part]
    if not isinstance(part, Mapping):
        return part
    volumes = part.get("volumes", volumes)
    whole = {key: _put_in(value, maps, volumes) for key, value in part.items()}
    if "image" in whole and ("command" in whole or "args" in whole):
        named = {key: text for data in maps.values() for key, text in data.items() if "." in key}
        whole[FILES] = named | _mounted(whole.get("volumeMounts"), volumes, maps)
    entries, own = whole.get("envFrom"), whole.get("env")
    own = [_with_value(entry, maps) for entry in own] if isinstance(own, list) else []
    if isinstance(entries, list):
        taken, left = [], []
        for entry in entries:
            if (data := maps.get(str(at(entry, "configMapRef.name")))) is None:
                left.append(entry)
            else:
                taken += [{"name": f"{entry.get('prefix', '')}{key}", "value": value} for key, value in data.items()]
        whole |= {"envFrom": left, "env": [*taken, *own]}  # a container's own variables go over these
    elif own:
        whole["env"] = own
    return whole


def _mounted(mounts: Any, volumes: Any, maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the texts of the ConfigMaps that a container mounts, by their paths in it."""
    texts: dict[str, dict[str, str]] = {}
    for volume in volumes if isinstance(volumes, list) else ():
        for source in (volume, *(at(volume, "projected.sources") or ())):
            data = maps.get(str(at(source, "configMap.name")), {})
            items = {str(item["path"]): str(item["key"]) for item in at(source, "configMap.items") or ()}
            names = items or {key: key for key in data}
            texts.setdefault(str(at(volume, "name")), {}).update(
                {path: data[key] for path, key in names.items() if key in data})
    paths = dict[str, str]()
    for mount in mounts if isinstance(mounts, list) else ():
        root, part = str(at(mount, "mountPath")).rstrip("/"), at(mount, "subPath")
        paths |= {root if part else f"{root}/{name}": text
                  for name, text in texts.get(str(at(mount, "name")), {}).items() if part in (None, name)}
    return paths


def _with_value(entry: Any, maps: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a variable with its value, if it is a key of one of the ConfigMaps."""
    reference = at(entry, "valueFrom.configMapKeyRef")
    value = maps.get(str(at(reference, "name")), {}).get(str(at(reference, "key")))
    return entry if value is None else {"name": entry.get("name"), "value": value}
