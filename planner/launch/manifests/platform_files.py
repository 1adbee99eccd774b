"""Containers in files of a platform: tasks of SkyPilot and dstack, and values of vLLM's and llm-d's Helm charts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.beginnings import stated
from planner.launch.described import Described
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import at, count_of, environment_of, rendered, scaled, text_of, words_of
from planner.launch.manifests.node_labels import gpus_named
from planner.launch.named_gpus import SMALLEST, GpuOffer, gpus_of_instance, named_instance, offer_of, texts_of


def of_cloud_task(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that a task launches on each node; on other GPUs that it accepts they are alternatives."""
    first, *others = [list(_of_offer(document, offer)) for offer in _offers(document.get("resources") or {})]
    for place, engine in enumerate(first):
        yield replace(engine, alternatives=tuple(each[place] for each in others if place < len(each)))


def _of_offer(document: Mapping[str, Any], offer: GpuOffer) -> Iterator[Described]:
    """Yield the engines of a task on some GPUs, with the variables that its cloud sets."""
    resources = document.get("resources") or {}
    nodes, gpus = count_of(document.get("num_nodes", document.get("nodes"))), offer.count
    stated_replicas = at(document, "replicas|service.replicas|service.replica_policy.min_replicas")
    least, _, most = str(1 if stated_replicas is None else stated_replicas).partition("..")  # dstack's 1..4
    replicas, notes = scaled(least, most or at(document, "service.replica_policy.max_replicas"))
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


def _offers(resources: Mapping[str, Any]) -> list[GpuOffer]:
    """Return the GPUs that a task accepts, of its resources and of the ones in any_of or ordered."""
    parts = resources.get("any_of") or resources.get("ordered") or [{}]
    offers = [offer for part in parts for offer in _of_resources({**resources, **part})]
    return list(dict.fromkeys(offers)) or [GpuOffer(None)]


def _of_resources(resources: Mapping[str, Any]) -> Iterator[GpuOffer]:
    """Yield the GPUs that SkyPilot's or dstack's resources accept."""
    if (value := resources.get("accelerators")) is not None:
        yield from (offer_of(text, SMALLEST) for text in texts_of(value))
    elif (value := resources.get("gpu")) is not None:
        yield from (offer_of(text) for text in texts_of(value))
    elif (instance := resources.get("instance_type")) is not None:
        yield GpuOffer(gpus_of_instance(str(instance)), (named_instance(str(instance)),))


def of_image_chart(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engine of vLLM's own chart."""
    image = document["image"]
    container = {"image": f"{image['repository']}:{image.get('tag', 'latest')}", "env": image.get("env"),
                 "resources": document.get("resources"), "command": image["command"]}
    yield from engines_of(container, Described(place="the image", replicas=count_of(document.get("replicaCount")),
                                               gpu_names=gpus_named(document)))


def of_llmd(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of llm-d: prefill and decode, or decode alone, whose engines serve whole."""
    artifacts = document["modelArtifacts"]
    parts = {part: document[part] for part in ("prefill", "decode") if isinstance(document.get(part), Mapping)
             and document[part].get("create", True) and count_of(document[part].get("replicas"), 1) > 0}
    for part, values in parts.items():
        parallelism = values.get("parallelism") or {}
        sizes = {"TP_SIZE": parallelism.get("tensor", 1), "DP_SIZE": parallelism.get("data", 1),
                 "DP_SIZE_LOCAL": parallelism.get("dataLocal", 1)}
        kinds = values.get("acceleratorTypes") or {}
        allowed = {"key": kinds.get("labelKey"), "values": kinds.get("labelValues")}
        names = gpus_named({"nodeSelectorTerms": [{"matchExpressions": [allowed]}], **values})
        for container in values.get("containers") or ():
            container = rendered(container, {"Values": document})
            command, is_vllm = _llmd_command(container, str(artifacts.get("name")), sizes["TP_SIZE"])
            around = Described(place=f"container {container.get('name', '')} of {part}",
                               replicas=count_of(values.get("replicas")), role=part if len(parts) > 1 else "both",
                               nodes=count_of(parallelism.get("workers")), gpu_names=names,
                               variables={name: str(size) for name, size in sizes.items()})
            yield from engines_of(container, around, command=command if is_vllm else None)


def _llmd_command(container: Mapping[str, Any], model: str, tensor_parallel_size: Any) -> tuple[list[str], bool]:
    """Return the command that llm-d's chart writes for a container, and whether it writes one."""
    kind, arguments = text_of(container.get("modelCommand")), words_of(container.get("args"))
    if kind not in ("vllmServe", "imageDefault") or container.get("command"):
        return [], False
    names_model = kind == "imageDefault" and any(word.partition("=")[0] == "--model" for word in arguments)
    words = ["vllm", "serve", *([] if names_model else [model]), *arguments]
    if count_of(tensor_parallel_size) > 1 and not any("tensor" in word or word == "-tp" for word in arguments):
        words.append(f"--tensor-parallel-size={tensor_parallel_size}")
    return words, True
