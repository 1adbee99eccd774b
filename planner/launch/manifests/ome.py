"""OME's serving runtimes and services: a runner for whole requests, or one for prefill and one for decode."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.bases import merged
from planner.launch.manifests.containers import count_of
from planner.launch.manifests.kubernetes import of_pod
from planner.launch.named_gpus import named_gpu

KINDS = ("ClusterServingRuntime", "ServingRuntime", "InferenceService")
PARTS = (("engineConfig", "prefill"), ("engine", "prefill"), ("decoderConfig", "decode"), ("decoder", "decode"))


def is_ome(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a runtime or a service of OME with parts of its own."""
    spec = document.get("spec")
    return document.get("kind") in KINDS and isinstance(spec, Mapping) and any(
        isinstance(spec.get(key), Mapping) for key, _ in PARTS)


def of_ome(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a runtime or service; an engine beside a decoder prefills."""
    spec, name = document["spec"], (document.get("metadata") or {}).get("name", "")
    parts = [(spec[key], role) for key, role in PARTS if isinstance(spec.get(key), Mapping)]
    is_apart = len({role for _, role in parts}) > 1
    model = (spec.get("model") or {}).get("name")
    classes = (spec.get("acceleratorRequirements") or {}).get("acceleratorClasses") or ()
    names = tuple(named for each in classes if (named := named_gpu(str(each))).gpu or named.problem)
    for part, role in parts:
        leader, worker = part.get("leader") or {}, part.get("worker") or {}
        pod = {**part, **leader}
        runner = pod.get("runner")
        pod["containers"] = [*([runner] if isinstance(runner, Mapping) else ()), *(pod.get("containers") or ())]
        nodes = 1 + count_of(worker.get("size")) if worker else 1
        if model is not None:
            pod["containers"] = [merged({"env": [{"name": "MODEL_PATH", "value": model}]}, container)
                                 for container in pod["containers"]]
        for engine in of_pod({"spec": pod}, f"{document['kind']} {name}".strip(), role=role if is_apart else "both",
                             replicas=max(count_of(part.get("minReplicas")), 1), nodes=nodes):
            yield replace(engine, gpu_names=engine.gpu_names or names)
