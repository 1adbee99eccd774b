"""The fleet that `planner size` finds, written as a deployment file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.catalog_files import load_gpu
from planner.catalog.mig import SEPARATOR
from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.errors import UsageError
from planner.launch.write_manifest import FILES as FIXED
from planner.launch.write_manifest import EngineGroup, manifest
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.planning.write_autoscaler import FILES as AUTOSCALED
from planner.planning.write_autoscaler import autoscaled_manifest
from planner.settings.statistic import parse_statistic
from planner.traces import Trace

FILES = {**FIXED, **AUTOSCALED}
# Dynamo's names of GPUs, in the definition of its request (api/v1beta1, 2026-11).
SKUS = ("gb200_sxm", "gb10", "b200_sxm", "h200_sxm", "h100_sxm", "h100_pcie", "a100_sxm", "a100_pcie", "a30", "l40s",
        "l40", "l4", "v100_sxm", "v100_pcie", "t4", "mi200", "mi300")
TARGETS = {"ttft": "ttft", "tpot": "itl", "e2el": "e2eLatency"}  # keys of its sla
RESOURCES = {"amd": "amd.com/gpu", "intel": "gpu.intel.com/xe"}


def write_target(asked: str) -> tuple[str, Path]:
    """Return the kind and the path that --write asks for: KIND, or KIND=PATH.

    >>> write_target("k8s"), write_target("compose=llm.yaml")
    (('k8s', PosixPath('deployment.yaml')), ('compose', PosixPath('llm.yaml')))

    Raises
    ------
    UsageError : there is no such kind.
    """
    kind, _, path = asked.partition("=")
    if kind not in FILES:
        raise UsageError(f"--write {asked}: must be {', '.join(FILES)}, or one with a path, as k8s=llm.yaml")
    return kind, Path(path or FILES[kind])


def fleet_manifest(kind: str, fleet: Fleet, version: str | None, autoscale: Autoscale | None = None,
                   workload: Mapping[str, float] | None = None) -> str:
    """Return a fleet as a deployment file.

    Parameters
    ----------
    version : of the engine; None for the newest.
    workload : isl and osl [tokens], and requestRate [requests/s] or concurrency [1], for a request to Dynamo.
    autoscale : the rules that keda and hpa write.

    Raises
    ------
    UsageError : the kind has no words for the engine, or for a rule.
    """
    names, apart = fleet.kind, fleet.prefill_replicas > 0
    parts = [EngineGroup(command=fleet.command, version=version, role="prefill" if apart else "both",
                         replicas=fleet.prefill_replicas if apart else fleet.num_replicas,
                         gpu_resource=_resource(names.gpu))]
    if apart:
        parts.append(EngineGroup(command=fleet.decode_command or fleet.command, version=version, role="decode",
                                 replicas=fleet.num_replicas - fleet.prefill_replicas,
                                 gpu_resource=_resource(names.decode_gpu or names.gpu)))
    if autoscale is not None and apart:
        raise UsageError(f"--write {kind}: writes replicas of one kind, and prefill and decode are apart; write k8s")
    lacking = "".join(f"# The command lacks {text}.\n" for text in fleet.command_lacks)
    if autoscale is None:
        return lacking + manifest(kind, parts, _wanted(fleet, workload or {}))
    if autoscale.rules.maximum < fleet.num_replicas:
        lacking += (f"# The load needs {fleet.num_replicas} replicas at its peak; the autoscaler's maximum is "
                    f"{autoscale.rules.maximum}.\n")
    return lacking + autoscaled_manifest(kind, replace(parts[0], replicas=autoscale.initial), autoscale)


def workload_of(trace: Trace, answer: SizeAnswer) -> dict[str, float]:
    """Return the workload of a request to Dynamo: mean lengths [tokens], and a rate [1/s] or requests at once."""
    values = {"isl": round(np.mean(trace.requests["input_tokens"].to_numpy())),
              "osl": round(np.mean(trace.requests["output_tokens"].to_numpy())),
              "requestRate": answer.request_rate, "concurrency": answer.workload.users}
    return {key: value for key, value in values.items() if value}


def _wanted(fleet: Fleet, workload: Mapping[str, float]) -> dict[str, Any]:
    """Return hardware, workload and targets of a request to Dynamo; the lowest limit of each latency is the target."""
    sku = fleet.kind.gpu.replace("-", "_")
    limits = {key: min((reached.limit_ms for reached in fleet.reached if metric in (
        reached.objective, getattr(parse_statistic(reached.objective), "metric", ""))), default=None)
        for metric, key in TARGETS.items()}
    return {"hardware": {**({"gpuSku": sku} if sku in SKUS else {}), "totalGpus": fleet.num_gpus},
            "workload": dict(workload), "sla": {key: limit for key, limit in limits.items() if limit is not None}}


def autoscale_of(kind: str | None, path: str | None) -> Autoscale | None:
    """Return the rules that a kind of file writes; None if it writes none.

    Raises
    ------
    UsageError, AutoscaleError : the kind needs rules and there are none, or the file is wrong.
    """
    if kind not in AUTOSCALED:
        return None
    if path is None:
        raise UsageError(f"--write {kind}: needs the rules of an autoscaler; give --autoscale, as rate.toml")
    return read_autoscale(Path(path))


def _resource(gpu: str) -> str:
    profile = load_gpu(gpu)
    if profile.slice_of:  # as NVIDIA's device plugin names them by its strategy "mixed"
        return f"nvidia.com/mig-{profile.name.rpartition(SEPARATOR)[2]}"
    return RESOURCES.get(profile.vendor.lower(), "nvidia.com/gpu")
