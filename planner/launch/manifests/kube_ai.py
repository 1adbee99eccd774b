"""KubeAI's Models: an engine with its arguments, on the GPUs of a resource profile."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.engines import ENGINES
from planner.launch.described import Described
from planner.launch.manifests.containers import Around, count_of, engines_of, words_of
from planner.launch.named_gpus import named_gpu

PROFILE = re.compile(r"^(?:nvidia|amd)-gpu-|^(?:google|aws)-")  # the beginnings of profiles' names
SCHEMES = ("hf://", "pvc://", "s3://", "gs://", "oss://")


def is_kube_ai(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a Model of KubeAI with an engine that is known."""
    spec = document.get("spec")
    return document.get("kind") == "Model" and isinstance(spec, Mapping) and str(
        spec.get("engine")).lower() in ENGINES


def of_kube_ai(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engine of a Model."""
    spec = document["spec"]
    model = str(spec.get("url", "")).partition("?")[0]
    for scheme in SCHEMES:
        model = model.removeprefix(scheme)
    launch = ENGINES[str(spec["engine"]).lower()].dialect.launch
    least, most = count_of(spec.get("minReplicas")), spec.get("maxReplicas")
    replicas = count_of(spec.get("replicas"), max(least, 1))
    container = {"image": spec.get("image"), "env": spec.get("env"),
                 "resources": {"limits": {"gpu": str(spec.get("resourceProfile", "")).rpartition(":")[2]}}}
    place = f"Model {(document.get('metadata') or {}).get('name', '')}".strip()
    named = named_gpu(PROFILE.sub("", str(spec.get("resourceProfile", "")).rpartition(":")[0]))
    names = (named,) if named.gpu or named.problem else ()
    for engine in engines_of(container, Around(place=place, replicas=replicas, gpu_names=names),
                             command=[*launch, model, *words_of(spec.get("args"))]):
        notes = () if most in (None, replicas) else (
            f"scales from {least} to {most} replicas; {replicas} are predicted, and --autoscale replays a scaler",)
        yield replace(engine, place=place, notes=(*engine.notes, *notes))
