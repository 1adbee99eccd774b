"""OME's serving runtimes and services: a runner for whole requests, or one for prefill and one for decode."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.bases import merged
from planner.launch.manifests.containers import count_of, gpus_of, scaling, title
from planner.launch.manifests.kserve import of_kserve
from planner.launch.manifests.kubernetes import of_kubernetes, of_pod
from planner.launch.named_gpus import named_gpu

PARTS = (("engineConfig", "prefill"), ("engine", "prefill"), ("decoderConfig", "decode"), ("decoder", "decode"))


def of_runtime(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a runtime or service, OME's or KServe's; OME's engine beside a decoder prefills."""
    spec = document["spec"]
    parts = [(spec[key], role) for key, role in PARTS if isinstance(spec.get(key), Mapping)]
    if not parts:
        yield from of_kserve(document) if document["kind"] == "InferenceService" else of_kubernetes(document)
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
        gpus = sum(gpus_of(container.get("resources")) or 0 for container in pod["containers"]) * nodes
        given = {"MODEL_PATH": model, "PARALLELISM_SIZE": gpus or None}  # by OME's operator
        env = [{"name": key, "value": str(value)} for key, value in given.items() if value is not None]
        pod["containers"] = [merged({"env": env}, container) for container in pod["containers"]]
        replicas = max(count_of(part.get("minReplicas")), 1)
        notes = scaling(part.get("minReplicas", 1), part.get("maxReplicas"), replicas)
        for engine in of_pod({"spec": pod}, title(document), role=role if is_apart else "both", replicas=replicas,
                             nodes=nodes):
            variables = {key: value for key, value in engine.variables.items() if key not in given}
            yield replace(engine, gpu_names=engine.gpu_names or names, notes=(*engine.notes, *notes),
                          variables=variables)
