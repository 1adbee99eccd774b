"""A sized deployment written as a file: Kubernetes, docker compose, Dynamo's graph, KServe, or values of Helm."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.engine import Engine
from planner.errors import UsageError
from planner.launch.beginnings import launched
from planner.launch.described import Described
from planner.launch.read_command import read_launch
from planner.launch.scripts.shell_script import script_launches
from planner.settings.deployment_options import SIZES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGroup:
    """Equal engines of a deployment.

    Parameters
    ----------
    command : that launches one; it may write the file that it names first.
    replicas : their number [1].
    gpu_resource : Kubernetes' name of the GPUs.
    role : prefill, decode, or both.
    version : of the engine; None for the newest.
    """

    command: str
    replicas: int
    gpu_resource: str = "nvidia.com/gpu"
    role: str = "both"
    version: str | None = None

    @property
    def name(self) -> str:
        """Return a name for the engine in a file."""
        return "llm" if self.role == "both" else f"llm-{self.role}"

    @property
    def gpus(self) -> int:
        """Return the GPUs of one [1]."""
        options = read_launch(self.command, reads_files=False).options
        ranks = options.get("data_parallel_size", 1) if options.get("data_parallel_attention") else 1
        return int(ranks * math.prod(options.get(name, 1) for name in SIZES))

    @property
    def launch(self) -> Described:
        """Return the launch in the command."""
        return next(script_launches(self.command))

    @property
    def engine(self) -> Engine:
        """Return the engine that the command launches."""
        return ENGINES[launched(self.launch.words).engine]

    @property
    def words(self) -> list[str]:
        """Return the command's words with the flags of the role; a shell's if the command writes a file.

        Raises
        ------
        UsageError : no flags of the engine for its role are known.
        """
        launch, flags = self.launch, self.engine.package.role_flags.get(self.role, ())
        if self.role != "both" and not flags:
            raise UsageError(f"--write: no flags of {self.engine.title} for {self.role} replicas are known; "
                             f"leave it out, and start the engines by the answer's commands with these flags")
        if launch.files:
            return ["/bin/bash", "-c", f"{self.command} {shlex.join(flags)}".strip()]
        return [*launch.words, *flags]

    @property
    def image(self) -> str:
        """Return the image with the engine's release.

        Raises
        ------
        UsageError : no image of the engine is known.
        """
        if (image := self.engine.package.image) is None:
            raise UsageError(f"--write: no container image of {self.engine.title} is known; leave it out, and "
                             f"start the engines by the answer's commands")
        name, _, tag = image.rpartition(":")
        return f"{name}:{'latest' if self.version is None else tag.format(self.version)}"


def role_command(command: str, role: str) -> str:
    """Return the command of an engine with the flags of its role, prefill or decode; a comment if none are known."""
    flags = EngineGroup(command=command, replicas=1, role=role).engine.package.role_flags.get(role)
    return f"{command} {shlex.join(flags)}" if flags else f"{command}  # lacks the flags of {role} replicas"


def manifest(kind: str, engines: Sequence[EngineGroup], wanted: Mapping[str, Any] | None = None) -> str:
    """Return engines as a file of a kind, which `read_launch` reads back.

    Parameters
    ----------
    wanted : hardware, workload and sla of a request to Dynamo; other kinds have no place for them.

    Raises
    ------
    UsageError : there is no such kind, or the kind has no words for an engine.
    """
    if kind not in WRITERS:
        raise UsageError(f"--write {kind}: must be {', '.join(WRITERS)}")
    documents = WRITERS[kind](engines)
    if kind == "dgdr":
        documents[0]["spec"] |= wanted or {}
    texts = (yaml.safe_dump(document, sort_keys=False, width=110) for document in documents)
    return HEADS.get(kind, "") + "---\n".join(texts)


def _kubernetes(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return Deployments, one for each kind of engine."""
    documents = []
    for engine in engines:
        labels = {"app": engine.name} | ({} if engine.role == "both" else {"llm-d.ai/role": engine.role})
        container = {"name": "engine", "image": engine.image, "command": engine.words,
                     "resources": {"limits": {engine.gpu_resource: engine.gpus}}}
        documents.append({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": engine.name},
            "spec": {"replicas": engine.replicas, "selector": {"matchLabels": {"app": engine.name}},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
    return documents


def _compose(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return the services of a compose file."""
    services = {}
    for engine in engines:
        device = {"driver": "nvidia", "count": engine.gpus, "capabilities": ["gpu"]}
        services[engine.name] = {
            "image": engine.image, "entrypoint": [word.replace("$", "$$") for word in engine.words], "command": [],
            "deploy": {"replicas": engine.replicas, "resources": {"reservations": {"devices": [device]}}}}
    return [{"services": services}]


def _dynamo(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return a graph with a frontend and workers."""
    services = {"Frontend": {"componentType": "frontend", "replicas": 1}, **_dynamo_workers("dynamo", engines)}
    return [{**GRAPH, "metadata": {"name": "llm"}, "spec": {"services": services}}]


def _dynamo_request(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return a request for a graph. Its overrides have the workers; a graph of Dynamo's profiler names them so."""
    workers = dict(zip(["worker" if engine.role == "both" else engine.role for engine in engines],
                       _dynamo_workers("dgdr", engines).values(), strict=True))
    model = read_launch(engines[0].command, reads_files=False).options["model"]
    return [{"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": {"name": "llm"},
             "spec": {"model": model, "backend": engines[0].engine.name, "autoApply": False,
                      "overrides": {"dgd": {**GRAPH, "spec": {"services": workers}}}}}]


def _dynamo_workers(kind: str, engines: Sequence[EngineGroup]) -> dict[str, Any]:
    """Return the services of Dynamo's workers by name."""
    services: dict[str, Any] = {}
    for engine in engines:
        facts, arguments = engine.engine, list(launched(engine.launch.words).arguments)
        if not facts.package.dynamo_roles:
            raise UsageError(f"--write {kind}: {facts.title}'s flags are other ones in Dynamo; give "
                             f"k8s or compose")
        if not arguments[0].startswith("-"):
            arguments.insert(0, facts.dialect.model[0])
        services[engine.name.title().replace("-", "")] = {
            "componentType": "worker", **({} if engine.role == "both" else {"subComponentType": engine.role}),
            "replicas": engine.replicas, "resources": {"limits": {"gpu": str(engine.gpus)}},
            "extraPodSpec": {"mainContainer": {
                "image": f"nvcr.io/nvidia/ai-dynamo/{facts.name}-runtime:latest",
                "command": ["python3", "-m", f"dynamo.{facts.name}"],
                "args": [*arguments, *facts.package.dynamo_roles.get(engine.role, ())]}}}
    return services


def _model_and_arguments(kind: str, engine: EngineGroup) -> tuple[str, list[str]]:
    """Return the model and the other arguments of an engine, for a kind that has the command itself."""
    if kind not in engine.engine.package.charts or engine.launch.files:
        engines = ", ".join(facts.title for facts in ENGINES.values() if kind in facts.package.charts)
        raise UsageError(f"--write {kind}: launches {engines}, and the engine is {engine.engine.title}; write k8s")
    model, *arguments = launched(engine.launch.words).arguments
    if model.startswith(("-", "/", ".", "~")) or "/" not in model:
        raise UsageError(f"--write {kind}: loads models of the Hugging Face Hub, and the model is {model}; write k8s")
    return model, [*arguments, *engine.engine.package.role_flags.get(engine.role, ())]


def _kserve(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return an LLMInferenceService. Its own template writes the command, with the arguments of a variable."""
    parts, model = {}, ""
    for engine in engines:
        model, arguments = _model_and_arguments("kserve", engine)
        variables = [{"name": "VLLM_ADDITIONAL_ARGS", "value": shlex.join(arguments)}] if arguments else []
        parts[engine.role] = {"replicas": engine.replicas, "template": {"containers": [{
            "name": "main", "image": engine.image, "env": variables,
            "resources": {"limits": {engine.gpu_resource: str(engine.gpus)}}}]}}
    apart = {"prefill": parts["prefill"]} if "prefill" in parts else {}
    router: dict[str, Any] = {"route": {}, "gateway": {}, **({"scheduler": {}} if apart else {})}
    return [{"apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService", "metadata": {"name": "llm"},
             "spec": {"model": {"uri": f"hf://{model}", "name": model}, **parts["decode" if apart else "both"],
                      "router": router, **apart}}]


def _helm(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return values of vLLM's production stack."""
    engine, *more = engines
    if more:
        raise UsageError("--write helm: writes replicas of one kind, and prefill and decode are apart; write k8s")
    model, arguments = _model_and_arguments("helm", engine)
    caches = read_launch(engine.command, reads_files=False).options.get("enable_prefix_caching", True)
    repository, _, tag = engine.image.rpartition(":")
    spec = {"name": engine.name, "repository": repository, "tag": tag, "modelURL": model,
            "replicaCount": engine.replicas, "requestCPU": 10, "requestMemory": "64Gi", "requestGPU": engine.gpus,
            "requestGPUType": engine.gpu_resource}
    if arguments:  # with any setting, the chart turns prefix caching off unless a key turns it on
        spec["vllmConfig"] = {"enablePrefixCaching": caches, "extraArgs": arguments}
    return [{"servingEngineSpec": {"modelSpec": [spec]}}]


def _llmd(engines: Sequence[EngineGroup]) -> list[dict[str, Any]]:
    """Return values of the chart llm-d-modelservice: an engine that serves whole is a decode engine alone."""
    model, parts = "", dict[str, Any](decode={"create": False}, prefill={"create": False})
    for engine in engines:
        model, arguments = _model_and_arguments("llm-d", engine)
        gpus = {engine.gpu_resource: str(engine.gpus)}
        parts["prefill" if engine.role == "prefill" else "decode"] = {
            "create": True, "replicas": engine.replicas, "containers": [{
                "name": "vllm", "image": engine.image, "modelCommand": "vllmServe", "args": arguments,
                "resources": {"limits": gpus, "requests": gpus}}]}
    return [{"modelArtifacts": {"name": model, "uri": f"hf://{model}"}, **parts}]


WRITERS: Mapping[str, Callable[[Sequence[EngineGroup]], list[dict[str, Any]]]] = {
    "k8s": _kubernetes, "compose": _compose, "dynamo": _dynamo, "dgdr": _dynamo_request, "kserve": _kserve,
    "helm": _helm, "llm-d": _llmd}
FILES = {"k8s": "deployment.yaml", "compose": "compose.yaml", "dynamo": "graph.yaml", "dgdr": "request.yaml",
         "kserve": "service.yaml", "helm": "values.yaml", "llm-d": "values.yaml"}
HEADS = {"helm": "# The chart requires requestCPU and requestMemory. They are not predicted: set yours.\n",
         "dgdr": "# Dynamo's profiler makes a graph. The overrides set its workers to this fleet if the graph has the "
                 "same\n# components. Compare before you set autoApply. sla has no percentiles.\n"}
GRAPH = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment"}
