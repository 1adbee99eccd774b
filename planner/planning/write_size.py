"""The fleet that `planner size` finds, written as a deployment file."""

from dataclasses import replace
from pathlib import Path

from planner.catalog.catalog_files import load_gpu
from planner.catalog.mig import SEPARATOR
from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.errors import UsageError
from planner.launch.write_manifest import FILES as FIXED
from planner.launch.write_manifest import Engine, manifest
from planner.planning.size_answer import Fleet
from planner.planning.write_autoscaler import FILES as AUTOSCALED
from planner.planning.write_autoscaler import autoscaled_manifest

FILES = {**FIXED, **AUTOSCALED}
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


def fleet_manifest(kind: str, fleet: Fleet, version: str | None, autoscale: Autoscale | None = None) -> str:
    """Return a fleet as a deployment file.

    Parameters
    ----------
    version : of the engine; None for the newest.
    autoscale : the rules that keda and hpa write.

    Raises
    ------
    UsageError : the kind has no words for the engine, or for a rule.
    """
    names, apart = fleet.kind, fleet.prefill_replicas > 0
    parts = [Engine(command=fleet.command, version=version, role="prefill" if apart else "both",
                    replicas=fleet.prefill_replicas if apart else fleet.num_replicas,
                    gpu_resource=_resource(names.gpu))]
    if apart:
        parts.append(Engine(command=fleet.decode_command or fleet.command, version=version, role="decode",
                            replicas=fleet.num_replicas - fleet.prefill_replicas,
                            gpu_resource=_resource(names.decode_gpu or names.gpu)))
    if autoscale is not None and apart:
        raise UsageError(f"--write {kind}: writes replicas of one kind, and prefill and decode are apart; write k8s")
    lacking = "".join(f"# The command lacks {text}.\n" for text in fleet.command_lacks)
    if autoscale is None:
        return lacking + manifest(kind, parts)
    if autoscale.rules.maximum < fleet.num_replicas:
        lacking += (f"# The load needs {fleet.num_replicas} replicas at its peak; the autoscaler's maximum is "
                    f"{autoscale.rules.maximum}.\n")
    return lacking + autoscaled_manifest(kind, replace(parts[0], replicas=autoscale.initial), autoscale)


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
