"""KubeAI's Models: an engine with its arguments, on the GPUs of a resource profile."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.engines import ENGINES
from planner.launch.described import Described
from planner.launch.manifests.containers import Around, count_of, engines_of, scaling, title, words_of
from planner.launch.named_gpus import named_gpu

PROFILE = re.compile(r"^(?:nvidia|amd)-gpu-|^(?:google|aws)-")  # the beginnings of profiles' names
SCHEMES = ("hf://", "pvc://", "s3://", "gs://", "oss://")


def of_kube_ai(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engine of a Model; none if the engine is not known."""
    spec = document["spec"]
    if str(spec.get("engine")).lower() not in ENGINES:
        return
    model = str(spec.get("url", "")).partition("?")[0]
    for scheme in SCHEMES:
        model = model.removeprefix(scheme)
    launch = ENGINES[str(spec["engine"]).lower()].dialect.launch
    least, most = count_of(spec.get("minReplicas")), spec.get("maxReplicas")
    replicas = count_of(spec.get("replicas"), max(least, 1))
    container = {"image": spec.get("image"), "env": spec.get("env"),
                 "resources": {"limits": {"gpu": str(spec.get("resourceProfile", "")).rpartition(":")[2]}}}
    place, notes = title(document), () if most == replicas else scaling(least, most, replicas)
    named = named_gpu(PROFILE.sub("", str(spec.get("resourceProfile", "")).rpartition(":")[0]))
    names = (named,) if named.gpu or named.problem else ()
    for engine in engines_of(container, Around(place=place, replicas=replicas, gpu_names=names),
                             command=[*launch, model, *words_of(spec.get("args"))]):
        yield replace(engine, place=place, notes=(*engine.notes, *notes))
