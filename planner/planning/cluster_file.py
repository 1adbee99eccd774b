"""The file of a cluster: its GPUs, and the deployments that share them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import load_gpu, read_toml
from planner.errors import ClusterError, PlannerError, UsageError, told_as
from planner.planning.search_options import DEFAULT_ATTAINMENT, parse_ranks
from planner.planning.study import Study, parse_study, text_of
from planner.settings.default_router import routed

KEYS = ("gpus", "deployment")
OWN_KEYS = ("gpu", "tensor_parallel_size", "quantization")  # that may be lists, as of `planner size`
FORM = "[gpus] with a number for each GPU, and [deployment.NAME] with trace, slo and model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A deployment, and the kinds of replica that it may have.

    Parameters
    ----------
    study : its trace, scenario and objectives.
    gpus : names in the catalog, MIG slices among them.
    ranks : tensor-parallel sizes.
    quantizations : weight formats; None is the checkpoint's own.
    """

    study: Study
    gpus: tuple[str, ...]
    ranks: tuple[int, ...]
    quantizations: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs by name, with their number, and the deployments."""

    gpus: Mapping[str, int]
    candidates: tuple[Candidate, ...]


def read_cluster(path: Path, default_ranks: tuple[int, ...]) -> Cluster:
    """Read the file of a cluster. Files that it names are looked for beside it.

    Parameters
    ----------
    default_ranks : tensor-parallel sizes of deployments that name none.

    Raises
    ------
    ClusterError : the file cannot be read, or something in it is wrong.
    """
    with told_as(ClusterError, path):
        table = read_toml(path)
    if unknown := set(table) - set(KEYS):
        raise ClusterError(f"{path}: unknown key {min(unknown)!r}; must have {FORM}")
    try:
        gpus = _gpus(table.get("gpus"))
    except PlannerError as error:
        raise ClusterError(f"{path}: {error}") from error
    tables = table.get("deployment")
    if not isinstance(tables, dict) or not tables or not all(isinstance(each, dict) for each in tables.values()):
        raise ClusterError(f"{path}: has no [deployment.NAME]; must have {FORM}")
    candidates = []
    for name, values in tables.items():
        try:
            candidates.append(_candidate(name, values, path.parent, gpus, default_ranks))
        except PlannerError as error:
            raise ClusterError(f"{path}: deployment.{name}: {error}") from error
    return Cluster(gpus=gpus, candidates=tuple(candidates))


def whole_gpu(name: str) -> str:
    """Return the GPU that a slice belongs to, or the GPU itself.

    >>> whole_gpu("h100-sxm:1g.10gb"), whole_gpu("l40s")
    ('h100-sxm', 'l40s')
    """
    gpu = load_gpu(name)
    return gpu.slice_of or gpu.name


def _gpus(values: Any) -> dict[str, int]:
    if not isinstance(values, dict) or not values:
        raise UsageError(f"has no GPUs; must have {FORM}")
    found = {}
    for name, count in values.items():
        gpu = load_gpu(name)
        if gpu.slice_of:
            raise UsageError(f"gpus: {name} is a slice; give the number of {gpu.slice_of}, and the slice as gpu of a "
                             f"deployment")
        if type(count) is not int or count < 1:
            raise UsageError(f"gpus: {name} = {count!r}: must be a whole number of at least 1")
        found[gpu.name] = count
    return found


def _candidate(name: str, values: Mapping[str, Any], folder: Path, gpus: Mapping[str, int],
               default_ranks: tuple[int, ...]) -> Candidate:
    options = {key: value for key, value in values.items() if key not in OWN_KEYS}
    study = parse_study(name, options, folder)
    if study.objectives is None:
        raise UsageError("has no slo, as in slo = \"ttft:500 tpot:50\"")
    if study.scenario.model is None:
        raise UsageError("has no model")
    if study.scenario.is_closed_loop:
        raise UsageError("has a number of users in place of a rate; the loads of a cluster are rates")
    named = _list_of(values, "gpu") or list(gpus)
    for gpu in named:
        if whole_gpu(gpu) not in gpus:
            raise UsageError(f"gpu = {gpu}: the cluster has none; [gpus] has {', '.join(gpus)}")
    ranks = _list_of(values, "tensor_parallel_size")
    objectives = replace(study.objectives, attainment=study.objectives.attainment or DEFAULT_ATTAINMENT)
    return Candidate(study=replace(study, scenario=routed(study.scenario), objectives=objectives),
                     gpus=tuple(load_gpu(gpu).name for gpu in named),
                     ranks=tuple(parse_ranks(",".join(ranks))) if ranks else default_ranks,
                     quantizations=tuple(_list_of(values, "quantization")) or (None,))


def _list_of(values: Mapping[str, Any], key: str) -> list[str]:
    """Return the values of a key: a list, or a text with commas between; empty without the key."""
    value = values.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, list):
        return [str(each) for each in value]
    text = text_of(values, key)
    return [] if text is None else [part.strip() for part in text.split(",")]
