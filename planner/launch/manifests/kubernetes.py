"""Kubernetes manifests: Pods, Deployments, StatefulSets, Jobs and LeaderWorkerSets with a container that serves."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.config_maps import SCRIPTS
from planner.launch.manifests.containers import (
    Around,
    count_of,
    engines_of,
    environment_of,
    gpus_of,
    text_of,
    title,
    words_of,
)
from planner.launch.manifests.node_labels import gpus_named, of_resources
from planner.launch.scripts.named_script import of_named_script

ROLE_LABEL = "llm-d.ai/role"


def of_kubernetes(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a manifest."""
    spec, place = document["spec"], title(document)
    replicas = count_of(spec.get("replicas"))
    group = spec.get("leaderWorkerTemplate")
    if isinstance(group, Mapping):
        size = count_of(group.get("size"))
        template = group.get("leaderTemplate") or group.get("workerTemplate") or {}
        yield from of_pod(template, place, replicas=replicas, nodes=size)
    else:
        template = spec.get("template") if isinstance(spec.get("template"), Mapping) else {"spec": spec}
        yield from of_pod(template, place, replicas=replicas)


def of_pod(template: Mapping[str, Any], place: str, *, replicas: int = 1, role: str = "both", nodes: int = 1
           ) -> Iterator[Described]:
    """Yield the engines of a pod's template."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    role = str(labels[ROLE_LABEL]) if labels.get(ROLE_LABEL) in ("prefill", "decode") else role
    pod = template.get("spec") or {}
    containers, gpu_names = pod.get("containers"), gpus_named(pod)
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, Mapping):
            around = Around(place=f"container {container.get('name', '')} of {place}", replicas=replicas, role=role,
                            nodes=nodes, gpu_names=gpu_names)
            variables = {"LWS_GROUP_SIZE": str(nodes)} if nodes > 1 else {}
            yield from list(engines_of(container, around, variables=variables)) or list(
                _of_script(container, around, variables))


def _of_script(container: Mapping[str, Any], around: Around, variables: Mapping[str, str]) -> Iterator[Described]:
    """Yield the engines of a script that a container runs, and that a ConfigMap of the file has."""
    words = [*words_of(container.get("command")), *words_of(container.get("args"))]
    environment = {**variables, **environment_of(container.get("env"))}
    gpus = gpus_of(container.get("resources"))
    for engine in of_named_script(words, None, environment, around.place, container.get(SCRIPTS)):
        yield replace(engine, image=text_of(container.get("image")), replicas=around.replicas, role=around.role,
                      gpus=None if gpus is None else gpus * around.nodes,
                      gpu_names=of_resources(around.gpu_names, container.get("resources")))
