"""Ray Serve LLM: applications with their llm_configs, alone, in a file of their own, or in a RayService."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.launch.described import Described
from planner.launch.manifests.document_values import count_of, environment_of, flags_of, scaled
from planner.launch.named_gpus import named_gpu

PARTS = (("llm_config", "both"), ("prefill_config", "prefill"), ("decode_config", "decode"))


def is_ray(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has configs of Ray Serve LLM, or names files of them."""
    return any(True for _ in _configs(document)) or any(
        isinstance(config, str) for part in _parts(document) for config in part.get("llm_configs") or ())


def of_ray(document: Mapping[str, Any], folder: Path | None = None) -> Iterator[Described]:
    """Yield the engines of Ray Serve LLM, which are vLLM's.

    Parameters
    ----------
    folder : of the files that a document names; None reads none.
    """
    named = [config for part in _parts(document) for config in part.get("llm_configs") or () if isinstance(config, str)]
    for path in [] if folder is None else [folder / name for name in named]:
        if path.is_file() and isinstance(config := yaml.safe_load(path.read_text(encoding="utf-8")), Mapping):
            yield from of_ray(config)
    for config, role in _configs(document):
        loading, deployment = config["model_loading_config"], config.get("deployment_config") or {}
        source = loading.get("model_source")
        model = source if isinstance(source, str) else loading.get("model_id")
        bounds = deployment.get("autoscaling_config")
        bounds = bounds if isinstance(bounds, Mapping) else {}
        replicas = count_of(deployment.get("num_replicas"), count_of(bounds.get("min_replicas")))
        replicas, notes = scaled(bounds.get("min_replicas", 1), bounds.get("max_replicas"), replicas)
        yield Described(words=["vllm", "serve", str(model), *flags_of(config.get("engine_kwargs") or {})],
                        place=f"llm_config {loading.get('model_id', '')}".strip(), role=role,
                        variables=environment_of((config.get("runtime_env") or {}).get("env_vars")),
                        replicas=replicas, notes=notes,
                        gpu_names=(named_gpu(str(kind)),) if (kind := config.get("accelerator_type")) else ())


def _configs(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the configs in a document, each with its role."""
    if document.get("kind") == "RayService":
        served = (document.get("spec") or {}).get("serveConfigV2")
        found = yaml.safe_load(served) if isinstance(served, str) else None
        yield from _configs(found) if isinstance(found, Mapping) else ()
        return
    if isinstance(document.get("model_loading_config"), Mapping):
        yield document, "both"
    for part in _parts(document):
        for config in part.get("llm_configs") or ():
            if isinstance(config, Mapping) and isinstance(config.get("model_loading_config"), Mapping):
                yield config, "both"
        for key, role in PARTS:
            if isinstance(config := part.get(key), Mapping) and isinstance(
                    config.get("model_loading_config"), Mapping):
                yield config, role


def _parts(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a document and the arguments of its applications."""
    applications = document.get("applications")
    named = [each.get("args") for each in applications if isinstance(each, Mapping)] if isinstance(
        applications, list) else []
    return [document, *(each for each in named if isinstance(each, Mapping))]
