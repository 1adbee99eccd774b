"""Services that name a model or a runtime: KServe's and OME's, with their configurations, and KubeAI's Models."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.engines import ENGINES
from planner.launch.described import Described
from planner.launch.manifests.bases import MOUNTED, hub_name
from planner.launch.manifests.containers import engines_of
from planner.launch.manifests.document_values import (
    at,
    count_of,
    environment_of,
    gpus_of,
    options_of,
    rendered,
    scaled,
    title,
    words_of,
)
from planner.launch.manifests.kubernetes import of_kubernetes, of_pod
from planner.launch.manifests.node_labels import gpus_named
from planner.launch.named_gpus import named_gpu

RUNTIMES_OWN = ("--model-name", "--model-dir", "--model-id", "--model-revision", "--backend", "--task",
                "--predictor-config", "--http-port", "--grpc-port", "--enable-docs-url")
EVALUATED = re.compile(r'\beval "((?:exec )?vllm serve\b.*)"', re.DOTALL)  # the command of a preset
# OME's parts, and their roles if both are there.
PARTS = (("engineConfig", "prefill"), ("engine", "prefill"), ("decoderConfig", "decode"), ("decoder", "decode"))
PROFILE = re.compile(r"^(?:nvidia|amd)-gpu-|^(?:google|aws)-")  # the beginnings of names of KubeAI's profiles
SCHEMES = ("hf://", "pvc://", "s3://", "gs://", "oss://")
EXTRA = "VLLM_ADDITIONAL_ARGS"  # the variable with arguments beside llm-d's template


def of_kserve(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of an InferenceService."""
    predictor = document["spec"].get("predictor") or {}
    replicas, notes = scaled(count_of(predictor.get("minReplicas")), predictor.get("maxReplicas"))
    yield from _of_predictor(predictor, Described(place=title(document), replicas=replicas, notes=notes))


