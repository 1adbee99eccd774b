"""Tasks of SkyPilot and services of dstack: commands of a shell on GPUs that a cloud is asked for."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.beginnings import stated
from planner.launch.described import Described
from planner.launch.gpu_offers import SMALLEST, Offer, offer_of, texts_of
from planner.launch.instance_types import gpus_of_instance
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import count_of, environment_of, scaled, text_of
from planner.launch.named_gpus import named_instance


def is_cloud_task(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a task of SkyPilot or a service of dstack."""
    return "kind" not in document and (isinstance(document.get("run"), str) or (
        document.get("type") in ("service", "task") and isinstance(document.get("commands"), list)))


def of_cloud_task(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that a task launches on each node; on other GPUs that it accepts they are alternatives."""
    first, *others = [list(_of_offer(document, offer)) for offer in _offers(document.get("resources") or {})]
    for place, engine in enumerate(first):
        yield replace(engine, alternatives=tuple(each[place] for each in others if place < len(each)))


def _of_offer(document: Mapping[str, Any], offer: Offer) -> Iterator[Described]:
    """Yield the engines of a task on some GPUs, with the variables that its cloud sets."""
    resources = document.get("resources") or {}
    nodes, gpus = count_of(document.get("num_nodes", document.get("nodes"))), offer.count
    service = document.get("service") or {}
    policy = service.get("replica_policy") or {}
    stated_replicas = document.get("replicas", service.get("replicas", policy.get("min_replicas")))
    least, _, most = str(1 if stated_replicas is None else stated_replicas).partition("..")  # dstack's 1..4
    replicas, notes = scaled(least, most or policy.get("max_replicas"))
    variables = {} if gpus is None else {"SKYPILOT_NUM_GPUS_PER_NODE": str(gpus), "DSTACK_GPUS_NUM": str(gpus * nodes),
                                         "DSTACK_GPUS_PER_NODE": str(gpus)}
    variables |= {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NODE_RANK": "0", "DSTACK_NODES_NUM": str(nodes),
                  "DSTACK_NODE_RANK": "0"}
    script = document.get("run") or "\n".join(map(str, document.get("commands") or ()))
    image = text_of(document.get("image", resources.get("image_id")))
    environment = {**environment_of(document.get("envs")), **environment_of(document.get("env"))}
    container = {"image": None if image is None else image.removeprefix("docker:"), "env": environment,
                 "resources": {"limits": {"gpu": gpus}}}
    yield from engines_of(container, Described(
        place="the task", replicas=replicas, nodes=nodes, gpu_names=offer.names, variables=variables, notes=notes,
        options=stated([document.get("setup")])), command=["sh", "-c", script])


def _offers(resources: Mapping[str, Any]) -> list[Offer]:
    """Return the GPUs that a task accepts, of its resources and of the ones in any_of or ordered."""
    parts = resources.get("any_of") or resources.get("ordered") or [{}]
    offers = [offer for part in parts for offer in _of_resources({**resources, **part})]
    return list(dict.fromkeys(offers)) or [Offer(None)]


def _of_resources(resources: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the GPUs that SkyPilot's or dstack's resources accept."""
    if (value := resources.get("accelerators")) is not None:
        yield from (offer_of(text, SMALLEST) for text in texts_of(value))
    elif (value := resources.get("gpu")) is not None:
        yield from (offer_of(text) for text in texts_of(value))
    elif (instance := resources.get("instance_type")) is not None:
        yield Offer(gpus_of_instance(str(instance)), (named_instance(str(instance)),))
