"""Graphs of NVIDIA Dynamo: DynamoGraphDeployments with workers of an engine, whole or apart for prefill and decode."""

from collections.abc import Iterator, Mapping
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import Around, count_of, engines_of
from planner.launch.manifests.node_labels import gpus_named

ROLES = ("prefill", "decode")


def of_dynamo(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the workers of a graph that run an engine."""
    spec = document["spec"]
    services = spec.get("services") or {}
    parts = [*services.items(), *((part.get("name", ""), part) for part in spec.get("components") or ())]
    roles = {name: _role(part) for name, part in parts}
    is_apart = {"prefill", "decode"} <= set(roles.values())
    for name, part in parts:
        pod = (part.get("podTemplate") or {}).get("spec") or part.get("extraPodSpec") or {}
        containers = pod.get("containers") or [pod.get("mainContainer") or {}]
        nodes = count_of((part.get("multinode") or {}).get("nodeCount"))
        around = Around(place=f"component {name}", replicas=count_of(part.get("replicas")),
                        role=roles[name] if is_apart else "both", nodes=nodes, gpu_names=gpus_named(pod))
        for container in containers:
            yield from engines_of({"resources": part.get("resources"), "env": part.get("envs")} | container, around)


def _role(part: Mapping[str, Any]) -> str:
    """Return the role that a component has by its type, or by the flags of its worker."""
    kind = part.get("subComponentType") or part.get("type")
    text = str(part.get("extraPodSpec") or part.get("podTemplate"))
    if kind in ROLES:
        return str(kind)
    if "--is-prefill-worker" in text or "'--disaggregation-mode', 'prefill'" in text:
        return "prefill"
    return "decode" if "--is-decode-worker" in text or "'--disaggregation-mode', 'decode'" in text else "both"
