"""Kinds of Kubernetes' documents with pods: a row for each, with paths to its pods, replicas, roles and nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from planner.launch.described import Described
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import at, count_of, gpus_of, title
from planner.launch.manifests.node_labels import gpus_named
from planner.launch.manifests.option_files import of_ray

ROLES = ("prefill", "decode")
ROLE_LABEL = "llm-d.ai/role"
OF_PART = {"resources": "resources", "envs": "env"}  # keys of a part, and of its container


@dataclass(frozen=True, slots=True, kw_only=True)
class PodKind:
    """The places of pods in a kind of document: paths from its specification or a part, with `|` between alternatives.

    Parameters
    ----------
    parts : with pods of their own, a list or a table by name; None if the specification is the only part.
    template : of a part, the template of its pod.
    pod : of a part, the pod's specification, if it has no template.
    replicas : of a part, its pods or groups of pods.
    nodes : of a part, the pods of a group.
    role : of a part, the text that names its role. A role counts only if the other one is there, too.
    groups : of the specification, the number of all parts together; None if it has none.
    place : of a part, with its name and the document's title.
    """

    parts: str | None = None
    template: str = "leaderWorkerTemplate.leaderTemplate|leaderWorkerTemplate.workerTemplate|template"
    pod: str = ""
    replicas: str = "replicas"
    nodes: str = "leaderWorkerTemplate.size"
    role: str = "name"
    groups: str | None = None
    place: str = "{title}"


GROUPS = PodKind(
    parts="template.spec.roles|template.spec.replicatedJobs|roles|replicatedJobs", groups="replicas",
    template="template.spec.template|template|leaderWorkerSet.leaderTemplate|leaderWorkerTemplate.leaderTemplate",
    nodes="leaderWorkerSet.size|leaderWorkerTemplate.size|podGroupSize", place="{name} of {title}")
POD_KINDS: Mapping[str, PodKind] = {
    **dict.fromkeys(("Pod", "Deployment", "Rollout", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "LeaderWorkerSet",
                     "Service", "ServingRuntime", "ClusterServingRuntime"), PodKind()),
    **dict.fromkeys(("JobSet", "RoleBasedGroup", "StormService", "RoleSet"), GROUPS),
    "DynamoGraphDeployment": PodKind(
        parts="services|components", template="podTemplate", pod="extraPodSpec", nodes="multinode.nodeCount",
        role="subComponentType|type", place="component {name}")}
# Paths from the specification of a kind to its cluster of Ray: KubeRay's, and AIBrix' fleets of them.
CLUSTERS: Mapping[str, str] = {"RayCluster": "", "RayClusterFleet": "template.spec",
                               "RayClusterReplicaSet": "template.spec", "RayService": "rayClusterConfig"}


def of_kubernetes(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a document whose kind is a row of `POD_KINDS`."""
    kind, spec = POD_KINDS[document["kind"]], document["spec"]
    parts = {"": spec} if kind.parts is None else dict(_named_parts(spec, kind.parts))
    named = {name: next((role for role in ROLES if role in str(at(part, kind.role)).lower()), "both")
             for name, part in parts.items()}
    is_apart = set(ROLES) <= set(named.values())
    for name, part in parts.items():
        template = at(part, kind.template)
        template = template if isinstance(template, Mapping) else {"spec": at(part, kind.pod) or {}}
        beside = {} if kind.parts is None else {
            key: part[own] for own, key in OF_PART.items() if own in part}
        around = Described(place=kind.place.format(name=name, title=title(document)),
                           replicas=count_of(at(part, kind.replicas)), nodes=count_of(at(part, kind.nodes)),
                           role=named[name] if is_apart else "both")
        groups = 1 if kind.groups is None else count_of(at(spec, kind.groups))
        yield from (replace(engine, replicas=engine.replicas * groups) for engine in of_pod(template, around, beside))


def _named_parts(spec: Mapping[str, Any], paths: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the parts of a document with their names."""
    for path in paths.split("|"):
        parts = at(spec, path) or ()
        yield from parts.items() if isinstance(parts, Mapping) else ((str(part.get("name")), part) for part in parts)


def of_pod(template: Mapping[str, Any], around: Described, beside: Mapping[str, Any] | None = None
           ) -> Iterator[Described]:
    """Yield the engines of a pod's template.

    Parameters
    ----------
    around : the facts around the pod.
    beside : keys that each of its containers has, unless it has its own.
    """
    labels, pod = (template.get("metadata") or {}).get("labels") or {}, template.get("spec") or {}
    group = {"LWS_GROUP_SIZE": str(around.nodes)} if around.nodes > 1 else {}
    around = replace(around, gpu_names=gpus_named(pod) or around.gpu_names, variables={**group, **around.variables},
                     role=str(labels[ROLE_LABEL]) if labels.get(ROLE_LABEL) in ROLES else around.role)
    containers = pod.get("containers") or [pod.get("mainContainer")]
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, Mapping):
            name = container.get("name")
            place = f"container {name} of {around.place}" if name else around.place
            yield from engines_of({**(beside or {}), **container}, replace(around, place=place))


def of_ray_cluster(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that the pods of a cluster of Ray launch, each on the GPUs of all its nodes."""
    spec = document["spec"]
    cluster = at(spec, CLUSTERS[document["kind"]]) or {}
    groups = cluster.get("workerGroupSpecs") or []
    templates = [part.get("template") or {} for part in (cluster.get("headGroupSpec") or {}, *groups)]
    counts = [1, *(count_of(at(group, "replicas|minReplicas")) * count_of(group.get("numOfHosts")) for group in groups)]
    gpus = sum(count * (gpus_of(container.get("resources")) or 0) for count, template in zip(
        counts, templates, strict=True) for container in at(template, "spec.containers") or ())
    names = next((names for template in templates if (names := gpus_named(template.get("spec") or {}))), ())
    around = Described(place=title(document), replicas=count_of(spec.get("replicas")), gpu_names=names)
    yield from (replace(engine, gpus=gpus or None) for template in templates for engine in of_pod(template, around))


def of_ray_service(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a RayService: of its configurations of Ray Serve LLM, or of its cluster's pods."""
    served = document["spec"].get("serveConfigV2")
    configs = yaml.safe_load(served) if isinstance(served, str) else None
    engines = list(of_ray(configs)) if isinstance(configs, Mapping) else []
    yield from engines or of_ray_cluster(document)
