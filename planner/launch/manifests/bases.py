"""Documents that others of the same file build on: KServe's configurations, and OME's runtimes."""

from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
OF_RUNTIME = (("engineConfig", "engine"), ("decoderConfig", "decoder"))  # OME's keys of a runtime and of a service


def with_bases(documents: Sequence[Document]) -> list[Document]:
    """Return documents with the settings of the bases that they name, without the bases."""
    bases = {name: document for document in documents if (name := _name(document))
             and str(document.get("kind")).endswith(("LLMInferenceServiceConfig", "ServingRuntime"))}
    used: set[str] = set()
    whole = [_on_bases(document, bases, used) for document in documents]
    return [document for document in whole if not (_name(document) in used and document is bases[_name(document)])]


def _name(document: Document) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _on_bases(document: Document, bases: Mapping[str, Document], used: set[str]) -> Document:
    """Return a service on its bases in their order, and list these as used; references to others stay."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return document
    runtime = spec.get("runtime")
    if document.get("kind") == "InferenceService" and isinstance(runtime, Mapping) and runtime.get("name") in bases:
        used.add(runtime["name"])
        base = bases[runtime["name"]].get("spec") or {}
        parts = {over: merged(base[key], spec.get(over)) for key, over in OF_RUNTIME if key in base}
        return {**document, "spec": {**spec, **parts}}
    names = [each.get("name") if isinstance(each, Mapping) else each for each in spec.get("baseRefs") or ()]
    whole: Any = {}
    for name in (name for name in names if name in bases):
        used.add(name)
        whole = merged(whole, bases[name].get("spec"))
    left = [name for name in names if name not in bases]
    return {**document, "spec": {**merged(whole, spec), "baseRefs": left}} if names else document


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
