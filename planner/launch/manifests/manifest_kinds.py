"""The kinds of deployment files, and a file read as the first of them that it is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from planner.errors import UsageError
from planner.launch.described import Described
from planner.launch.manifests.bases import with_bases, with_config_maps
from planner.launch.manifests.compose import of_compose
from planner.launch.manifests.document_values import at
from planner.launch.manifests.kserve import of_kube_ai, of_llm_service, of_runtime
from planner.launch.manifests.kubernetes import CLUSTERS, POD_KINDS, of_kubernetes, of_ray_cluster, of_ray_service
from planner.launch.manifests.node_labels import gpus_of_pools
from planner.launch.manifests.option_files import (
    RAY_CONFIGS,
    SERVERS,
    of_engine_config,
    of_production_stack,
    of_ray,
    of_trtllm_disaggregated,
)
from planner.launch.manifests.platform_files import of_cloud_task, of_image_chart, of_llmd

Document = Mapping[str, Any]


def _of_request(document: Document) -> Iterator[Described]:
    """Yield the engines of a request to Dynamo, which its overrides set; none without overrides."""
    graph = at(document, "spec.overrides.dgd")
    if isinstance(graph, Mapping):
        yield from of_kubernetes({**graph, "kind": "DynamoGraphDeployment"})


# The reader of each kind of Kubernetes' documents.
BY_KIND: Mapping[str, Callable[[Document], Iterator[Described]]] = {
    **dict.fromkeys(POD_KINDS, of_kubernetes), **dict.fromkeys(CLUSTERS, of_ray_cluster), "RayService": of_ray_service,
    **dict.fromkeys(("InferenceService", "ServingRuntime", "ClusterServingRuntime"), of_runtime),
    **dict.fromkeys(("LLMInferenceService", "LLMInferenceServiceConfig"), of_llm_service), "Model": of_kube_ai,
    "DynamoGraphDeploymentRequest": _of_request}
# Keys that another kind has, with their types, and its reader, which gets the file's folder. The first that fits reads.
BY_KEYS: tuple[tuple[Mapping[str, type], Callable[[Document, Path], Iterator[Described]]], ...] = (
    *(({key: dict}, of_ray) for key in RAY_CONFIGS), ({"llm_configs": list}, of_ray), ({"applications": list}, of_ray),
    ({"servingEngineSpec.modelSpec": list}, lambda document, _: of_production_stack(document)),
    ({"modelArtifacts": dict, "decode|prefill": dict}, lambda document, _: of_llmd(document)),
    ({"image.repository": str, "image.command": list}, lambda document, _: of_image_chart(document)),
    ({"run": str}, lambda document, _: of_cloud_task(document)),
    ({"type": str, "commands": list}, lambda document, _: of_cloud_task(document)),
    ({"services": dict}, of_compose),
    (dict.fromkeys(SERVERS, dict), lambda document, _: of_trtllm_disaggregated(document)),
)


def _engines(document: Document, path: Path) -> Iterator[Described] | None:
    """Return the engines that a document launches; None if its kind is not known."""
    if "kind" in document:
        kind = str(document["kind"])
        return BY_KIND[kind](document) if kind in BY_KIND and isinstance(document.get("spec"), Mapping) else None
    for keys, read in BY_KEYS:
        if all(isinstance(at(document, key), form) for key, form in keys.items()):
            return read(document, path.parent)
    return of_engine_config(document, path)


def read_manifest(path: Path) -> list[Described]:
    """Return the engines that a deployment file launches.

    Raises
    ------
    UsageError : the file is no YAML, its kind is not known, or it launches no engine.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"--from-command {path}: cannot be read: {error}") from error
    return manifest_engines(text, path, str(path))


def manifest_engines(text: str, path: Path, where: str) -> list[Described]:
    """Return the engines that the text of a deployment file launches.

    Parameters
    ----------
    path : of the file, beside which others may be.
    where : it is called so in messages.

    Raises
    ------
    UsageError : as `read_manifest`.
    """
    documents = [part for document in _documents(text, where) for part in _parts(document)]
    found: list[Described] = []
    is_known = False
    with _other_forms(where, documents):
        documents, names = with_bases(with_config_maps(documents)), gpus_of_pools(documents)
    for document in documents:
        with _other_forms(where, [document]):
            engines = _engines(document, path)
            is_known |= engines is not None
            found += engines or ()
    if found:
        return [replace(engine, gpu_names=engine.gpu_names or names) for engine in found]
    titles = ", ".join(dict.fromkeys(map(_title, documents))) or "nothing"
    why = "none launches an engine that is known" if is_known else "no kind of deployment file that is known"
    raise UsageError(f"--from-command {where}: has {titles}: {why}; give the engine's command, or a file of "
                     f"Kubernetes, KServe, Dynamo, Ray Serve LLM, docker compose, SkyPilot, the production stack's or "
                     f"llm-d's Helm values, TensorRT-LLM's disaggregated servers, or an engine's own options")


@contextmanager
def _other_forms(where: str, documents: Sequence[Document]) -> Iterator[None]:
    """Raise UsageError for keys of documents that have another form than their kinds have."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"--from-command {where}: {', '.join(dict.fromkeys(map(_title, documents)))} has a key of "
                         f"another form than its kind has ({error}); give the engine's command") from error


def _documents(text: str, where: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"--from-command {where}: cannot be read as YAML: {said}; of a Helm chart give the values, or "
                         f"what helm template writes") from error


def _parts(document: Any) -> Iterator[Document]:
    """Yield a document, or the items of a List."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        for item in items if isinstance(items, list) else ():
            yield from _parts(item)
    elif isinstance(document, Mapping):
        yield document


def _title(document: Document) -> str:
    """Return the title of a document: its kind, or its first keys."""
    if "kind" in document:
        return f"kind {document['kind']}"
    return f"keys {', '.join(map(str, list(document)[:5]))}"
