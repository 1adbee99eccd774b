"""Clusters of Ray whose head launches an engine: KubeRay's RayClusters, and AIBrix' fleets of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import count_of, gpus_of, title
from planner.launch.manifests.kubernetes import of_pod
from planner.launch.manifests.node_labels import gpus_named

CLUSTERS: Mapping[str, tuple[str, ...]] = {  # keys from the specification of a kind to its cluster
    "RayCluster": (), "RayClusterFleet": ("template", "spec"), "RayClusterReplicaSet": ("template", "spec"),
    "RayService": ("rayClusterConfig",)}


def of_ray_cluster(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that the pods of a cluster launch, each on the GPUs of all its nodes."""
    spec = cluster = document["spec"]
    for key in CLUSTERS[document["kind"]]:
        cluster = cluster.get(key) or {}
    head, groups = cluster.get("headGroupSpec") or {}, cluster.get("workerGroupSpecs") or []
    counts = [1, *(count_of(group.get("replicas", group.get("minReplicas"))) * count_of(group.get("numOfHosts"))
                   for group in groups)]
    templates = [part.get("template") or {} for part in (head, *groups)]
    gpus = [count * _gpus(template) for count, template in zip(counts, templates, strict=True)]
    place, replicas = title(document), count_of(spec.get("replicas"))
    names = next((names for template in templates if (names := gpus_named(template.get("spec") or {}))), ())
    for engine in (engine for template in templates for engine in of_pod(template, place, replicas=replicas)):
        yield replace(engine, gpus=sum(gpus) or None, gpu_names=engine.gpu_names or names)


def _gpus(template: Mapping[str, Any]) -> int:
    """Return the GPUs of a pod [1]."""
    containers = (template.get("spec") or {}).get("containers") or ()
    return sum(gpus_of(container.get("resources")) or 0 for container in containers)
