"""Values of Helm charts: vLLM's production stack, and llm-d's model service."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import count_of, environment_of, text_of, words_of
from planner.launch.manifests.go_templates import rendered
from planner.launch.manifests.node_labels import gpus_named, of_resources

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
# Keys of vllmConfig in the stack's template deployment-vllm-multi.yaml.
STACK_FLAGS = {"maxModelLen": "--max-model-len", "dtype": "--dtype", "tensorParallelSize": "--tensor-parallel-size",
               "pipelineParallelSize": "--pipeline-parallel-size", "maxNumSeqs": "--max-num-seqs",
               "gpuMemoryUtilization": "--gpu-memory-utilization", "maxLoras": "--max-loras"}


def is_production_stack(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has the production stack's engines."""
    return isinstance((document.get("servingEngineSpec") or {}), Mapping) and isinstance(
        (document.get("servingEngineSpec") or {}).get("modelSpec"), list)


def of_production_stack(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of the production stack, each with the command that its template writes."""
    for model in document["servingEngineSpec"]["modelSpec"]:
        config, cache = model.get("vllmConfig") or {}, model.get("lmcacheConfig") or {}
        words = ["vllm", "serve", str(model.get("modelURL"))]
        words += ["--enable-lora"] if model.get("enableLoRA") else []
        if "enableChunkedPrefill" in config:
            words.append(f"--{'' if config['enableChunkedPrefill'] else 'no-'}enable-chunked-prefill")
        if config:
            words.append(f"--{'' if config.get('enablePrefixCaching') else 'no-'}enable-prefix-caching")
        words += [word for key, flag in STACK_FLAGS.items() if key in config for word in (flag, str(config[key]))]
        words += words_of(config.get("extraArgs"))
        variables = environment_of(model.get("env"))
        if cache.get("enabled"):
            connector = "LMCacheConnector" if str(config.get("v0")) == "1" else "LMCacheConnectorV1"
            role = cache.get("kvRole", "kv_both")
            words += ["--kv-transfer-config", json.dumps({"kv_connector": connector, "kv_role": role})]
            if str(cache.get("cpuOffloadingBufferSize", "0")) not in ("", "0"):
                variables["LMCACHE_MAX_LOCAL_CPU_SIZE"] = str(cache["cpuOffloadingBufferSize"])
        yield Described(words=words, place=f"modelSpec {model.get('name', '')}".strip(), variables=variables,
                        image=f"{model.get('repository')}:{model.get('tag')}",
                        replicas=count_of(model.get("replicaCount")),
                        gpus=count_of(model["requestGPU"]) if "requestGPU" in model else None,
                        gpu_names=of_resources(gpus_named(model), {"limits": {model.get("requestGPUType"): 1}}),
                        role=ROLES.get(str(cache.get("kvRole")), "both"))


def is_image_chart(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is values of the chart in vLLM's repository, whose image has the command."""
    image = document.get("image")
    return isinstance(image, Mapping) and "repository" in image and isinstance(image.get("command"), list)


def of_image_chart(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engine of vLLM's own chart."""
    image = document["image"]
    container = {"image": f"{image['repository']}:{image.get('tag', 'latest')}", "env": image.get("env"),
                 "resources": document.get("resources"), "command": image["command"]}
    yield from engines_of(container, Described(place="the image", replicas=count_of(document.get("replicaCount")),
                                               gpu_names=gpus_named(document)))


def is_llmd(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is values of llm-d's model service."""
    return isinstance(document.get("modelArtifacts"), Mapping) and any(
        isinstance(document.get(part), Mapping) for part in ("decode", "prefill"))


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