def of_llm_service(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of an LLMInferenceService, or of a configuration for one."""
    spec, place = document["spec"], title(document)
    spec = rendered(spec, {"Spec": spec, "ObjectMeta": document.get("metadata"), "GlobalConfig": {}})
    model = hub_name(at(spec, "model.uri")) or at(spec, "model.name")
    prefill = spec.get("prefill")
    parts = {"decode": spec} | ({"prefill": prefill} if isinstance(prefill, Mapping) else {})
    notes = (f"builds on {', '.join(map(str, spec['baseRefs']))}, which the file does not have; settings that change "
             f"the engine are then missing",) if spec.get("baseRefs") else ()
    for role, part in parts.items():
        if document["kind"].endswith("Config") and not isinstance(part.get("template"), Mapping):
            continue  # settings of another part, as of the router
        yield from _of_llm_part(part, model, Described(
            place=f"{place}, {role}" if prefill else place, role=role if prefill else "both", notes=notes))


def _of_predictor(predictor: Mapping[str, Any], around: Described) -> Iterator[Described]:
    model = predictor.get("model")
    if not isinstance(model, Mapping):
        yield from of_pod({"spec": predictor}, around)
        return
    options, words = options_of(words_of(model.get("args")), RUNTIMES_OWN)
    name = options["--model-id"] or hub_name(model.get("storageUri"))
    if name is not None and options_of(words, ("--model",))[0]["--model"] is None:
        words.insert(0, name)
    workers = predictor.get("workerSpec") or {}
    for key, flag in (("tensorParallelSize", "--tensor-parallel-size"),
                      ("pipelineParallelSize", "--pipeline-parallel-size")):
        if key in workers:
            words.append(f"{flag}={workers[key]}")
    around = replace(around, nodes=count_of(workers.get("pipelineParallelSize")), gpu_names=gpus_named(predictor))
    yield from engines_of(model, around, command=["vllm", "serve", *words])


def _of_llm_part(part: Mapping[str, Any], model: Any, around: Described) -> Iterator[Described]:
    parallelism = part.get("parallelism") or {}
    pod = part.get("template") or {}
    containers = pod.get("containers") or [{}]
    container = next((each for each in containers if each.get("name") in (None, "main")), containers[0])
    words = ["vllm", "serve", *([] if model is None else [str(model)])]
    words += [f"{flag}={parallelism[key]}" for key, flag in (
        ("tensor", "--tensor-parallel-size"), ("pipeline", "--pipeline-parallel-size"),
        ("data", "--data-parallel-size")) if key in parallelism]
    words += ["--enable-expert-parallel"] if parallelism.get("expert") else []
    words += words_of(container.get("args"))
    words += shlex.split(environment_of(container.get("env")).get(EXTRA, ""))
    has_own = bool(container.get("command"))
    if has_own:
        words = [*words_of(container.get("command")), *words_of(container.get("args"))]
    words = [EVALUATED.sub(r"\1", word if model is None else word.replace(MOUNTED, str(model))) for word in words]
    nodes = count_of(parallelism.get("data")) // max(count_of(parallelism.get("dataLocal")), 1)
    around = replace(around, replicas=count_of(part.get("replicas")), gpu_names=gpus_named(pod), variables={EXTRA: ""},
                     nodes=max(nodes, 1) if "dataLocal" in parallelism else 1)
    yield from engines_of(container, around, command=words, has_entrypoint=has_own)


def of_runtime(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a runtime or service, OME's or KServe's; OME's engine beside a decoder prefills."""
    spec = document["spec"]
    parts = [(spec[key], role) for key, role in PARTS if isinstance(spec.get(key), Mapping)]
    if not parts:
        yield from of_kserve(document) if document["kind"] == "InferenceService" else of_kubernetes(document)
    is_apart = len({role for _, role in parts}) > 1
    model, classes = at(spec, "model.name"), at(spec, "acceleratorRequirements.acceleratorClasses") or ()
    names = tuple(named for each in classes if (named := named_gpu(str(each))).gpu or named.problem)
    for part, role in parts:
        leader, worker = part.get("leader") or {}, part.get("worker") or {}
        pod = {**part, **leader}
        runner = pod.get("runner")
        pod["containers"] = [*([runner] if isinstance(runner, Mapping) else ()), *(pod.get("containers") or ())]
        nodes = 1 + count_of(worker.get("size")) if worker else 1
        gpus = sum(gpus_of(container.get("resources")) or 0 for container in pod["containers"]) * nodes
        given = {"MODEL_PATH": model, "PARALLELISM_SIZE": gpus or None}  # by OME's operator
        variables = {key: str(value) for key, value in given.items() if value is not None}
        replicas, notes = scaled(part.get("minReplicas", 1), part.get("maxReplicas"))
        yield from of_pod({"spec": pod}, Described(
            place=title(document), role=role if is_apart else "both", replicas=replicas, nodes=nodes,
            variables=variables, notes=notes, gpu_names=names))


def of_kube_ai(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engine of a Model; none if the engine is not known."""
    spec = document["spec"]
    if str(spec.get("engine")).lower() not in ENGINES:
        return
    model = str(spec.get("url", "")).partition("?")[0]
    for scheme in SCHEMES:
        model = model.removeprefix(scheme)
    launch = ENGINES[str(spec["engine"]).lower()].dialect.launch
    most = spec.get("maxReplicas")
    replicas = count_of(spec.get("replicas"), max(count_of(spec.get("minReplicas")), 1))
    _, notes = scaled(count_of(spec.get("minReplicas")), None if most == replicas else most, replicas)
    container = {"image": spec.get("image"), "env": spec.get("env"),
                 "resources": {"limits": {"gpu": str(spec.get("resourceProfile", "")).rpartition(":")[2]}}}
    named = named_gpu(PROFILE.sub("", str(spec.get("resourceProfile", "")).rpartition(":")[0]))
    around = Described(place=title(document), replicas=replicas, notes=notes,
                       gpu_names=(named,) if named.gpu or named.problem else ())
    yield from engines_of(container, around, command=[*launch, model, *words_of(spec.get("args"))])
