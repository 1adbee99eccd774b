"""Deployment files whose keys are an engine's options: Ray Serve LLM, the production stack, TensorRT-LLM, --config."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.dialect import Tree
from planner.launch.described import Described
from planner.launch.flag_names import names_of, normal
from planner.launch.manifests.document_values import at, count_of, environment_of, flags_of, scaled, words_of
from planner.launch.manifests.node_labels import gpus_named, of_resources
from planner.launch.named_gpus import named_gpu
from planner.launch.take_flags import ROLES

PARTS = {"llm_config": "both", "prefill_config": "prefill", "decode_config": "decode"}  # of Ray's applications
RAY_CONFIGS = ("model_loading_config", *(f"{part}.model_loading_config" for part in PARTS))
# Keys of vllmConfig in the stack's template deployment-vllm-multi.yaml.
STACK_FLAGS = {"maxModelLen": "--max-model-len", "dtype": "--dtype", "tensorParallelSize": "--tensor-parallel-size",
               "pipelineParallelSize": "--pipeline-parallel-size", "maxNumSeqs": "--max-num-seqs",
               "gpuMemoryUtilization": "--gpu-memory-utilization", "maxLoras": "--max-loras"}
# Values of the stack's routingLogic, and the planner's router. The chart's own is roundrobin: helm/values.yaml.
STACK_ROUTERS = {"roundrobin": "round-robin", "session": "session-affinity", "prefixaware": "prefix-aware"}
STACK_READ = {  # keys of the stack's values that are read, or without effect on a prediction; of routerSpec others are
    "": "servingEngineSpec routerSpec sharedPvcStorage",
    "servingEngineSpec": "enableEngine labels extraPorts vllmApiKey modelSpec containerPort servicePort strategy "
                         "startupProbe livenessProbe readinessProbe maxUnavailablePodDisruptionBudget tolerations "
                         "runtimeClassName schedulerName securityContext containerSecurityContext sidecar "
                         "imageRegistry imagePullPolicy imagePullSecrets",
    "modelSpec": "annotations serviceAccountName priorityClassName runtimeClassName podAnnotations name repository tag "
                 "imagePullSecret imagePullPolicy modelURL chatTemplate chatTemplateConfigMap enableTool "
                 "toolCallParser replicaCount requestCPU requestMemory requestGPU requestGPUType limitCPU limitMemory "
                 "pvcStorage pvcAccessMode storageClass pvcMatchLabels pvcLabels extraVolumes extraVolumeMounts "
                 "initContainer vllmConfig lmcacheConfig hf_token env affinity nodeSelectorTerms nodeName tolerations "
                 "shmSize enableLoRA",
    "vllmConfig": f"v0 enablePrefixCaching enableChunkedPrefill extraArgs prometheusMultiprocDir "
                  f"{' '.join(STACK_FLAGS)}",
    "lmcacheConfig": "enabled cpuOffloadingBufferSize kvRole cudaVisibleDevices instanceId workerPort controllerPort "
                     "enableController logLevel"}
SERVERS = {"context_servers": "prefill", "generation_servers": "decode"}
# Keys of the router and of addresses: tensorrt_llm/llmapi/disagg_utils.py.
OF_THE_ROUTER = ("hostname", "port", "urls", "num_instances", "router", "conditional_disagg_config", "max_retries",
                 "perf_metrics_max_requests", "disagg_cluster", "otlp_config", "node_id", "schedule_style")
ELSEWHERE = ("names addresses without options; the options stand in the commands of these servers; give each "
             "command to its [[pool]]")


def of_ray(document: Mapping[str, Any], folder: Path | None = None) -> Iterator[Described]:
    """Yield the engines of Ray Serve LLM's configurations, alone or in the arguments of applications.

    Parameters
    ----------
    folder : of the files that a document names; None reads none.
    """
    applications = document.get("applications")
    arguments = [each.get("args") for each in applications] if isinstance(applications, list) else []
    yield from _of_ray_config(document, "both")
    for part in [document, *arguments]:
        if not isinstance(part, Mapping):
            continue
        for config in part.get("llm_configs") or ():
            if isinstance(config, str) and folder is not None and (folder / config).is_file():
                yield from of_ray(yaml.safe_load((folder / config).read_text(encoding="utf-8")))
            yield from _of_ray_config(config, "both")
        for key, role in PARTS.items():
            yield from _of_ray_config(part.get(key), role)


def _of_ray_config(config: Any, role: str) -> Iterator[Described]:
    """Yield the engine of a configuration, which is vLLM's; none if the value is no configuration."""
    if not isinstance(config, Mapping) or not isinstance(loading := config.get("model_loading_config"), Mapping):
        return
    source, deployment = loading.get("model_source"), config.get("deployment_config")
    model = source if isinstance(source, str) else loading.get("model_id")
    least, most = (at(deployment, f"autoscaling_config.{bound}_replicas") for bound in ("min", "max"))
    replicas = count_of(at(deployment, "num_replicas"), count_of(least))
    replicas, notes = scaled(1 if least is None else least, most, replicas)
    yield Described(words=["vllm", "serve", str(model), *flags_of(config.get("engine_kwargs") or {})],
                    place=f"llm_config {loading.get('model_id', '')}".strip(), role=role,
                    variables=environment_of(at(config, "runtime_env.env_vars")),
                    replicas=replicas, notes=notes,
                    gpu_names=(named_gpu(str(kind)),) if (kind := config.get("accelerator_type")) else ())


def of_production_stack(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of the production stack, each with the command that its template writes.

    Its router deals the requests to the replicas: `routingLogic`.
    """
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
        replicas = count_of(model.get("replicaCount"))
        router, notes = _stack_router(document.get("routerSpec") or {})
        parts = {"": document, "servingEngineSpec": document["servingEngineSpec"], "modelSpec": model,
                 "vllmConfig": config, "lmcacheConfig": cache}
        unread = [f"{name}.{key}".lstrip(".") for name, part in parts.items() for key in part
                  if key not in STACK_READ[name].split()]
        notes = notes if replicas > 1 else ()
        if unread:
            notes += (f"has {', '.join(unread)}, which the planner does not read; give settings of the engine in "
                      "extraArgs or env",)
        yield Described(words=words, place=f"modelSpec {model.get('name', '')}".strip(), variables=variables,
                        options=router if replicas > 1 else {}, notes=notes,
                        image=f"{model.get('repository')}:{model.get('tag')}",
                        replicas=replicas,
                        gpus=count_of(model["requestGPU"]) if "requestGPU" in model else None,
                        gpu_names=of_resources(gpus_named(model), {"limits": {model.get("requestGPUType"): 1}}),
                        role=ROLES.get(str(cache.get("kvRole")), "both"))


def _stack_router(spec: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the router of the production stack as an option, and a note if the planner does not have it."""
    logic = str(spec.get("routingLogic") or "roundrobin")
    if not spec.get("enableRouter", True):
        return {}, ()
    if logic in STACK_ROUTERS:
        return {"router": STACK_ROUTERS[logic]}, ()
    return {}, (f"has routingLogic {logic}, which is not modelled: requests are dealt at random; choose a router near "
                f"to it with --router, or give prefill and decode as the pools of a fleet's file",)


def of_trtllm_disaggregated(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the servers of both roles; options beside them hold for both, and a server's own go before."""
    for name, role in SERVERS.items():
        servers = document[name]
        own = _options(servers)
        options = {**_options(document), **own}
        model = options.pop("model", None)
        text = yaml.safe_dump(options, sort_keys=False)
        words = ["trtllm-serve", *([] if model is None else [str(model)]), "--config", name]
        yield Described(words=words, place=name, files={name: text}, replicas=count_of(servers.get("num_instances")),
                        role=role, notes=() if own else (ELSEWHERE,))


def _options(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of servers among the keys of a table."""
    return {key: value for key, value in document.items() if key not in (*SERVERS, *OF_THE_ROUTER)}


def of_engine_config(document: Mapping[str, Any], path: Path) -> Iterator[Described] | None:
    """Return the engine whose options these are; None if the keys are no engine's options."""
    if (engine := _engine(document)) is None:
        return None
    dialect = ENGINES[engine].dialect
    return iter([Described(words=[*dialect.command, dialect.files[0], str(path)], place=path.name)])


def _engine(document: Mapping[str, Any]) -> str | None:
    """Return the engine that has a table among the keys for itself, or that knows most of them; None if none does."""
    keys = {f"--{normal(str(key))}" for key in document}
    known = {name: len(keys & set(names_of(name))) for name in ENGINES}
    tables = {name: {table for entry in (*engine.dialect.entries, *engine.dialect.file_entries)
                     if isinstance(entry, Tree) for table in entry.names} for name, engine in ENGINES.items()}
    counts = Counter(table for names in tables.values() for table in names)
    for name, names in tables.items():
        if ENGINES[name].dialect.file_entries and any(counts[table] == 1 for table in keys & names):
            return name
    best = max(known, key=lambda name: known[name])
    return best if keys and known[best] >= max(1, 0.75 * len(keys)) else None
